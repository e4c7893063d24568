/* Strategy pipeline in whole nodes (node_world.h): stages die at any moment and come back as whatever they are needed
 * for, and what is learned keeps the bits of one peer alone that nothing disturbs, on everybody who holds a part. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "node_world.h"
#include "train/trainer_int.h"

/* Running statistics of a batch norm go by the order of micro-batches: with several pipelines there are none. */
static const char *line_spec(char out[1400], const char *strategy, const char *norm, const char *more)
{
	static const char nap[] = "{\"type\": \"sleep\", \"fwd_ms\": 4}";
	snprintf(out, 1400, "{\"name\": \"line\", \"input\": [6], \"model\": [{\"type\": \"linear\", \"out\": 24}, "
		"{\"type\": \"%s\"}, %s, {\"type\": \"linear\", \"out\": 20}, {\"type\": \"tanh\"}, %s, "
		"{\"type\": \"linear\", \"out\": 12}, {\"type\": \"%s\"}, %s, {\"type\": \"linear\", \"out\": 4}], "
		"\"loss\": \"cross_entropy\", \"target_batch\": 64, \"optimizer\": {\"name\": \"adam\", \"lr\": 0.01}, "
		"\"strategy\": \"%s\", \"validation\": {\"every\": 0}, \"data\": {\"name\": \"x\", \"kind\": "
		"\"synthetic\", \"count\": 1000}, \"seed\": 3, \"stop\": {\"epochs\": 1000000}, \"local\": {\"batch\": 8}%s}",
		norm, nap, nap, norm, nap, strategy, more);
	return out;
}

#define PIPELINE ", \"stages\": 3, \"micro_batches\": 4, \"replicas\": 1"

static bool seated(struct node_world *w, int i)
{
	const struct run *r = node_run(w, i);
	return r && r->crew && r->state == RUN_TRAIN && run_crew_seated(r);
}

static int seats(struct node_world *w)
{
	int n = 0;
	for (int i = 0; i < sim_nodes(w->s); i++)
		n += seated(w, i);
	return n;
}

static bool all_seated(struct sim *s, void *world) { return seats(world) >= 3; }

static int any_seated(struct node_world *w)
{
	int i = node_any(w), n = sim_nodes(w->s);
	for (int k = 0; k < n && !seated(w, i); k++)
		i = (i + 1) % n;
	return i;
}

/* ---- the one alone ---- */

struct alone { struct sim *s; struct node_world *w; char spec[1400]; };

static void alone_begin(struct alone *a, uint64_t seed, const char *norm)
{
	a->s = sim_new(seed + 1000000);
	a->w = node_world_new(a->s, line_spec(a->spec, "single", norm, ""));
	node_world_add(a->w, 1);
}

static void alone_end(struct alone *a)
{
	node_world_free(a->w);
	sim_free(a->s);
}

static bool is_at(const struct run *r, uint64_t epoch)
{
	return r && r->trainer && r->trainer->epoch == epoch && trainer_lies_still(r->trainer);
}

/* Its state of that epoch, which is not behind it. */
static const struct shard *alone_at(struct alone *a, uint64_t epoch)
{
	for (int k = 0; k < 4000000 && !is_at(node_run(a->w, 0), epoch) && !sim_failed(a->s); k++)
		sim_run_for(a->s, MSEC);
	return is_at(node_run(a->w, 0), epoch) ? trainer_shard(node_run(a->w, 0)->trainer) : NULL;
}

/* rounded: by so much may numbers differ; several pipelines add in another order. */
struct line { struct sim *s; struct node_world *w; struct alone a; char spec[1400]; double rounded; };

/* ---- what is held ---- */

static bool same(const struct line *l, const struct ckpt_tensor *x, const struct ckpt_tensor *want, bool clock)
{
	const real *a = (const real *)x->data, *b = (const real *)want->data;
	if (l->rounded <= 0 || clock)
		return !memcmp(x->data, want->data, x->bytes);
	for (size_t k = 0; k < x->bytes / sizeof *a; k++)
		if (!(fabs((double)a[k] - (double)b[k]) <= l->rounded * (1 + fabs((double)b[k]))))
			return false;
	return true;
}

static void compare(struct line *l, int node, uint64_t epoch, const struct shard *part, const struct shard *whole)
{
	struct sim *s = l->s;
	struct shard want;
	struct err e;
	if (shard_new(&want, part->l, part->param, part->stat, &e)) {
		sim_fail(s, "%s", e.text);
		return;
	}
	memset(want.block, 0, want.bytes);
	shard_clock_reset(&want);
	(void)shard_copy(&want, whole);
	for (size_t i = 0; i < part->ntensors; i++)
		if (!same(l, &part->tensor[i], &want.tensor[i], !part->of[i])) {
			sim_fail(s, "a member has other bits of %s than one alone", want.tensor[i].name);
			if (getenv("VERBOSE"))
				fprintf(stderr, "node %d, epoch %llu\n", node, (unsigned long long)epoch);
			break;
		}
	shard_free(&want);
}

