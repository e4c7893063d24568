#!/bin/bash
# What `ninja install` puts where: every file, its mode, that the unit starts the daemon that was installed, and what systemd's
# own tools say of the unit, the user and the folders.
. "$(dirname "$0")/lib.sh"
build=$(cd "$(dirname "$HIVEMINDD")/.." && pwd)
[ -f "$build/build.ninja" ] || skip "the installation is not looked at: $build is no build folder"
meson introspect --buildoptions "$build" >"$work/options" || fail "meson introspect"
option() { python3 -c 'import json, sys; print([o["value"] for o in json.load(open(sys.argv[1])) if o["name"] == sys.argv[2]][0])' "$work/options" "$1"; }
prefix=$(option prefix)
there() {               # MODE PATH
	[ -f "$work/to$2" ] || fail "$2 is not installed"
	[ "$(stat -c %a "$work/to$2")" = "$1" ] || fail "$2 has mode $(stat -c %a "$work/to$2"), not $1"
}

# Only what this needs is built again, in case the build folder is a part of it.
DESTDIR=$work/to meson install -C "$build" --no-rebuild --quiet >"$work/install.log" 2>&1 || { cat "$work/install.log"; fail "meson install"; }
there 755 "$prefix/$(option sbindir)/hivemindd"
there 755 "$prefix/$(option bindir)/hivectl"
for page in man8/hivemindd.8 man1/hivectl.1 man5/hivemindd.conf.5 man5/hivemind-spec.5 man7/hivemind-protocol.7; do
	[ -f "$work/to$prefix/$(option mandir)/$page" ] || there 644 "$prefix/$(option mandir)/$page.gz"
done
there 644 "$prefix/$(option datadir)/bash-completion/completions/hivectl"
unit=$(cd "$work/to" && find . -name hivemindd.service | sed 's/^\.//')
case $unit in /lib/systemd/system/*|/usr/lib/systemd/system/*) ;; *) fail "the unit is at '$unit'" ;; esac
there 644 "$unit"
there 644 /usr/lib/sysusers.d/hivemindd.conf
there 644 /usr/lib/tmpfiles.d/hivemindd.conf
there 644 /usr/lib/sysctl.d/50-hivemindd.conf
there 640 /etc/hivemindd/hivemindd.conf
extra=$(cd "$work/to" && find . -type f | grep -Ev '/(hivemindd|hivectl|hivemindd\.(8|conf\.5)(\.gz)?|hivectl\.1(\.gz)?|hivemind-spec\.5(\.gz)?|hivemind-protocol\.7(\.gz)?|hivemindd\.(service|conf)|50-hivemindd\.conf|hivemind/models/[a-z0-9_]*\.json)$')
[ -z "$extra" ] || fail "also installed: $extra"
bash -n "$work/to$prefix/$(option datadir)/bash-completion/completions/hivectl" || fail "the completion is no shell script"
"$work/to$prefix/$(option sbindir)/hivemindd" --version >/dev/null || fail "the installed daemon does not run"
"$work/to$prefix/$(option sbindir)/hivemindd" --check-config --config "$work/to/etc/hivemindd/hivemindd.conf" >/dev/null ||
	fail "the example configuration is refused"
grep -q "^ExecStart=$prefix/$(option sbindir)/hivemindd$" "$work/to$unit" || fail "the unit starts another program: $(grep ExecStart= "$work/to$unit")"
! grep -q '@' <(grep -v '^SystemCall' "$work/to$unit") || fail "the unit has places that were not filled in"

# The user, the groups, the folder.
if command -v systemd-sysusers >/dev/null; then
	mkdir -p "$work/to/etc"
	systemd-sysusers --root="$work/to" >"$work/sysusers.log" 2>&1 || { cat "$work/sysusers.log"; fail "systemd-sysusers"; }
	grep -q '^hivemind:' "$work/to/etc/passwd" || fail "no user hivemind"
	grep -q '^hivemind-view:' "$work/to/etc/group" || fail "no group hivemind-view"
else
	untried "systemd-sysusers is not here"
fi
if command -v systemd-tmpfiles >/dev/null && [ "$(id -u)" = 0 ] && [ -f "$work/to/etc/passwd" ]; then
	systemd-tmpfiles --root="$work/to" --create hivemindd.conf >"$work/tmpfiles.log" 2>&1 || { cat "$work/tmpfiles.log"; fail "systemd-tmpfiles"; }
	there 640 /etc/hivemindd/hivemindd.conf
	[ "$(stat -c %a "$work/to/etc/hivemindd")" = 750 ] || fail "/etc/hivemindd has mode $(stat -c %a "$work/to/etc/hivemindd")"
	# a group of the same number as in there
	gid=$(sed -n 's/^hivemind:[^:]*:\([0-9]*\):.*/\1/p' "$work/to/etc/group")
	[ "$(stat -c %g "$work/to/etc/hivemindd/hivemindd.conf")" = "$gid" ] || fail "the daemon may not read its configuration"
else
	untried "systemd-tmpfiles is not here, or this is not root"
fi
if command -v systemd-analyze >/dev/null; then
	out=$(systemd-analyze security --offline=true --no-pager "$work/to$unit" 2>&1)
	score=$(sed -n 's/.*exposure level[^:]*: *\([0-9.]*\).*/\1/p' <<<"$out")
	[ -n "$score" ] || fail "systemd-analyze security: $out"
	[ "${score%.*}" -lt 2 ] || fail "systemd-analyze security says $score, at most 1.9"
	say "systemd-analyze security: $score"
else
	untried "systemd-analyze is not here"
fi
say done
