/* Daemons with several addresses, IPv4 and IPv6: whoever has said HELLO knows all of them, and goes over to another
 * when the one in use has stopped to answer, for calls and for bulk, in both directions, and back. */
#include "net/inner.h"
#include "net_app.h"

#define BYTES (1u << 20)

static struct net_world w;              /* outlives the nodes */

static struct net *net_of(struct sim *s, int node) { return ((struct net_app *)sim_app(s, node))->net; }

static void begin(struct sim *s, bool first_has)
{
	memset(&w, 0, sizeof w);
	w.second[0] = first_has;
	w.second[1] = true;
	sim_link(s, -1, -1, &(struct sim_link){ .latency_us = 5000, .jitter_us = 1000 });
	net_app_add(s, &w);
	net_app_add(s, &w);
	net_app_know(s, 0, 1);
}

/* Answered within limit_us; how long it took. */
static uint64_t good(struct sim *s, int a, int b, uint64_t limit_us)
{
	static struct ended d;
	uint64_t t = sim_now(s);

	memset(&d, 0, sizeof d);
	d.sim = s;
	net_app_call(sim_app(s, a), net_self(net_of(s, b)), 1, NO_BLOB, limit_us, &d);
	while (!d.times && sim_now(s) < t + limit_us + 1000000 && !sim_failed(s))
		sim_run_for(s, 5000);
	net_app_expect(s, a, b, &d, ERR_NONE, "");
	return sim_now(s) - t;
}

static bool uses_second(struct sim *s, int a, int b)
{
	struct endpoint at = net_app_second(b);
	struct peer_info p;

	sim_check(s, net_peer(net_of(s, a), net_self(net_of(s, b)), &p));
	sim_check(s, p.nalso == 1 && !endpoint_eq(&p.at, &p.also[0]));
	return endpoint_eq(&p.at, &at);
}

/* Enough calls that mailboxes are worth while, and some bulk. */
static void bulk(struct sim *s, int a, int b)
{
	static uint8_t data[BYTES], out[BYTES];
	static struct moved m[2];
	struct net_app *x = sim_app(s, a), *y = sim_app(s, b);
	struct id tag = { .b = { (uint8_t)a, (uint8_t)(sim_now(s) >> 10), (uint8_t)(sim_now(s) >> 18) } };
	uint64_t end = sim_now(s) + 10000000;

	memset(m, 0, sizeof m);
	memset(out, 0, sizeof out);
	for (unsigned i = 0; i < BYTES; i++)
		data[i] = (uint8_t)(i * 2654435761u >> 11);
	xfer_recv(y->chunks, net_self(x->net), &tag, out, BYTES, end, net_app_moved, &m[1]);
	xfer_send(x->chunks, net_self(y->net), &tag, data, BYTES, CLASS_weight, end, net_app_moved, &m[0]);
	while ((!m[0].times || !m[1].times) && sim_now(s) < end + 1000000 && !sim_failed(s))
		sim_run_for(s, 10000);
	net_app_arrived(s, m, data, out, BYTES, a ? "bulk from 1" : "bulk from 0");
}

static void all(struct sim *s)
{
	for (int i = 0; i < 12; i++) {
		good(s, 0, 1, 5000000);
		good(s, 1, 0, 5000000);
	}
	bulk(s, 0, 1);
	bulk(s, 1, 0);
}

static bool both_use(struct sim *s, bool second)
{
	return uses_second(s, 0, 1) == second && uses_second(s, 1, 0) == second;
}

/* Both know both addresses of the other; the first fails in silence; then the second, when the first is back. */
static void scn_over(struct sim *s)
{
	begin(s, true);
	all(s);
	for (int turn = 0; turn < 3; turn++) {
		for (int i = 0; i < 2; i++) {
			struct endpoint first = *sim_endpoint(s, i), second = net_app_second(i);

			sim_in_time(s, uses_second(s, i, !i) == (turn % 2 == 1));
			sim_address(s, i, turn % 2 ? &first : &second, true);
			sim_address(s, i, turn % 2 ? &second : &first, false);
		}
		good(s, 0, 1, 5000000);
		good(s, 1, 0, 5000000);
		all(s);
		if (!both_use(s, turn % 2 == 0))
			sim_late(s, "turn %d: %d %d", turn, uses_second(s, 0, 1), uses_second(s, 1, 0));
		for (int i = 0; i < 120 && !both_use(s, turn % 2 == 0) && !sim_failed(s); i++) {
			good(s, i & 1, !(i & 1), 5000000);
			sim_run_for(s, 500000);
		}
		if (!both_use(s, turn % 2 == 0))
			sim_fail(s, "turn %d: %d %d for good", turn, uses_second(s, 0, 1), uses_second(s, 1, 0));
		sim_run_for(s, 5000000);
	}
}