/* All that is held at an epoch that comes soon, each when its holder is there: and who has seen it all? */
static void same_as_alone(struct line *l)
{
	struct sim *s = l->s;
	struct node_world *w = l->w;
	struct alone *a = &l->a;
	sim_run_until(s, all_seated, w, 60 * SEC);
	uint64_t epoch = node_newest(w) + 2;
	const struct shard *whole = alone_at(a, epoch);
	bool seen[16] = { false };
	uint32_t n, copies = 0, held = 0;
	if (!whole) {
		sim_fail(s, "one alone does not come there: %s", sim_failed(a->s) ? sim_failed(a->s) : "it takes too long");
		return;
	}
	for (int ms = 0; ms < 60000 && !sim_failed(s); ms++) {
		bool all = true;
		sim_run_for(s, MSEC);
		for (int i = 0; i < sim_nodes(s); i++) {
			if (!seated(w, i) || seen[i])
				continue;
			all = all && node_run(w, i)->trainer->epoch > epoch;
			if (!is_at(node_run(w, i), epoch))
				continue;
			const struct shard *v = trainer_shards(node_run(w, i)->trainer, &n);
			seen[i] = true;
			held++;
			for (uint32_t k = 0; k < n; k++, copies++)
				compare(l, i, epoch, &v[k], whole);
		}
		if (all)
			break;
	}
	if (held < 3 || copies < 6)
		sim_fail(s, "of what three hold twice not all was seen");
}

/* A pipeline of n peers that has begun, and the one alone. */
static struct line *line_of(struct sim *s, const char *norm, const char *more, int n)
{
	struct line *l = xcalloc(1, sizeof *l);
	l->s = s;
	l->w = node_world_new(s, line_spec(l->spec, "pipeline", norm, more));
	alone_begin(&l->a, sim_seed(s), norm);
	node_world_add(l->w, n);
	node_run_to(l->w, 5, 120 * SEC);
	return l;
}

static struct line *line_begin(struct sim *s, const char *more, int n)
{
	return line_of(s, "batchnorm", more, n);
}

/* It has learned what the one alone has. */
static void line_end(struct line *l)
{
	same_as_alone(l);
	alone_end(&l->a);
	node_world_free(l->w);
	free(l);
}

static void goes_on(struct line *l, uint64_t epochs)
{
	node_run_to(l->w, node_newest(l->w) + epochs, 180 * SEC);
}

/* At most that long after all stages have a member; whom: */
static int kill_any(struct line *l, uint64_t us)
{
	if (!sim_run_until(l->s, all_seated, l->w, 60 * SEC))
		sim_fail(l->s, "not all stages have a member");
	sim_run_for(l->s, rng_below(sim_rng(l->s), us));
	int dead = any_seated(l->w);
	sim_kill(l->s, dead);
	return dead;
}

/* ---- scenarios ---- */

/* One after the other, anybody who has a stage, at any moment; the dead come back as spares. */
static void scn_killed(struct sim *s)
{
	struct line *l = line_begin(s, PIPELINE, 4);
	for (int k = 0; k < 4 && !sim_failed(s); k++) {
		int dead = kill_any(l, 300 * MSEC);
		goes_on(l, 4);
		sim_restart(s, dead);
		goes_on(l, 4);
	}
	line_end(l);
}

/* With three copies two may die between two COMMITs: a stage, and as soon as somebody sits there the next, perhaps a
 * spare that is being given its part, or who gives it. */
static void scn_in_a_row(struct sim *s)
{
	struct line *l = line_begin(s, PIPELINE ", \"redundancy\": 3", 7);
	for (int k = 0; k < 4 && !sim_failed(s); k++) {
		(void)kill_any(l, 20 * MSEC);
		if (k % 2)
			goes_on(l, 3);
	}
	line_end(l);
}

/* Without a spare: they wait, and go on with whoever comes back, though it has nothing. */
static void scn_waits(struct sim *s)
{
	struct line *l = line_begin(s, PIPELINE, 3);
	for (int k = 0; k < 3 && !sim_failed(s); k++) {
		int dead = kill_any(l, 300 * MSEC);
		sim_run_for(s, 10 * SEC);
		uint64_t at = node_newest(l->w);
		sim_run_for(s, 5 * SEC);
		if (node_newest(l->w) != at)
			sim_fail(s, "two of three stages have gone on");
		sim_restart(s, dead);
		goes_on(l, 4);
	}
	if (!node_told(l->w, "crew.waits"))
		sim_fail(s, "nobody has said that it waits");
	line_end(l);
}

