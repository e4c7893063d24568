/* Crews: who is in a generation, and agreement on its plans, while members die at every step, come, are slow, are cut
 * off, or find other plans. What must always hold stands in crew_world.c; here is what must come of it, and when. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "crew_world.h"

#define SETTLE (10 * SEC)

/* ---- without harm ---- */

static bool commits(struct sim *s, void *arg)
{
	struct cworld *w = arg;
	(void)s;
	return w->commits >= 5;
}

/* They come one after the other; from the first that can hold the model on there is a generation, and COMMITs. */
static void scn_start(struct sim *s)
{
	struct cworld *w = cworld_new(s);
	sim_at_end(s, (void (*)(void *))cworld_free, w);
	cworld_add(w, 1 + (int)(sim_seed(s) % 8));
	cworld_settle(w, SETTLE);
	sim_await(s, commits, w, SETTLE);
}

static bool waits_for_room(struct sim *s, void *arg) { return cworld_waits(arg, "bytes are missing"); }

/* Nobody alone has room: they wait and say how much is missing, and begin as soon as they are enough. */
static void scn_room(struct sim *s)
{
	struct cworld *w = cworld_new(s);
	sim_at_end(s, (void (*)(void *))cworld_free, w);
	int need = 2 + (int)(sim_seed(s) % 3);
	for (int i = 0; i < CREW_MAX; i++)
		w->memory[i] = (w->layers + (uint64_t)need - 1) / (uint64_t)need * w->layer_bytes;
	w->redundancy = 1;
	cworld_add(w, need - 1);
	sim_run_for(s, 3 * SEC);
	sim_await(s, waits_for_room, w, 0);
	cworld_add(w, 1);
	cworld_settle(w, SETTLE);
	sim_check(s, cworld_running(w));
}

/* ---- kills ---- */

/* What `run show` has: who is in it, and how long agreeing took. */
static void cost_is_told(struct cworld *w, int node, uint64_t was, uint64_t us)
{
	json_t *j = crew_json(cworld_peer(w, node)->crew);
	const struct cgen *g = cworld_gen(w, cworld_running(w));
	json_int_t took = json_integer_value(json_object_get(j, "replan_us"));
	json_int_t number = json_integer_value(json_object_get(j, "generation"));
	if (json_array_size(json_object_get(j, "members")) != g->n || number <= (json_int_t)CREW_COUNT(was))
		sim_fail(w->s, "node %d tells another generation than runs", node);
	if (took <= 0 || took > (json_int_t)us || json_integer_value(json_object_get(j, "replan_us_longest")) < took)
		sim_fail(w->s, "node %d says that agreeing took %lld us, of %llu", node, (long long)took,
			(unsigned long long)us);
	json_decref(j);
}

static void scn_killed(struct sim *s)
{
	struct cworld *w = cworld_new(s);
	sim_at_end(s, (void (*)(void *))cworld_free, w);
	int n = 3 + (int)(sim_seed(s) % 5);
	cworld_add(w, n);
	sim_run_for(s, 2 * SEC);
	sim_await(s, cworld_safe, w, SETTLE);
	int dead = (int)rng_below(sim_rng(s), (uint64_t)n);
	uint64_t was = cworld_running(w), then = sim_now(s);
	cworld_kill(w, dead);
	cworld_settle(w, SETTLE);
	sim_check(s, cworld_running(w) && cworld_running(w) >= was);
	sim_in_time(s, sim_now(s) - then < 3 * SEC);
	for (int i = 0; i < n; i++)
		if (i != dead && cworld_running(w) > was && cworld_peer(w, i)->running)
			cost_is_told(w, i, was, sim_now(s) - then);
	sim_run_for(s, SEC);
	cworld_restart(w, dead);
	cworld_settle(w, SETTLE);
}

static const char *const points[] = {
#define FP(name) name,
#include "failpoints.h"
#undef FP
};

/* One of this room's, one after the other by seed. */
static const char *point_of(struct sim *s)
{
	size_t n = sizeof points / sizeof *points, of = 0, k;
	for (size_t i = 0; i < n; i++)
		of += !strncmp(points[i], "crew.", 5);
	k = sim_seed(s) % of;
	for (size_t i = 0; ; i++)
		if (!strncmp(points[i], "crew.", 5) && !k--)
			return points[i];
}

