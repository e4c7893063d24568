/* For scn_valid.c and scn_valid_end.c: a pipeline that validates, what its members say, and one alone to compare. */
#ifndef TESTS_SIM_LOOKS_H
#define TESTS_SIM_LOOKS_H
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "line_world.h"
#include "node/node.h"
#include "train/trainer_int.h"

#define EVERY 2
#define VALIDATES ", \"validation\": {\"every\": 2}"
#define HELD 125                                /* of 1000 synthetic samples */
#define EPOCHS 4000

struct result { double loss, accuracy; unsigned told; };
struct looks {
	struct line *l; struct result of[EPOCHS];
	bool any_end;                           /* not because of stop.accuracy */
	struct { const struct run *r; uint64_t at, ended; bool excused; } seen[16];
};

static inline bool equal(double a, double b) { return !memcmp(&a, &b, sizeof a); }

/* Each result once. All members of all pipelines must say the same. */
static inline void note(struct sim *s, struct result *of, const struct run *r)
{
	struct result *x = &of[r->val_at % EPOCHS];
	if (x->told && (!equal(x->loss, r->val_loss) || !equal(x->accuracy, r->val_accuracy)))
		sim_fail(s, "two members say %.17g and %.17g, %.17g and %.17g of one epoch", x->loss, r->val_loss, x->accuracy,
			r->val_accuracy);
	*x = (struct result){ r->val_loss, r->val_accuracy, x->told + 1 };
	if (getenv("VERBOSE"))
		fprintf(stderr, "epoch %llu: loss %.9g, accuracy %.9g\n", (unsigned long long)r->val_at, r->val_loss,
			r->val_accuracy);
}

/* Who is not in yet when the first ones go hears so from nobody. */
static inline void excuse(struct looks *v)
{
	for (int k = 0; k < sim_nodes(v->l->s) && k < 16; k++) {
		const struct run *r = node_run(v->l->w, k);
		if (!r || r->state == RUN_OPEN || r->state == RUN_RESTORE || r->state == RUN_ENTER)
			v->seen[k].excused = true;
	}
}

/* A COMMIT has said so, to all of one epoch. */
static inline void ended(struct looks *v, int i, const struct run *r)
{
	bool first = true;
	for (int k = 0; k < 16; k++)
		first = first && !v->seen[k].ended;
	if (first)
		excuse(v);
	v->seen[i].ended = r->point.epoch;
	if (!v->any_end && !json_object_get(r->point.params, SPEC_REACHED))
		sim_fail(v->l->s, "a member ends by itself");
	for (int k = 0; k < 16; k++)
		if (v->seen[k].ended && v->seen[k].ended != r->point.epoch)
			sim_fail(v->l->s, "two members end at different epochs");
}

static inline void look(struct looks *v)
{
	for (int i = 0; i < sim_nodes(v->l->s) && i < 16; i++) {
		const struct run *r = node_run(v->l->w, i);
		if (v->seen[i].r != r) {
			v->seen[i].r = r;
			v->seen[i].at = 0;
		}
		if (r && r->state == RUN_DONE && !v->seen[i].ended)
			ended(v, i, r);
		if (!r || r->val_at == v->seen[i].at)
			continue;
		v->seen[i].at = r->val_at;
		note(v->l->s, v->of, r);
	}
}

typedef bool until_fn(struct looks *v, void *arg);
struct until { struct looks *v; until_fn *fn; void *arg; };

static inline bool looking(struct sim *s, void *arg)
{
	struct until *u = arg;
	look(u->v);
	return u->fn && u->fn(u->v, u->arg);
}

static inline bool until(struct looks *v, until_fn *fn, void *arg, uint64_t us)
{
	struct until u = { v, fn, arg };
	return sim_run_until(v->l->s, looking, &u, us);
}

/* The same, judged: late, or failed when it never comes. */
static inline bool await(struct looks *v, until_fn *fn, void *arg, uint64_t us, const char *missed)
{
	struct until u = { v, fn, arg };
	return sim_await_or(v->l->s, looking, &u, us, "%s", missed);
}

static inline void wait_for(struct looks *v, uint64_t us) { until(v, NULL, NULL, us); }

static inline int validating(struct node_world *w)
{
	for (int i = 0; i < sim_nodes(w->s); i++) {
		const struct run *r = node_run(w, i);
		if (r && r->trainer && r->trainer->v.eval.runs)
			return i;
	}
	return -1;
}

static inline bool begun(struct looks *v, void *arg) { return validating(v->l->w) >= 0; }
static inline bool at_epoch(struct looks *v, void *arg) { return node_all_at(v->l->w, *(uint64_t *)arg); }

static inline void goes_on(struct looks *v, uint64_t epochs)
{
	uint64_t to = node_newest(v->l->w) + epochs;
	await(v, at_epoch, &to, 120 * SEC, "it stands still");
}

/* Somewhere in a validation. */
static inline void into(struct looks *v)
{
	await(v, begun, NULL, 120 * SEC, "nobody validates");
	wait_for(v, rng_below(sim_rng(v->l->s), 80 * MSEC));
}

static inline struct looks *begin(struct sim *s, const char *norm, const char *more, int n)
{
	struct looks *v = xcalloc(1, sizeof *v);
	v->l = line_both(s, norm, more, VALIDATES, n);
	goes_on(v, 2);
	return v;
}

/* The one alone is taken as far, and has said the same. */
static inline void same_as_alone(struct looks *v, uint64_t newest, unsigned least)
{
	struct alone *a = &v->l->a;
	unsigned compared = 0;
	struct result *of = xcalloc(EPOCHS, sizeof *of);
	uint64_t was = 0;
	for (int ms = 0; ms < 2000000 && was < newest && !sim_failed(a->s); ms++) {
		const struct run *r = node_run(a->w, 0);
		sim_run_for(a->s, MSEC);
		if (r && r->val_at != was) {
			was = r->val_at;
			note(a->s, of, r);
		}
	}
	for (uint64_t e = 1; e <= newest && e < EPOCHS; e++) {
		struct result *x = &v->of[e], *y = &of[e];
		if (!x->told || !y->told)
			continue;
		compared++;
		if (llround(x->accuracy * HELD) != llround(y->accuracy * HELD) || !(fabs(x->loss - y->loss) <= 1e-6 * y->loss))
			sim_fail(v->l->s, "members say %.9g and %.9g of an epoch, one alone %.9g and %.9g", x->loss, x->accuracy,
				y->loss, y->accuracy);
	}
	if (compared < least)
		sim_late(v->l->s, "only %u validations could be compared", compared);
	free(of);
}

static inline void end(struct looks *v)
{
	look(v);
	if (!sim_failed(v->l->s) && v->l->rounded <= 0)
		same_as_alone(v, node_newest(v->l->w) / EVERY * EVERY, 3);
	line_free(v->l);
	free(v);
}

/* Nobody is disturbed: all members say all of it. */
static inline void all_told(struct looks *v, int members)
{
	uint64_t from = node_newest(v->l->w) / EVERY * EVERY + EVERY;
	goes_on(v, 20);
	for (uint64_t e = from; e + EVERY <= node_newest(v->l->w); e += EVERY)
		if (v->of[e].told != (unsigned)members)
			sim_late(v->l->s, "%u of %d members know what an epoch is worth", v->of[e].told, members);
}

#endif
