/* A peer that only dials out: bulk for it has connections of its own, so that calls do not wait behind it; two of them
 * fill a thin link, and a long one gets more; when they break, or when the peer is too old to have any, what is on its
 * way arrives all the same. */
#include "net/frame.h"
#include "net_app.h"

#define BYTES (4u << 20)

static struct net_world w;              /* outlives the nodes */
static struct ended calls[401];         /* the last ends them */
static unsigned ncalls;
static struct moved ends[2];
static uint8_t *data, *out;

/* Node 0 listens, node 1 is the client; they have a session. */
static void begin(struct sim *s, const struct sim_link *l)
{
	static struct ended d[2];

	memset(d, 0, sizeof d);
	memset(&w, 0, sizeof w);
	memset(calls, 0, sizeof calls);
	ncalls = 0;
	memset(ends, 0, sizeof ends);
	w.client[1] = true;
	sim_link(s, -1, -1, l);
	net_app_add(s, &w);
	net_app_add(s, &w);
	net_app_know(s, 1, 0);
	d->sim = s;
	net_app_call(sim_app(s, 1), net_self(((struct net_app *)sim_app(s, 0))->net), 1, NO_BLOB, 5000000, d);
	sim_run_for(s, 3000000);
	net_app_answers(s, 1, 0, d, 0, "before all, ");
	data = xmalloc(BYTES);
	out = xcalloc(1, BYTES);
	for (size_t i = 0; i < BYTES; i++)
		data[i] = (uint8_t)(i * 2654435761u >> 13);
}

static void finish(struct sim *s)
{
	net_app_arrived(s, ends, data, out, BYTES, "bulk");
	sim_run_for(s, 1000);
	free(data);
	free(out);
}

static bool moved(struct sim *s, void *arg) { return ends[0].times && ends[1].times; }

/* From `from` to the other one; how long it took. */
static uint64_t move(struct sim *s, int from, uint64_t limit_us)
{
	struct net_app *a = sim_app(s, from), *b = sim_app(s, !from);
	struct id tag = { .b = { 9 } };
	uint64_t t = sim_now(s);

	xfer_recv(b->chunks, net_self(a->net), &tag, out, BYTES, t + limit_us, net_app_moved, &ends[1]);
	xfer_send(a->chunks, net_self(b->net), &tag, data, BYTES, CLASS_weight, t + limit_us, net_app_moved, &ends[0]);
	sim_await(s, moved, NULL, limit_us + 1000000);
	return sim_now(s) - t;
}

/* One call after the other, from each side to the other, while something moves. */
static void chatter(struct sim *s, void *arg)
{
	unsigned n = ncalls;
	struct ended *d = &calls[n];

	if (n == 400 || moved(s, NULL))
		return;
	ncalls++;
	d->sim = s;
	d->n = sim_now(s);
	net_app_call(sim_app(s, n % 2), net_self(((struct net_app *)sim_app(s, !(n % 2)))->net), sim_now(s), NO_BLOB,
		20000000, d);
	sim_at(s, sim_now(s) + 60000, chatter, NULL);
}

/* The answer to call n has n + 1: when it was asked. */
static uint64_t worst_call(struct sim *s)
{
	uint64_t worst = 0;

	for (unsigned i = 0; i < 400 && calls[i].sim; i++) {
		if (!calls[i].times)            /* the last ones: the transfer is over */
			continue;
		net_app_expect(s, i % 2, !(i % 2), &calls[i], ERR_NONE, "beside bulk, ");
		if (calls[i].ok && calls[i].at_us - (calls[i].n - 1) > worst)
			worst = calls[i].at_us - (calls[i].n - 1);
	}
	return worst;
}

/* 10 Mbit/s, 50 ms each way. The simulated wire is one queue without TCP's windows, so a call may stand behind the
 * frames of two lanes, 0.42 s, but not behind what waits for them. A frame lost at a busy door costs its time-out. */
static void thin(struct sim *s, int from)
{
	struct sim_link l = { .latency_us = 50000, .jitter_us = 2000, .bytes_per_s = 1250000 };
	uint64_t us, worst;

	begin(s, &l);
	sim_costs(s)->door_drop = 0;
	chatter(s, NULL);
	us = move(s, from, 30000000);
	worst = worst_call(s);
	if (us > 4300000)                       /* the wire alone takes 3.4 s */
		sim_late(s, "4 MiB took %llu ms", (unsigned long long)us / 1000);
	if (worst > (from ? 1900000u : 750000u))        /* what a client sends is not paced in here: six frames, 1.3 s */
		sim_late(s, "a call took %llu ms", (unsigned long long)worst / 1000);
	finish(s);
}

static void scn_thin_down(struct sim *s) { thin(s, 0); }
static void scn_thin_up(struct sim *s) { thin(s, 1); }

/* 200 ms there and back: one frame at a time would be 3.3 s, and half of what it takes now is asking for lanes. */
static void scn_long(struct sim *s)
{
	struct sim_link l = { .latency_us = 100000, .jitter_us = 1000, .bytes_per_s = 50000000 };
	uint64_t us;

	begin(s, &l);
	sim_costs(s)->door_drop = 0;
	us = move(s, 0, 30000000);
	if (us > 2600000)
		sim_late(s, "4 MiB took %llu ms", (unsigned long long)us / 1000);
	finish(s);
}

/* Connections break all the time, and doors drop. */
static void scn_breaks(struct sim *s)
{
	struct sim_link l = { .latency_us = 5000, .jitter_us = 2000, .bytes_per_s = 20000000, .break_every = 60 };

	begin(s, &l);
	sim_costs(s)->door_drop = 50;
	chatter(s, NULL);
	move(s, 0, 200000000);
	finish(s);
}

