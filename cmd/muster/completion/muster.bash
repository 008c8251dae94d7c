_muster() {
	COMPREPLY=($(compgen -W \
		"$("${COMP_WORDS[0]}" --completion-bash "${COMP_WORDS[@]:1:$COMP_CWORD}" 2>/dev/null)" \
		-- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _muster muster
