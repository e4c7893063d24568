/* A run that has ended, and who comes to it then, or just before, or comes back: it hears so, and begins nothing from
 * the beginning, nor goes on alone with what it has. Every second seed: strategy pipeline. */
#include <stdio.h>
#include <string.h>
#include "common/mem.h"
#include "node_world.h"

#define LAST 30
#define LATE_COMER 3

struct world { struct node_world *w; char spec[1400]; };

static const char *text_of(char out[1400], bool line)
{
	snprintf(out, 1400, "{\"name\": \"short\", \"input\": [6], \"model\": [{\"type\": \"linear\", \"out\": 8}, "
		"{\"type\": \"sleep\", \"fwd_ms\": 20, \"bwd_ms\": 20}, {\"type\": \"linear\", \"out\": 8}, "
		"{\"type\": \"relu\"}, {\"type\": \"linear\", \"out\": 4}], \"loss\": \"cross_entropy\", "
		"\"target_batch\": 64, \"optimizer\": {\"name\": \"adam\", \"lr\": 0.01}, \"strategy\": %s, "
		"\"validation\": {\"every\": 0}, \"stop\": {\"epochs\": %d}, \"seed\": 3, "
		"\"data\": {\"name\": \"x\", \"kind\": \"synthetic\", \"count\": 1000}, \"local\": {\"batch\": 8}}",
		line ? "\"pipeline\", \"stages\": 3, \"micro_batches\": 4, \"replicas\": 1" : "\"hivemind\"", LAST);
	return out;
}

/* Three who train, and a fourth whose operator joins nothing yet. */
static struct world *begin(struct sim *s, bool line)
{
	struct world *x = xcalloc(1, sizeof *x);
	x->w = node_world_new(s, text_of(x->spec, line));
	x->w->idle[LATE_COMER] = true;
	node_world_add(x->w, LATE_COMER + 1);
	return x;
}

static bool is_over(struct node_world *w, int i)
{
	const struct run *r = node_run(w, i);
	return r && r->state == RUN_DONE && r->point.epoch == LAST;
}

static bool all_in(struct sim *s, void *world)
{
	for (int i = 0; i < LATE_COMER; i++)
		if (!node_run(world, i))
			return false;
	return true;
}

static bool all_over(struct sim *s, void *world)
{
	for (int i = 0; i < LATE_COMER; i++)
		if (!is_over(world, i))
			return false;
	return true;
}

static bool author_is_over(struct sim *s, void *world)
{
	return is_over(world, ((struct node_world *)world)->author);
}

static bool has_heard(struct node_world *w, int i)
{
	const struct node_peer *p = node_peer(w, i);
	const struct run *r = node_run(w, i);
	return p && (strstr(p->why, "has ended") || (r && r->state == RUN_FAILED && strstr(r->error.text, "has ended")));
}

struct one { struct node_world *w; int who; };

/* It was in it to the end, or has been told that there is nothing to be in. */
static bool knows(struct sim *s, void *one)
{
	struct one *o = one;
	return is_over(o->w, o->who) || has_heard(o->w, o->who);
}

/* Nobody has made the epochs once more: chain_check.h sees to it. */
static void judged(struct sim *s, struct world *x, int who)
{
	struct node_world *w = x->w;
	sim_await_or(s, knows, &(struct one){ w, who }, 90 * SEC, "node %d does not hear that the run has ended", who);
	const struct run *r = node_run(w, who), *a = node_run(w, w->author);
	if (!sim_failed(s) && r && r->state == RUN_DONE && a && memcmp(r->point.prev, a->point.prev, DIGEST))
		sim_fail(s, "node %d has ended with another history", who);
	sim_run_for(s, 30 * SEC);
	r = node_run(w, who);
	if (r && !run_over(r))
		sim_fail(s, "node %d is in a run that has ended: %s", who, run_state_name(r));
	node_world_free(w);
	free(x);
}

/* Whoever is in it does not join again when it is over. */
static void in_once(struct sim *s, struct node_world *w)
{
	sim_await(s, all_in, w, 60 * SEC);
	for (int i = 0; i < LATE_COMER; i++)
		w->idle[i] = true;
}

