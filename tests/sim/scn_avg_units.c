/* Rounds of units, whose members hold parts of the vector: the mean that each holder gets is that of its elements over
 * exactly the samples that the commit counts, of units that were there with all their members; whoever is killed or
 * stopped at whatever step takes its unit out of the round, and nobody else. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "avg_world.h"
#include "check.h"

#define LEN 960

/* Units of so many members each, in order of the nodes, cut at random; the nodes behind them hold nothing. */
static void cut(struct sim *s, struct whold *h, int unit, int first, int stages)
{
	bool redundant = sim_seed(s) / 2 % 2;
	uint64_t at = 0;
	for (int k = 0; k < stages; k++) {
		uint64_t left = (uint64_t)(stages - 1 - k), most = LEN - at - left;
		uint64_t n = left ? 1 + rng_below(sim_rng(s), 2 * most / (left + 1)) : most;
		n = n < most ? n : most;
		h[first + k] = (struct whold){ unit, at, at + n, at, at + n };
		at += n;
	}
	if (!redundant)
		return;
	for (int k = 0; k < stages; k++) {      /* its neighbour's, too: the next one's, or of the last the one before */
		struct whold *x = &h[first + k];
		x->keep_hi = k + 1 < stages ? h[first + k + 1].hi : x->hi;
		x->keep_lo = k && k + 1 == stages ? h[first + k - 1].lo : x->lo;
	}
}

static struct world *begin(struct sim *s, const int *stages, int units, int spare, uint64_t max_epoch)
{
	struct world *w = world_new(s, LEN, (uint64_t)units * 32, 16, 10 * MSEC);
	struct whold h[WORLD_MAX];
	int n = 0;
	for (int u = 0; u < units; u++) {
		cut(s, h, u, n, stages[u]);
		n += stages[u];
	}
	for (int k = 0; k < spare; k++)
		h[n++] = (struct whold){ .unit = -1 };
	for (int i = 0; i < n; i++)
		w->aux[i] = h[i].unit < 0 || h[i].lo;
	w->start_us = 3 * SEC;
	w->max_epoch = max_epoch;
	world_add(w, n);
	world_units(w, h, n);
	world_settle(w, 20 * SEC);
	world_run_to(w, 3, 20 * SEC);
	return w;
}

/* Everybody holds bits of one vector. */
static void same(struct world *w)
{
	float v[LEN];
	bool known[LEN] = { false };
	for (int i = 0; i < sim_nodes(w->s); i++) {
		struct apeer *p = sim_alive(w->s, i) ? world_peer(w, i) : NULL;
		const struct whold *h = &w->hold[i];
		for (uint64_t k = p && h->unit >= 0 ? h->keep_lo : LEN; k < LEN && k < h->keep_hi; k++) {
			if (known[k] && memcmp(&v[k], &p->model[k], sizeof *v))
				sim_fail(w->s, "node %d: element %llu is %.9g, elsewhere it is %.9g", i, (unsigned long long)k,
					p->model[k], v[k]);
			v[k] = p->model[k];
			known[k] = true;
		}
	}
}

/* Bytes of contributions and means that a node has sent. */
static uint64_t sent(struct world *w, int node)
{
	struct avg_view v;
	avg_view(world_peer(w, node)->avg, &v);
	return v.bytes_out;
}

/* Nobody sends what it does not hold: of one unit nothing travels up, of two each element once; means go to whoever
 * keeps them, and to nobody else. */
static void scn_bytes(struct sim *s)
{
	int units = 1 + (int)(sim_seed(s) % 2);
	struct world *w = begin(s, (const int[]){ 3, 2 }, units, 1, 20);
	world_run_to(w, 20, 60 * SEC);
	sim_run_for(s, SEC);                    /* results of the last round may be on their way */
	uint64_t all = 0;
	for (int i = 0; i < sim_nodes(s); i++)
		all += sent(w, i);
	uint64_t want = units == 1 ? 0 : 20 * LEN * sizeof(float), keeps = 0;   /* up, then down */
	for (int i = 0; i < sim_nodes(s); i++)
		keeps += w->hold[i].keep_hi - w->hold[i].keep_lo;
	want += 20 * (keeps - LEN) * sizeof(float);
	if (all != want)
		sim_late(s, "%llu bytes of values were sent in 20 epochs by %d units, not %llu", (unsigned long long)all, units,
			(unsigned long long)want);
	same(w);
	world_free(w);
}

