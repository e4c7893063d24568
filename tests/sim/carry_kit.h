/* For scn_carry.c: peers that run plans which need other peers, the plans (a 1F1B pipeline, replicas that sum their
 * gradients), and their data. */
#ifndef TESTS_SIM_CARRY_KIT_H
#define TESTS_SIM_CARRY_KIT_H
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "kernels/vec.h"
#include "plan/check.h"
#include "sim.h"
#include "exec/carry.h"
#include "train/data/data.h"
#include "exec/exec.h"
#include "train/spec/spec.h"

#define N_MAX 3
#define BATCH 4
#define MICRO 6                         /* micro-batches of a step of the pipeline */
#define STEPS 7
#define RATE (-0.25)

static const char text[] = "{\"name\":\"c\",\"input\":[6],\"model\":[{\"type\":\"linear\",\"out\":40},"
	"{\"type\":\"tanh\"},{\"type\":\"linear\",\"out\":300},{\"type\":\"tanh\"},{\"type\":\"linear\",\"out\":3}],"
	"\"loss\":\"cross_entropy\",\"optimizer\":{\"name\":\"sgd\",\"lr\":0.1},\"target_batch\":8,"
	"\"data\":{\"name\":\"x\",\"kind\":\"synthetic\",\"count\":500}}";
static const uint32_t cut[4][4] = { { 0 }, { 0, 5 }, { 0, 2, 5 }, { 0, 2, 3, 5 } };

struct world;
struct peer {
	struct world *world; struct env *env; struct net *net; struct chunks *chunks; struct carry *carry;
	struct exec *x; int node;
	real *w;                                /* the whole flat vector; a stage has its own part in it */
	uint64_t steps, troubles; bool broken; struct err error;
};
struct world {
	struct id id[N_MAX]; uint32_t n;        /* nodes */
	uint32_t alive, member[N_MAX];          /* the members that plans are made for now */
	uint64_t generation, stop;              /* steps to make */
	bool pipeline, gathers, hold;           /* hold: somebody is gone, nobody plans */
	struct spec *spec; struct model *model; struct data *data; struct par par;
};

static void wait_nobody(void *arg, uint64_t us, bool backward) { (void)arg; (void)us; (void)backward; }

/* --- data: micro-batch j of anybody has the positions 4 j .. 4 j + 3 */

static struct batch *batch_new(const struct world *w, uint64_t j)
{
	struct batch *b = xcalloc(1, sizeof(*b));
	struct err e;

	b->n = BATCH;
	b->position = xcalloc(BATCH, sizeof(*b->position));
	b->x = xcalloc(BATCH, data_x_bytes(w->data));
	b->y = xcalloc(BATCH, data_y_bytes(w->data));
	for (uint32_t i = 0; i < BATCH; i++)
		b->position[i] = (j * BATCH + i) % 480;
	(void)data_read(w->data, DATA_TRAIN, b->position, BATCH, b->x, b->y, &e);
	return b;
}

static void batch_free(void *arg, struct batch *b)
{
	(void)arg;
	free(b->position);
	free(b->x);
	free(b->y);
	free(b);
}

/* Replica r of n takes every n-th. */
static void load(void *arg, struct exec_wait *w, const struct plan_instr *i, int64_t index)
{
	struct peer *p = arg;
	const struct world *v = p->world;
	uint64_t j = v->pipeline ? (uint64_t)index : (uint64_t)index * N_MAX + (uint64_t)p->node;

	(void)i;
	exec_loaded(w, batch_new(v, j), NULL);
}

static void net_op(void *arg, struct exec_wait *w, const struct exec_net *n, const struct exec_span *in, uint32_t nin,
	const struct exec_span *out, uint32_t nout)
{
	carry_ops.net(((struct peer *)arg)->carry, w, n, in, nin, out, nout);
}

static void cancel(void *arg, struct exec_wait *w) { carry_ops.cancel(((struct peer *)arg)->carry, w); }
static bool busy(void *arg, struct exec_wait *w) { return carry_ops.busy(((struct peer *)arg)->carry, w); }

/* --- plans */

static void add(struct plan *p, enum plan_class class, uint64_t bytes, uint32_t depth, uint32_t per, const char *name)
{
	plan_buf(p, &(struct plan_buf){ .class = class, .dtype = PLAN_F32, .bytes = bytes, .depth = depth, .per = per,
		.initial = class == PLAN_WEIGHT }, "%s", name);
}

