/* A pipeline of whole nodes and one peer alone that learns the same (line_world.h). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "line_world.h"
#include "train/trainer_int.h"

static const char nap[] = "{\"type\": \"sleep\", \"fwd_ms\": 4}";

/* Its first layer and its last have the same parameters; norm NULL of them. */
static const char *model_text(char out[700], const char *norm)
{
	if (norm)
		snprintf(out, 700, "{\"type\": \"linear\", \"out\": 24}, "
			"{\"type\": \"%s\"}, %s, {\"type\": \"linear\", \"out\": 20}, {\"type\": \"tanh\"}, %s, "
			"{\"type\": \"linear\", \"out\": 12}, {\"type\": \"%s\"}, %s, {\"type\": \"linear\", \"out\": 4}",
			norm, nap, nap, norm, nap);
	else
		snprintf(out, 700, "{\"type\": \"linear\", \"out\": 6, \"name\": \"first\"}, "
			"{\"type\": \"layernorm\"}, %s, {\"type\": \"linear\", \"out\": 20}, {\"type\": \"tanh\"}, %s, "
			"{\"type\": \"linear\", \"out\": 6}, {\"type\": \"layernorm\"}, %s, "
			"{\"type\": \"linear\", \"out\": 6, \"share\": \"first\"}", nap, nap, nap);
	return out;
}

static const char *line_spec(char out[1400], const char *strategy, const char *norm, const char *more)
{
	char model[700];
	const char *seldom = strstr(more, "\"validation\"") ? "" : "\"validation\": {\"every\": 0}, ";
	const char *stop = strstr(more, "\"stop\"") ? "" : "\"stop\": {\"epochs\": 1000000}, ";
	snprintf(out, 1400, "{\"name\": \"line\", \"input\": [6], \"model\": [%s], "
		"\"loss\": \"cross_entropy\", \"target_batch\": 64, \"optimizer\": {\"name\": \"adam\", \"lr\": 0.01}, "
		"\"strategy\": \"%s\", %s%s\"data\": {\"name\": \"x\", \"kind\": \"synthetic\", \"count\": 1000}, "
		"\"seed\": 3, \"local\": {\"batch\": 8}%s}", model_text(model, norm), strategy, seldom, stop, more);
	return out;
}

bool line_seated(struct node_world *w, int i)
{
	const struct run *r = node_run(w, i);
	return r && r->crew && r->state == RUN_TRAIN && run_crew_seated(r);
}

int line_seats(struct node_world *w)
{
	int n = 0;
	for (int i = 0; i < sim_nodes(w->s); i++)
		n += line_seated(w, i);
	return n;
}

bool line_all_seated(struct sim *s, void *line)
{
	const struct line *l = line;
	return line_seats(l->w) >= l->stages;
}

int line_any_seated(struct node_world *w)
{
	int i = node_any(w), n = sim_nodes(w->s);
	for (int k = 0; k < n && !line_seated(w, i); k++)
		i = (i + 1) % n;
	return i;
}

/* ---- the one alone ---- */

static void alone_begin(struct alone *a, uint64_t seed, const char *strategy, const char *norm, const char *more,
	int nodes)
{
	a->s = sim_new(seed + 1000000);
	a->w = node_world_new(a->s, line_spec(a->spec, strategy, norm, more));
	node_world_add(a->w, nodes);
}

static void alone_end(struct alone *a)
{
	node_world_free(a->w);
	sim_free(a->s);
}

bool line_is_at(const struct run *r, uint64_t epoch)
{
	/* where epochs run on, what was decided may have to wait for its turn among micro-batches */
	return r && r->trainer && r->trainer->epoch == epoch && (trainer_lies_still(r->trainer) ||
		(r->spec->mode.runs_on && !r->trainer->seat.late.steps && !state_busy(r->trainer->state)));
}

/* Its state of that epoch, which is not behind it: in so many parts. NULL: it does not come there. */
static const struct shard *alone_at(struct alone *a, uint64_t epoch, uint32_t *ret_n)
{
	for (int k = 0; k < 4000000 && !line_is_at(node_run(a->w, 0), epoch) && !sim_failed(a->s); k++)
		sim_run_for(a->s, MSEC);
	return line_is_at(node_run(a->w, 0), epoch) ? trainer_shards(node_run(a->w, 0)->trainer, ret_n) : NULL;
}

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