struct victim { struct cworld *w; int node; bool found; };

static bool whoever(void *arg, int node)
{
	struct victim *v = arg;
	v->node = node;
	return true;
}

static void look_for_dead(struct sim *s, void *arg)
{
	struct victim *v = arg;
	if (!v->found && v->node >= 0 && !sim_alive(s, v->node)) {
		v->found = true;
		cworld_gone(v->w, v->node);
	}
	sim_at(s, sim_now(s) + 5 * MSEC, look_for_dead, v);
}

/* Killed at some step of agreeing: at the start, or on another one's death. */
static void scn_points(struct sim *s)
{
	struct cworld *w = cworld_new(s);
	sim_at_end(s, (void (*)(void *))cworld_free, w);
	struct victim v = { w, -1, false };
	int n = 4 + (int)(sim_seed(s) % 4);
	const char *point = point_of(s);
	bool later = rng_below(sim_rng(s), 2);
	uint64_t commit_us = w->commit_us;
	w->redundancy = 3;                      /* two may die between two COMMITs */
	w->commit_us = later ? commit_us : 0;
	if (!later)
		sim_failpoint_of(s, whoever, &v, point, SIM_KILL, 1 + (int)rng_below(sim_rng(s), 6));
	cworld_add(w, n);
	look_for_dead(s, &v);
	cworld_settle(w, SETTLE);
	if (!later) {
		for (int k = 0; k < 300 && !v.found; k++)
			sim_run_for(s, 10 * MSEC);
		cworld_settle(w, SETTLE);
		if (!v.found)                   /* nobody has come to it so often */
			return;
	}
	w->commit_us = commit_us;
	sim_await(s, cworld_safe, w, SETTLE);
	if (later) {
		sim_failpoint_of(s, whoever, &v, point, SIM_KILL, 1 + (int)rng_below(sim_rng(s), 6));
		cworld_kill(w, (int)rng_below(sim_rng(s), (uint64_t)n));
	}
	sim_run_for(s, 500 * MSEC);
	cworld_settle(w, SETTLE);
	sim_run_for(s, 2 * SEC);
	for (int i = 0; i < n; i++)
		if (!sim_alive(s, i))
			cworld_restart(w, i);
	sim_run_for(s, 500 * MSEC);
	cworld_settle(w, SETTLE);
	sim_check(s, cworld_running(w));
}

/* Somebody stops at some step, for up to two seconds, and nobody is told: the others do not wait for it for ever, and
 * when it goes on it finds its place. */
static void scn_stopped(struct sim *s)
{
	struct cworld *w = cworld_new(s);
	sim_at_end(s, (void (*)(void *))cworld_free, w);
	struct victim v = { w, -1, false };
	int n = 4 + (int)(sim_seed(s) % 4);
	const char *point = point_of(s);
	w->redundancy = 3;
	cworld_add(w, n);
	sim_await(s, cworld_safe, w, SETTLE);
	sim_failpoint_of(s, whoever, &v, point, SIM_PAUSE, 1 + (int)rng_below(sim_rng(s), 6));
	cworld_kill(w, (int)rng_below(sim_rng(s), (uint64_t)n));
	for (int k = 0; k < 100 && !sim_failpoint_hit(s, point); k++)
		sim_run_for(s, 10 * MSEC);
	sim_run_for(s, rng_below(sim_rng(s), 2 * SEC));
	if (sim_failpoint_hit(s, point) && sim_alive(s, v.node))
		sim_resume(s, v.node);
	sim_run_for(s, 500 * MSEC);
	cworld_settle(w, SETTLE);
	sim_check(s, cworld_running(w));
}

/* One after the other, with COMMITs between, and all come back: the state is never lost, and all end in one. */
static void scn_churn(struct sim *s)
{
	struct cworld *w = cworld_new(s);
	sim_at_end(s, (void (*)(void *))cworld_free, w);
	int n = 5 + (int)(sim_seed(s) % 4);
	cworld_add(w, n);
	for (int k = 0; k < 12; k++) {
		int i = (int)rng_below(sim_rng(s), (uint64_t)n), alive = 0;
		sim_await(s, cworld_safe, w, SETTLE);
		for (int j = 0; j < n; j++)
			alive += sim_alive(s, j);
		if (!sim_alive(s, i))
			cworld_restart(w, i);
		else if (alive > 2)
			cworld_kill(w, i);
		sim_run_for(s, rng_below(sim_rng(s), 2 * SEC));
	}
	sim_run_for(s, 500 * MSEC);
	cworld_settle(w, SETTLE);
	sim_check(s, cworld_running(w));
}

