/* For test_pipeline_real.c and test_pipeline_on_real.c: a pipeline's members in one process, each with an executor, the
 * plans that its planner makes and nothing of a batch but what its LOAD says. Values are handed over when both ends are
 * there; what units agree on is the test's to say. */
#ifndef TESTS_PIPE_WORLD_H
#define TESTS_PIPE_WORLD_H
#include "t.h"
#include <math.h>
#include "common/mem.h"
#include "kernels/gemm.h"
#include "kernels/vec.h"
#include "sim.h"
#include "plan/check.h"
#include "train/data/data.h"
#include "exec/exec.h"
#include "train/profile.h"
#include "train/spec/spec.h"
#include "pipe_kit.h"
#include "pipe_tokens.h"

#define BATCH 4
#define EPOCHS 3
#define RATE (-0.25)
#define STAGES 8                        /* at most */
#define TIED (STAGES - 1)               /* in place of a stage: what the first one and the last one have in common */

static const char text[] = "{\"name\":\"c\",\"input\":[6],\"model\":[{\"type\":\"linear\",\"out\":24,\"name\":\"in\"},"
	"{\"type\":\"tanh\",\"name\":\"t\"},{\"type\":\"linear\",\"out\":24,\"name\":\"mid\"},{\"type\":\"gelu\"},"
	"{\"type\":\"dropout\",\"p\":0.25},{\"type\":\"add\",\"name\":\"sum\",\"inputs\":[\"t\",\"4\"]},"
	"{\"type\":\"layernorm\"},{\"type\":\"linear\",\"out\":30},{\"type\":\"relu\"},{\"type\":\"linear\",\"out\":3}],"
	"\"loss\":\"cross_entropy\",\"optimizer\":%s,\"target_batch\":8,"
	"\"data\":{\"name\":\"x\",\"kind\":\"synthetic\",\"count\":500}}";

struct world;
struct end {                                    /* an instruction that waits for its partners */
	struct list link;
	struct peer *peer; struct exec_wait *w; const struct plan_instr *instr; const char *tag;
	int64_t index; void *in, *out; size_t bytes;
};
/* Of the units: elements lo .. lo + n - 1 of the model are wanted, and in begins with element `from` of n_in. */
struct sum { struct exec_wait *w; uint32_t stage; const void *in; void *out; size_t bytes;
	uint64_t lo, n, from, n_in; };
/* What a peer has of the state: of its own stage, and of those that it keeps. */
struct held { real *w, *before; char *opt; size_t opt_bytes; uint64_t lo, n; };
struct peer {
	struct world *world; uint32_t rank; struct exec *x;
	struct planner_unit of;                 /* its pipeline's share of an epoch; a spare has all to wait for */
	uint32_t stage; struct held held[STAGES];
	real *mean; uint64_t lo, n;             /* of the epoch, for its own part of the parameters */
	double unit, heard, loss; uint64_t counted;
	double told[STAGES][TALLY];             /* of a validation, by replica of the last stage */
	bool waits, gave;                       /* in the round; with a mean of its own */
	struct sum sum[STAGES]; uint32_t nsums;
	uint32_t digests, skips;                /* of the epoch: how many; stages that did not step, as bits */
};
struct world {
	struct sim *sim; struct env *env; struct spec *spec; struct model *model; struct data *data; struct par par;
	struct profile_source source; struct profile profile;
	struct pipe_kit kit;
	struct peer peer[PIPE_MAX]; uint32_t n, units;
	struct list ends;
	uint64_t epoch, begin, micro;           /* index where the epoch begins; micro-batches of an epoch */
	uint64_t bad;                           /* of tokens: a micro-batch of the epoch whose loss is no number; 0: none */
	bool states[OPTIM_STATES_MAX];          /* which of the optimizer's vectors are in use */
	uint32_t programs[PIPE_MAX];            /* that a peer has been given; for tests that count them */
};

static inline void *node(struct env *env, int number, void *arg) { return arg; }
static inline void node_stop(void *app) { }

/* --- data: micro-batch j has the positions 4 j .. 4 j + 3, every fifth one fewer */

static inline uint32_t size_of(uint64_t j) { return j % 5 == 4 || j % 5 == 0 ? BATCH - 1 : BATCH; }

