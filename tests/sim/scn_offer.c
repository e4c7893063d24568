/* Scenarios of transfers that are offered: what nobody takes does not stand in the way of what somebody waits for, and
 * is all there for whoever takes it after all. */
#include "net_app.h"

#define BYTES ((size_t)1 << 20)
#define OFFERS 4
#define THIN 400000                             /* bytes a second: 2.6 s for one of them */

static struct net_world w;
static struct moved m[2], offered[OFFERS];
static uint8_t data[BYTES], out[BYTES];
static size_t bulk;

static struct net_app *app(struct sim *s, int node) { return sim_app(s, node); }

static void on_wire(void *arg, int from, int to, enum chan chan, const uint8_t *wire, size_t len)
{
	bulk += len > 16384 ? len : 0;
}

static void begin(struct sim *s)
{
	static struct ended d[2];               /* the second ends them */

	memset(&w, 0, sizeof w);
	memset(m, 0, sizeof m);
	memset(offered, 0, sizeof offered);
	bulk = 0;
	for (size_t i = 0; i < OFFERS; i++)
		offered[i].sim = s;
	m[0].sim = m[1].sim = s;
	sim_costs(s)->bulk_buf = 64 * 1024;     /* what nano_pace.c lets into so thin a link */
	net_app_add(s, &w);
	net_app_add(s, &w);
	sim_link(s, -1, -1, &(struct sim_link){ .latency_us = 50000, .jitter_us = 2000, .bytes_per_s = THIN });
	net_app_know(s, 0, 1);
	d[0] = (struct ended){ .sim = s };
	net_app_call(app(s, 0), net_self(app(s, 1)->net), 1, NO_BLOB, 60000000, d);
	net_app_answers(s, 0, 1, d, 61000000, "first, ");
	for (size_t i = 0; i < BYTES; i++)
		data[i] = (uint8_t)rng_at(sim_seed(s), i);
	memset(out, 0, BYTES);
	sim_tap(s, on_wire, NULL);
}

static void offer(struct sim *s, size_t i, struct moved *end)
{
	struct id tag = { .b = { 2, (uint8_t)i } };

	xfer_offer(app(s, 0)->chunks, net_self(app(s, 1)->net), &tag, data, BYTES, CLASS_weight, sim_now(s) + 600000000,
		net_app_moved, end);
}

static void take(struct sim *s, const struct id *tag)
{
	xfer_recv(app(s, 1)->chunks, net_self(app(s, 0)->net), tag, out, BYTES, sim_now(s) + 600000000, net_app_moved,
		&m[1]);
}

/* Four megabytes that nobody wants are offered, and then comes one that is waited for: that one moves, in its own time,
 * and nothing else does. */
static void scn_untaken(struct sim *s)
{
	struct id tag = { .b = { 1 } };

	begin(s);
	for (size_t i = 0; i < OFFERS; i++)
		offer(s, i, &offered[i]);
	sim_run_for(s, rng_below(sim_rng(s), 20000000));
	sim_check(s, !bulk);
	uint64_t t = sim_now(s);
	take(s, &tag);
	xfer_send(app(s, 0)->chunks, net_self(app(s, 1)->net), &tag, data, BYTES, CLASS_weight, t + 600000000,
		net_app_moved, &m[0]);
	net_app_arrives(s, m, data, out, BYTES, 600000000, "beside four that nobody takes, a transfer");
	if (sim_now(s) - t > 4000000)           /* the wire alone takes 2.6 s, and a chunk that is sent again 0.7 */
		sim_late(s, "1 MiB took %llu ms", (unsigned long long)(sim_now(s) - t) / 1000);
	sim_check(s, bulk >= BYTES);
	sim_in_time(s, bulk < BYTES + BYTES / 4);       /* sent again, of the one that moves */
	for (size_t i = 0; i < OFFERS; i++)
		sim_check(s, !offered[i].times);
}

/* Whoever takes it does so before it is offered, soon after, or much later. */
static void scn_taken(struct sim *s)
{
	struct id tag = { .b = { 2 } };
	unsigned when = (unsigned)(sim_seed(s) % 3);

	begin(s);
	if (!when)
		take(s, &tag);
	offer(s, 0, &m[0]);
	if (when) {
		sim_run_for(s, when == 1 ? rng_below(sim_rng(s), 200000) : 30000000);
		take(s, &tag);
	}
	uint64_t t = sim_now(s);
	net_app_arrives(s, m, data, out, BYTES, 600000000, "offered, a transfer");
	if (sim_now(s) - t > 5500000)           /* it is asked whether somebody takes it every 2 s */
		sim_late(s, "1 MiB took %llu ms", (unsigned long long)(sim_now(s) - t) / 1000);
}

static const struct scn list[] = { SCN(untaken), SCN_CELLS(taken, 3), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