static void put(struct plan *p, enum plan_class class, uint64_t bytes, uint32_t depth, const char *name, uint32_t k)
{
	char full[32];

	(void)snprintf(full, sizeof(full), "%s%u", name, k);
	add(p, class, bytes, depth, 1, full);
}

struct stage { const struct world *w; uint32_t s, p, a, b; struct model_need need; };

static void stage_buffers(struct plan *p, const struct stage *x)
{
	const struct model *m = x->w->model;
	size_t lo = m->offset[x->a], n = m->offset[x->b] - lo;
	uint32_t id;

	add(p, PLAN_BATCH, BATCH * (data_x_bytes(x->w->data) + data_y_bytes(x->w->data)), MICRO, 1, "batch");
	if (x->s)
		put(p, PLAN_ACTIVATION, x->need.x, MICRO, "a", x->s);
	put(p, PLAN_ACTIVATION, x->need.y, 2, "a", x->s + 1);
	if (x->s)
		put(p, PLAN_ACTIVATION_GRAD, x->need.x, 2, "g", x->s);
	put(p, PLAN_ACTIVATION_GRAD, x->need.y, 2, "g", x->s + 1);
	add(p, PLAN_ACTIVATION, x->need.saved + 64, MICRO, 1, "kept");
	add(p, PLAN_SCALAR, 8, 1, 1, "loss");
	add(p, PLAN_SCALAR, 8, 1, 1, "correct");
	add(p, PLAN_WEIGHT_GRAD, n * sizeof(real), 1, MICRO, "dw");
	plan_extent(p, plan_find(p, "dw"), PLAN_FLAT, "", lo, lo + n);
	add(p, PLAN_WEIGHT, n * sizeof(real), 1, MICRO, "w");
	id = plan_find(p, "w");
	plan_extent(p, id, PLAN_FLAT, "", lo, lo + n);
}

static void forward(struct plan *p, const struct stage *x, int64_t mb)
{
	char in[24] = "batch", out[16];
	struct plan_instr *i;

	(void)snprintf(out, sizeof(out), "a%u", x->s + 1);
	plan_do(p, PLAN_LOAD, mb, "-> batch");         /* every stage has to know which samples these are */
	if (x->s) {
		plan_recv(p, mb, x->s - 1, "a%u", x->s);
		(void)snprintf(in, sizeof(in), "a%u batch", x->s);
	}
	i = plan_piece(plan_do(p, PLAN_FWD, mb, "%s w -> %s save:kept", in, out), x->a, x->b - 1);
	i->keep = PLAN_KEEP_ALL;
	i->work_bytes = x->need.work_fwd + 64;
	if (x->s + 1 == x->p)
		plan_vec(p, mb, "loss", "%s! batch -> g%u loss correct", out, x->s + 1);
	else
		plan_send(p, mb, x->s + 1, "%s!", out);
}

static void backward(struct plan *p, const struct stage *x, int64_t mb)
{
	char in[24] = "batch!", out[24] = "";

	if (x->s + 1 < x->p)
		plan_recv(p, mb, x->s + 1, "g%u", x->s + 1);
	if (x->s) {
		(void)snprintf(in, sizeof(in), "a%u! batch!", x->s);
		(void)snprintf(out, sizeof(out), "g%u ", x->s);
	}
	plan_piece(plan_do(p, PLAN_BWD, mb, "save:kept! g%u! %s w -> %sdw+", x->s + 1, in, out), x->a,
		x->b - 1)->work_bytes = x->need.work_bwd + 64;
	if (x->s)
		plan_send(p, mb, x->s - 1, "g%u!", x->s);
}

/* Paper plan 1 with a flush: warm forwards, one forward and one backward in turn, the rest of the backwards, a step. */
static void plan_stage(struct plan *p, const struct world *w, uint32_t s, uint32_t stages)
{
	struct stage x = { .w = w, .s = s, .p = stages, .a = cut[stages][s], .b = cut[stages][s + 1] };
	uint32_t warm = stages - 1 - s;

	model_need(w->model, (int)x.a, (int)x.b, BATCH, 1, &x.need);
	stage_buffers(p, &x);
	for (uint32_t i = 0; i < warm; i++)
		forward(p, &x, i);
	plan_section(p, PLAN_BODY);
	p->iterations = MICRO - warm;
	forward(p, &x, warm);
	backward(p, &x, 0);
	plan_section(p, PLAN_EPILOGUE);
	for (uint32_t i = 0; i < warm; i++)
		backward(p, &x, i);
	plan_do(p, PLAN_COMMIT, (int64_t)warm - 1, "%s", "")->scope = PLAN_SHARD;
	plan_vec(p, (int64_t)warm - 1, "axpy", "dw! w -> w'")->scale = RATE;
}