static inline struct batch *batch_new(const struct world *w, uint64_t j)
{
	struct batch *b = xcalloc(1, sizeof(*b));
	struct err e;

	b->n = size_of(j);
	b->position = xcalloc(BATCH, sizeof(*b->position));
	b->x = xcalloc(BATCH, w->source.x_bytes);
	b->y = xcalloc(BATCH, w->source.y_bytes);
	for (uint32_t i = 0; i < BATCH; i++)
		b->position[i] = (j * BATCH + i) % 480;
	if (!w->data)
		tokens_of(b, BATCH, w->bad && b->position[0] == (w->begin + w->bad) * BATCH % 480);
	else if (data_read(w->data, DATA_TRAIN, b->position, b->n, b->x, b->y, &e) < 0)
		fail_msg("%s", e.text);
	return b;
}

static inline void batch_free(void *arg, struct batch *b)
{
	free(b->position);
	free(b->x);
	free(b->y);
	free(b);
}

static inline void load(void *arg, struct exec_wait *w, const struct plan_instr *i, int64_t index)
{
	const struct peer *p = arg;
	struct batch *b = batch_new(p->world, p->of.first + (uint64_t)index);
	bool labels = !strcmp(i->variant, "labels"), x = !strcmp(i->variant, "x");

	if (labels || !strcmp(i->variant, "positions")) {
		free(b->x);
		b->x = NULL;
	}
	if (x || !strcmp(i->variant, "positions")) {
		free(b->y);
		b->y = NULL;
	}
	exec_loaded(w, b, NULL);
}

/* --- what leaves a peer */

static inline void end_drop(struct end *e)
{
	list_del(&e->link);
	free(e);
}

static inline bool partners(const struct end *a, const struct end *b)
{
	if (strcmp(a->tag, b->tag) || a->index != b->index || a->instr->kind == b->instr->kind)
		return false;
	return a->instr->peer == b->peer->rank && b->instr->peer == a->peer->rank;
}

static inline void pair(struct world *w, struct end *x)
{
	list_each_safe(it, &w->ends) {
		struct end *o = list_entry(it, struct end, link), *from = x->instr->kind == PLAN_SEND ? x : o;
		struct end *to = from == x ? o : x;
		struct exec_wait *a = from->w, *b = to->w;
		const struct token_news news = { .version = -1 };

		if (o == x || o->instr->with != PLAN_PEER || !partners(x, o))
			continue;
		assert_int_equal(from->bytes, to->bytes);
		memcpy(to->out, from->in, to->bytes);
		end_drop(o);
		end_drop(x);
		exec_done(a, NULL, NULL);
		exec_done(b, &news, NULL);
		return;
	}
}

static inline struct end *of_rank(struct world *w, const struct end *x, uint32_t rank)
{
	list_each(it, &w->ends) {
		struct end *o = list_entry(it, struct end, link);

		if (o->peer->rank == rank && o->instr->kind == PLAN_SUM && !strcmp(o->tag, x->tag) && o->index == x->index)
			return o;
	}
	return NULL;
}

/* The mean of a strict group, when all are there. */
static inline void together(struct world *w, struct end *x, const struct plan_group *g)
{
	size_t bytes = x->bytes, n = bytes / sizeof(real);
	struct end *all[8];
	real *sum;

	for (uint32_t k = 0; k < g->n; k++)
		if (!(all[k] = of_rank(w, x, g->member[k].peer)))
			return;
	sum = xcalloc(n, sizeof(*sum));
	for (uint32_t k = 0; k < g->n; k++)
		for (size_t i = 0; i < n; i++)
			sum[i] += ((const real *)all[k]->in)[i];
	for (size_t i = 0; i < n; i++)
		sum[i] /= (real)g->n;
	for (uint32_t k = 0; k < g->n; k++) {
		struct exec_wait *wait = all[k]->w;

		memcpy(all[k]->out, sum, bytes);
		end_drop(all[k]);
		exec_done(wait, NULL, NULL);
	}
	free(sum);
}

