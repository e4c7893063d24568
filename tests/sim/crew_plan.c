/* The strategy of crew_plan.h: 1F1B with a flush, as the paper plan of tests/unit/test_plan_pipeline.c has it. */
#include <stdio.h>
#include <stdlib.h>
#include "common/mem.h"
#include "crew_plan.h"

#define MICRO 8
struct cut { const struct view *v; uint32_t n, k, *lo; };       /* stage s: layers lo[s] .. lo[s + 1] - 1 */

static void (*watcher)(void *who, uint64_t generation, uint32_t rank, uint32_t n);

void cut_watch(void (*made)(void *who, uint64_t generation, uint32_t rank, uint32_t n))
{
	watcher = made;
}

void cut_profile(struct profile *m, uint32_t layers, uint64_t us, uint64_t act_bytes, uint64_t param_bytes)
{
	*m = (struct profile){ .batch = 1, .batch_bytes = act_bytes, .nops = layers,
		.op = xcalloc(layers, sizeof *m->op), .params = layers * param_bytes / 4 };
	for (uint32_t i = 0; i < layers; i++)
		m->op[i] = (struct profile_op){ .out_bytes = act_bytes, .saved_bytes = act_bytes, .param_bytes = param_bytes,
			.param_lo = i * param_bytes / 4, .nvariants = 1, .variant[0] = { "", us, 2 * us, 0 }, .npreds = i > 0,
			.pred[0] = i ? i - 1 : 0 };
}

static uint64_t layer_bytes(const struct cut *x) { return x->v->profile->op[0].param_bytes; }

/* Equal shares, as far as there is room: what a member holds for others has the same size. */
static int cut_of(struct cut *x, const struct view *v, struct err *e)
{
	uint32_t layers = v->profile->nops, left = layers;
	*x = (struct cut){ .v = v, .n = v->nmembers < layers ? v->nmembers : layers,
		.k = v->redundancy ? v->redundancy : 1 };
	x->n = x->n < MICRO ? x->n : MICRO;
	x->lo = xcalloc(v->nmembers + 2, sizeof *x->lo);
	for (uint32_t s = 0; s < x->n; s++) {   /* who has no room is none of them */
		uint64_t room = v->member[s].memory_bytes ? v->member[s].memory_bytes / (x->k * layer_bytes(x)) : layers;
		uint32_t share = (left + x->n - s - 1) / (x->n - s);
		share = room < share ? (uint32_t)room : share;
		if (!share)
			x->n = s;               /* and whoever comes behind it has less */
		x->lo[s + 1] = x->lo[s] + share;
		left -= share;
	}
	if (!left && x->k > x->n)
		err_set(e, ERR_LIMIT, "%u copies of everything need %u members, and there are %u", x->k, x->k, x->n);
	else if (left)
		err_set(e, ERR_LIMIT, "%llu bytes are missing: %u members hold %u of %u layers",
			(unsigned long long)(left * x->k * layer_bytes(x)), v->nmembers, layers - left, layers);
	else
		return 0;
	free(x->lo);
	return -1;
}

static void state(struct plan *p, const struct cut *x, uint32_t s)
{
	uint64_t elements = layer_bytes(x) / 4;
	uint32_t b = plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT,
		.bytes = (x->lo[s + 1] - x->lo[s]) * layer_bytes(x), .per = MICRO, .initial = true, .depth = 1 }, "w%u-%u",
		x->lo[s], x->lo[s + 1]);
	plan_extent(p, b, PLAN_FLAT, "", x->lo[s] * elements, x->lo[s + 1] * elements);
}

static void buffers(struct plan *p, const struct cut *x)
{
	uint32_t s = p->me;
	uint64_t act = x->v->profile->op[0].out_bytes;
	plan_buf(p, &(struct plan_buf){ .class = PLAN_BATCH, .bytes = act, .depth = 2 }, "a0");
	for (uint32_t k = s ? s : 1; k <= s + 1 && k < x->n; k++) {
		plan_buf(p, &(struct plan_buf){ .class = PLAN_ACTIVATION, .bytes = act, .depth = 2 }, "a%u", k);
		plan_buf(p, &(struct plan_buf){ .class = PLAN_ACTIVATION_GRAD, .bytes = act, .depth = 2 }, "g%u", k);
	}
	plan_buf(p, &(struct plan_buf){ .class = PLAN_ACTIVATION, .bytes = act, .depth = x->n - s }, "kept");
	plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT_GRAD, .bytes = (x->lo[s + 1] - x->lo[s]) * layer_bytes(x),
		.per = MICRO }, "dw");
	for (uint32_t k = 0; k < x->k; k++)
		state(p, x, (s + x->n - k) % x->n);
}