/* The one that listens dies in the middle and comes back: it asks for lanes anew. (No drops: one near the end costs its
 * time-out of 2.5 s, as in scn_breaks.) */
static void restart(struct sim *s, void *arg) { sim_restart(s, 0); }
static void scn_restart(struct sim *s)
{
	struct sim_link l = { .latency_us = 20000, .jitter_us = 2000, .bytes_per_s = 1250000 };

	begin(s, &l);
	sim_costs(s)->door_drop = 0;
	sim_at(s, sim_now(s) + 1000000, restart, NULL);
	move(s, 0, 30000000);
	sim_check(s, !ends[0].ok && !ends[1].ok);
	memset(ends, 0, sizeof ends);
	for (int i = 0; i < 3 && !calls[0].ok; i++) {   /* one may be told that the other has restarted */
		net_app_call(sim_app(s, 1), net_self(((struct net_app *)sim_app(s, 0))->net), 1, NO_BLOB, 2000000, &calls[0]);
		sim_run_for(s, 2100000);
	}
	net_app_expect(s, 1, 0, &calls[0], ERR_NONE, "after a restart, ");
	sim_in_time(s, move(s, 0, 30000000) < 5000000);
	finish(s);
}

/* The client tears down all that it has dialled, as after misses, and dials again for a call. Nothing tells the one
 * that listens that its lanes were among that: it must not push bulk into them, which would cost the time-out of bulk.
 */
static void scn_torn(struct sim *s)
{
	struct sim_link l = { .latency_us = 5000, .jitter_us = 2000, .bytes_per_s = 20000000 };
	struct env *e;
	uint64_t first, us;

	begin(s, &l);
	sim_costs(s)->door_drop = 0;
	first = move(s, 0, 30000000);
	net_app_arrived(s, ends, data, out, BYTES, "at first, bulk");
	sim_run_for(s, 100000 + rng_below(sim_rng(s), 5000000));
	e = sim_env(s, 1);
	e->ops->close_link(e, sim_endpoint(s, 0), false);
	calls[0].sim = s;
	net_app_call(sim_app(s, 1), net_self(((struct net_app *)sim_app(s, 0))->net), 1, NO_BLOB, 2000000, &calls[0]);
	sim_run_for(s, 100000 + rng_below(sim_rng(s), 500000));
	net_app_answers(s, 1, 0, calls, 0, "after it was torn, ");
	memset(ends, 0, sizeof ends);
	memset(out, 0, BYTES);
	us = move(s, 0, 30000000);
	if (us > first + 100000)
		sim_late(s, "4 MiB took %llu ms, %llu before", (unsigned long long)us / 1000, (unsigned long long)first / 1000);
	finish(s);
}

static void nothing(void *arg, const struct frame *f, const struct err *e) { }

/* A call for the client is over before its frame has been written: the frame comes back, and that says nothing about
 * the connection. The next call goes at once; the client has no reason to say anything by itself. */
static void scn_cancelled(struct sim *s)
{
	struct sim_link l = { .latency_us = 5000, .jitter_us = 2000, .bytes_per_s = 20000000 };
	struct net *n;
	const struct id *client;

	begin(s, &l);
	sim_costs(s)->door_drop = 0;
	n = ((struct net_app *)sim_app(s, 0))->net;
	client = net_self(((struct net_app *)sim_app(s, 1))->net);
	net_cancel(n, net_call(n, client, KIND_DHT_FIND, json_object(), NO_BLOB, CLASS_control, 2000000, nothing, NULL));
	sim_run_for(s, 1000 + rng_below(sim_rng(s), 1000000));
	net_app_call(sim_app(s, 0), client, 1, NO_BLOB, 200000, &calls[0]);
	sim_run_for(s, 300000);
	net_app_expect(s, 0, 1, &calls[0], ERR_NONE, "after one that was given up, ");
	free(data);
	free(out);
}

/* A client that knows nothing of lanes leaves their frames unanswered: bulk goes through the one door as before. */
static bool deaf(const uint8_t *wire, size_t len)
{
	struct header h;

	return !header_read(&h, wire, len, NULL) && h.pre.kind == KIND_PING && (h.pre.flags & FLAG_LANE);
}

static struct { void (*recv)(void *arg, struct via via, uint8_t *msg, size_t len); void *arg;
	unsigned dropped; } old;
static void old_recv(void *arg, struct via via, uint8_t *msg, size_t len)
{
	if (deaf(msg, len))
		old.dropped++;
	else
		old.recv(old.arg, via, msg, len);
}

static void scn_old(struct sim *s)
{
	struct sim_link l = { .latency_us = 5000, .jitter_us = 2000, .bytes_per_s = 20000000 };
	struct env *e;

	begin(s, &l);
	sim_costs(s)->door_drop = 0;            /* or a question could be lost before it is dropped here */
	e = sim_env(s, 1);
	old.recv = e->recv;
	old.arg = e->recv_arg;
	old.dropped = 0;
	e->recv = old_recv;
	move(s, 0, 60000000);
	sim_in_time(s, old.dropped == 3);
	finish(s);
	e->recv = old.recv;
}

static const struct scn list[] = { SCN(thin_down), SCN(thin_up), SCN(long), SCN(breaks), SCN(restart),
	SCN(torn), SCN(cancelled), SCN(old), {0} };
int main(int argc, char **argv) { return scn_main(list, argc, argv); }
