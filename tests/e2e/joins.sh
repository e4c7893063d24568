#!/bin/bash
# What a daemon does and says of the addresses that it was told to join: nobody answers, nobody knows the name, its own; each has
# a state of its own, and an outage is one event.
. "$(dirname "$0")/lib.sh"

# One that finds nobody says so, goes on trying, and is in as soon as somebody is there.
daemon_start e --join 127.0.0.1:9 --listen "$(host e):24300"
daemon_start g --listen "$(host g):24303" --join "$(host h):24306" --join "$(host h):24309" \
	--join "$(host g):24303" --join no.such.host.invalid:4237
wait_for 4 json_is unreachable e join.0.state status            # not when the first dial is over, after 5 s
case $(json e join.0.error status) in *"127.0.0.1:9 refuses connections"*) ;; *) fail "$(hive e status)" ;; esac
retried() { [ -n "$(json e join.0.next_s status 2>/dev/null)" ]; }
wait_for 20 retried
wait_for 20 json_is unreachable g join.0.state status
daemon_start h --listen "$(host h):24306"
wait_for 30 json_is joined g join.0.state status
# Each address tells its own state: one that is joined says nothing about the others; and its death shows.
[ "$(json g join.0.peer status)" = "$(json h id status)" ] || fail "g does not say whom it joined"
[ "$(json g join.1.state status)" = unreachable ] || fail "an address that nobody answers: $(hive g status)"
[ "$(json g join.2.state status)" = "this peer" ] || fail "its own address: $(hive g status)"
[ "$(json g join.3.state status)" = unresolved ] || fail "a name that nobody knows: $(hive g status)"
happened() { [ "$(json g rows.0.0 query "select count(*) from events where kind = '$1' and text like '%$2%'")" = "$3" ]; }
daemon_kill h
wait_for 30 json_is unreachable g join.0.state status
wait_for 30 happened join.unreachable "$(host h):24306" 2
daemon_start h --listen "$(host h):24306"
wait_for 30 json_is joined g join.0.state status
happened join.joined "$(host h):24306" 2 || fail "joined twice: $(hive g events)"
happened join.unreachable "$(host h):24306" 2 || fail "unreachable twice: $(hive g events)"
happened join.unreachable "$(host h):24309" 1 || fail "an outage is one event: $(hive g events)"
happened join.unresolved no.such.host.invalid 1 || fail "no event for a name that nobody knows: $(hive g events)"
for n in e g h; do daemon_stop $n; done
say done
