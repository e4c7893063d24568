/* Scenarios of the wire: whatever happens to links and processes, every call ends exactly once, and every request runs
 * at most once per process. */
#include "common/map.h"
#include "net/inner.h"
#include "net_app.h"

static void scn_two(struct sim *s)
{
	struct net_world w = {0};
	struct net_app *a = net_app_add(s, &w), *b = net_app_add(s, &w);
	struct ended d[4] = { { .sim = s }, { .sim = s }, { .sim = s }, {0} };
	struct id to = *net_self(b->net);

	net_app_know(s, 0, 1);
	for (int i = 0; i < 3; i++)
		net_app_call(a, &to, 10 * i, NO_BLOB, 2000000, &d[i]);
	sim_await(s, net_app_all_ended, d, 5000000);
	for (int i = 0; i < 3; i++)
		if (!net_app_expect(s, 0, 1, &d[i], ERR_NONE, ""))
			return;
	for (int i = 0; i < 3; i++)
		sim_check(s, d[i].n == 10 * i + 1);
	sim_check(s, b->handled == 3);
	/* B has learnt where A is from HELLO alone. */
	memset(d, 0, sizeof d);
	d[0].sim = s;
	net_app_call(b, net_self(a->net), 7, NO_BLOB, 2000000, &d[0]);
	if (net_app_answers(s, 1, 0, d, 5000000, ""))
		sim_check(s, d[0].n == 8);
	sim_run_for(s, 100000);
}

/* Transfers of all sizes, with the taker there before or after the first chunk. */
static void scn_transfer(struct sim *s)
{
	static const size_t sizes[] = { 0, 1, 4096, 65536, 262144, 262145, 3 << 20 };
	struct net_world w = {0};
	struct net_app *a = net_app_add(s, &w), *b = net_app_add(s, &w);

	net_app_know(s, 0, 1);
	for (int i = 0; i < 14; i++) {
		size_t n = sizes[i / 2];
		uint8_t *data = net_app_noise(s, n), *out = xcalloc(1, n + 1);
		struct moved m[2] = { { .sim = s }, { .sim = s } };
		struct id tag = { .b = { (uint8_t)i } };
		uint64_t deadline = sim_now(s) + 5000000;

		if (i % 2)
			xfer_recv(b->chunks, net_self(a->net), &tag, out, n, deadline, net_app_moved, &m[1]);
		xfer_send(a->chunks, net_self(b->net), &tag, data, n, CLASS_weight, deadline, net_app_moved, &m[0]);
		if (i % 2 == 0) {
			sim_run_for(s, 5000);
			xfer_recv(b->chunks, net_self(a->net), &tag, out, n, deadline, net_app_moved, &m[1]);
		}
		net_app_arrives(s, m, data, out, n, 6000000, "a transfer");
		sim_check(s, m[0].times == 1 && m[1].times == 1);
		free(data);
		free(out);
	}
}


/* ---- invariants over everything on the wire ---- */

/* One (key, nonce) seals one frame: per session, sender and key the counters never repeat, and they grow within a
 * connection. Header offsets are the protocol's. */
struct nonces { struct sim *sim; struct map *last; };
static void watch_nonces(void *arg, int from, int to, enum chan chan, const uint8_t *wire, size_t len)
{
	struct nonces *v = arg;
	struct header h;
	struct { uint64_t session, from, bulk; } key = {0};
	uint64_t *last;

	if (header_read(&h, wire, len, NULL))
		return;
	key.session = h.session;
	key.from = (uint64_t)from;
	key.bulk = h.chan == CHAN_BULK;
	last = map_get(v->last, &key, sizeof key);
	if (!last) {
		last = xcalloc(1, sizeof *last);
		map_put(v->last, &key, sizeof key, last);
	}
	/* The tap sees frames in the order of their sealing. */
	if (h.counter <= *last)
		sim_fail(v->sim, "counter %llu after %llu under one key", (unsigned long long)h.counter,
		(unsigned long long)*last);
	*last = h.counter;
}

static void nonces_begin(struct nonces *v, struct sim *s)
{
	v->sim = s;
	v->last = map_new(1);
	sim_tap(s, watch_nonces, v);
}

static void nonces_end(struct nonces *v)
{
	uint64_t *x;

	sim_tap(v->sim, NULL, NULL);
	for (size_t i = 0; (x = map_next(v->last, &i, NULL, NULL));)
		free(x);
	map_free(v->last);
}

