/* RECV of any, REPLY and ALLTOALL with real numbers: the servers of a Downpour-like plan apply what comes first, and a
 * replay of the order that they have logged gives every bit of what they and the workers hold; the rows of a plan with
 * experts come back to their places; a killed peer costs the others nothing; a peer that lies costs them little. */
#include "any_plans.h"
#include "any_sim.h"

static void replay(struct sim *s, const struct world *w, uint32_t shard)
{
	struct peer *v[NODES_MAX] = { NULL };
	const char *wrong;

	for (uint32_t k = 0; k < w->n; k++)
		v[k] = sim_alive(s, (int)k) ? at(s, k) : NULL;
	wrong = replay_error(w, v, shard);
	if (wrong)
		sim_fail(s, "shard %u: %s", shard, wrong);
}

/* Workers (or trainers) have made their steps, and servers have answered all. */
static bool made(struct sim *s, void *arg)
{
	const struct world *w = arg;

	for (uint32_t k = 0; k < w->n; k++) {
		const struct peer *p = sim_alive(s, (int)k) && !w->liar[k] ? at(s, k) : NULL;

		if (p && p->broken)
			sim_fail(s, "node %u: %s", k, p->error.text);
		if (p && (k < w->workers ? p->commits < w->steps * w->commits || carry_open(p->carry) || !exec_quiet(p->x) :
			carry_open(p->carry) > w->waits))
			return false;
	}
	return true;
}

static void no_troubles(struct sim *s, const struct world *w)
{
	for (uint32_t k = 0; k < w->n; k++)
		if (sim_alive(s, (int)k) && !w->liar[k] && at(s, k)->troubles)
			sim_fail(s, "node %u: %s", k, at(s, k)->error.text);
}

static const struct world rain = { .n = WORKERS + SHARDS, .workers = WORKERS, .steps = 8, .commits = SHARDS,
	.plan = downpour, .bind = downpour_bind, .waits = 2 /* RECVs that stay open at a server */ };

static void scn_downpour(struct sim *s)
{
	struct world w = rain;
	uint32_t early[WORKERS] = { 0 };
	struct sim_stats st;

	open_world(s, &w);
	go(s, &w);
	sim_await(s, made, &w, 60000000);
	no_troubles(s, &w);
	for (uint32_t k = 0; k < SHARDS; k++)
		replay(s, &w, k);
	for (uint32_t k = 0; k < 3 * WORKERS; k++)      /* nobody waits while others are served again and again */
		early[at(s, WORKERS)->took[k].peer[0]]++;
	sim_stats(s, &st);
	/* Whose answer a door has dropped has offered nothing until it is asked again; the others are through by then. */
	for (uint32_t k = 0; k < WORKERS && !st.door_drops; k++)
		sim_in_time(s, early[k] >= 1);
	close_world(&w);
}

static void scn_breaks(struct sim *s)
{
	struct world w = rain;

	open_world(s, &w);
	sim_link(s, -1, -1, &(struct sim_link){ 300, 200, 0, 40 });
	go(s, &w);
	sim_await(s, made, &w, 120000000);
	no_troubles(s, &w);
	for (uint32_t k = 0; k < SHARDS; k++)
		replay(s, &w, k);
	close_world(&w);
}

static void scn_killed_worker(struct sim *s)
{
	struct world w = rain;

	open_world(s, &w);
	go(s, &w);
	sim_run_for(s, 1000 + rng_below(sim_rng(s), 30000));
	sim_kill(s, (int)rng_below(sim_rng(s), WORKERS));
	sim_await(s, made, &w, 30000000);
	no_troubles(s, &w);
	for (uint32_t k = 0; k < SHARDS; k++)
		replay(s, &w, k);
	close_world(&w);
}

/* Returns how often an expert has not answered. */
static uint32_t compute(struct sim *s, const struct world *w, uint32_t who)
{
	uint32_t without = 0;

	if (!computed(w, at(s, who), &without))
		sim_fail(s, "trainer %u has other rows than one process computes", who);
	return without;
}

static const struct world forest = { .n = WORKERS + 2, .workers = WORKERS, .steps = 6, .commits = 1, .plan = experts,
	.bind = experts_bind, .before = gate, .waits = 2, .quorum = 1, .most = WORKERS, .within_us = 300,
	.deadline_us = 20000000 };

static void scn_experts(struct sim *s)
{
	struct world w = forest;
	uint32_t most = 0;

	open_world(s, &w);
	go(s, &w);
	sim_await(s, made, &w, 60000000);
	no_troubles(s, &w);
	for (uint32_t k = 0; k < WORKERS; k++)
		sim_check(s, compute(s, &w, k) == 0);
	for (uint32_t k = 0; k < at(s, WORKERS)->ntook; k++)
		most = at(s, WORKERS)->took[k].n > most ? at(s, WORKERS)->took[k].n : most;
	sim_in_time(s, most > 1);               /* requests were batched */
	close_world(&w);
}

