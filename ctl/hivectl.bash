# Completion for hivectl; the words come from the daemon itself.
_hivectl() {
	local cur=${COMP_WORDS[COMP_CWORD]} word skip= before=() own=()
	for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
		if [ -n "$skip" ]; then own+=("$word"); skip=; continue; fi
		case $word in
		-s|--socket) own+=("$word"); skip=1 ;;
		-*) ;;
		*) before+=("$word") ;;
		esac
	done
	COMPREPLY=($(compgen -W "$(hivectl "${own[@]}" --complete "${before[@]}" 2>/dev/null)" -- "$cur"))
	[ ${#COMPREPLY[@]} -gt 0 ] || COMPREPLY=($(compgen -f -- "$cur"))
}
complete -F _hivectl hivectl