static void scn_steady(struct sim *s)
{
	struct world *w = begin(s, (const int[]){ 3, 1, 2, 4 }, 4, 1, 40);
	world_run_to(w, 40, 60 * SEC);
	same(w);
	for (int i = 0; i < sim_nodes(s); i++)
		sim_in_time(s, world_peer(w, i)->commits >= 37);
	world_free(w);
}

static const char *const points[] = { "avg.progress.before", "avg.begin.before", "avg.begin.after", "avg.ready.before",
	"avg.ready.after", "avg.data.before", "avg.data.after", "avg.attempt.before", "avg.attempt.after",
	"avg.result.before", "avg.result.after", "avg.ack.before", "avg.ack.after", "avg.commit.before",
	"avg.commit.after" };
#define POINTS (sizeof points / sizeof *points)

/* Of the units that have lost a member nobody counts from then on; the others do. */
static void units_of_dead_do_not_count(struct world *w, uint64_t after)
{
	for (int i = 0; i < sim_nodes(w->s); i++) {
		bool whole = w->hold[i].unit >= 0;
		for (int k = 0; whole && k < sim_nodes(w->s); k++)
			whole = w->hold[k].unit != w->hold[i].unit || sim_alive(w->s, k);
		struct apeer *p = sim_alive(w->s, i) ? world_peer(w, i) : NULL;
		if (!p || w->hold[i].lo || w->hold[i].unit < 0)
			continue;
		if (!whole && p->my_total > w->totals[i])
			sim_fail(w->s, "node %d, head of a unit that is not whole, has %llu samples more since epoch %llu", i,
				(unsigned long long)(p->my_total - w->totals[i]), (unsigned long long)after);
		if (whole && p->my_total <= w->totals[i])
			sim_late(w->s, "node %d, head of a unit that is whole, has no samples more since epoch %llu", i,
				(unsigned long long)after);
	}
}

static void goes_on(struct world *w, uint64_t more)
{
	uint64_t at = world_newest(w);
	world_run_to(w, at + 3, 60 * SEC);
	for (int i = 0; i < sim_nodes(w->s); i++)
		w->totals[i] = sim_alive(w->s, i) ? world_peer(w, i)->my_total : 0;
	w->max_epoch = at + 3 + more;           /* there all stop */
	world_run_to(w, at + 3 + more, 60 * SEC);
	units_of_dead_do_not_count(w, at + 3);
	same(w);
}

static void scn_killed(struct sim *s)
{
	struct world *w = begin(s, (const int[]){ 2, 3, 2 }, 3, 1, 0);
	sim_failpoint(s, -1, points[sim_seed(s) % POINTS], SIM_KILL, 1 + (int)rng_below(sim_rng(s), 12));
	goes_on(w, 8);
	world_free(w);
}

static void scn_two_killed(struct sim *s)
{
	struct world *w = begin(s, (const int[]){ 2, 1, 3, 2 }, 4, 1, 0);
	int one = (int)rng_below(sim_rng(s), 2);        /* the unit of one member stays: somebody goes on */
	sim_run_for(s, rng_below(sim_rng(s), 200 * MSEC));
	sim_kill(s, one);
	sim_run_for(s, rng_below(sim_rng(s), 60 * MSEC));
	sim_kill(s, 3 + (int)rng_below(sim_rng(s), 5));
	goes_on(w, 8);
	world_free(w);
}

static void scn_power(struct sim *s)
{
	struct world *w = begin(s, (const int[]){ 2, 3, 2 }, 3, 1, 0);
	sim_run_for(s, rng_below(sim_rng(s), 60 * MSEC));
	sim_power_off(s, (int)rng_below(sim_rng(s), 8));
	goes_on(w, 8);
	world_free(w);
}

/* A member that brings what is of other samples than its head's says another number: its unit does not count, ever. */
#define OTHER 1

static void other_values(struct world *w, int node, float *x)
{
	for (size_t k = 0; node == OTHER && k < LEN; k++)
		x[k] += 1;
}

static void other_number(struct world *w, int node, struct ranges *c, uint64_t *samples)
{
	*samples += node == OTHER;
}