static bool waits_holders(struct sim *s, void *arg) { return cworld_waits(arg, "bytes of the state have no holder"); }

/* Two holders of the same cut die between two COMMITs: nobody begins anything, and they say how many bytes are gone. */
static void scn_lost(struct sim *s)
{
	struct cworld *w = cworld_new(s);
	sim_at_end(s, (void (*)(void *))cworld_free, w);
	w->redundancy = 1 + (uint32_t)(sim_seed(s) % 2);
	cworld_add(w, 5);
	cworld_settle(w, SETTLE);
	sim_await(s, commits, w, SETTLE);
	w->commit_us = 0;
	sim_run_for(s, SEC);
	cworld_settle(w, SETTLE);
	const struct cgen *g = cworld_gen(w, w->sides[0].base);
	sim_check(s, g != NULL);
	if (!g)
		return;
	uint32_t first = (uint32_t)rng_below(sim_rng(s), g->n);
	for (uint32_t k = 0; k < w->redundancy; k++)
		cworld_kill(w, g->node[(first + k) % g->n]);
	sim_run_for(s, 5 * SEC);
	sim_await(s, waits_holders, w, 0);
}

/* ---- partitions ---- */

static void scn_partition(struct sim *s)
{
	struct cworld *w = cworld_new(s);
	sim_at_end(s, (void (*)(void *))cworld_free, w);
	int n = 4 + (int)(sim_seed(s) % 5), side[CREW_MAX] = { 0 };
	w->redundancy = 1 + (uint32_t)(sim_seed(s) / 5 % 2);
	cworld_add(w, n);
	cworld_settle(w, SETTLE);
	sim_run_for(s, SEC);
	for (int i = 0; i < n; i++)
		side[i] = (int)rng_below(sim_rng(s), 2);
	w->sides[1].is = true;
	cworld_split(w, side);
	sim_run_for(s, SEC + rng_below(sim_rng(s), 4 * SEC));
	cworld_heal(w);
	sim_run_for(s, 500 * MSEC);
	cworld_settle(w, SETTLE);
	sim_check(s, cworld_running(w));
}

/* ---- members that are unlike the others ---- */

static bool left_out(struct sim *s, void *arg)
{
	const struct victim *v = arg;
	for (int i = 0; i < sim_nodes(s); i++) {
		struct cpeer *p = cworld_peer(v->w, i);
		if (p && p->odd[v->node])
			return true;
	}
	return false;
}

static bool is_in(struct sim *s, void *arg)
{
	const struct victim *v = arg;
	return cworld_has(v->w, v->node);
}

/* Its plans take a thousand times as long: the others go on without it, and say so. */
static void scn_slow(struct sim *s)
{
	struct cworld *w = cworld_new(s);
	sim_at_end(s, (void (*)(void *))cworld_free, w);
	int n = 4 + (int)(sim_seed(s) % 3), slow = n - 1;
	w->layer_us = 300;
	cworld_add(w, n - 1);
	sim_await(s, cworld_safe, w, SETTLE);
	cworld_add(w, 1);
	sim_lane_slow(s, slow, "serve", 1000);
	int dead = (int)rng_below(sim_rng(s), (uint64_t)n - 1);
	sim_run_for(s, 400 * MSEC);
	cworld_kill(w, dead);
	sim_run_for(s, 500 * MSEC);
	cworld_settle(w, SETTLE);
	sim_check(s, cworld_running(w));
	sim_await(s, commits, w, SETTLE);
}

static bool slow_one(void *arg, int node)
{
	struct victim *v = arg;
	return v->node == node;
}

static bool first_runs(struct sim *s, void *arg)
{
	return cworld_gen(arg, cworld_peer(arg, 0)->running) != NULL;
}

/* It says that it is a million times slower than the others, and stops while all wait for its promise: they do not wait
 * a million times as long. */
