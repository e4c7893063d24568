/* Limits of upload and download: bulk keeps to them within 5 %, whoever it is for; calls do not wait. */
#include "net/frame.h"
#include "net_app.h"

#define BYTES (4u << 20)
#define RATE (1u << 20)
#define OTHERS 12                       /* at most, beside node 0 */
#define CALLS 200

static struct net_world w;              /* outlives the nodes */
static int others;                      /* that something moves to or from, the bytes in equal parts */
static size_t part;
static uint8_t *data, *out[OTHERS];
static struct moved ends[2 * OTHERS];
static struct ended calls[CALLS + 1];
static unsigned ncalls;

/* Returns what has been read by then. */
static uint64_t begin(struct sim *s, int n)
{
	struct sim_stats st;
	static struct ended d[OTHERS + 2];
	others = n;
	part = 2 * BYTES / (size_t)n;
	memset(&w, 0, sizeof w);
	memset(d, 0, sizeof d);
	memset(ends, 0, sizeof ends);
	memset(calls, 0, sizeof calls);
	ncalls = 0;
	for (int i = 0; i <= others; i++)
		net_app_add(s, &w);
	for (int i = 1; i <= others; i++) {
		net_app_know(s, i, 0);
		d[i].sim = s;
		net_app_call(sim_app(s, i), net_self(((struct net_app *)sim_app(s, 0))->net), 1, NO_BLOB, 5000000, &d[i]);
	}
	sim_run_for(s, 1000000);
	sim_await(s, net_app_all_ended, d + 1, 0);
	for (int i = 1; i <= others; i++)
		net_app_expect(s, i, 0, &d[i], ERR_NONE, "before all, ");
	data = xmalloc(part);
	for (size_t i = 0; i < part; i++)
		data[i] = (uint8_t)(i * 2654435761u >> 13);
	for (int i = 0; i < others; i++)
		out[i] = xcalloc(1, part);
	sim_stats(s, &st);
	return st.bytes_read;
}

static bool all_moved(struct sim *s, void *arg)
{
	for (int i = 0; i < 2 * others; i++)
		if (!ends[i].times)
			return false;
	return true;
}

/* One call after the other between 0 and 1, in turns, as long as something moves. */
static void chatter(struct sim *s, void *arg)
{
	unsigned n = ncalls;
	if (n == CALLS || all_moved(s, NULL))
		return;
	calls[n] = (struct ended){ .sim = s, .n = sim_now(s) };
	net_app_call(sim_app(s, n % 2), net_self(((struct net_app *)sim_app(s, !(n % 2)))->net), sim_now(s), NO_BLOB,
		5000000, &calls[n]);
	ncalls++;
	sim_at(s, sim_now(s) + 40000, chatter, NULL);
}

/* Between 0 and each of the others, all of it at once; how long that took. up: from 0. */
static uint64_t move(struct sim *s, bool up)
{
	uint64_t t = sim_now(s), limit = t + 60000000;
	chatter(s, NULL);
	for (int i = 0; i < others; i++) {
		struct net_app *a = sim_app(s, up ? 0 : i + 1), *b = sim_app(s, up ? i + 1 : 0);
		struct id tag = { .b = { (uint8_t)(9 + i) } };
		net_care(a->net, net_self(b->net), 1);          /* as all do who move bulk */
		net_care(b->net, net_self(a->net), 1);
		xfer_recv(b->chunks, net_self(a->net), &tag, out[i], part, limit, net_app_moved, &ends[2 * i]);
		xfer_send(a->chunks, net_self(b->net), &tag, data, part, CLASS_weight, limit, net_app_moved, &ends[2 * i + 1]);
	}
	sim_await(s, all_moved, NULL, 61000000);
	t = sim_now(s) - t;
	for (int i = 0; i < others; i++)
		net_app_arrived(s, &ends[2 * i], data, out[i], part, "bulk");
	return t;
}

/* What was read since the first byte of all this, calls and frames that came twice too, is what the limit lets through
 * in that time, and the burst that it begins with. */
static void keeps_to(struct sim *s, uint64_t before, uint64_t us)
{
	struct sim_stats st;
	uint64_t worst = 0;
	sim_stats(s, &st);
	double bytes = (double)(st.bytes_read - before), want = (bytes - WIRE_MAX) / RATE * 1e6;
	if ((double)us < want * 0.95 || (double)us > want * 1.05)
		sim_late(s, "%.0f bytes took %llu us, the limit asks for %.0f", bytes, (unsigned long long)us, want);
	if (bytes > 2.0 * BYTES * 1.02)     /* frames that came twice, calls, headers */
		sim_late(s, "%.0f bytes were sent for %u", bytes, 2 * BYTES);
	sim_run_for(s, 1000000);
	sim_await(s, net_app_all_ended, calls, 0);
	for (unsigned i = 0; i < ncalls; i++) {
		net_app_expect(s, i % 2, !(i % 2), &calls[i], ERR_NONE, "beside bulk, ");
		/* the answer to call n has n + 1: when it was asked */
		if (calls[i].ok && calls[i].at_us - (calls[i].n - 1) > worst)
			worst = calls[i].at_us - (calls[i].n - 1);
	}
	if (ncalls < CALLS / 2 || worst > 20000)
		sim_late(s, "of %u calls the slowest took %llu us", ncalls, (unsigned long long)worst);
}

static void end(struct sim *s)
{
	free(data);
	for (int i = 0; i < others; i++)
		free(out[i]);
}

static void scn_up(struct sim *s)
{
	uint64_t before = begin(s, 2);
	sim_rates(s, 0, RATE, 0);
	keeps_to(s, before, move(s, true));
	end(s);
}

static void down(struct sim *s, int from)
{
	uint64_t before = begin(s, from);
	sim_rates(s, 0, 0, RATE);
	keeps_to(s, before, move(s, false));
	end(s);
}

/* Whoever sends waits for its turn, and sends nothing twice meanwhile. */
static void scn_down(struct sim *s) { down(s, 2); }
static void scn_down_many(struct sim *s) { down(s, OTHERS); }

static void lift(struct sim *s, void *arg)
{
	sim_rates(s, 0, 0, 0);
}

/* Both ways are limited for two seconds: what waited goes at once when they no longer are. */
static void lifted(struct sim *s, bool up)
{
	begin(s, 2);
	sim_rates(s, 0, RATE / 2, RATE / 2);
	sim_at(s, sim_now(s) + 2000000, lift, NULL);
	uint64_t us = move(s, up);
	if (us < 2000000)
		sim_fail(s, "%llu us, and the limit was lifted only after 2 s", (unsigned long long)us);
	else if (us > 2500000)
		sim_late(s, "%llu us under a limit that was lifted after 2 s", (unsigned long long)us);
	end(s);
}

static void scn_lifted_up(struct sim *s) { lifted(s, true); }
static void scn_lifted_down(struct sim *s) { lifted(s, false); }

static const struct scn list[] = { SCN(up), SCN(down), SCN(down_many), SCN(lifted_up), SCN(lifted_down), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
