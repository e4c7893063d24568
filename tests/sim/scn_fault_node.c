/* Whole nodes: one of three finds no memory for the n-th big thing, or the n-th call to its files or its shelf fails, n
 * looped upward until nothing is struck any more: while it starts with a checkpoint and takes part again, and over the
 * epochs of a run it is in. The others go on; it goes on or says why not; after a start without faults all three hold
 * the same. Likewise for files where there is only one: its checkpoint is not lost. */
#include <stdio.h>
#include <string.h>
#include "chain_check.h"
#include "node_world.h"

#define N_MAX 120
#define N_ALONE 24                              /* calls of a start and of the first checkpoint after it */
#define VICTIM 1

enum when { STARTING, TRAINING, ALONE };
enum harm { HARM_MEMORY, HARM_FILES, HARM_SHELF, HARMS };
static const char *const harm_name[] = { "allocation", "file call", "shelf call" };

static void arm(struct sim *s, enum harm how, int n)
{
	if (how == HARM_MEMORY)
		sim_memory_fail(s, VICTIM, n);
	else if (how == HARM_FILES)
		sim_files_fail(s, VICTIM, n, n % 2 ? ERR_IO : ERR_FULL);
	else
		sim_shelf_fail(s, VICTIM, n, ERR_IO);
}

/* It takes part, or an operator can read why not. */
static bool says_why(struct node_world *w)
{
	struct node_peer *p = node_peer(w, VICTIM);
	struct run *r = p ? node_run(w, VICTIM) : NULL;
	return !p || !r || !run_over(r) || r->error.code || p->why[0] || p->events;
}

struct goal { struct node_world *w; uint64_t epoch; };

static bool reached(struct sim *s, void *arg)
{
	struct goal *g = arg;
	return node_run(g->w, 0) && node_run(g->w, 0)->point.epoch >= g->epoch;
}

/* False: nothing was struck. */
static bool struck(struct sim *s, enum harm how, int n, bool starting)
{
	static char spec[700];
	struct node_world *w = node_world_new(s, node_naps(spec, 50, 48));
	node_world_add(w, 3);
	node_run_to(w, 3, 60 * SEC);
	if (starting)
		sim_kill(s, VICTIM);
	arm(s, how, n);
	if (starting)
		sim_restart(s, VICTIM);
	uint64_t at = node_run(w, 0) ? node_run(w, 0)->point.epoch : 0;
	struct goal g = { w, at + (starting ? 5 : 25) };        /* a checkpoint is made every 20 epochs */
	sim_await(s, reached, &g, 30 * SEC);
	sim_run_for(s, SEC);
	bool hit = sim_struck(s, VICTIM);
	if (!says_why(w))
		sim_fail(s, "it takes no part and does not say why");
	arm(s, how, 0);
	sim_kill(s, VICTIM);
	sim_restart(s, VICTIM);
	node_goes_on(w, 2, 60 * SEC);
	node_world_free(w);
	return hit;
}

static bool trains(struct sim *s, void *world)
{
	struct run *r = node_peer(world, 0) ? node_run(world, 0) : NULL;
	return r && r->state == RUN_TRAIN;
}

/* What it has begun has a checkpoint; a run that has failed makes none. */
static bool saved_anew(struct sim *s, void *world)
{
	struct run *r = node_peer(world, 0) ? node_run(world, 0) : NULL;
	return r && (run_over(r) || (r->saved_epoch && r->state == RUN_TRAIN && r->saved_epoch % 20 == 0 &&
		r->point.epoch > r->saved_epoch + 2));
}

/* Nobody else has its state. Whatever the failing call made of that start: what its checkpoint had is not lost. */
static bool struck_alone(struct sim *s, int n)
{
	static char spec[700];
	struct node_world *w = node_world_new(s, node_naps(spec, 20, 16));
	w->forks_allowed = true;                /* what it makes after its checkpoint it makes anew */
	node_world_add(w, 1);
	node_run_to(w, 47, 60 * SEC);           /* a checkpoint is made every 20 epochs */
	uint64_t had = node_run(w, 0) ? node_run(w, 0)->saved_epoch : 0;
	sim_in_time(s, had >= 40);
	sim_kill(s, 0);
	sim_files_fail(s, 0, n, n % 2 ? ERR_IO : ERR_NOMEM);
	sim_restart(s, 0);
	sim_run_until(s, saved_anew, w, 60 * SEC);
	bool hit = sim_struck(s, 0);
	sim_files_fail(s, 0, 0, ERR_IO);
	sim_kill(s, 0);
	sim_restart(s, 0);
	if (sim_await(s, trains, w, 10 * SEC) && node_run(w, 0)->point.epoch < had)
		sim_fail(s, "it begins again at epoch %llu, and had epoch %llu on its disk",
			(unsigned long long)node_run(w, 0)->point.epoch, (unsigned long long)had);
	node_world_free(w);
	return hit;
}

static bool one(struct sim *s, enum harm how, int n, enum when when)
{
	return when == ALONE ? struck_alone(s, n) : struck(s, how, n, when == STARTING);
}

static void loop(struct sim *s, enum when when)
{
	enum harm how = (enum harm)(sim_seed(s) % HARMS);
	bool hit = true;
	int n = 0, most = when == ALONE ? N_ALONE : N_MAX;
	while (hit && n++ < most && !sim_failed(s)) {
		struct sim *own = sim_new(sim_seed(s) * 1000 + (uint64_t)n);
		hit = one(own, how, n, when);
		sim_told_of(s, own, "%s %d", harm_name[when == ALONE ? HARM_FILES : how], n);
		uint64_t hash = sim_hash(own);
		sim_trace(s, &hash, sizeof hash);
		sim_free(own);
	}
	sim_in_time(s, n > 1 && (n < N_MAX || when == ALONE));
}

static void scn_starting(struct sim *s) { loop(s, STARTING); }
static void scn_training(struct sim *s) { loop(s, TRAINING); }
static void scn_alone(struct sim *s) { loop(s, ALONE); }

int main(int argc, char **argv)
{
	static const struct scn list[] = { SCN(starting), SCN(training), SCN(alone), { 0 } };
	return scn_main(list, argc, argv);
}
