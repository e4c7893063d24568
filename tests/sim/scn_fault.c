/* The n-th call to the disk or the shelf fails, n looped upward until nothing is struck any more (as SQLite's own tests
 * do it): over start-up and over one step of the work of a room. Whoever was struck goes on or says why not, and a
 * start without faults finds all that was acknowledged. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt/ckpt.h"
#include "common/mem.h"
#include "dht/int.h"
#include "dht_world.h"

#define N_MAX 400                       /* a loop that is never over is a mistake of its own */

/* ---- the table's shelf: two peers; the second one holds all records of long life ---- */

#define RECORDS 6

static json_t *status(struct sim *s, int node)
{
	return dht_status(dht_of(s, node));
}

static bool settled(struct sim *s, void *arg)
{
	json_t *j = status(s, 1);
	bool ok = !json_object_get(j, "save_error");
	json_decref(j);
	return ok;
}

static void put_all(struct sim *s, int add)
{
	for (int i = 0; i < RECORDS; i++) {
		char key[16];
		snprintf(key, sizeof key, "k%d", i);
		struct dht_put_end p = dht_put_wait(s, 0, key, NULL, json_integer(add + i), 86400000, false);
		sim_check(s, p.accepted == 2);
	}
}

/* After a restart, with nobody to ask: each record is there, with the value put last. */
static void all_there(struct sim *s, int add, const char *when)
{
	for (int i = 0; i < RECORDS && !sim_failed(s); i++) {
		char key[16], want[16];
		snprintf(key, sizeof key, "k%d", i);
		snprintf(want, sizeof want, "%d", add + i);
		struct dht_get_end g = dht_get_wait(s, 1, key, false);
		if (g.n != 1 || strcmp(g.value, want))
			sim_fail(s, "%s: %s is %s, not %s", when, key, g.n ? g.value : "gone", want);
	}
}

static void again_alone(struct sim *s)
{
	sim_kill(s, 0);
	sim_kill(s, 1);
	sim_restart(s, 1);
	sim_run_for(s, 1000);
}

/* While records come in, and while nodes are written down. What could not be written is said, is written later, and is
 * there after the next start. */
static void scn_shelf_work(struct sim *s)
{
	for (int n = 1; n <= N_MAX && !sim_failed(s); n++) {
		struct sim *own = sim_new(sim_seed(s) * 1000 + (uint64_t)n);
		struct dht_world w = { 0 };
		char when[40];
		snprintf(when, sizeof when, "call %d", n);
		dht_add(own, &w, 2);
		dht_joined(own);
		put_all(own, 0);
		sim_run_for(own, 1100000);      /* ranks are later */
		sim_shelf_fail(own, 1, n, ERR_FULL);
		put_all(own, 100);
		sim_run_for(own, 2 * SEC);
		bool struck = sim_struck(own, 1);
		json_t *j = status(own, 1);
		if (struck && !json_integer_value(json_object_get(j, "save_failures")))
			sim_fail(own, "call %d failed and nobody says so", n);
		json_decref(j);
		sim_shelf_fail(own, 1, 0, ERR_FULL);
		sim_await(own, settled, NULL, 120 * SEC);
		again_alone(own);
		all_there(own, 100, when);
		sim_told_of(s, own, "%s", when);
		uint64_t hash = sim_hash(own);
		sim_trace(s, &hash, sizeof hash);
		sim_free(own);
		if (!struck && n > RECORDS)
			return;
	}
	if (!sim_failed(s))
		sim_fail(s, "still struck at call %d", N_MAX);
}

/* At start: a shelf that cannot be read is said, and read again later; nothing on it is lost meanwhile. */
static void scn_shelf_start(struct sim *s)
{
	struct dht_world w = { 0 };
	int n = 1;
	dht_add(s, &w, 2);
	dht_joined(s);
	put_all(s, 0);
	sim_run_for(s, 2 * SEC);
	for (bool struck = true; struck && n <= N_MAX && !sim_failed(s); n++) {
		char when[40];
		snprintf(when, sizeof when, "start with call %d failing", n);
		sim_kill(s, 0);
		sim_kill(s, 1);
		sim_shelf_fail(s, 1, n, ERR_IO);
		sim_restart(s, 1);
		sim_run_for(s, 5 * SEC);
		struck = sim_struck(s, 1);
		if (struck)
			sim_await(s, settled, NULL, 120 * SEC);
		else
			sim_run_until(s, settled, NULL, 120 * SEC);
		sim_shelf_fail(s, 1, 0, ERR_IO);
		all_there(s, 0, when);          /* in the same life */
		again_alone(s);
		all_there(s, 0, "the start after it");
	}
	sim_check(s, n > 3);                    /* it reads two tables at least */
}

/* ---- checkpoints: one peer whose only work they are ---- */

#define NUMBERS 700
#define DIR "/state/runs/r"
#define KEEP 2

struct saver { struct env *env; float x[NUMBERS]; struct ckpt_tensor t; struct ckpt_result load, save;
	bool loaded, saved; };

static void fill(float *x, uint64_t epoch)
{
	for (unsigned i = 0; i < NUMBERS; i++)
		x[i] = (float)(epoch * 7 + i);
}

static void on_load(void *arg, const struct ckpt_result *r)
{
	struct saver *a = arg;
	a->load = *r;
	a->loaded = true;
}

static void on_save(void *arg, const struct ckpt_result *r)
{
	struct saver *a = arg;
	a->save = *r;
	a->saved = true;
}

