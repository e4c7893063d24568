#!/bin/bash
# hivemindd's options and configuration: what is refused, with which words and which exit status.
. "$(dirname "$0")/lib.sh"
keyless=yes
bad=42

expect "hivemindd 0." "$HIVEMINDD" --version
expect "usage: hivemindd" "$HIVEMINDD" --help
refuse $bad "unknown option" "$HIVEMINDD" --no-such-option
refuse $bad "only options are expected" "$HIVEMINDD" something

printf '[network]\nlisten = 127.0.0.1:auto\n\n[checkpoint]\nkeep = 5\n' >"$work/good.conf"
expect "good.conf: ok" "$HIVEMINDD" --check-config --config "$work/good.conf"
refuse $bad "No such file" "$HIVEMINDD" --check-config --config "$work/none.conf"

conf() { printf "$1" >"$work/bad.conf"; refuse $bad "$2" "$HIVEMINDD" --check-config --config "$work/bad.conf"; }
conf '[network]\nlisten = 127.0.0.1:auto\nlissen = x\n' 'bad.conf:3: [network] lissen: unknown key: did you mean "listen"?'
conf '[netwrok]\njoin = a:1\n' 'bad.conf:2: [netwrok] join: unknown section: did you mean "network"?'
conf '[checkpoint]\nkeep = many\n' 'bad.conf:2: [checkpoint] keep: "many" is not a whole number'
conf '[checkpoint]\nkeep = 0\n' '0 is out of range: 1 to 1000'
conf '[checkpoint]\nevery = soon\n' '"soon" is not a duration'
conf '[network]\nlisten = 0.0.0.0:4237\n' 'there is no swarm key'
conf '[network]\nadvertise = a.example, b.example:70000\n' 'bad.conf:2: [network] advertise: "b.example:70000": port "70000"'
conf '[network]\nadvertise = a.example:65534\n' 'bad.conf:2: [network] advertise: a.example:65534: a port from 1 to 65532'
conf '[network]\nadvertise = a.example:auto\n' 'a port from 1 to 65532'
conf '[network]\nadvertise = a.example b.example\nadvertise = A.example\n' 'bad.conf:3: [network] advertise: A.example is there twice'
conf '[network]\nadvertise = a, b, c, d, e, f, g, h, i\n' '[network] advertise: 9 addresses, at most 8'
conf '[compute]\ncpu = 486\n' 'bad.conf:2: [compute] cpu: '
conf '[log]\nlevel = loud\n' 'debug, info, warn or error, not loud'
conf 'keep = 1\n' 'stands before the first [section]'
conf '[checkpoint\n' 'bad.conf:1: neither [section] nor key = value'


# The example says what holds without it: as it is, and with every comment sign gone.
expect "hivemindd.conf: ok" "$HIVEMINDD" --check-config --config "$root/systemd/hivemindd.conf"
sed 's/^#\([a-z_]* =\)/\1/' "$root/systemd/hivemindd.conf" >"$work/all.conf"
expect "all.conf: ok" "$HIVEMINDD" --check-config --config "$work/all.conf"

# What is refused leaves no state folder behind.
refuse $bad "neither [section]" "$HIVEMINDD" --config "$work/bad.conf" --state-dir "$work/none"
[ ! -e "$work/none" ] || fail "a refused configuration made a state folder"

# Listening beyond loopback needs a swarm key; the message says how to make one.
daemon_spawn open --listen 0.0.0.0:auto
daemon_ends $bad open 10
logged open "--swarm-key-file swarm.key" || fail "the refusal does not say how to make a swarm key"

# A key that others can read is refused, and its text is in no log.
(umask 077; random_hex >"$work/swarm.key")
chmod 644 "$work/swarm.key"
daemon_spawn loose --listen 0.0.0.0:auto --swarm-key-file "$work/swarm.key"
daemon_ends $bad loose 10
logged loose "swarm.key" || fail "the refusal does not name the key file"
! grep -qf "$work/swarm.key" "$work/loose.log" || fail "the key is in the log"

# What is to be announced has to be known by name, and differ.
daemon_spawn lost --advertise 127.0.0.1,no-such-host.invalid
daemon_ends $bad lost 10
logged lost "--advertise: [network] advertise: no-such-host.invalid: " || fail "the refusal does not name what was not found"
daemon_spawn twins --listen 127.0.0.1:24440 --advertise 127.0.0.1,127.0.0.1:24440
daemon_ends $bad twins 10
logged twins "127.0.0.1 and 127.0.0.1:24440 are the same address" || fail "the refusal does not name the twins"

# A port in use.
daemon_start first
port=$(address first)
daemon_spawn second --listen "$port"
daemon_ends 1 second 10
logged second "${port##*:}" || fail "the refusal does not name the port"
daemon_start second                     # and what kept it from starting is an event
expect "${port##*:}" hive second query "select text from events where kind = 'start.failed'"
daemon_stop second
daemon_stop first
say done
