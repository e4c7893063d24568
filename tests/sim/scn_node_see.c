/* Does every rule of chain_check.h see that it is broken? A swarm of three nodes is well; then something
 * in one node's memory becomes what the rule forbids, and the checker must say so, in its own words. */
#include <stdio.h>
#include <string.h>
#include "avg/int.h"
#include "chain_check.h"

struct broken { const char *rule, *says; void (*harm)(struct node_world *w); };

static char spec[700];

static void step(struct node_world *w)
{
	sim_run_for(w->s, 2 * MSEC);            /* time for the checkers */
}

/* ---- runs ---- */

/* A point that nobody has committed, on top of that run's. */
static void invent(struct run *r, uint64_t epoch, uint8_t digest)
{
	r->point.epoch = epoch;
	memset(r->point.prev, digest, DIGEST);
}

static void second_commit(struct node_world *w)
{
	struct run *r = node_run(w, 1);
	invent(r, r->point.epoch, 0x77);
}

static void jump(struct node_world *w)
{
	struct run *r = node_run(w, 1);
	invent(r, r->point.epoch + 5, 0x77);
}

static void back(struct node_world *w)
{
	struct run *r = node_run(w, 1);
	r->state = RUN_SYNC;
	step(w);
	const struct avg_point *old = run_point_at(r, r->point.epoch - 1);
	struct avg_point copy;
	avg_point_init(&copy);
	avg_point_copy(&copy, old);
	avg_point_done(&r->point);
	r->point = copy;
}

static void miscounted(struct node_world *w)
{
	struct run *r = node_run(w, 1);
	invent(r, r->point.epoch + 1, 0x77);
	r->point.samples += 8;
}

static void un_committed(struct node_world *w)
{
	struct run *r = node_run(w, 1);
	invent(r, r->point.epoch + 1, 0x77);
	ranges_clear(&r->point.done);
	ranges_add(&r->point.done, 1 << 20, (1 << 20) + r->point.samples);
}

static void other_point(struct node_world *w)
{
	struct run *a = node_run(w, 0), *b = node_run(w, 1);
	invent(a, a->point.epoch + 1, 0x77);
	step(w);
	invent(b, a->point.epoch, 0x77);
	b->point.samples += 8;
	ranges_add(&b->point.done, 1 << 20, (1 << 20) + 8);
}

static void other_history(struct node_world *w)
{
	struct run *a = node_run(w, 0), *b = node_run(w, 1);
	uint64_t epoch = a->point.epoch;
	w->forks_allowed = true;
	invent(a, epoch + 1, 0x77);
	b->state = RUN_SYNC;
	step(w);
	invent(b, epoch, 0x66);
	step(w);
	b->state = RUN_TRAIN;
	step(w);
	invent(b, epoch + 1, 0x77);
}

static void other_state(struct node_world *w)
{
	size_t bytes;
	real *x = trainer_state(node_run(w, 1)->trainer, &bytes);
	x[0] += 1;
	sim_run_for(w->s, 3 * SEC);
}

static void endless_round(struct node_world *w)
{
	struct avg *a = node_run(w, 1)->avg;
	while (!a->round && !sim_failed(w->s))
		sim_run_for(w->s, 50);
	sim_run_for(w->s, 61 * SEC - sim_now(w->s));
	while (!a->round && !sim_failed(w->s))
		sim_run_for(w->s, 50);
	if (a->round)
		a->round->begun_us -= 61 * SEC;
	sim_run_for(w->s, 50);
}

static const struct broken rules[] = {
	{ "one", "node 1: a second commit of epoch", second_commit },
	{ "history", "without fetching state", jump },
	{ "back", "node 1: back from epoch", back },
	{ "samples", "samples, but", miscounted },
	{ "un-commit", "un-commits positions", un_committed },
	{ "point", "node 1: another point under the same digest", other_point },
	{ "parent", "on top of another history", other_history },
	{ "same", "another state at epoch", other_state },
	{ "rounds", "and has not ended", endless_round },
};

/* Each rule in a world of its own; that world's failure is what is expected. */
static void scn_broken(struct sim *s)
{
	for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
		struct sim *t = sim_new(sim_seed(s));
		struct node_world *w = node_world_new(t, node_naps(spec, 100, 48));
		node_world_add(w, 3);
		node_run_to(w, 6, 60 * SEC);
		if (sim_failed(t))
			sim_fail(s, "%s: before anything is broken: %s", rules[i].rule, sim_failed(t));
		rules[i].harm(w);
		sim_run_for(t, 20 * MSEC);
		if (!sim_failed(t))
			sim_fail(s, "%s: nobody has seen it", rules[i].rule);
		else if (!strstr(sim_failed(t), rules[i].says))
			sim_fail(s, "%s: another rule has seen it: %s", rules[i].rule, sim_failed(t));
		sim_trace(s, rules[i].rule, strlen(rules[i].rule));
		node_world_free(w);
		sim_free(t);
	}
}

static const struct scn list[] = { SCN(broken), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