/* A server that is dead is left out, and its rows are nothing. */
static void scn_killed_expert(struct sim *s)
{
	struct world w = forest;

	w.steps = 20;
	open_world(s, &w);
	go(s, &w);
	sim_run_for(s, 2000 + rng_below(sim_rng(s), 4000));
	sim_kill(s, WORKERS);
	sim_await(s, made, &w, 60000000);
	for (uint32_t k = 0; k < WORKERS; k++)
		sim_in_time(s, compute(s, &w, k) > 0);
	close_world(&w);
}

static void scn_killed_trainer(struct sim *s)
{
	struct world w = forest;
	uint32_t dead = (uint32_t)rng_below(sim_rng(s), WORKERS);

	open_world(s, &w);
	go(s, &w);
	sim_run_for(s, 1500 + rng_below(sim_rng(s), 5000));
	sim_kill(s, (int)dead);
	sim_await(s, made, &w, 60000000);
	no_troubles(s, &w);
	for (uint32_t k = 0; k < WORKERS; k++)
		sim_check(s, k == dead || compute(s, &w, k) == 0);
	close_world(&w);
}

/* --- among the members of a group: x' = x + 0.5 z, where z has the rows that all have sent here */

static uint32_t moved_to(const struct world *w, uint32_t who, int64_t index, uint32_t row)
{
	bool stays = rng_at(rng_mix(w->seed + who, (uint64_t)index), row) % 4 == 0;

	return w->quorum == 99 ? 0 : stays ? CARRY_NOBODY : (who + row + (uint32_t)index) % w->n;
}

static void swap_gate(struct peer *p, const struct exec_net *n, const struct exec_span *in, uint32_t nin)
{
	for (uint32_t k = 0; k < ROWS; k++)
		((uint32_t *)in[1].p)[k] = moved_to(p->world, (uint32_t)p->node, n->index, k);
}

static void swap(const struct world *w, struct plan *p, uint32_t rank)
{
	uint32_t bytes = ROWS * ROW * sizeof(float), g;

	init(w, p, "swap", rank);
	g = group(p, "all", 0, w->n);
	buf(p, PLAN_WEIGHT, "x", bytes, 1, true, false);
	buf(p, PLAN_ACTIVATION, "z", bytes, 1, false, true);
	buf(p, PLAN_ROUTE, "route", ROWS * sizeof(uint32_t), 1, true, false);
	plan_section(p, PLAN_BODY);
	p->iterations = w->steps;
	plan_coll(p, PLAN_ALLTOALL, 0, g, "x route<=* -> z");
	plan_vec(p, 0, "axpy", "z! x -> x'")->scale = STEP;
	plan_do(p, PLAN_COMMIT, 0, "x'");
}

static void swap_bind(struct peer *p)
{
	floats(bind_floats(p, "x", ROWS * ROW), ROWS * ROW, (uint64_t)p->node);
	bind_floats(p, "route", ROWS);
}

static const struct world ring = { .n = 3, .workers = 3, .steps = 6, .commits = 1, .plan = swap, .bind = swap_bind,
	.before = swap_gate };

static void scn_rows(struct sim *s)
{
	struct world w = ring;
	float *x[3], *z[3];

	open_world(s, &w);
	go(s, &w);
	sim_await(s, made, &w, 60000000);
	no_troubles(s, &w);
	for (uint32_t k = 0; k < 3; k++) {
		x[k] = xcalloc(ROWS * ROW, sizeof(float));
		z[k] = xcalloc(ROWS * ROW, sizeof(float));
		floats(x[k], ROWS * ROW, k);
	}
	for (int64_t j = 0; j < (int64_t)w.steps; j++) {
		uint32_t n[3] = { 0 };

		for (uint32_t k = 0; k < 3; k++)
			memset(z[k], 0, ROWS * ROW * sizeof(float));
		for (uint32_t k = 0; k < 3 * ROWS; k++) {
			uint32_t to = moved_to(&w, k / ROWS, j, k % ROWS);

			if (to != CARRY_NOBODY)
				memcpy(z[to] + ROW * n[to]++, x[k / ROWS] + k % ROWS * ROW, ROW * sizeof(float));
		}
		for (uint32_t k = 0; k < 3; k++)
			vec_axpy(&w.par, ROWS * ROW, STEP, z[k], x[k]);
	}
	for (uint32_t k = 0; k < 3; k++) {
		sim_check(s, !memcmp(x[k], bound(at(s, k), "x"), ROWS * ROW * sizeof(float)));
		free(x[k]);
		free(z[k]);
	}
	close_world(&w);
}

static bool broken(struct sim *s, void *arg)
{
	return at(s, 0)->troubles > 0;
}

/* All rows of all to one, which has no room for them. */
static void scn_too_many_rows(struct sim *s)
{
	struct world w = ring;

	w.quorum = 99;
	open_world(s, &w);
	go(s, &w);
	sim_await(s, broken, &w, 60000000);
	sim_check(s, at(s, 0)->error.code == ERR_LIMIT && strstr(at(s, 0)->error.text, "there is room for 0 bytes"));
	close_world(&w);
}

static const struct scn list[] = { SCN(downpour), SCN(breaks), SCN(killed_worker), SCN(experts), SCN(killed_expert),
	SCN(killed_trainer), SCN(rows), SCN(too_many_rows), { 0 } };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
