/* Generations that are over for another reason than a death: the next one comes of it. */
#include "crew/int.h"
#include "crew_world.h"

#define SETTLE (10 * SEC)

static bool commits(struct sim *s, void *arg)
{
	struct cworld *w = arg;
	return w->commits >= 2;
}

/* A member cannot go on in what runs: the next generation comes. */
static void scn_cut(struct sim *s)
{
	struct cworld *w = cworld_new(s);
	sim_at_end(s, (void (*)(void *))cworld_free, w);
	int n = 2 + (int)(sim_seed(s) % 5);
	cworld_add(w, n);
	cworld_settle(w, SETTLE);
	for (int k = 0; k < 3; k++) {
		uint64_t was = cworld_running(w);
		struct cpeer *p;
		do                                      /* a spare has nothing that it could not go on in */
			p = cworld_peer(w, (int)rng_below(sim_rng(s), (uint64_t)n));
		while (!p->running && !sim_failed(s));
		crew_fail(p->crew, was + 1);            /* of another one: nothing */
		crew_fail(p->crew, was);
		sim_check(s, !p->running);
		sim_run_for(s, SEC);
		cworld_settle(w, SETTLE);
		sim_check(s, cworld_running(w) > was);
	}
	sim_await(s, commits, w, SETTLE);
}

/* A generation is made on an epoch whose round has been decided already: its COMMIT, of the one before, comes when the
 * new one runs. Nobody goes on in that, and the next stands on the COMMIT. */
static void scn_outrun(struct sim *s)
{
	struct cworld *w = cworld_new(s);
	sim_at_end(s, (void (*)(void *))cworld_free, w);
	cworld_add(w, 2 + (int)(sim_seed(s) % 5));
	cworld_settle(w, SETTLE);
	sim_await(s, commits, w, SETTLE);
	w->commit_us = 0;
	sim_run_for(s, SEC);
	cworld_settle(w, SETTLE);
	for (int k = 0; k < 3; k++) {
		uint64_t was = cworld_running(w);
		const struct cgen *g = cworld_gen(w, was);
		crew_fail(cworld_peer(w, g->node[0])->crew, was);
		sim_run_for(s, rng_below(sim_rng(s), 400 * MSEC));
		cworld_commit(w, was);
		sim_run_for(s, SEC);
		cworld_settle(w, SETTLE);
		uint64_t now = cworld_running(w);
		sim_check(s, now > was);
		for (int i = 0; i < sim_nodes(s); i++) {
			const struct deal *d = cworld_peer(w, i)->crew->decided;
			if (d->o.epoch != w->sides[0].epoch)
				sim_fail(s, "node %d: what is decided stands on epoch %llu, and %llu is committed", i,
					(unsigned long long)d->o.epoch, (unsigned long long)w->sides[0].epoch);
		}
	}
	w->commit_us = 200 * MSEC;
	sim_await(s, commits, w, SETTLE);
}

static bool cworld_has_last(struct sim *s, void *arg)
{
	return cworld_has(arg, sim_nodes(s) - 1);
}

/* COMMITs come faster than anybody finds out who is to be in the next generation: who comes is taken in. */
static void scn_short(struct sim *s)
{
	struct cworld *w = cworld_new(s);
	int n = 2 + (int)(sim_seed(s) % 3);
	sim_at_end(s, (void (*)(void *))cworld_free, w);
	w->layers = 40;
	cworld_add(w, n);
	cworld_settle(w, SETTLE);
	w->commit_us = 5 * MSEC;
	sim_await(s, commits, w, SETTLE);
	cworld_add(w, 1);
	for (int i = 0; i <= n; i++)
		sim_lane_slow(s, i, "serve", 10);
	for (int ms = 0; ms < 10000 && !cworld_has(w, n); ms++)
		sim_run_for(s, MSEC);
	sim_await(s, cworld_has_last, w, 0);
	uint64_t was = w->commits;
	sim_run_for(s, SEC);
	sim_in_time(s, w->commits > was + 20);  /* and nobody holds them up any more */
	for (int i = 0; i <= n; i++)
		sim_in_time(s, cworld_peer(w, i)->holds_us <= sim_now(s));
}

static const struct scn list[] = { SCN(cut), SCN(outrun), SCN(short), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
