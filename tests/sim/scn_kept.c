/* A state is given up for another only when that is whole. One of five is cut off for a while and goes on alone; its
 * history loses when they meet. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "node_world.h"
#include "train/trainer.h"

static bool one_fetches(struct sim *s, void *arg)
{
	struct run *r = node_run(arg, 0);
	return r && r->state == RUN_SYNC;
}

static bool goes_on(struct sim *s, void *arg)
{
	struct run *r = node_run(arg, 0);
	return r && r->state == RUN_TRAIN && r->own_samples;
}

/* When it begins to fetch; NULL: it did not. */
static struct node_world *one_loses(struct sim *s, uint64_t bytes_per_s)
{
	static char spec[700];
	struct node_world *w = node_world_new(s, node_naps_of(spec, 10000, 200, 80));
	struct sim_link thin = { .latency_us = 5 * MSEC, .jitter_us = MSEC, .bytes_per_s = bytes_per_s };
	int side[5] = { 1 };
	w->forks_allowed = true;
	node_world_add(w, 5);
	node_run_to(w, 3, 60 * SEC);
	sim_partition(s, side, 5);
	sim_run_for(s, 20 * SEC + rng_below(sim_rng(s), 10 * SEC));
	sim_link(s, 0, -1, &thin);
	sim_link(s, -1, 0, &thin);
	sim_heal(s);
	return sim_await(s, one_fetches, w, 60 * SEC) ? w : NULL;
}

/* There is no memory for both: then what comes takes the place of what was here, and it ends where the others are. */
static void scn_not_both(struct sim *s)
{
	sim_failpoint(s, 0, "run.piece", SIM_ERROR, 1 + (int)rng_below(sim_rng(s), 30));
	struct node_world *w = one_loses(s, 2000000);
	if (!w)
		return;
	sim_await(s, goes_on, w, 60 * SEC);
#ifdef FAILPOINTS
	sim_in_time(s, sim_failpoint_hit(s, "run.piece"));
#endif
	sim_check(s, node_told(w, "fork.discarded"));
	node_goes_on(w, 2, 60 * SEC);
	node_end(w);
}

/* The others die, and it goes on; NULL: it does not. */
static struct run *alone(struct sim *s, struct node_world *w)
{
	for (int i = 1; i < 5; i++)
		sim_kill(s, i);
	if (sim_await(s, goes_on, w, 60 * SEC))
		return node_run(w, 0);
	node_print(w);
	return NULL;
}

/* Every one of the others dies while it fetches theirs. What it has learned since it last saved is not lost: it goes on
 * with that, and nothing of it is said to be discarded. */
static void scn_kept(struct sim *s)
{
	struct node_world *w = one_loses(s, 60000);
	if (!w)
		return;
	struct run *r = node_run(w, 0);
	uint64_t epoch = r->point.epoch, samples = r->point.samples;
	sim_in_time(s, epoch > 3 && r->saved_epoch < epoch);
	sim_run_for(s, rng_below(sim_rng(s), 3 * SEC));
	if (!one_fetches(s, w)) {
		sim_late(s, "it fetches no more when the others are to die");
		node_end(w);
		return;
	}
	if (!(r = alone(s, w)))
		return;
	if (r->point.epoch < epoch || r->point.samples < samples)
		sim_fail(s, "it was at epoch %llu with %llu samples, and goes on at %llu with %llu", (unsigned long long)epoch,
			(unsigned long long)samples, (unsigned long long)r->point.epoch, (unsigned long long)r->point.samples);
	if (node_told(w, "fork.discarded"))
		sim_fail(s, "what it goes on with is said to be discarded: %s", node_told(w, "fork.discarded"));
	struct sim_link wide = { .latency_us = 5 * MSEC, .jitter_us = MSEC };   /* thin so that fetching takes a while */
	sim_link(s, 0, -1, &wide);
	sim_link(s, -1, 0, &wide);
	for (int i = 1; i < 5; i++)
		sim_restart(s, i);
	node_goes_on(w, 2, 60 * SEC);
	node_end(w);
}