/* One of the SUMs of the round. */
static inline void wait_for_units(struct peer *p, struct exec_wait *w, const struct exec_net *n, const void *in,
	const struct exec_span *out)
{
	const char *tag = n->group->name + strlen("units");
	struct sum x = { .w = w, .stage = *tag == '.' ? TIED : (uint32_t)strtoul(tag, NULL, 10), .in = in, .out = out->p,
		.bytes = out->bytes };
	const struct plan_extent *to = n->plan->buf[n->instr->out[0].buf].extent;
	const struct plan_extent *from = in ? n->plan->buf[n->instr->in[0].buf].extent : to;

	x.lo = to->lo, x.n = to->hi - to->lo;
	x.from = from->lo, x.n_in = from->hi - from->lo;
	assert_true(p->nsums < STAGES && x.bytes == p->held[x.stage].n * sizeof(real));
	p->sum[p->nsums++] = x;
	p->waits = true;
	p->gave = p->gave || in;
	if (x.stage == p->stage && in)
		memcpy(p->mean, (const real *)in + (x.lo - x.from), x.bytes);
}

static inline void net(void *arg, struct exec_wait *wait, const struct exec_net *n, const struct exec_span *in,
	uint32_t nin, const struct exec_span *out, uint32_t nout)
{
	struct peer *p = arg;
	struct end *e;

	if (n->group && n->group->elastic) {    /* the round of the units: nobody else is there */
		wait_for_units(p, wait, n, nin ? in->p : NULL, out);
		return;
	}
	e = xcalloc(1, sizeof(*e));
	*e = (struct end){ .peer = p, .w = wait, .instr = n->instr, .tag = n->tag, .index = n->index,
		.in = nin ? in->p : NULL, .out = nout ? out->p : NULL, .bytes = nin ? in->bytes : out->bytes };
	list_push(&p->world->ends, &e->link);
	if (n->group)
		together(p->world, e, n->group);
	else
		pair(p->world, e);
}

static inline void cancel(void *arg, struct exec_wait *w)
{
	struct peer *p = arg;
	uint32_t k = 0;

	while (k < p->nsums && p->sum[k].w != w)
		k++;
	assert_true(k < p->nsums);              /* everything else has ended by then */
	p->sum[k] = p->sum[--p->nsums];
}

/* --- what the owner of an executor does */

/* Of micro-batches from .. from + n - 1 of the epoch. */
static inline uint64_t samples_of(const struct world *w, uint64_t from, uint64_t n)
{
	uint64_t sum = 0;

	for (uint64_t j = from; j < from + n; j++)
		sum += size_of(w->begin + j);
	return sum;
}

static inline int plan_next(void *arg, const struct plan_results *results, uint64_t first, struct plan *ret,
	struct err *e)
{
	struct peer *p = arg;
	struct world *w = p->world;

	first = first < w->begin ? w->begin : first;            /* other pipelines have had more of the last epoch */
	w->kit.v.first = first;
	w->kit.v.begun = first - w->begin >= p->of.n;
	w->kit.v.samples = (w->kit.v.begun ? p->of.n : first - w->begin) * BATCH;
	if (w->epoch == EPOCHS || p->waits) {
		plan_init(ret, "wait", 0, 1, &w->kit.member[0].id);
		return 0;
	}
	return pipe_plan(&w->kit, p->rank, ret, e);
}

static inline void commit(void *arg, const struct plan_instr *i, int64_t index, const struct batch *b)
{
	struct peer *p = arg;

	p->counted += b ? b->n : 0;
}

static inline void scalar(void *arg, const char *name, int64_t index, const void *v, size_t bytes)
{
	struct peer *p = arg;

	if (!strcmp(name, "unit"))
		memcpy(&p->unit, v, sizeof(p->unit));
	if (!strcmp(name, "loss"))              /* every member is told; who has made it knows how many are right, too */
		p->heard = *(const double *)v;
	if (!strcmp(name, "correct"))
		p->loss += p->heard;
	if (!strcmp(name, "digest"))
		p->digests++;
	if (!strncmp(name, "told", 4) && bytes == sizeof(*p->told))
		memcpy(p->told[strtoul(name + 4, NULL, 10)], v, bytes);
	if (!strncmp(name, "skipped", 7) && *(const double *)v > 0)
		p->skips |= 1u << (name[7] == '.' ? TIED : name[7] ? (uint32_t)strtoul(name + 7, NULL, 10) : p->stage);
}

static inline void vec_env(void *arg, struct vec_env *ret)
{
	const struct peer *p = arg;
	const struct world *w = p->world;

	ret->loss = w->spec->loss;
	ret->counts = true;
	ret->optim = w->spec->optim;
	memcpy(ret->hyper, w->spec->hyper, sizeof(ret->hyper));
	memcpy(ret->state, w->states, sizeof(ret->state));
	ret->unit = p->unit;
	ret->samples = samples_of(w, p->of.first, p->of.n);
}