static void scn_comes(struct sim *s)
{
	struct world *x = begin(s, sim_seed(s) % 2);
	in_once(s, x->w);
	sim_await(s, all_over, x->w, 120 * SEC);
	sim_run_for(s, rng_below(sim_rng(s), 60 * SEC));
	x->w->idle[LATE_COMER] = false;
	judged(s, x, LATE_COMER);
}

static bool near_the_end(struct sim *s, void *world) { return node_newest(world) + 2 >= LAST; }

static void scn_at_the_end(struct sim *s)
{
	struct world *x = begin(s, sim_seed(s) % 2);
	in_once(s, x->w);
	sim_await(s, near_the_end, x->w, 120 * SEC);
	sim_run_for(s, rng_below(sim_rng(s), SEC));
	x->w->idle[LATE_COMER] = false;
	judged(s, x, LATE_COMER);
}

/* It dies on the way, and its operator joins the run again. */
static void scn_comes_back(struct sim *s)
{
	struct world *x = begin(s, sim_seed(s) % 2);
	int dead = (x->w->author + 1 + (int)rng_below(sim_rng(s), 2)) % LATE_COMER;
	x->w->idle[LATE_COMER] = false;
	in_once(s, x->w);
	for (int k = 0; k < 1000 && node_newest(x->w) < 3 + sim_seed(s) % 20 && !sim_failed(s); k++)
		sim_run_for(s, 100 * MSEC);
	sim_kill(s, dead);
	sim_await(s, author_is_over, x->w, 120 * SEC);
	sim_run_for(s, rng_below(sim_rng(s), 20 * SEC));
	x->w->idle[dead] = false;
	sim_restart(s, dead);
	judged(s, x, dead);
}

static void goes_at(struct sim *s, struct node_world *w, int who, uint64_t epoch)
{
	for (int k = 0; k < 1000 && node_newest(w) < epoch && !sim_failed(s); k++)
		sim_run_for(s, 100 * MSEC);
	sim_kill(s, who);
}

/* Two die, one after the other, and come back together: each finds the other, and neither what came after. */
static void scn_two_come_back(struct sim *s)
{
	struct world *x = begin(s, false);      /* a pipeline would wait for them */
	struct node_world *w = x->w;
	int dead[2] = { (w->author + 1) % LATE_COMER, (w->author + 2) % LATE_COMER };
	w->idle[LATE_COMER] = false;
	in_once(s, w);
	for (int k = 0; k < 2; k++)
		goes_at(s, w, dead[k], (uint64_t)(5 + 12 * k) + rng_below(sim_rng(s), 10));
	sim_await(s, author_is_over, w, 240 * SEC);
	sim_run_for(s, rng_below(sim_rng(s), 20 * SEC));
	for (int k = 0; k < 2; k++) {
		w->idle[dead[k]] = false;
		sim_restart(s, dead[k]);
	}
	sim_await_or(s, knows, &(struct one){ w, dead[0] }, 90 * SEC, "node %d does not hear that the run has ended",
		dead[0]);
	judged(s, x, dead[1]);
}

static bool all_stopped(struct sim *s, void *world)
{
	for (int i = 0; i < LATE_COMER; i++)
		if (node_run(world, i)->state != RUN_STOPPED)
			return false;
	return true;
}

/* Its author stops it, and begins it again: the word of before rules no more, for nobody. */
static void scn_begun_again(struct sim *s)
{
	struct world *x = begin(s, sim_seed(s) % 2);
	struct node_world *w = x->w;
	struct err e;
	w->forks_allowed = true;                /* it goes on from a checkpoint */
	in_once(s, w);
	for (int k = 0; k < 1000 && node_newest(w) < 3 + sim_seed(s) % 20 && !sim_failed(s); k++)
		sim_run_for(s, 100 * MSEC);
	json_decref(node_ask(w, w->author, node_run_stop, json_pack("{s:s}", "run", "short"), &e));
	sim_await(s, all_stopped, w, 30 * SEC);
	sim_run_for(s, rng_below(sim_rng(s), 5 * SEC));
	w->started = false;
	for (int i = 0; i <= LATE_COMER; i++)
		w->idle[i] = false;
	sim_await(s, all_over, w, 120 * SEC);
	node_world_free(w);
	free(x);
}

static const struct scn list[] = { SCN(comes), SCN(at_the_end), SCN(comes_back), SCN(two_come_back), SCN(begun_again),
	{0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