static void scn_word(struct sim *s)
{
	struct cworld *w = cworld_new(s);
	sim_at_end(s, (void (*)(void *))cworld_free, w);
	struct victim v = { w, 1, false };
	w->redundancy = 3;                      /* all have need of it; one dies, one stops */
	w->speed[1] = 1e-6;
	w->prefer = 0;
	cworld_add(w, 3);
	sim_await(s, cworld_safe, w, SETTLE);
	cworld_add(w, 1);
	sim_run_for(s, 2 * SEC);
	sim_await(s, cworld_safe, w, SETTLE);
	w->commit_us = 0;
	sim_run_for(s, SEC);
	sim_failpoint_of(s, slow_one, &v, "crew.answer.before", SIM_PAUSE, 1);
	cworld_kill(w, 2);
	for (int k = 0; k < 300 && !sim_failpoint_hit(s, "crew.answer.before"); k++)
		sim_run_for(s, 10 * MSEC);
	sim_in_time(s, sim_failpoint_hit(s, "crew.answer.before"));
	sim_run_for(s, 30 * SEC);
	sim_await_or(s, first_runs, w, 0, "node %d is still waited for", v.node);
	sim_resume(s, v.node);
	sim_run_for(s, SEC);
	cworld_settle(w, SETTLE);
}

/* One finds other plans than the rest, or none, and leads sooner or later: it is named for that and left out; nobody
 * stops for it twice. Without it there is no room for two copies: all of them have need of it, and so it is asked. */
static void scn_other(struct sim *s)
{
	struct cworld *w = cworld_new(s);
	sim_at_end(s, (void (*)(void *))cworld_free, w);
	int n = 3 + (int)(sim_seed(s) % 4), odd = (int)rng_below(sim_rng(s), (uint64_t)n);
	w->strategy[odd] = sim_seed(s) / 4 % 2 ? &cut_other_ops : &cut_cannot_ops;
	w->layers = 60;
	w->layer_bytes = 1 << 14;
	for (int i = 0; i < n; i++)
		w->memory[i] = 2 * w->layers / (unsigned)n * w->layer_bytes;
	cworld_add(w, n);
	sim_run_for(s, 3 * SEC);
	cworld_settle(w, SETTLE);
	sim_await(s, commits, w, SETTLE);
	sim_run_for(s, 10 * SEC);
	cworld_settle(w, SETTLE);
	sim_check(s, !cworld_has(w, odd) && cworld_running(w));
	sim_await(s, left_out, (&(struct victim){ w, odd, false }), 0);
	sim_in_time(s, w->gens <= 4 * (unsigned)n);
}

/* A joiner: a fast one is planned in at a COMMIT; one that is slow is not, nor does anybody stop for it. */
static void scn_join(struct sim *s)
{
	struct cworld *w = cworld_new(s);
	sim_at_end(s, (void (*)(void *))cworld_free, w);
	int n = 2 + (int)(sim_seed(s) % 2);
	bool fast = sim_seed(s) / 3 % 2;
	w->layer_us = 20 * MSEC;
	w->layer_bytes = 1 << 16;
	w->speed[n] = fast ? 1 : 0.02;
	cworld_add(w, n);
	cworld_settle(w, SETTLE);
	for (int k = 0; k < 50 && !sim_failed(s); k++) {
		const struct cgen *g = cworld_gen(w, cworld_running(w));
		if (g && g->n == (uint32_t)n)
			break;
		sim_run_for(s, 200 * MSEC);
	}
	w->commits = 0;                         /* one that a COMMIT of the one before outruns is followed by another */
	sim_await(s, commits, w, SETTLE);
	uint64_t was = cworld_running(w), stops = cworld_peer(w, 0)->stops;
	cworld_add(w, 1);
	sim_run_for(s, 5 * SEC);
	cworld_settle(w, SETTLE);
	if (fast)
		sim_await(s, is_in, (&(struct victim){ w, n, false }), 0);
	else
		sim_check(s, !cworld_has(w, n) && cworld_running(w) == was && cworld_peer(w, 0)->stops == stops);
}

static bool both_are_in(struct sim *s, void *arg)
{
	return cworld_has(arg, 0) && cworld_has(arg, 1);
}

