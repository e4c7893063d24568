/* For scn_carry.c: peers that run plans which need other peers, the plans (those of strategy pipeline, replicas that
 * sum their gradients), and their data. */
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
#include "train/profile.h"
#include "train/spec/spec.h"
#include "train/strategy.h"

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
	double unit;                            /* of the sum of the step under way; 0: there is none */
};
struct world {
	struct id id[N_MAX]; uint32_t n;        /* nodes */
	uint32_t alive, member[N_MAX];          /* the members that plans are made for now */
	uint64_t generation, stop;              /* steps to make */
	bool pipeline, gathers, hold;           /* hold: somebody is gone, nobody plans */
	struct spec *spec; struct model *model; struct data *data; struct par par;
	struct profile_source source; struct profile profile;
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

/* A flush of strategy pipeline, with these cuts, and a step of the test's own behind it. */
static void plan_stage(struct plan *p, const struct world *w, uint32_t s, uint32_t stages, uint64_t first)
{
	struct view_member member[N_MAX];
	const struct plan_results none = { 0, NULL };
	struct view v = { .profile = &w->profile, .nmembers = stages, .member = member, .me = s, .first = first,
		.generation = w->generation, .redundancy = 1, .target_batch = MICRO * BATCH, .granted = true };
	json_t *values = json_pack("{s:s,s:[],s:i}", "schedule", "1f1b", "stages", "micro_batches", MICRO);
	struct err e;

	for (uint32_t k = 0; k < stages; k++) {
		member[k] = (struct view_member){ .id = w->id[w->member[k]], .speed = 1 };
		(void)json_array_append_new(json_object_get(values, "stages"), json_pack("{s:i}", "layers",
			(int)(cut[stages][k + 1] - cut[stages][k])));
	}
	v.values = values;
	if (strategy_find("pipeline")->plan(&v, &none, p, &e) < 0)
		abort();
	plan_section(p, PLAN_EPILOGUE);
	plan_do(p, PLAN_COMMIT, -1, "%s", "")->scope = PLAN_SHARD;
	plan_vec(p, -1, "axpy", "acc%u! w%u -> w%u", s, s, s)->scale = RATE;
	json_decref(values);
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
	if (w->pipeline) {
		plan_stage(p, w, rank, w->alive, step * MICRO);
		return;
	}
	plan_init(p, "replicas", rank, w->alive, member);
	p->generation = w->generation;
	p->first = step;
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