static void scn_disagree(struct sim *s)
{
	struct world *w = begin(s, (const int[]){ 2, 3 }, 2, 1, 0);
	uint64_t at;
	w->twist = other_values;
	w->claims = other_number;
	sim_run_for(s, 2 * SEC);                /* rounds that had begun are over */
	at = world_peer(w, 0)->my_total;
	w->max_epoch = world_newest(w) + 8;
	world_run_to(w, w->max_epoch, 60 * SEC);
	if (world_peer(w, 0)->my_total != at)
		sim_fail(s, "a unit counts whose members say different numbers");
	same(w);
	world_free(w);
}

/* Each leader says once at a point that nobody has all. */
static void told(struct world *w, int node, const char *code, const struct id *peer)
{
	w->totals[node] += !strcmp(code, "no whole unit");
	if (w->totals[node] > 1)
		sim_fail(w->s, "node %d says again that no unit is whole", node);
	if (!strcmp(code, "unfit"))
		sim_fail(w->s, "node %d passes over a leader that cannot begin", node);
}

/* The last whole unit loses a member: no epoch is committed any more, until a new generation says who holds what. */
static void scn_none_whole(struct sim *s)
{
	struct world *w = begin(s, (const int[]){ 2, 2 }, 2, 2, 0);
	sim_kill(s, (int)rng_below(sim_rng(s), 2));
	sim_kill(s, 2 + (int)rng_below(sim_rng(s), 2));
	sim_run_for(s, 3 * SEC);
	uint64_t at = world_newest(w);
	memset(w->totals, 0, sizeof w->totals);
	w->heard = told;
	sim_run_for(s, 120 * SEC);
	w->heard = NULL;
	if (world_newest(w) != at)
		sim_fail(s, "epoch %llu was committed, and nobody held all of it", (unsigned long long)world_newest(w));
	struct whold h[6] = { { .unit = -1 }, { .unit = -1 }, { .unit = -1 }, { .unit = -1 }, { 0, 0, 500, 0, 500 },
		{ 0, 500, LEN, 300, LEN } };
	w->aux[4] = w->aux[5] = false;
	world_units(w, h, 6);
	w->max_epoch = at + 5;
	world_run_to(w, at + 5, 60 * SEC);
	same(w);
	world_free(w);
}

/* Generations that change all the time, in the middle of rounds: nothing is lost or counted twice (check.h), and it
 * goes on. */
static void scn_generations(struct sim *s)
{
	struct world *w = begin(s, (const int[]){ 2, 3 }, 2, 1, 0);
	struct whold h[WORLD_MAX];
	for (int k = 0; k < 12; k++) {
		sim_run_for(s, rng_below(sim_rng(s), 300 * MSEC));
		cut(s, h, 0, 0, 2);
		cut(s, h, 1, 2, 3);
		h[5] = (struct whold){ .unit = -1 };
		world_units(w, h, 6);
	}
	w->max_epoch = world_newest(w) + 5;
	world_run_to(w, w->max_epoch, 60 * SEC);
	world_free(w);
}

static void waits_heard(struct world *w, int node, const char *code, const struct id *peer)
{
	w->totals[node] += !strcmp(code, "minority");
}

static bool somebody_waits(struct sim *s, void *arg)
{
	const struct world *w = arg;
	for (int i = 0; i < sim_nodes(s); i++)
		if (sim_alive(s, i) && w->totals[i])
			return true;
	return false;
}

/* One unit of three is left, and waits before it commits; then whoever has the rest of it dies. There is no COMMIT of
 * what nobody holds any more, however long the one that is left may wait. */
static void scn_last_holder(struct sim *s)
{
	struct world *w = begin(s, (const int[]){ 2, 2, 2 }, 3, 0, 0);
	int led = world_leader(w), unit = w->hold[led].unit;
	const struct whold *h = &w->hold[led];
	uint64_t epoch;
	w->heard = waits_heard;
	for (int i = 0; i < sim_nodes(s); i++)
		if (w->hold[i].unit != unit)
			sim_kill(s, i);
	sim_await(s, somebody_waits, w, 30 * SEC);
	sim_kill(s, 2 * unit + (led == 2 * unit));
	epoch = world_peer(w, led)->point.epoch;
	sim_run_for(s, 20 * SEC);
	if (world_peer(w, led)->point.epoch > epoch && h->keep_hi - h->keep_lo < LEN)
		sim_fail(s, "epoch %llu is committed, and nobody has what node %d does not hold",
			(unsigned long long)world_peer(w, led)->point.epoch, led);
	world_free(w);
}