/* Alone with one copy: a slow joiner is planned in, because two copies are wished. */
static void scn_copies(struct sim *s)
{
	struct cworld *w = cworld_new(s);
	sim_at_end(s, (void (*)(void *))cworld_free, w);
	w->layer_us = 20 * MSEC;
	w->speed[1] = 0.02;
	cworld_add(w, 1);
	cworld_settle(w, SETTLE);
	sim_run_for(s, SEC);
	cworld_add(w, 1);
	sim_run_for(s, 5 * SEC);
	cworld_settle(w, SETTLE);
	sim_await(s, both_are_in, w, 0);
}

/* Before the first COMMIT only who leads knows all who have come; the others take its word for it. */
static void scn_newcomers(struct sim *s)
{
	struct cworld *w = cworld_new(s);
	sim_at_end(s, (void (*)(void *))cworld_free, w);
	int n = 3 + (int)(sim_seed(s) % 5);
	w->newcomers = true;
	for (int i = 0; i < n; i++)             /* only all of them together have room */
		w->memory[i] = (w->layers + (uint64_t)n - 1) / (uint64_t)n * w->layer_bytes;
	w->redundancy = 1;
	cworld_add(w, n);
	cworld_settle(w, SETTLE);
	sim_check(s, cworld_running(w) && cworld_gen(w, cworld_running(w))->n > 2);
	sim_await(s, commits, w, SETTLE);
}

/* Likewise, and who leads has no part in what runs, and dies; nobody else knew of them all. They run on: all have
 * signed it. */
static void scn_heir(struct sim *s)
{
	struct cworld *w = cworld_new(s);
	sim_at_end(s, (void (*)(void *))cworld_free, w);
	int n = 4 + (int)(sim_seed(s) % 4);
	w->newcomers = true;
	w->commit_us = 0;
	w->layers = (uint32_t)n - 1;
	w->memory[0] = 1;                       /* no room for anything; each of the others has it for a layer */
	for (int i = 1; i < n; i++)
		w->memory[i] = w->layer_bytes;
	w->redundancy = 1;
	cworld_add(w, 1);
	sim_run_for(s, SEC);                    /* it is the first, and leads */
	cworld_add(w, n - 1);
	cworld_settle(w, SETTLE);
	uint64_t was = cworld_running(w);
	sim_check(s, was && cworld_gen(w, was)->n > 2 && !cworld_has(w, 0) && cworld_leader(w, 0) == 0);
	cworld_kill(w, 0);
	sim_run_for(s, 2 * SEC);
	cworld_settle(w, SETTLE);
	sim_check(s, cworld_running(w) == was);
	w->commit_us = 200 * MSEC;
	sim_await(s, commits, w, SETTLE);
}

/* Members have died and come back, and only who leads has heard of it. What is committed lies with all of them: nobody
 * takes its word for that, but who has come back speaks for itself. */
static void scn_come_back(struct sim *s)
{
	struct cworld *w = cworld_new(s);
	sim_at_end(s, (void (*)(void *))cworld_free, w);
	int n = 3 + (int)(sim_seed(s) % 5);
	w->redundancy = 1 + (uint32_t)(sim_seed(s) / 5 % 2);
	for (int i = 0; i < n; i++)
		w->memory[i] = w->redundancy * ((w->layers + (uint64_t)n - 1) / (uint64_t)n) * w->layer_bytes;
	cworld_add(w, n);
	cworld_settle(w, SETTLE);
	sim_await(s, commits, w, SETTLE);
	w->commit_us = 0;
	sim_run_for(s, SEC);
	cworld_settle(w, SETTLE);
	uint64_t was = cworld_running(w);
	cworld_forget(w);
	sim_run_for(s, 500 * MSEC);
	for (int i = 0; i < n && cworld_running(w) == was; i++)
		if (cworld_has(w, i))
			crew_fail(cworld_peer(w, i)->crew, was);
	sim_run_for(s, 2 * SEC);
	cworld_settle(w, SETTLE);
	sim_check(s, cworld_running(w) > was);
	w->commit_us = 200 * MSEC;
	sim_await(s, commits, w, SETTLE);
}

static const struct scn list[] = { SCN(start), SCN(room), SCN(killed), SCN(points), SCN(stopped), SCN(churn), SCN(lost),
	SCN(partition), SCN(slow), SCN(word), SCN(other), SCN(join), SCN(copies), SCN(newcomers), SCN(heir),
	SCN(come_back), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