/* Two sides that both lack a stage, and one that does not. */
static void scn_divided(struct sim *s)
{
	struct line *l = line_begin(s, PIPELINE, 5);
	int side[5];
	l->w->forks_allowed = true;
	for (int k = 0; k < 2 && !sim_failed(s); k++) {
		for (int i = 0; i < 5; i++)
			side[i] = (int)rng_below(sim_rng(s), 2);
		sim_partition(s, side, 5);
		sim_run_for(s, 5 * SEC + rng_below(sim_rng(s), 10 * SEC));
		sim_heal(s);
		goes_on(l, 4);
	}
	line_end(l);
}

/* ---- several side by side ---- */

#define UNITS ", \"stages\": 3, \"micro_batches\": 4"

static bool six_seated(struct sim *s, void *world) { return seats(world) >= 6; }

/* Six members are two pipelines, of which each makes half of an epoch; together they learn what one alone does. */
static void scn_units(struct sim *s)
{
	struct line *l = line_of(s, "layernorm", UNITS, 6);
	if (!sim_run_until(s, six_seated, l->w, 120 * SEC))
		sim_fail(s, "there is no second pipeline");
	goes_on(l, 6);
	if (seats(l->w) != 6)
		sim_fail(s, "a pipeline is gone, and nobody has died");
	l->rounded = 1e-5;
	line_end(l);
}

/* ---- several, and deaths ---- */

/* What has been seen of a part, to be compared with what others hold of it. */
struct seen { struct shard copy; bool is; };

static void same_part(struct sim *s, struct seen *v, int n, const struct shard *part)
{
	int k = 0;
	struct err e;
	while (k < n && v[k].is && (v[k].copy.param.lo != part->param.lo || v[k].copy.param.hi != part->param.hi))
		k++;
	if (k == n || (!v[k].is && shard_new(&v[k].copy, part->l, part->param, part->stat, &e))) {
		sim_fail(s, "no room for what is compared");
	} else if (!v[k].is) {
		v[k].is = true;
		(void)shard_copy(&v[k].copy, part);
	} else {
		for (size_t i = 0; i < part->ntensors; i++)
			if (memcmp(part->tensor[i].data, v[k].copy.tensor[i].data, part->tensor[i].bytes))
				sim_fail(s, "two that hold it have other bits of %s", part->tensor[i].name);
	}
}

/* All who hold a part at an epoch that comes soon hold the same; so many have been looked at. */
static void same_among(struct line *l, int least)
{
	uint64_t epoch = node_newest(l->w) + 2;
	struct seen v[16] = { 0 };
	bool seen[16] = { false };
	uint32_t n;
	int held = 0;
	for (int ms = 0; ms < 60000 && !sim_failed(l->s) && node_newest(l->w) < epoch + 2; ms++) {
		sim_run_for(l->s, MSEC);
		for (int i = 0; i < sim_nodes(l->s); i++) {
			if (!seated(l->w, i) || seen[i] || !is_at(node_run(l->w, i), epoch))
				continue;
			const struct shard *part = trainer_shards(node_run(l->w, i)->trainer, &n);
			seen[i] = true;
			held++;
			for (uint32_t k = 0; k < n; k++)
				same_part(l->s, v, 16, &part[k]);
		}
	}
	for (int k = 0; k < 16; k++)
		if (v[k].is)
			shard_free(&v[k].copy);
	if (held < least)
		sim_fail(l->s, "%d hold a part, and %d were seen", least, held);
}

static void line_free(struct line *l)
{
	alone_end(&l->a);
	node_world_free(l->w);
	free(l);
}

/* The generation of the newest COMMIT. */
static uint64_t base_at(struct line *l, uint64_t epoch)
{
	uint64_t base = 0;
	for (int i = 0; i < sim_nodes(l->s); i++) {
		const struct run *r = node_run(l->w, i);
		if (r && r->crew && r->point.epoch == epoch && run_crew_base(r) > base)
			base = run_crew_base(r);
	}
	return base;
}

static void wait_six(struct line *l)
{
	if (!sim_run_until(l->s, six_seated, l->w, 120 * SEC))
		sim_fail(l->s, "there is no second pipeline");
}

/* Who dies takes its pipeline out of the round, not the round down: the COMMITs that follow at once are of the same
 * generation, and then the next has the other pipeline alone. Who comes back makes a second one whole. */