/* ---- faults ---- */

#define STORM_NODES 5
#define STORM_CALLS 300
struct storm { struct sim *s; struct ended d[STORM_CALLS + 1]; uint32_t started; bool over; struct id id[STORM_NODES];
struct net_world w; };

/* Outlives the nodes, whose calls end when sim_free stops them. */
static struct storm the_storm;
static struct ended calm[STORM_NODES * STORM_NODES + 1];

static void storm_call(struct sim *s, void *arg)
{
	struct storm *st = arg;
	struct rng *r = sim_rng(s);
	int a = (int)rng_below(r, STORM_NODES), b = (a + 1 + (int)rng_below(r, STORM_NODES - 1)) % STORM_NODES;
	struct net_app *x = sim_app(s, a);
	static const uint8_t zeros[65536];
	struct blob blob = { .data = zeros, .len = rng_below(r, 3) ? 0 : rng_below(r, sizeof zeros) };

	st->d[st->started].sim = s;
	if (x)
		net_app_call(x, &st->id[b], st->started, blob, 200000 + rng_below(r, 8000000), &st->d[st->started]);
	else
		st->d[st->started].times = 1;   /* the caller is dead itself */
	st->started++;
}

static bool storm_over(struct sim *s, void *arg)
{
	struct storm *st = arg;

	if (st->started < STORM_CALLS)
		return false;
	for (int i = 0; i < STORM_CALLS; i++)
		if (!st->d[i].times)
			return false;
	return true;
}

static int storm_once(struct sim *s, void *arg, struct err *e)
{
	struct storm *st = arg;

	for (uint32_t i = 0; i < st->started; i++)
		if (st->d[i].times > 1)
			return err_set(e, ERR_STATE, "call %u has ended %u times", i, st->d[i].times);
	for (int i = 0; i < STORM_NODES; i++) {
		struct net_app *x = sim_app(s, i);

		if (x && x->twice && !st->over)
			return err_set(e, ERR_STATE, "node %d has run a request twice", i);
	}
	return 0;
}

static void storm_begin(struct storm *st, struct sim *s)
{
	memset(st, 0, sizeof *st);
	st->s = s;
	for (int i = 0; i < STORM_NODES; i++) {
		struct net_app *x = net_app_add(s, &st->w);

		st->id[i] = *net_self(x->net);
	}
	for (int i = 0; i < STORM_NODES; i++)
		for (int k = 0; k < STORM_NODES; k++)
			if (i != k)
				net_app_know(s, i, k);
	for (int i = 0; i < STORM_CALLS; i++)
		sim_at(s, sim_now(s) + rng_below(sim_rng(s), 6000000), storm_call, st);
	sim_after_event(s, storm_once, st);
}

/* When the faults are over, everybody reaches everybody. Returns the first failure, until it is called again. */
static const struct ended *calm_once(struct storm *st)
{
	struct sim *s = st->s;
	struct ended *d = calm;
	int n = 0;

	st->over = true;                        /* what follows uses the same numbers again */
	memset(calm, 0, sizeof calm);
	sim_link(s, -1, -1, &(struct sim_link){ .latency_us = 1000, .jitter_us = 200 });
	sim_heal(s);
	for (int i = 0; i < STORM_NODES; i++)
		for (int k = 0; k < STORM_NODES; k++)
			if (i != k && sim_alive(s, i) && sim_alive(s, k)) {
				d[n].sim = s;
				net_app_know(s, i, k);
				net_app_call(sim_app(s, i), &st->id[k], 1, NO_BLOB, 30000000, &d[n++]);
			}
	sim_await(s, net_app_all_ended, d, 40000000);
	for (int i = 0; i < n; i++)
		if (!d[i].ok)
			return &d[i];
	return NULL;
}

static void storm_calm(struct storm *st)
{
	const struct ended *why = calm_once(st);
	struct ended first;

	if (!why)
		return;
	first = *why;
	if (!net_app_in_vain(first.code) || calm_once(st))
		sim_fail(st->s, "after the storm: %s", first.text);
	else
		sim_late(st->s, "after the storm: %s", first.text);
}

