function __muster
	set -l words (commandline -opc) (commandline -ct)
	$words[1] --completion-bash $words[2..-1] 2>/dev/null
end
complete -c muster -a '(__muster)'