static void forward(struct plan *p, const struct cut *x, int64_t mb)
{
	uint32_t s = p->me;
	char out[32] = "";
	if (!s)
		plan_do(p, PLAN_LOAD, mb, "-> a0");
	else
		plan_recv(p, mb, s - 1, "a%u", s);
	if (s + 1 < x->n)
		snprintf(out, sizeof out, " a%u", s + 1);
	plan_piece(plan_do(p, PLAN_FWD, mb, "a%u! w%u-%u ->%s save:kept", s, x->lo[s], x->lo[s + 1], out), x->lo[s],
		x->lo[s + 1] - 1)->keep = PLAN_KEEP_ALL;
	if (s + 1 < x->n)
		plan_send(p, mb, s + 1, "a%u!", s + 1);
}

static void backward(struct plan *p, const struct cut *x, int64_t mb)
{
	uint32_t s = p->me;
	char in[32] = "", out[32] = "";
	if (s + 1 < x->n) {
		plan_recv(p, mb, s + 1, "g%u", s + 1);
		snprintf(in, sizeof in, " g%u!", s + 1);
	}
	if (s)
		snprintf(out, sizeof out, " g%u", s);
	plan_piece(plan_do(p, PLAN_BWD, mb, "save:kept! w%u-%u%s ->%s dw+", x->lo[s], x->lo[s + 1], in, out), x->lo[s],
		x->lo[s + 1] - 1);
	if (s)
		plan_send(p, mb, s - 1, "g%u!", s);
}

static int plan(const struct view *v, const struct plan_results *results, struct plan *ret, struct err *e)
{
	struct cut x;
	(void)results;
	if (cut_of(&x, v, e))
		return -1;
	struct id *id = xcalloc(v->nmembers, sizeof *id);
	for (uint32_t i = 0; i < v->nmembers; i++)
		id[i] = v->member[i].id;
	plan_init(ret, "cut", v->me, v->nmembers, id);
	free(id);
	ret->generation = v->generation;
	if (watcher)
		watcher(v->profile->need_arg, v->generation, v->me, v->nmembers);
	uint32_t s = v->me, warm = s < x.n ? x.n - 1 - s : 0;
	warm = warm < MICRO ? warm : MICRO;
	if (s < x.n) {
		buffers(ret, &x);
		for (uint32_t i = 0; i < warm; i++)
			forward(ret, &x, i);
		plan_section(ret, PLAN_BODY);
		ret->iterations = MICRO - warm;
		forward(ret, &x, warm);
		backward(ret, &x, 0);
		plan_section(ret, PLAN_EPILOGUE);
		for (uint32_t i = 0; i < warm; i++)
			backward(ret, &x, i);
		plan_vec(ret, (int64_t)warm - 1, "opt", "dw! w%u-%u -> w%u-%u'", x.lo[s], x.lo[s + 1], x.lo[s], x.lo[s + 1]);
		plan_do(ret, PLAN_COMMIT, warm, "->");
	}
	free(x.lo);
	return 0;
}

static int plan_other(const struct view *v, const struct plan_results *results, struct plan *ret, struct err *e)
{
	int rc = plan(v, results, ret, e);
	if (!rc)
		plan_lane(ret, "train", 1, 2);
	return rc;
}

static int plan_never(const struct view *v, const struct plan_results *results, struct plan *ret, struct err *e)
{
	(void)v;
	(void)results;
	(void)ret;
	return err_set(e, ERR_INVALID, "this version knows nothing of cuts");
}

const struct planner_ops cut_ops = { .name = "cut", .help = "a chain over all members", .redundancy = 2, .plan = plan };
const struct planner_ops cut_other_ops = { .name = "cut", .help = "of another version", .redundancy = 2,
	.plan = plan_other };
const struct planner_ops cut_cannot_ops = { .name = "cut", .help = "of another version", .redundancy = 2,
	.plan = plan_never };