static void scn_breaks(struct sim *s)
{
	struct storm *st = &the_storm;
	struct nonces v;
	unsigned ok = 0;

	nonces_begin(&v, s);
	sim_link(s, -1, -1, &(struct sim_link){ .latency_us = 3000, .jitter_us = 2000, .break_every = 25 });
	storm_begin(st, s);
	sim_await(s, storm_over, st, 30000000);
	storm_calm(st);
	for (int i = 0; i < STORM_CALLS; i++)
		ok += st->d[i].ok;
	if (ok < STORM_CALLS * 9 / 10)
		sim_late(s, "only %u of %u calls were answered", ok, STORM_CALLS);
	sim_run_for(s, 1000000);
	nonces_end(&v);
}

static void part(struct sim *s, void *arg)
{
	sim_partition(s, (int[]){ 0, 0, 1, 1, 1 }, STORM_NODES);
}

static void heal(struct sim *s, void *arg)
{
	sim_heal(s);
}

static void scn_partition(struct sim *s)
{
	struct storm *st = &the_storm;
	struct nonces v;

	nonces_begin(&v, s);
	sim_link(s, -1, -1, &(struct sim_link){ .latency_us = 2000, .jitter_us = 500 });
	storm_begin(st, s);
	sim_at(s, sim_now(s) + 2000000, part, NULL);
	sim_at(s, sim_now(s) + 5000000, heal, NULL);
	sim_await(s, storm_over, st, 30000000);
	storm_calm(st);
	nonces_end(&v);
}

static void kill_one(struct sim *s, void *arg)
{
	sim_kill(s, 4);
}

static void restart_one(struct sim *s, void *arg)
{
	sim_restart(s, 4);
}

static void scn_restart(struct sim *s)
{
	struct storm *st = &the_storm;
	struct nonces v;

	nonces_begin(&v, s);
	storm_begin(st, s);
	sim_at(s, sim_now(s) + 1500000, kill_one, st);
	sim_at(s, sim_now(s) + 1800000 + rng_below(sim_rng(s), 1000000), restart_one, st);
	sim_await(s, storm_over, st, 30000000);
	storm_calm(st);
	nonces_end(&v);
}

/* A process dies, hangs, or loses what it was about to say, at each named point of the wire in turn. */
static void revive(struct sim *s, void *arg)
{
	for (int i = 0; i < STORM_NODES; i++)
		if (sim_alive(s, i))
			sim_resume(s, i);
		else
			sim_restart(s, i);
}

static void scn_points(struct sim *s)
{
	static const char *const points[] = { "net.hello1.before", "net.hello1.after", "net.hello2.before",
		"net.hello2.after",
		"net.session.before", "net.session.after", "net.answer.before", "net.answer.after" };
	static const enum sim_fate fates[] = { SIM_KILL, SIM_PAUSE, SIM_ERROR };
	struct storm *st = &the_storm;
	const struct ended *why;
	struct nonces v;

	nonces_begin(&v, s);
	for (int i = 0; i < 4; i++)
		sim_failpoint(s, -1, points[rng_below(sim_rng(s), 8)], fates[rng_below(sim_rng(s), 3)],
			1 + (int)rng_below(sim_rng(s), 40));
	storm_begin(st, s);
	for (int i = 1; i <= 10; i++)
		sim_at(s, sim_now(s) + (uint64_t)i * 1000000, revive, NULL);
	sim_await(s, storm_over, st, 40000000);
	sim_run_for(s, 10000000);
	for (int i = 1; i <= 40; i++)           /* a point may be passed for the nth time only now */
		sim_at(s, sim_now(s) + (uint64_t)i * 5000000, revive, NULL);
	for (int i = 0; (why = calm_once(st)) && i < 6; i++) {
		revive(s, NULL);
		sim_run_for(s, 5000000);
	}
	if (why)
		sim_fail(s, "after the storm: %s", why->text);
	nonces_end(&v);
}

static void healed(struct sim *s, void *arg) { sim_link(s, 0, 1, arg); }

/* Returns one that was not answered, or NULL. */
static struct ended *call_some(struct sim *s, struct net_app *a, const struct id *to, unsigned calls, uint64_t apart_us)
{
	static struct ended d[9];

	memset(d, 0, sizeof d);
	for (unsigned i = 0; i < calls; i++) {
		d[i].sim = s;
		net_app_call(a, to, i, NO_BLOB, 20000000, &d[i]);
		sim_run_for(s, 1 + apart_us);
	}
	sim_await(s, net_app_all_ended, d, 21000000);
	for (unsigned i = 0; i < calls; i++)
		if (!d[i].ok)
			return &d[i];
	return NULL;
}

