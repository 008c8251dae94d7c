#compdef muster
_muster() {
	local matches=(${(f)"$(${words[1]} --completion-bash "${(@)words[2,$CURRENT]}" 2>/dev/null)"})
	compadd -a matches
	if [[ $compstate[nmatches] -eq 0 && $words[$CURRENT] != -* ]]; then
		_files
	fi
}
if [[ $funcstack[1] == _muster ]]; then
	_muster "$@"
else
	compdef _muster muster
fi
