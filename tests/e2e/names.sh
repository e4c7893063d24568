#!/bin/bash
# Names and IPv6, in namespaces of their own: daemons that listen on addresses of version 6, joined by a name that stands
# for an address which leads nowhere and one that answers; both versions at once; and a daemon that has version 4 only.
HM_LINK=${HM_LINK:-delay=2ms}
. "$(dirname "$0")/lib.sh"
[ "$(id -u)" = 0 ] || skip "needs root"
ip6() { local a; IFS=. read -r -a a < <(host "$1"); printf 'fd77::%x:%x' $((a[0] * 256 + a[1])) $((a[2] * 256 + a[3])); }
# What NAME's machine has in /etc/hosts.
hosts() { cat >"$work/$1.hosts"; }
daemon_spawn() {
	local name=$1
	shift
	[ -d "$work/$name" ] || mkdir -m 700 "$work/$name"
	[ -e "$work/$name.hosts" ] || : >"$work/$name.hosts"
	link_enter "$name"
	nsenter --net="${link_ns[$name]}" unshare --mount sh -c 'mount --bind "$0" /etc/hosts && exec "$@"' "$work/$name.hosts" \
		"$HIVEMINDD" --config /dev/null --state-dir "$work/$name" --swarm-key-file "$(own_key)" "$@" >>"$work/$name.log" 2>&1 </dev/null &
	daemon_pid[$name]=$!
}
known() { [ "$(json "$1" dht.nodes status)" = "$2" ]; }

link_enter a
nsenter --net="${link_ns[a]}" cat /proc/net/if_inet6 2>/dev/null | grep -q link0 || skip "this kernel has no IPv6"
daemon_start a --listen "[$(ip6 a)]:4237"
case $(json a network.address status) in "[$(ip6 a)]:4237") ;; *) fail "$(hive a status)" ;; esac

# By a name of which the first address is nobody's; version 6 to version 6.
hosts b <<HOSTS
fd77::dead:1 seed.example
$(ip6 a) seed.example
10.77.200.200 seed.example
HOSTS
begun=$(now_ms)
daemon_start b --listen "[$(ip6 b)]:4237" --join seed.example:4237
wait_for 15 json_is joined b join.0.state status
say "joined by name after $(($(now_ms) - begun)) ms"
for n in a b; do wait_for 15 known $n 1; done
hive a dht put colour '"green"' >/dev/null || fail "dht put was refused"
expect green hive b dht get colour --latest
expect "dialled at [$(ip6 b)]:4237 by" hive b net check

# Both versions: whoever has only the other one gets in by the name.
daemon_start c --listen "$(host c):4237 [$(ip6 c)]:4237" --advertise "$(ip6 c)" --join "[$(ip6 a)]:4237"
wait_for 15 json_is joined c join.0.state status
hosts d <<HOSTS
$(ip6 c) both.example
$(host c) both.example
HOSTS
link_enter d
nsenter --net="${link_ns[d]}" sh -c 'echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6' || skip "IPv6 cannot be switched off"
daemon_start d --listen "$(host d):4237" --join both.example:4237
wait_for 15 json_is joined d join.0.state status
expect green hive d dht get colour --latest
hive d dht put taste '"sour"' >/dev/null || fail "put through the one with version 4"
expect sour hive c dht get taste --latest

# Nobody answers yet at any address of a name: it is looked up again, and joined when somebody does.
hosts e <<HOSTS
$(ip6 f) late.example
$(host f) late.example
HOSTS
daemon_start e --listen "$(host e):4237" --join late.example:4237
wait_for 10 json_is unresolved e join.0.state status
expect "none of its 2 addresses answers" hive e net check
daemon_start f --listen "$(host f):4237"
wait_for 30 json_is joined e join.0.state status

# A machine that has version 6 only, and listens on every address.
link_enter g
nsenter --net="${link_ns[g]}" ip -4 address flush dev link0
daemon_start g --listen "[::]:4237" --join "[$(ip6 a)]:4237"
case $(json g network.address status) in "[$(ip6 g)]:4237") ;; *) fail "$(hive g status)" ;; esac
wait_for 15 json_is joined g join.0.state status
expect green hive g dht get colour --latest

# The name that it came in by is given to another machine, and the first is gone: it is looked up again.
hosts h <<HOSTS
$(host f) moving.example
HOSTS
daemon_start h --listen "$(host h):4237" --join moving.example:4237
wait_for 15 json_is joined h join.0.state status
daemon_start i --listen "$(host i):4237"
hosts h <<HOSTS
$(host i) moving.example
HOSTS
for n in e f; do daemon_stop $n; done
told() { hive h query "select text from events where kind = 'join.moved'" | grep -q "leads to another address now"; }
wait_for 60 told
wait_for 20 json_is "$(json i id status)" h join.0.peer status
for n in i h g d c b a; do daemon_stop $n; done
say done