static void compare(struct line *l, int node, uint64_t epoch, const struct shard *part,
	const struct shard *whole, uint32_t parts)
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
	for (uint32_t k = 0; k < parts; k++)
		(void)shard_copy(&want, &whole[k]);
	for (size_t i = 0; i < part->ntensors; i++)
		if (!same(l, &part->tensor[i], &want.tensor[i], !part->of[i])) {
			sim_fail(s, "a member has other bits of %s than one alone", want.tensor[i].name);
			if (getenv("VERBOSE"))
				fprintf(stderr, "node %d, epoch %llu\n", node, (unsigned long long)epoch);
			break;
		}
	shard_free(&want);
}

#define LOOKS 8                         /* a new generation may come just then */

/* All that is held at an epoch that comes soon, each when its holder is there: and who has seen it all? */
static bool same_soon(struct line *l)
{
	struct sim *s = l->s;
	struct node_world *w = l->w;
	struct alone *a = &l->a;
	sim_run_until(s, line_all_seated, l, 60 * SEC);
	uint64_t epoch = node_newest(w) + 2;
	bool seen[16] = { false };
	uint32_t n, parts, copies = 0, held = 0;
	const struct shard *whole = alone_at(a, epoch, &parts);
	if (!whole) {
		sim_fail(s, "one alone does not come there: %s", sim_failed(a->s) ? sim_failed(a->s) : "it takes too long");
		return false;
	}
	for (int ms = 0; ms < 60000 && !sim_failed(s); ms++) {
		bool all = true;
		sim_run_for(s, MSEC);
		for (int i = 0; i < sim_nodes(s); i++) {
			if (!line_seated(w, i) || seen[i])
				continue;
			all = all && node_run(w, i)->trainer->epoch > epoch;
			if (!line_is_at(node_run(w, i), epoch))
				continue;
			const struct shard *v = trainer_shards(node_run(w, i)->trainer, &n);
			seen[i] = true;
			held++;
			for (uint32_t k = 0; k < n; k++, copies++)
				compare(l, i, epoch, &v[k], whole, parts);
		}
		if (all)
			break;
	}
	return held >= 3 && copies >= l->copies;
}