/* Only one of them has two. */
static void scn_one(struct sim *s)
{
	struct peer_info p;

	begin(s, false);
	all(s);
	sim_check(s, net_peer(net_of(s, 1), net_self(net_of(s, 0)), &p) && !p.nalso);
	sim_address(s, 1, sim_endpoint(s, 1), false);
	good(s, 0, 1, 5000000);
	sim_in_time(s, uses_second(s, 0, 1));
	all(s);
}

/* Two addresses are no reason to hold a dead peer for a living one. */
static void scn_killed(struct sim *s)
{
	struct net_app *a;
	struct id id;
	uint64_t t;

	begin(s, true);
	all(s);
	a = sim_app(s, 0);
	id = *net_self(net_of(s, 1));
	net_care(a->net, &id, 1);
	sim_run_for(s, 1000000);
	sim_kill(s, 1);
	t = sim_now(s);
	while (!a->news[NEWS_DEAD] && sim_now(s) < t + SIM_NEVER_US && !sim_failed(s))
		sim_run_for(s, 1000);
	if (!a->news[NEWS_DEAD])
		sim_fail(s, "its death is not told");
	else if (sim_now(s) > t + 150000)
		sim_late(s, "dead after %llu ms", (unsigned long long)(sim_now(s) - t) / 1000);
	sim_restart(s, 1);
	good(s, 0, 1, 5000000);
	all(s);
}

static bool both_proven(struct sim *s, void *arg)
{
	struct peer_info p;

	for (int i = 0; i < 2; i++)
		if (!net_peer(net_of(s, i), net_self(net_of(s, !i)), &p) || !p.proven ||
		    !endpoint_eq(&p.at, sim_endpoint(s, !i)))
			return false;
	return true;
}

/* What is announced first cannot be dialled (the outer address of a router that does not lead back inside), what comes
 * second can. Whoever of the two begins, and whether one or both are so: soon both use each other's mailboxes there. */
static void announced(struct sim *s, int first, bool both)
{
	struct peer_info p;
	int i = 0;

	memset(&w, 0, sizeof w);
	w.announces[1] = true;
	w.announces[0] = both;
	sim_link(s, -1, -1, &(struct sim_link){ .latency_us = 5000, .jitter_us = 1000 });
	net_app_add(s, &w);
	net_app_add(s, &w);
	net_learn(net_of(s, first), net_self(net_of(s, !first)), net_endpoint(net_of(s, !first)));
	net_learn_also(net_of(s, first), net_self(net_of(s, !first)), sim_endpoint(s, !first));
	for (; i < 400 + 1200 && !both_proven(s, NULL) && !sim_failed(s); i++) {
		good(s, i & 1 ? !first : first, i & 1 ? first : !first, 5000000);
		sim_run_for(s, 50000);
	}
	if (i > 400)
		sim_late(s, "%d began: both are proven after %d calls", first, i);
	for (i = 0; i < 2 && !sim_failed(s); i++) {
		sim_check(s, net_peer(net_of(s, i), net_self(net_of(s, !i)), &p));
		if (!both_proven(s, NULL))
			sim_fail(s, "%d began: %d has %sproven that it reaches the other, at %u", first, i, p.proven ? "" : "not ",
				p.at.ip[15]);
	}
	all(s);
}

static void scn_announced(struct sim *s) { announced(s, 0, false); }
static void scn_announced_itself(struct sim *s) { announced(s, 1, false); }
static void scn_announced_both(struct sim *s) { announced(s, (int)rng_below(sim_rng(s), 2), true); }

static const struct scn list[] = { SCN(over), SCN(one), SCN(killed), SCN(announced), SCN(announced_itself),
	SCN(announced_both), {0} };
int main(int argc, char **argv) { return scn_main(list, argc, argv); }
