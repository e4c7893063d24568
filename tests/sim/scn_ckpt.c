/* Checkpoints on a disk that forgets what was not synced: a peer saves one after the other, is killed again and again
 * at any moment, and finds, each time it starts, a whole one at least as new as the last it was told is safe. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt/ckpt.h"
#include "common/mem.h"
#include "sim.h"

#define NUMBERS 3000
#define DIR "/state/runs/r"

struct saver {
	struct env *env; struct sim *s;
	float x[NUMBERS]; struct ckpt_tensor t;
	struct timer next;
	uint64_t epoch;
};
/* Outlives the process: what it was told. */
static struct { uint64_t safe, begun; unsigned starts, saves, fails, unread; } told;

static void fill(float *x, uint64_t epoch)
{
	for (unsigned i = 0; i < NUMBERS; i++)
		x[i] = (float)(epoch * 7 + i);
}

static void saved(void *arg, const struct ckpt_result *r)
{
	struct saver *a = arg;

	if (!sim_alive(a->s, 0))        /* it is being killed: nobody hears this */
		return;
	if (r->error.code) {
		told.fails++;
	} else {
		told.safe = r->epoch;
		told.saves++;
	}
	env_after(a->env, &a->next, 1000 + env_rand(a->env) % 3000);
}

static void save(struct timer *t)
{
	struct saver *a = container_of(t, struct saver, next);
	struct ckpt_save o = { .dir = DIR, .epoch = ++a->epoch, .v = &a->t, .n = 1, .keep = 2 };

	told.begun = a->epoch;
	fill(a->x, a->epoch);
	ckpt_save(a->env, &o, saved, a);
}

static void loaded(void *arg, const struct ckpt_result *r)
{
	struct saver *a = arg;
	float want[NUMBERS];

	if (!sim_alive(a->s, 0))        /* it is being killed: nobody hears this */
		return;
	if (r->error.code && r->error.code != ERR_NOT_FOUND) {
		told.unread++;                  /* a call has failed: it does not begin without what is there */
		return;
	}
	if (r->error.code && told.safe)
		sim_fail(a->s, "start %u: %s, but epoch %" PRIu64 " was safe", told.starts, r->error.text, told.safe);
	else if (r->epoch < told.safe || r->epoch > told.begun)
		sim_fail(a->s, "start %u: epoch %" PRIu64 " was loaded, %" PRIu64 " was safe and %" PRIu64 " begun",
			told.starts, r->epoch, told.safe, told.begun);
	fill(want, r->epoch);
	if (!r->error.code && memcmp(want, a->x, sizeof want))
		sim_fail(a->s, "start %u: epoch %" PRIu64 " was loaded with other numbers", told.starts, r->epoch);
	a->epoch = r->epoch;
	told.safe = told.begun = r->epoch;
	env_after(a->env, &a->next, 1);
}

static void *start(struct env *env, int node, void *arg)
{
	struct saver *a = xcalloc(1, sizeof *a);
	struct err e;
	uint64_t n = NUMBERS;

	a->env = env;
	a->s = arg;
	a->next = (struct timer){ .fire = save, .name = "save" };
	ckpt_tensor(&a->t, "x", CKPT_F32, 1, &n, a->x, &e);
	told.starts++;
	ckpt_load(env, DIR, &a->t, 1, CKPT_NONE, loaded, a);
	return a;
}

static void stop(void *app)
{
	struct saver *a = app;

	a->env->ops->detach(a->env);
	env_timer(a->env, &a->next, 0);
	free(a);
}

static void scn_killed(struct sim *s)
{
	struct sim_app app = { start, stop, s };

	memset(&told, 0, sizeof told);
	sim_node_add(s, NULL, &app);
	for (int i = 0; i < 60 && !sim_failed(s); i++) {
		sim_run_for(s, 1 + rng_below(sim_rng(s), 30000));
		sim_kill(s, 0);
		sim_restart(s, 0);
	}
	sim_run_for(s, 100000);
	sim_check(s, told.starts == 61 && !told.fails && !told.unread);
	sim_in_time(s, told.saves > 100);
}

/* The same with a disk whose calls fail: a checkpoint that could not be written is said, and the one before stays. */
static void scn_failing(struct sim *s)
{
	struct sim_app app = { start, stop, s };

	memset(&told, 0, sizeof told);
	sim_node_add(s, NULL, &app);
	for (int i = 0; i < 60 && !sim_failed(s); i++) {
		sim_run_for(s, 1 + rng_below(sim_rng(s), 20000));
		sim_files_fail(s, 0, 1 + (int)rng_below(sim_rng(s), 12), rng_below(sim_rng(s), 2) ? ERR_IO : ERR_FULL);
		sim_run_for(s, 1 + rng_below(sim_rng(s), 20000));
		sim_files_fail(s, 0, 0, ERR_IO);
		sim_kill(s, 0);
		sim_restart(s, 0);
	}
	sim_run_for(s, 100000);
	sim_in_time(s, told.saves > 100 && told.fails > 5);
}

int main(int argc, char **argv)
{
	static const struct scn list[] = { SCN(killed), SCN(failing), { 0 } };

	return scn_main(list, argc, argv);
}