static inline void broken(void *arg, const struct err *e) { fail_msg("%s", e->text); }

/* What a new peer has of stage t: the parameters begin as the model's do, the optimizer's vectors as zeros. */
static inline void hold(struct peer *p, const struct plan *plan, uint32_t t)
{
	const struct optim_clock begin = { .power = { 1, 1 } };
	const double clock[3] = { 0, begin.power[0], begin.power[1] };
	struct held *h = &p->held[t];
	char tag[16] = ".tied", w[24], opt[24], before[24];
	uint32_t at, of;

	if (t != TIED)
		(void)snprintf(tag, sizeof(tag), "%u", t);
	(void)snprintf(w, sizeof(w), "w%s", tag);
	(void)snprintf(opt, sizeof(opt), "opt%s", tag);
	(void)snprintf(before, sizeof(before), "before%s", tag);
	at = plan_find(plan, w);
	of = plan_find(plan, opt);
	if (at == PLAN_NONE)
		return;
	h->lo = plan->buf[at].extent[0].lo;
	h->n = plan->buf[at].extent[0].hi - h->lo;
	h->w = xcalloc(h->n, sizeof(real));
	h->opt_bytes = plan->buf[of].bytes;
	h->opt = xcalloc(1, h->opt_bytes);
	memcpy(h->opt + h->opt_bytes - sizeof(clock), clock, sizeof(clock));
	(void)model_init_part(p->world->model, 3, h->lo, h->lo + h->n, h->w);
	exec_bind(p->x, w, h->w, h->n * sizeof(real));
	exec_bind(p->x, opt, h->opt, h->opt_bytes);
	if (plan_find(plan, before) == PLAN_NONE)
		return;
	h->before = xmemdup(h->w, h->n * sizeof(real));
	exec_bind(p->x, before, h->before, h->n * sizeof(real));
}

/* Everybody who has a stage keeps something for its way back. */
static inline uint32_t stage_in(const struct plan *p)
{
	for (uint32_t s = 0; s < STAGES; s++) {
		char name[16];

		(void)snprintf(name, sizeof(name), "kept%u", s);
		if (plan_find(p, name) != PLAN_NONE)
			return s;
	}
	return PLAN_NONE;
}

typedef int next_fn(void *arg, const struct plan_results *results, uint64_t first, struct plan *ret, struct err *e);

static inline void peer_with(struct world *w, uint32_t rank, next_fn *next)
{
	static const struct exec_ops ops = { .load = load, .unload = batch_free, .net = net, .cancel = cancel };
	const struct exec_cb cb = { .plan = next, .commit = commit, .scalar = scalar, .env = vec_env,
		.broken = broken };
	struct peer *p = &w->peer[rank];
	struct exec_conf conf = { .env = w->env, .model = w->model, .par = &w->par, .ops = &ops, .ops_arg = p, .seed = 77,
		.check = true };
	struct plan plan;
	struct err e;

	*p = (struct peer){ .world = w, .rank = rank };
	if (w->kit.strategy->unit(&w->kit.v, rank, &p->of, &e) < 0)
		fail_msg("%s", e.text);
	if (p->of.unit == PLAN_NO_UNIT)
		p->of.n = w->micro;
	if (pipe_plan(&w->kit, rank, &plan, &e) < 0)
		fail_msg("%s", e.text);
	w->units = p->of.unit != PLAN_NO_UNIT && p->of.unit >= w->units ? p->of.unit + 1 : w->units;
	p->x = exec_new(&conf, &cb, p);
	p->stage = stage_in(&plan);
	for (uint32_t t = 0; t < STAGES; t++)
		hold(p, &plan, t);
	if (p->stage != PLAN_NONE) {
		p->lo = p->held[p->stage].lo;
		p->n = p->held[p->stage].n;
		p->mean = xcalloc(p->n + 1, sizeof(real));
	}
	plan_free(&plan);
}

static inline void peer_open(struct world *w, uint32_t rank) { peer_with(w, rank, plan_next); }