/* A replica: the mean of all members' gradients by SUM, or by SCATTER and GATHER; then all take the same step. */
static void plan_replica(struct plan *p, const struct world *w, uint32_t rank)
{
	size_t n = w->model->nparam, k = w->alive, mine = n / k + (rank < n % k);
	uint32_t g = plan_group(p, "all", PLAN_OP_MEAN, true, false);
	struct model_need need;
	struct plan_instr *i;

	for (uint32_t q = 0; q < w->alive; q++)
		plan_join(p, g, q, 0);
	model_need(w->model, 0, 5, BATCH, 1, &need);
	add(p, PLAN_BATCH, BATCH * (data_x_bytes(w->data) + data_y_bytes(w->data)), 1, 1, "batch");
	add(p, PLAN_ACTIVATION, need.y, 1, 1, "y");
	add(p, PLAN_ACTIVATION_GRAD, need.y, 1, 1, "dy");
	add(p, PLAN_ACTIVATION, need.saved + 64, 1, 1, "kept");
	add(p, PLAN_SCALAR, 8, 1, 1, "loss");
	add(p, PLAN_SCALAR, 8, 1, 1, "correct");
	add(p, PLAN_WEIGHT_GRAD, n * sizeof(real), 1, 1, "dw");
	add(p, PLAN_WEIGHT_GRAD, mine * sizeof(real), 1, 1, "part");
	add(p, PLAN_WEIGHT_GRAD, n * sizeof(real), 1, 1, "mean");
	add(p, PLAN_WEIGHT, n * sizeof(real), 1, 1, "w");
	for (uint32_t q = 0; q < w->alive; q++)
		plan_holder(p, plan_find(p, "w"), q);
	plan_do(p, PLAN_LOAD, 0, "-> batch");
	i = plan_piece(plan_do(p, PLAN_FWD, 0, "batch w -> y save:kept"), 0, 4);
	i->keep = PLAN_KEEP_ALL;
	i->work_bytes = need.work_fwd + 64;
	plan_vec(p, 0, "loss", "y! batch -> dy loss correct");
	plan_piece(plan_do(p, PLAN_BWD, 0, "save:kept! dy! batch! w -> dw"), 0, 4)->work_bytes = need.work_bwd + 64;
	if (w->gathers) {
		plan_coll(p, PLAN_SCATTER, 0, g, "dw! -> part");
		plan_coll(p, PLAN_GATHER, 0, g, "part! -> mean");
	} else {
		plan_coll(p, PLAN_SUM, 0, g, "dw! -> mean");
	}
	plan_do(p, PLAN_COMMIT, 0, "%s", "")->scope = PLAN_GROUP;
	plan_vec(p, 0, "axpy", "mean! w -> w'")->scale = RATE;
}

static void plan_for(struct plan *p, const struct world *w, uint32_t rank, uint64_t step)
{
	struct id member[N_MAX];

	for (uint32_t k = 0; k < w->alive; k++)
		member[k] = w->id[w->member[k]];
	plan_init(p, w->pipeline ? "1f1b" : "replicas", rank, w->alive, member);
	p->generation = w->generation;
	p->first = step * (w->pipeline ? MICRO : 1);
	if (w->pipeline)
		plan_stage(p, w, rank, w->alive);
	else
		plan_replica(p, w, rank);
}

static int make_plan(void *arg, const struct plan_results *results, uint64_t first, struct plan *ret, struct err *e)
{
	struct peer *p = arg;
	const struct world *w = p->world;
	uint32_t rank = 0;

	(void)results; (void)first; (void)e;
	while (rank < w->alive && w->member[rank] != (uint32_t)p->node)
		rank++;
	if (w->hold || p->steps >= w->stop || rank == w->alive)
		plan_init(ret, "wait", 0, 1, &w->id[p->node]);
	else
		plan_for(ret, w, rank, p->steps);
	return 0;
}

#endif
