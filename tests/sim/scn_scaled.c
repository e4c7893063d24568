/* Runs in halves whose loss is scaled (row A10), in whole nodes (node_world.h): a gradient that overflows at one peer
 * is in everybody's mean, nobody makes that step, and all halve the scale, whoever dies or joins. Where parameters are
 * averaged, each peer has a scale of its own. */
#include <stdio.h>
#include "chain_check.h"
#include "node_world.h"
#include "train/trainer_int.h"

static struct node_world *scaled(struct sim *s, const char *strategy, const char *averaging, double init,
	unsigned interval)
{
	static char spec[1000];
	snprintf(spec, sizeof spec, "{\"name\": \"naps\", \"input\": [4], \"model\": [{\"type\": \"sleep\", "
		"\"fwd_ms\": 200}, {\"type\": \"linear\", \"out\": 3}], \"loss\": \"cross_entropy\", \"target_batch\": 96, "
		"\"optimizer\": {\"name\": \"adam\", \"lr\": 0.01}, \"strategy\": \"%s\", \"averaging\": {%s}, "
		"\"precision\": \"fp16\", \"loss_scale\": {\"init_scale\": %.0f, \"growth_interval\": %u}, "
		"\"validation\": {\"every\": 0}, \"data\": {\"name\": \"x\", \"kind\": \"synthetic\", \"count\": 1000}, "
		"\"stop\": {\"epochs\": 1000000}, \"local\": {\"batch\": 8}}", strategy, averaging, init, interval);
	return node_world_new(s, spec);
}

static const struct trainer *trainer_of(struct node_world *w, int i)
{
	return node_run(w, i) ? node_run(w, i)->trainer : NULL;
}

/* Those who step together have, at the same epoch, stepped alike, and left out what overflowed; who is in the middle of
 * a step is at neither. */
static void judge_two(struct sim *s, const struct trainer *x, const struct trainer *y)
{
	double a[5], b[5];
	memcpy(a, shard_clock(trainer_shard(x)), sizeof a);
	memcpy(b, shard_clock(trainer_shard(y)), sizeof b);
	if (!x->applying && !y->applying && x->epoch == y->epoch && memcmp(a, b, sizeof a))
		sim_fail(s, "epoch %llu: one has made %g steps and has a scale of %g for %g, another %g, %g and %g",
			(unsigned long long)x->epoch, a[0], a[3], a[4], b[0], b[3], b[4]);
}

static void judge(struct sim *s, struct node_world *w, bool alike)
{
	for (int i = 0; i < sim_nodes(s); i++) {
		const struct trainer *t = trainer_of(w, i), *o;
		double clock[5];
		if (!t)
			continue;
		memcpy(clock, shard_clock(trainer_shard(t)), sizeof clock);
		if (clock[3] != t->loss_scale)
			sim_fail(s, "node %d works with a scale of %g, and its state says %g", i, t->loss_scale, clock[3]);
		if (!(clock[0] > 0) || (alike && !(clock[0] < (double)t->epoch)))
			sim_fail(s, "node %d has made %g steps of %llu epochs, and the first must have overflowed", i, clock[0],
				(unsigned long long)t->epoch);
		for (int k = 0; k < i && alike; k++)
			if ((o = trainer_of(w, k)))
				judge_two(s, o, t);
	}
	if (node_told(w, "nonfinite"))
		sim_fail(s, "an overflow was taken for a fault: %s", node_told(w, "nonfinite"));
}

/* Of five two die, one that was never there joins, the dead come back. The scale is so large that it overflows at once,
 * and again whenever it has grown. */
static void life(struct sim *s, const char *strategy, const char *averaging, bool alike)
{
	struct node_world *w = scaled(s, strategy, averaging, 16777216, 4);
	int dead[2];
	node_world_add(w, 5);
	node_run_to(w, 12, 120 * SEC);
	for (int k = 0; k < 2; k++) {
		sim_run_for(s, rng_below(sim_rng(s), SEC));
		dead[k] = node_any(w);
		sim_kill(s, dead[k]);
	}
	node_goes_on(w, 6, 60 * SEC);
	judge(s, w, alike);
	node_world_add(w, 1);
	node_goes_on(w, 6, 60 * SEC);
	for (int k = 0; k < 2; k++)
		if (!sim_alive(s, dead[k]))
			sim_restart(s, dead[k]);
	node_goes_on(w, 8, 60 * SEC);
	judge(s, w, alike);
	node_world_free(w);
}

static void scn_life(struct sim *s) { life(s, "hivemind", "", true); }
static void scn_delayed(struct sim *s) { life(s, "hivemind", "\"delay_grad\": true, \"delay_step\": true", true); }
static void scn_plain(struct sim *s) { life(s, "allreduce", "", true); }
static void scn_async(struct sim *s) { life(s, "allreduce", "\"async\": true", true); }
static void scn_seldom(struct sim *s) { life(s, "hivemind", "\"local_updates\": true, \"every\": 3", false); }
static void scn_diloco(struct sim *s) { life(s, "diloco", "\"inner_steps\": 4", false); }

/* One has micro-batches of one sample, whose gradient is eight times as large as that of others: it alone overflows, in
 * the first epoch, and never again. */
static void scn_alone(struct sim *s)
{
	struct node_world *w = scaled(s, "hivemind", "", 131072, 1000000);
	w->batch_of[(int)rng_below(sim_rng(s), 4)] = 1;
	node_world_add(w, 4);
	node_goes_on(w, 3, 120 * SEC);
	for (int i = 0; i < 4; i++) {
		const struct trainer *t = trainer_of(w, i);
		if (!t || t->loss_scale != 65536)
			sim_fail(s, "node %d has a scale of %g", i, t ? t->loss_scale : 0);
	}
	judge(s, w, true);
	node_world_free(w);
}

static const struct scn list[] = { SCN(life), SCN(delayed), SCN(plain), SCN(async), SCN(seldom), SCN(diloco),
	SCN(alone), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