static inline void world_with(struct world *w, uint32_t members, uint64_t micro, const char *format,
	const char *optimizer)
{
	char spec[1500];
	bool tokens = format == tied_text;
	struct sim_app app = { node, node_stop, w };
	struct err e;

	*w = (struct world){ .n = members, .micro = micro };
	list_init(&w->ends);
	w->sim = sim_new(1);
	(void)sim_node_add(w->sim, NULL, &app);
	w->env = sim_env(w->sim, 0);
	(void)snprintf(spec, sizeof(spec), format, optimizer);
	w->spec = spec_parse(spec, strlen(spec), &e);
	if (!w->spec)
		fail_msg("%s", e.text);
	w->model = spec_model(w->spec, NULL, &e);
	if (!w->model)
		fail_msg("%s", e.text);
	w->data = tokens ? NULL : data_open(NULL, "", w->spec, &e);
	w->par = par_serial(CPU_PLAIN, NULL);
	w->source = (struct profile_source){ .model = w->model, .parts = 1, .macs_per_us = 1,
		.x_bytes = tokens ? CONTEXT * sizeof(real) : data_x_bytes(w->data),
		.y_bytes = tokens ? CONTEXT * sizeof(int32_t) : data_y_bytes(w->data) };
	profile_model(&w->profile, &w->source, BATCH);
	for (int i = 0; i < w->spec->optim->nstates; i++) {
		w->states[i] = optim_uses_state(w->spec->optim, w->spec->hyper, i);
		w->profile.state_vectors += w->states[i];
	}
	pipe_open(&w->kit, &w->profile, members, micro * BATCH);
}

static inline void world_open(struct world *w, uint32_t members, uint64_t micro, const char *optimizer)
{
	world_with(w, members, micro, text, optimizer);
}

static inline void world_close(struct world *w)
{
	for (uint32_t k = 0; k < w->n; k++) {
		exec_free(w->peer[k].x, NULL, NULL);
		free(w->peer[k].mean);
		for (uint32_t t = 0; t < STAGES; t++) {
			free(w->peer[k].held[t].w);
			free(w->peer[k].held[t].before);
			free(w->peer[k].held[t].opt);
		}
	}
	sim_run_for(w->sim, 1000000);
	assert_true(list_empty(&w->ends));
	pipe_close(&w->kit);
	profile_free(&w->profile);
	if (w->data)
		data_free(w->data);
	model_free(w->model);
	spec_free(w->spec);
	sim_free(w->sim);
}

/* --- one process */

static inline void gradient(const struct world *w, const real *param, uint64_t j, real *g, double *loss)
{
	struct batch *b = batch_new(w, j);
	int n = w->model->nops;
	struct model_need need;
	real y[BATCH * CONTEXT * VOCAB], dy[BATCH * CONTEXT * VOCAB];
	double right = 0;

	model_need(w->model, 0, n, b->n, 1, &need);
	char *saved = aligned_alloc(64, (need.saved + 127) / 64 * 64);
	char *work = aligned_alloc(64, (need.work_fwd + need.work_bwd + 127) / 64 * 64);
	struct model_call c = { .batch = b->n, .param = param, .saved = saved, .work = work, .train = true,
		.key = rand_key(77, b->position[0]), .fresh = true };
	struct loss plain = loss_plain(w->spec->loss, &w->model->out);

	model_forward(&w->par, w->model, 0, n, &c, b->x, y);
	*loss += loss_sum(&w->par, &plain, b->n, y, b->y, 1.0 / b->n, dy, &right);
	model_backward(&w->par, w->model, 0, n, &c, b->x, dy, NULL, g);
	free(saved);
	free(work);
	batch_free(NULL, b);
}

/* The epoch's mean gradient, as `single` sums it up. */
static inline void alone(const struct world *w, const real *param, real *mean, double *loss)
{
	size_t n = w->model->nparam;
	real *g = xcalloc(n, sizeof(real));

	for (uint64_t j = w->begin; j < w->begin + w->micro; j++) {
		double factor = size_of(j) / (double)BATCH;

		gradient(w, param, j, g, loss);
		if (w->bad && j == w->begin + w->bad)
			continue;
		if (j == w->begin) {
			vec_copy(&w->par, n, g, mean);
			if (factor != 1)
				vec_scale(&w->par, n, factor, mean);
		} else {
			vec_axpy(&w->par, n, factor, g, mean);
		}
	}
	vec_scale(&w->par, n, BATCH / (double)samples_of(w, 0, w->micro), mean);
	free(g);
}

#endif