static bool others_level(struct sim *s, void *arg)
{
	struct trainer_view v, first;
	trainer_view(node_run(arg, 1)->trainer, &first);
	for (int i = 2; i < 5; i++) {
		trainer_view(node_run(arg, i)->trainer, &v);
		if (v.epoch != first.epoch)
			return false;
	}
	return true;
}

static bool is_finite(struct trainer *t)
{
	const struct ckpt_tensor *v;
	size_t n = trainer_tensors(t, &v);
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < v[i].bytes / sizeof(real) && strcmp(v[i].name, "optimizer.clock"); k++)
			if (!isfinite((double)((real *)v[i].data)[k]))
				return false;
	return true;
}

/* The others' state is whole, and not all of it are numbers. It is no better than what is here, which stays, whatever
 * becomes of them. */
static void scn_no_number(struct sim *s)
{
	struct node_world *w = one_loses(s, 2000000);
	if (!w || !sim_await(s, others_level, w, 10 * SEC))
		return;
	struct run *r = node_run(w, 0);
	uint64_t epoch = r->point.epoch, samples = r->point.samples;
	size_t bytes, at = (size_t)rng_below(sim_rng(s), trainer_model(r->trainer)->nparam);
	sim_in_time(s, epoch > 3 && r->saved_epoch < epoch);
	if (!one_fetches(s, w)) {
		sim_late(s, "it fetches no more when the others are to have no numbers");
		node_end(w);
		return;
	}
	for (int i = 1; i < 5; i++)
		((real *)trainer_state(node_run(w, i)->trainer, &bytes))[at] = (real)NAN;
	sim_run_for(s, 5 * SEC + rng_below(sim_rng(s), 5 * SEC));
	if (!(r = alone(s, w)))
		return;
	if (r->point.epoch < epoch || r->point.samples < samples || !is_finite(r->trainer))
		sim_fail(s, "it was at epoch %llu with %llu samples, goes on at %llu with %llu%s", (unsigned long long)epoch,
			(unsigned long long)samples, (unsigned long long)r->point.epoch, (unsigned long long)r->point.samples,
			is_finite(r->trainer) ? "" : ", with what is no number");
	if (node_told(w, "fork.discarded"))
		sim_fail(s, "what it goes on with is said to be discarded: %s", node_told(w, "fork.discarded"));
	node_end(w);
}

static bool gone(struct sim *s, void *arg)
{
	struct run *r = node_run(arg, 0);
	return !r || run_over(r);
}

/* It leaves while it fetches. What the others commit before they know of that is not of the state that it holds: it
 * leaves at its own epoch, however many there are. */
static void scn_left(struct sim *s)
{
	struct node_world *w = one_loses(s, 60000);
	struct err e = { 0 };
	if (!w)
		return;
	struct run *r = node_run(w, 0);
	uint64_t epoch = r->point.epoch;
	w->idle[0] = true;
	sim_run_for(s, rng_below(sim_rng(s), 2 * SEC));
	if (!one_fetches(s, w)) {
		sim_late(s, "it fetches no more when it is to leave");
		node_end(w);
		return;
	}
	json_t *said = node_ask(w, 0, node_run_leave, json_pack("{s:s}", "run", "naps"), &e);
	if (!said)
		sim_fail(s, "leave: %s", e.text);
	json_decref(said);
	if (!sim_await(s, gone, w, 20 * SEC))
		node_print(w);
	else if (strcmp(run_state_name(r), "left") || r->point.epoch != epoch)
		sim_fail(s, "it is %s at epoch %llu, and has held epoch %llu", run_state_name(r),
			(unsigned long long)r->point.epoch, (unsigned long long)epoch);
	node_goes_on(w, 2, 60 * SEC);
	node_end(w);
}

static const struct scn list[] = { SCN(kept), SCN(not_both), SCN(no_number), SCN(left), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