static void scn_unit_dies(struct sim *s)
{
	struct line *l = line_of(s, "layernorm", UNITS, 6);
	int same = 0;
	for (int k = 0; k < 3 && !sim_failed(s); k++) {
		wait_six(l);
		goes_on(l, 2);
		sim_run_for(s, rng_below(sim_rng(s), 300 * MSEC));
		uint64_t at = node_newest(l->w), was = base_at(l, at);
		int dead = any_seated(l->w);
		sim_kill(s, dead);
		for (int ms = 0; ms < 20000 && node_newest(l->w) == at; ms++)
			sim_run_for(s, MSEC);
		sim_run_for(s, 2 * MSEC);               /* who has told of it has not, perhaps, told the crew */
		same += base_at(l, at + 1) == was;
		goes_on(l, 4);
		sim_restart(s, dead);
		goes_on(l, 4);
	}
	if (same < 3)
		sim_fail(s, "a pipeline that nobody died of did not go on in its generation");
	wait_six(l);
	same_among(l, 6);
	line_free(l);
}

static uint64_t weight_at(struct line *l)
{
	uint64_t at = node_newest(l->w), weight = 0;
	for (int i = 0; i < sim_nodes(l->s); i++) {
		const struct run *r = node_run(l->w, i);
		weight = r && r->commit.epoch == at ? r->commit.weight : weight;
	}
	return weight;
}

static bool half(struct sim *s, void *line) { return weight_at(line) == 32; }
static bool whole(struct sim *s, void *line) { return weight_at(line) == 64; }

/* One member takes hundreds of times as long for everything: its pipeline is left out, and no other waits for it more
 * than now and then. When it is as fast as the others again, all are in the round. Nothing has begun anew for that. */
static void scn_slow_unit(struct sim *s)
{
	struct line *l = line_of(s, "layernorm", UNITS, 6);
	wait_six(l);
	goes_on(l, 3);
	uint64_t was = base_at(l, node_newest(l->w));
	int slow = any_seated(l->w);
	sim_lane_slow(s, slow, "train", 400);
	if (!sim_run_until(s, half, l, 60 * SEC))
		sim_fail(s, "a pipeline that takes so long is waited for");
	uint64_t at = node_newest(l->w);
	sim_run_for(s, 20 * SEC);
	if (node_newest(l->w) < at + 20)
		sim_fail(s, "%llu epochs in 20 s: the others wait for it", (unsigned long long)(node_newest(l->w) - at));
	sim_lane_slow(s, slow, "train", 1);
	if (!sim_run_until(s, whole, l, 60 * SEC))
		sim_fail(s, "it is not in the round again");
	goes_on(l, 3);
	if (base_at(l, node_newest(l->w)) != was)
		sim_fail(s, "another generation, and nobody has died");
	same_among(l, 6);
	line_free(l);
}

static void target(struct line *l, int samples)
{
	struct err e;
	json_t *r = node_ask(l->w, l->w->author, node_set, json_pack("{s:s,s:{s:i}}", "run", "line", "values",
		"target_batch", samples), &e);
	if (!r)
		sim_fail(l->s, "target batch %d: %s", samples, e.text);
	json_decref(r);
}

static bool light(struct sim *s, void *line) { return weight_at(line) == 128; }

/* Other target batches, while two pipelines run: each makes half of them. One that is so small that a second pipeline
 * would have nothing to do leaves one; and back. */
static void scn_target(struct sim *s)
{
	struct line *l = line_of(s, "layernorm", UNITS, 6);
	wait_six(l);
	goes_on(l, 3);
	target(l, 128);
	if (!sim_run_until(s, light, l, 60 * SEC))
		sim_fail(s, "nobody makes 128 samples");
	goes_on(l, 4);
	target(l, 8);
	goes_on(l, 6);
	target(l, 64);
	goes_on(l, 6);
	wait_six(l);
	if (!sim_run_until(s, whole, l, 60 * SEC))
		sim_fail(s, "nobody makes 64 samples");
	same_among(l, 6);
	line_free(l);
}

/* Two die within a moment, often of both pipelines; with three copies nothing is lost. */
static void scn_units_in_a_row(struct sim *s)
{
	struct line *l = line_of(s, "layernorm", UNITS ", \"redundancy\": 3", 7);
	wait_six(l);
	for (int k = 0; k < 3 && !sim_failed(s); k++) {
		int one = kill_any(l, 20 * MSEC), two = kill_any(l, 20 * MSEC);
		goes_on(l, 3);
		sim_restart(s, one);
		sim_restart(s, two);
		goes_on(l, 3);
		wait_six(l);
	}
	same_among(l, 6);
	line_free(l);
}

static const struct scn list[] = { SCN(killed), SCN(in_a_row), SCN(waits), SCN(divided), SCN(units),
	SCN(unit_dies), SCN(slow_unit), SCN(target), SCN(units_in_a_row), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
