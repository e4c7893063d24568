# Sourced by programs of tests/soak that run scripts of tests/e2e one after the other.
#   scripts_run NAME...     a line for each; what a failed one said; 1 when one has failed
scripts_run() {
	local out failed=0 name begun status word
	out=$(mktemp)
	trap 'rm -f "$out"' EXIT
	for name; do
		begun=$SECONDS
		timeout 1200 bash "tests/e2e/$name.sh" >"$out" 2>&1
		status=$?
		case $status in 0) word=ok ;; 77) word=skipped ;; *) word=FAILED failed=$((failed + 1)) ;; esac
		printf '%-8s%5d s  %s\n' $word $((SECONDS - begun)) "$name"
		[ "$word" = ok ] || sed '/^--- /q; s/^/    | /' "$out" | tail -n 20
	done
	echo "$failed failed"
	[ "$failed" = 0 ]
}