static void same_as_alone(struct line *l)
{
	bool all = false;
	uint64_t at = node_newest(l->w);
	for (int k = 0; k < LOOKS && !all && !sim_failed(l->s); k++)
		all = same_soon(l);
	if (!all && node_newest(l->w) <= at)
		sim_fail(l->s, "of what three hold twice not all was seen, and it stands still");
	else if (!all)
		sim_late(l->s, "of what three hold twice not all was seen");
}

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
static int same_among(struct line *l)
{
	uint64_t epoch = node_newest(l->w) + 2;
	struct seen v[16] = { 0 };
	bool seen[16] = { false };
	uint32_t n;
	int held = 0;
	for (int ms = 0; ms < 60000 && !sim_failed(l->s) && node_newest(l->w) < epoch + 2; ms++) {
		sim_run_for(l->s, MSEC);
		for (int i = 0; i < sim_nodes(l->s); i++) {
			if (!line_seated(l->w, i) || seen[i] || !line_is_at(node_run(l->w, i), epoch))
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
	return held;
}

void line_same_among(struct line *l, int least)
{
	int held = 0;
	uint64_t at = node_newest(l->w);
	for (int k = 0; k < LOOKS && held < least && !sim_failed(l->s); k++)
		held = same_among(l);
	if (held < least && node_newest(l->w) <= at)
		sim_fail(l->s, "%d hold a part, and %d were seen: it stands still", least, held);
	else if (held < least)
		sim_late(l->s, "%d hold a part, and %d were seen", least, held);
}

/* With a model of that norm, or, NULL, one whose first layer and last layer share. */
static struct line *ready(struct sim *s, const char *norm, const char *more, int n)
{
	struct line *l = xcalloc(1, sizeof *l);
	l->s = s;
	l->stages = 3;
	l->copies = 6;
	l->w = node_world_new(s, line_spec(l->spec, "pipeline", norm, more));
	node_world_add(l->w, n);
	return l;
}

static struct line *begin(struct sim *s, const char *norm, const char *more, int n)
{
	struct line *l = ready(s, norm, more, n);
	node_run_to(l->w, 5, 120 * SEC);
	return l;
}

struct line *line_ready(struct sim *s, const char *more, int n)
{
	struct line *l = ready(s, "batchnorm", more, n);
	alone_begin(&l->a, sim_seed(s), "single", "batchnorm", "", 1);
	return l;
}

struct line *line_of(struct sim *s, const char *norm, const char *more, int n)
{
	struct line *l = begin(s, norm, more, n);
	alone_begin(&l->a, sim_seed(s), "single", norm, "", 1);
	return l;
}

#define LATE ", \"schedule\": \"2bw\", \"stages\": 3"
#define LATE_ALONE ", \"schedule\": \"2bw\", \"stages\": 1, \"redundancy\": 1"

/* Where one alone adds gradients of both layers, these have sums of their own, as they have in any number of stages. */
#define TWO ", \"stages\": 2, \"replicas\": 1, \"redundancy\": 2"

struct line *line_tied(struct sim *s, bool late, const char *more, int n)
{
	char text[200];
	snprintf(text, sizeof text, "%s%s", late ? LATE : "", more);
	struct line *l = begin(s, NULL, text, n);
	alone_begin(&l->a, sim_seed(s), "pipeline", NULL, late ? TWO ", \"schedule\": \"2bw\"" : TWO, 2);
	return l;
}

struct line *line_late(struct sim *s, const char *more, int n)
{
	char text[200];
	snprintf(text, sizeof text, LATE "%s", more);
	struct line *l = begin(s, "layernorm", text, n);
	alone_begin(&l->a, sim_seed(s), "pipeline", "layernorm", LATE_ALONE, 1);
	return l;
}

struct line *line_both(struct sim *s, const char *norm, const char *more, const char *both, int n)
{
	char text[400];
	bool late = !norm;
	norm = late ? "layernorm" : norm;
	snprintf(text, sizeof text, "%s%s%s", late ? LATE : "", more, both);
	struct line *l = begin(s, norm, text, n);
	snprintf(text, sizeof text, "%s%s", late ? LATE_ALONE : "", both);
	alone_begin(&l->a, sim_seed(s), late ? "pipeline" : "single", norm, text, 1);
	return l;
}

struct line *line_begin(struct sim *s, const char *more, int n)
{
	return line_of(s, "batchnorm", more, n);
}

void line_free(struct line *l)
{
	sim_told_of(l->s, l->a.s, "one alone");
	alone_end(&l->a);
	node_world_free(l->w);
	free(l);
}

void line_end(struct line *l)
{
	same_as_alone(l);
	line_free(l);
}

void line_goes_on(struct line *l, uint64_t epochs)
{
	node_run_to(l->w, node_newest(l->w) + epochs, 180 * SEC);
}

int line_pick(struct line *l, uint64_t us)
{
	sim_await(l->s, line_all_seated, l, 60 * SEC);
	sim_run_for(l->s, rng_below(sim_rng(l->s), us));
	return line_any_seated(l->w);
}

int line_kill_any(struct line *l, uint64_t us)
{
	int dead = line_pick(l, us);
	sim_kill(l->s, dead);
	return dead;
}

void line_killed(struct line *l)
{
	struct sim *s = l->s;
	for (int k = 0; k < 4 && !sim_failed(s); k++) {
		int dead = line_kill_any(l, 300 * MSEC);
		line_goes_on(l, 4);
		sim_restart(s, dead);
		line_goes_on(l, 4);
	}
	line_end(l);
}

void line_in_a_row(struct line *l)
{
	struct sim *s = l->s;
	for (int k = 0; k < 4 && !sim_failed(s); k++) {
		(void)line_kill_any(l, 20 * MSEC);
		if (k % 2)
			line_goes_on(l, 3);
	}
	line_end(l);
}

void line_back_at_once(struct line *l)
{
	struct sim *s = l->s;
	for (int k = 0; k < 4 && !sim_failed(s); k++) {
		int dead = line_pick(l, 300 * MSEC);
		(k % 2 ? sim_power_off : sim_kill)(s, dead);
		sim_run_for(s, rng_below(sim_rng(s), 300 * MSEC));
		sim_restart(s, dead);
		node_run_to(l->w, node_newest(l->w) + 4, 15 * SEC);
	}
	line_end(l);
}