static void *saver_start(struct env *env, int node, void *arg)
{
	struct saver *a = xcalloc(1, sizeof *a);
	uint64_t n = NUMBERS;
	struct err e;
	a->env = env;
	ckpt_tensor(&a->t, "x", CKPT_F32, 1, &n, a->x, &e);
	ckpt_load(env, DIR, &a->t, 1, CKPT_NONE, on_load, a);
	return a;
}

static void saver_stop(void *app)
{
	struct saver *a = app;
	a->env->ops->detach(a->env);
	free(a);
}

static bool ended(struct sim *s, void *arg)
{
	struct saver *a = sim_app(s, 0);
	return !a || (a->loaded && (a->saved || !*(uint64_t *)arg));
}

/* Waits for what its start loads; with epoch, saves that one. False: the process has died on the way. */
static bool saver_run(struct sim *s, uint64_t epoch)
{
	struct saver *a = sim_app(s, 0);
	uint64_t none = 0;
	sim_await(s, ended, &none, 10 * SEC);
	a = sim_app(s, 0);
	if (!a || sim_failed(s))
		return false;
	if (epoch) {
		fill(a->x, epoch);
		a->saved = false;
		ckpt_save(a->env, &(struct ckpt_save){ .dir = DIR, .epoch = epoch, .v = &a->t, .n = 1, .keep = KEEP },
			on_save, a);
		sim_await(s, ended, &epoch, 10 * SEC);
	}
	return sim_alive(s, 0);
}

static struct sim *three_saved(uint64_t seed)
{
	struct sim *s = sim_new(seed);
	struct sim_app app = { saver_start, saver_stop, NULL };
	sim_node_add(s, NULL, &app);
	for (uint64_t e = 1; e <= 3; e++)
		sim_check(s, saver_run(s, e) && !((struct saver *)sim_app(s, 0))->save.error.code);
	return s;
}

static int count_file(void *arg, const char *name)
{
	++*(int *)arg;
	return 0;
}

/* Killed and started again without faults: a whole one, between the last that was told to be safe and the last begun;
 * and once one more is saved, no half of another is left. */
static void whole_again(struct sim *s, uint64_t safe, uint64_t begun, const char *when)
{
	float want[NUMBERS];
	int files = 0;
	struct err e;
	sim_kill(s, 0);
	sim_restart(s, 0);
	saver_run(s, 0);
	struct saver *a = sim_app(s, 0);
	if (a->load.error.code || a->load.epoch < safe || a->load.epoch > begun || a->load.skipped)
		sim_fail(s, "%s: epoch %d was loaded, %d was safe: %s", when, (int)a->load.epoch, (int)safe,
			a->load.error.text);
	fill(want, a->load.epoch);
	if (memcmp(want, a->x, sizeof want))
		sim_fail(s, "%s: other numbers", when);
	sim_check(s, saver_run(s, 5) && !a->save.error.code);
	a->env->files->list(a->env->files, DIR, count_file, &files, &e);
	if (files != KEEP)
		sim_fail(s, "%s: %d files are left", when, files);
}

enum harm { HARM_IO, HARM_FULL, HARM_KILL };

static void harm(struct sim *s, enum harm how, int n)
{
	if (how == HARM_KILL)
		sim_files_kill(s, 0, n);
	else
		sim_files_fail(s, 0, n, how == HARM_IO ? ERR_IO : ERR_FULL);
}

/* Start-up when begun is 3, else the saving of epoch 4. False: nothing was struck. */
static bool ckpt_struck(struct sim *s, enum harm how, int n, bool saving)
{
	char when[64];
	uint64_t safe = 3;
	snprintf(when, sizeof when, "%s, harm %d at call %d", saving ? "saving" : "start", how, n);
	if (!saving)
		sim_kill(s, 0);
	harm(s, how, n);
	if (!saving)
		sim_restart(s, 0);
	bool lives = saver_run(s, saving ? 4 : 0);
	bool struck = sim_struck(s, 0);
	struct saver *a = lives ? sim_app(s, 0) : NULL;
	const struct ckpt_result *r = !a ? NULL : saving ? &a->save : &a->load;
	if (r && r->error.code && !r->error.text[0])
		sim_fail(s, "%s: it failed and does not say why", when);
	if (r && !saving && !r->error.code && r->epoch != 3)
		sim_fail(s, "%s: an older one was taken although the newest is whole", when);
	if (r && saving && !r->error.code)
		safe = 4;
	if (!struck && (!r || r->error.code))
		sim_fail(s, "%s: failed without harm: %s", when, r ? r->error.text : "dead");
	harm(s, how, 0);
	whole_again(s, safe, saving ? 4 : 3, when);
	return struck;
}

static void ckpt_loop(struct sim *s, bool saving)
{
	for (enum harm how = HARM_IO; how <= HARM_KILL && !sim_failed(s); how++) {
		bool struck = true;
		int n = 0;
		while (struck && n++ < N_MAX && !sim_failed(s)) {
			struct sim *own = three_saved(sim_seed(s) * 1000 + (uint64_t)n);
			struck = ckpt_struck(own, how, n, saving);
			sim_told(s, own);
			uint64_t hash = sim_hash(own);
			sim_trace(s, &hash, sizeof hash);
			sim_free(own);
		}
		sim_check(s, n > (saving ? 8 : 4) && n < N_MAX);
	}
}

static void scn_ckpt_save(struct sim *s) { ckpt_loop(s, true); }
static void scn_ckpt_start(struct sim *s) { ckpt_loop(s, false); }

int main(int argc, char **argv)
{
	static const struct scn list[] = { SCN(shelf_work), SCN(shelf_start), SCN(ckpt_save), SCN(ckpt_start), { 0 } };
	return scn_main(list, argc, argv);
}