/* A generation is said while the COMMIT of the one before is on its way, of a leader that dies just then: who has said
 * that it holds the mean hears how that ends, and takes part in it. */
static void scn_decided(struct sim *s)
{
	struct world *w = begin(s, (const int[]){ 2, 3, 2 }, 3, 1, 0);
	int led = world_leader(w);
	struct whold h[WORLD_MAX];
	bool behind = false;
	sim_run_for(s, rng_below(sim_rng(s), 200 * MSEC));
	uint64_t at = world_newest(w), never = sim_now(s) + SIM_NEVER_US;
	while (world_newest(w) == at && !sim_failed(s)) {
		sim_run_for(s, MSEC / 50);
		if (sim_now(s) > never)
			sim_fail(s, "no epoch after %llu for a minute", (unsigned long long)at);
	}
	sim_kill(s, led);
	memcpy(h, w->hold, sizeof h);
	world_units(w, h, 8);
	w->max_epoch = at + 5;
	world_run_to(w, at + 5, 60 * SEC);
	for (int i = 0; i < sim_nodes(s); i++) {
		const struct apeer *p = sim_alive(s, i) ? world_peer(w, i) : NULL;
		if (p && p->resyncs[AVG_MISSED])
			sim_fail(s, "node %d missed a commit that it had a part in", i);
		behind = behind || (p && p->resyncs[AVG_BEHIND]);
	}
	if (!behind)                            /* its donor has no more than its own part */
		same(w);
	world_free(w);
}

struct newer { struct world *w; uint64_t than; };

static bool is_newer(struct sim *s, void *arg)
{
	const struct newer *n = arg;
	return world_newest(n->w) > n->than;
}

/* Whoever leads takes the heads, and nobody else, for those who bring samples. */
static bool heads_count(struct sim *s, void *arg)
{
	struct world *w = arg;
	struct avg_member m[WORLD_MAX];
	int led = world_leader(w), known = 0;
	size_t n = led >= 0 ? avg_members(world_peer(w, led)->avg, m, WORLD_MAX) : 0;
	for (size_t k = 0; k < n; k++)
		for (int i = 0; i < sim_nodes(s); i++) {
			if (!id_eq(&m[k].id, &w->ids[i]))
				continue;
			known++;
			if (m[k].aux == !w->hold[i].lo)
				return false;
		}
	return known == sim_nodes(s);
}

/* All hold all, and each unit has another head in every generation. One is told when the first has a COMMIT that the
 * others still wait for: what that says of who brings samples was so before. The new heads go on. */
static void scn_heads(struct sim *s)
{
	enum { UNITS = 2, EACH = 3, N = UNITS * EACH };
	struct world *w = world_new(s, LEN, UNITS * 32, 16, 10 * MSEC);
	struct sim_link l = { .latency_us = 4 * MSEC, .jitter_us = 4 * MSEC };
	struct newer at = { w, 0 };
	struct whold h[N];
	sim_link(s, -1, -1, &l);
	w->start_us = 3 * SEC;
	world_add(w, N);
	for (uint64_t g = 0; g < 8 && !sim_failed(s); g++) {
		for (uint64_t i = 0; i < N; i++) {
			uint64_t k = (i + g) % EACH;
			h[i] = (struct whold){ (int)i / EACH, LEN * k / EACH, LEN * (k + 1) / EACH, 0, LEN };
		}
		world_units(w, h, N);
		if (g) {
			world_run_to(w, at.than + 1, 5 * SEC);
			sim_await_or(s, heads_count, w, 3 * SEC, "nobody leads who goes by the heads of now");
		} else {
			world_settle(w, 20 * SEC);
		}
		world_run_to(w, world_newest(w) + 2, 20 * SEC);
		at.than = world_newest(w);
		sim_await(s, is_newer, &at, 20 * SEC);
	}
	world_free(w);
}

int main(int argc, char **argv)
{
	static const struct scn list[] = { SCN(bytes), SCN(heads), SCN(steady), SCN_CELLS(killed, POINTS), SCN(two_killed),
		SCN(power), SCN(none_whole), SCN(disagree), SCN(generations), SCN(last_holder), SCN(decided), { 0 } };
	return scn_main(list, argc, argv);
}