/* Between the two nodes of a world. */
static void answered(struct sim *s, int from, unsigned calls, uint64_t apart_us)
{
	struct net_app *a = sim_app(s, from), *b = sim_app(s, !from);
	const struct ended *vain = call_some(s, a, net_self(b->net), calls, apart_us);

	if (vain)
		net_app_expect(s, from, !from, vain, ERR_NONE, "");
}

/* A frame that TCP has to send again, perhaps twice, holds up all behind it: no reason to tear the connections to that
 * peer down, with the bulk that is in them. Two calls of the same moment miss their answers together. */
static void scn_stalled(struct sim *s)
{
	struct net_world w = {0};
	struct net_app *a = net_app_add(s, &w);
	struct id to = *net_self(net_app_add(s, &w)->net);
	struct sim_link far = { .latency_us = 50000 }, slow = far;

	net_app_know(s, 0, 1);
	sim_link(s, -1, -1, &far);
	for (unsigned i = 0; i < 30; i++)
		answered(s, 0, 1, 0);
	net_care(a->net, &to, 1);
	for (unsigned i = 0; i < 30 && !sim_failed(s); i++) {
		uint64_t torn = peer_find(a->net, &to)->fresh_us;

		slow.latency_us = 300000 + rng_below(sim_rng(s), 400000);
		sim_link(s, 0, 1, &slow);
		sim_at(s, sim_now(s) + 50000, healed, &far);
		answered(s, 0, 2, rng_below(sim_rng(s), 40000));
		if (peer_find(a->net, &to)->fresh_us != torn)
			sim_late(s, "held up for %llu ms: the connection was torn down",
				(unsigned long long)slow.latency_us / 1000);
		sim_check(s, !a->news[NEWS_DEAD]);
		for (unsigned k = 0; k < 8; k++)        /* the estimate comes down again */
			answered(s, 0, 1, 0);
	}
	sim_run_for(s, 100000);
}

static void woken(struct sim *s, void *arg) { sim_resume(s, 1); }

static int not_proven(struct sim *s)
{
	struct net_app *a[2] = { sim_app(s, 0), sim_app(s, 1) };
	struct peer_info p;

	for (int i = 0; i < 2; i++)
		if (!net_peer(a[i]->net, net_self(a[!i]->net), &p) || !p.proven)
			return i;
	return -1;
}

/* Somebody who could not be reached for a moment is spoken to through a door, as those that only dial out. That is for
 * the moment: soon both use the mailboxes again. */
static void scn_mailboxes_again(struct sim *s)
{
	struct net_world w = {0};
	struct net_app *a[2] = { net_app_add(s, &w), net_app_add(s, &w) };
	struct id id[2] = { *net_self(a[0]->net), *net_self(a[1]->net) };
	int who = -1;

	net_app_know(s, 0, 1);
	for (unsigned i = 0; i < 20; i++)
		answered(s, i % 2, 1, 0);
	net_care(a[0]->net, &id[1], 1);
	net_care(a[1]->net, &id[0], 1);
	for (unsigned turn = 0; turn < 4 && !sim_failed(s); turn++) {
		sim_pause(s, 1);
		sim_at(s, sim_now(s) + 1000000 + rng_below(sim_rng(s), 4000000), woken, NULL);
		call_some(s, a[0], &id[1], 3, 1000000); /* in vain, or not */
		for (unsigned i = 0; i < 100 || (i < 1300 && not_proven(s) >= 0 && !sim_failed(s)); i++) {
			if (i == 100)
				who = not_proven(s);
			answered(s, i % 2, 1, 0);
			sim_run_for(s, 50000);
		}
		if (not_proven(s) >= 0)
			sim_fail(s, "turn %u: node %d does not use the other's mailbox", turn, not_proven(s));
		else if (who >= 0)
			sim_late(s, "turn %u: node %d does not use the other's mailbox yet", turn, who);
	}
}

static const struct scn list[] = { SCN(two), SCN(transfer), SCN(breaks), SCN(partition), SCN(restart), SCN(points),
	SCN(stalled), SCN(mailboxes_again), {0} };
int main(int argc, char **argv) { return scn_main(list, argc, argv); }
