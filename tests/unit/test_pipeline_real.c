/* Pipelines with real numbers: the plans of all members run in one process, values are handed over when both ends are
 * there, and nobody has more of a batch than its LOAD says. Gradients and parameters are those of one process: the same
 * bits without replicas, to 1e-12 in double with them (rows D01, D02, D03, D08). */
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

#define BATCH 4
#define EPOCHS 3
#define RATE (-0.25)

static const char text[] = "{\"name\":\"c\",\"input\":[6],\"model\":[{\"type\":\"linear\",\"out\":24,\"name\":\"in\"},"
	"{\"type\":\"tanh\",\"name\":\"t\"},{\"type\":\"linear\",\"out\":24,\"name\":\"mid\"},{\"type\":\"gelu\"},"
	"{\"type\":\"dropout\",\"p\":0.25},{\"type\":\"add\",\"name\":\"sum\",\"inputs\":[\"t\",\"4\"]},"
	"{\"type\":\"layernorm\"},{\"type\":\"linear\",\"out\":30},{\"type\":\"relu\"},{\"type\":\"linear\",\"out\":3}],"
	"\"loss\":\"cross_entropy\",\"optimizer\":{\"name\":\"sgd\",\"lr\":0.1},\"target_batch\":8,"
	"\"data\":{\"name\":\"x\",\"kind\":\"synthetic\",\"count\":500}}";

struct world;
struct end {                                    /* an instruction that waits for its partners */
	struct list link;
	struct peer *peer; struct exec_wait *w; const struct plan_instr *instr; const char *tag;
	int64_t index; void *in, *out; size_t bytes;
};
struct peer {
	struct world *world; uint32_t rank; struct exec *x;
	real *w, *mean; uint64_t lo, n;         /* its part of the parameters, and of the epoch's mean */
	double unit, heard, loss; uint64_t counted;
	bool waits, gave;                       /* in the round; with a mean of its own */
	struct exec_wait *round;
};
struct world {
	struct sim *sim; struct env *env; struct spec *spec; struct model *model; struct data *data; struct par par;
	struct profile_source source; struct profile profile;
	struct pipe_kit kit;
	struct peer peer[PIPE_MAX]; uint32_t n;
	struct list ends;
	uint64_t epoch, begin, micro;           /* index where the epoch begins; micro-batches of an epoch */
};

static void *node(struct env *env, int number, void *arg) { return arg; }
static void node_stop(void *app) { }

/* --- data: micro-batch j has the positions 4 j .. 4 j + 3, every fifth one fewer */

static uint32_t size_of(uint64_t j) { return j % 5 == 4 || j % 5 == 0 ? BATCH - 1 : BATCH; }

static struct batch *batch_new(const struct world *w, uint64_t j)
{
	struct batch *b = xcalloc(1, sizeof(*b));
	struct err e;

	b->n = size_of(j);
	b->position = xcalloc(BATCH, sizeof(*b->position));
	b->x = xcalloc(BATCH, data_x_bytes(w->data));
	b->y = xcalloc(BATCH, data_y_bytes(w->data));
	for (uint32_t i = 0; i < BATCH; i++)
		b->position[i] = (j * BATCH + i) % 480;
	if (data_read(w->data, DATA_TRAIN, b->position, b->n, b->x, b->y, &e) < 0)
		fail_msg("%s", e.text);
	return b;
}

static void batch_free(void *arg, struct batch *b)
{
	free(b->position);
	free(b->x);
	free(b->y);
	free(b);
}

static void load(void *arg, struct exec_wait *w, const struct plan_instr *i, int64_t index)
{
	struct batch *b = batch_new(((struct peer *)arg)->world, (uint64_t)index);
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

static void end_drop(struct end *e)
{
	list_del(&e->link);
	free(e);
}

static bool partners(const struct end *a, const struct end *b)
{
	if (strcmp(a->tag, b->tag) || a->index != b->index || a->instr->kind == b->instr->kind)
		return false;
	return a->instr->peer == b->peer->rank && b->instr->peer == a->peer->rank;
}

static void pair(struct world *w, struct end *x)
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

static struct end *of_rank(struct world *w, const struct end *x, uint32_t rank)
{
	list_each(it, &w->ends) {
		struct end *o = list_entry(it, struct end, link);

		if (o->peer->rank == rank && o->instr->kind == PLAN_SUM && !strcmp(o->tag, x->tag) && o->index == x->index)
			return o;
	}
	return NULL;
}

/* The mean of a strict group, when all are there. */
static void together(struct world *w, struct end *x, const struct plan_group *g)
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

static void net(void *arg, struct exec_wait *wait, const struct exec_net *n, const struct exec_span *in, uint32_t nin,
	const struct exec_span *out, uint32_t nout)
{
	struct peer *p = arg;
	struct end *e;

	if (n->group && n->group->elastic) {    /* the round of the units: nobody else is there */
		p->waits = true;
		p->round = wait;
		p->gave = nin > 0;
		if (nin)
			memcpy(p->mean, in->p, p->n * sizeof(real));
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

static void cancel(void *arg, struct exec_wait *w)
{
	assert_ptr_equal(((struct peer *)arg)->round, w);       /* everything else has ended by then */
	((struct peer *)arg)->round = NULL;
}

/* --- what the owner of an executor does */

static uint64_t samples_to(const struct world *w, uint64_t index)
{
	uint64_t n = 0;

	for (uint64_t j = w->begin; j < index; j++)
		n += size_of(j);
	return n;
}

static int plan_next(void *arg, const struct plan_results *results, uint64_t first, struct plan *ret, struct err *e)
{
	struct peer *p = arg;
	struct world *w = p->world;

	w->kit.v.first = first;
	w->kit.v.begun = first - w->begin >= w->micro;
	w->kit.v.samples = (w->kit.v.begun ? w->micro : first - w->begin) * BATCH;
	if (w->epoch == EPOCHS || p->waits) {
		plan_init(ret, "wait", 0, 1, &w->kit.member[0].id);
		return 0;
	}
	return pipe_plan(&w->kit, p->rank, ret, e);
}

static void commit(void *arg, const struct plan_instr *i, int64_t index, const struct batch *b)
{
	struct peer *p = arg;

	p->counted += b ? b->n : 0;
}

static void scalar(void *arg, const char *name, int64_t index, const void *v, size_t bytes)
{
	struct peer *p = arg;

	if (!strcmp(name, "unit"))
		memcpy(&p->unit, v, sizeof(p->unit));
	if (!strcmp(name, "loss"))              /* every member is told; who has made it knows how many are right, too */
		p->heard = *(const double *)v;
	if (!strcmp(name, "correct"))
		p->loss += p->heard;
}

static void vec_env(void *arg, struct vec_env *ret)
{
	const struct peer *p = arg;
	const struct world *w = p->world;

	ret->loss = w->spec->loss;
	ret->counts = true;
	ret->unit = p->unit;
	ret->samples = samples_to(w, w->begin + w->micro);
}

static void broken(void *arg, const struct err *e) { fail_msg("%s", e->text); }

static void peer_open(struct world *w, uint32_t rank)
{
	static const struct exec_ops ops = { .load = load, .unload = batch_free, .net = net, .cancel = cancel };
	const struct exec_cb cb = { .plan = plan_next, .commit = commit, .scalar = scalar, .env = vec_env,
		.broken = broken };
	struct peer *p = &w->peer[rank];
	struct exec_conf conf = { .env = w->env, .model = w->model, .par = &w->par, .ops = &ops, .ops_arg = p, .seed = 77,
		.check = true };
	struct plan plan;
	struct err e;
	const struct plan_buf *b = NULL;

	*p = (struct peer){ .world = w, .rank = rank };
	if (pipe_plan(&w->kit, rank, &plan, &e) < 0)
		fail_msg("%s", e.text);
	for (uint32_t k = 0; k < plan.nbufs; k++)
		b = plan.buf[k].class == PLAN_WEIGHT ? &plan.buf[k] : b;
	p->x = exec_new(&conf, &cb, p);
	if (b) {
		p->lo = b->extent[0].lo;
		p->n = b->extent[0].hi - p->lo;
		p->w = xcalloc(p->n, sizeof(real));
		p->mean = xcalloc(p->n, sizeof(real));
		(void)model_init_part(w->model, 3, p->lo, p->lo + p->n, p->w);
		exec_bind(p->x, b->name, p->w, p->n * sizeof(real));
	}
	plan_free(&plan);
}

static void world_open(struct world *w, uint32_t members, uint64_t micro)
{
	struct sim_app app = { node, node_stop, w };
	struct err e;

	*w = (struct world){ .n = members, .micro = micro };
	list_init(&w->ends);
	w->sim = sim_new(1);
	(void)sim_node_add(w->sim, NULL, &app);
	w->env = sim_env(w->sim, 0);
	w->spec = spec_parse(text, strlen(text), &e);
	if (!w->spec)
		fail_msg("%s", e.text);
	w->model = spec_model(w->spec, NULL, &e);
	w->data = data_open(NULL, "", w->spec, &e);
	w->par = par_serial(CPU_PLAIN, NULL);
	w->source = (struct profile_source){ .model = w->model, .parts = 1, .macs_per_us = 1,
		.x_bytes = data_x_bytes(w->data), .y_bytes = data_y_bytes(w->data) };
	profile_model(&w->profile, &w->source, BATCH);
	pipe_open(&w->kit, &w->profile, members, micro * BATCH);
}

static void world_close(struct world *w)
{
	for (uint32_t k = 0; k < w->n; k++) {
		exec_free(w->peer[k].x, NULL, NULL);
		free(w->peer[k].w);
		free(w->peer[k].mean);
	}
	sim_run_for(w->sim, 1000000);
	assert_true(list_empty(&w->ends));
	pipe_close(&w->kit);
	profile_free(&w->profile);
	data_free(w->data);
	model_free(w->model);
	spec_free(w->spec);
	sim_free(w->sim);
}

/* --- one process */

static void gradient(const struct world *w, const real *param, uint64_t j, real *g, double *loss)
{
	struct batch *b = batch_new(w, j);
	int n = w->model->nops;
	struct model_need need;
	real y[BATCH * 3], dy[BATCH * 3];
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
static void alone(const struct world *w, const real *param, real *mean, double *loss)
{
	size_t n = w->model->nparam;
	real *g = xcalloc(n, sizeof(real));

	for (uint64_t j = w->begin; j < w->begin + w->micro; j++) {
		double factor = size_of(j) / (double)BATCH;

		gradient(w, param, j, g, loss);
		if (j == w->begin) {
			vec_copy(&w->par, n, g, mean);
			if (factor != 1)
				vec_scale(&w->par, n, factor, mean);
		} else {
			vec_axpy(&w->par, n, factor, g, mean);
		}
	}
	vec_scale(&w->par, n, BATCH / (double)samples_to(w, w->begin + w->micro), mean);
	free(g);
}

/* --- the tests */

static void all_wait(const struct world *w)
{
	for (uint32_t k = 0; k < w->n; k++)
		if (!w->peer[k].waits && w->peer[k].n)
			fail_msg("member %u is not in the round", k);
}

static void compare(const struct peer *p, const real *got, const real *want, bool exact)
{
	double most = sizeof(real) == 8 ? 1e-12 : 1e-5, sum = 0;

	for (uint64_t i = 0; i < p->n; i++) {
		double a = (double)got[i], b = (double)want[p->lo + i];

		sum += fabs(b);
		if (exact ? a != b : !(fabs(a - b) <= most * (1 + fabs(b))))
			fail_msg("member %u, element %llu: %.17g, one process has %.17g", p->rank, (unsigned long long)i, a, b);
	}
	assert_true(sum > 1e-6);
}

/* What the round gives a member whose replica has spoken for both. */
static void hear(const struct world *w, struct peer *p)
{
	for (uint32_t k = 0; k < w->n && !p->gave; k++)
		if (w->peer[k].gave && w->peer[k].lo == p->lo && w->peer[k].n == p->n)
			memcpy(p->mean, w->peer[k].mean, p->n * sizeof(real));
}

/* The step is the test's own: plain SGD with the mean that the round was given. */
static void step(struct world *w, real *param, bool exact)
{
	real *mean = xcalloc(w->model->nparam, sizeof(real));
	double loss = 0, told = 0;
	uint64_t counted = 0, given = 0;

	alone(w, param, mean, &loss);
	vec_axpy(&w->par, w->model->nparam, RATE, mean, param);
	for (uint32_t k = 0; k < w->n; k++) {
		struct peer *p = &w->peer[k];

		counted += p->counted;
		told += p->loss;
		if (!p->n)
			continue;
		hear(w, p);
		given += p->gave ? p->n : 0;
		compare(p, p->mean, mean, exact);
		vec_axpy(&w->par, p->n, RATE, p->mean, p->w);
		compare(p, p->w, param, exact);
	}
	assert_int_equal(given, w->model->nparam);      /* every parameter once, whoever else has it */
	assert_int_equal(counted, samples_to(w, w->begin + w->micro));
	assert_true(fabs(told - loss) < 1e-5 * fabs(loss));
	free(mean);
}

static void train(uint32_t members, uint64_t micro, bool exact, const char *values)
{
	struct world w;
	real *param;

	world_open(&w, members, micro);
	pipe_values(&w.kit, "%s", values);
	param = xcalloc(w.model->nparam, sizeof(real));
	model_init(w.model, 3, param);
	for (uint32_t k = 0; k < members; k++)
		peer_open(&w, k);
	for (; w.epoch < EPOCHS; w.epoch++) {
		for (uint32_t k = 0; k < members; k++)
			exec_wake(w.peer[k].x);
		sim_run_for(w.sim, 1000000);
		all_wait(&w);
		step(&w, param, exact);
		w.begin += w.micro + 1;                 /* the round has an index, too */
		for (uint32_t k = 0; k < members; k++) {
			w.peer[k].waits = w.peer[k].gave = false;
			w.peer[k].unit = w.peer[k].loss = 0;
			w.peer[k].counted = 0;
			exec_interrupt(w.peer[k].x);
		}
	}
	free(param);
	world_close(&w);
}

/* Every schedule and depth, in one flush and in several, the last of them shorter; and a member that has no stage. */
static void schedules(void **state)
{
	static const char *const schedule[] = { "naive", "gpipe", "1f1b" };
	char values[100];

	for (int s = 0; s < 3; s++)
		for (uint32_t p = 1; p <= 5; p++)
			for (uint32_t m = 1; m <= 9; m += 4) {
				(void)snprintf(values, sizeof(values), "{'stages':%u,'schedule':'%s','micro_batches':%u}", p,
					schedule[s], m);
				train(p, 7, true, values);
			}
	train(4, 5, true, "{'stages':3}");
}

static void named_layers(void **state)
{
	train(3, 6, true, "{'stages':[{'layers':'in-mid'},{'layers':4},{'layers':'7-9'}],'micro_batches':4}");
	train(2, 6, true, "{'stages':[{'layers':'in'},{'layers':'t-9'}],'schedule':'gpipe'}");
}

static void replicas(void **state)
{
	train(3, 7, false, "{'stages':[{'replicas':2},{}]}");
	train(3, 7, false, "{'stages':[{},{'replicas':2}],'schedule':'gpipe'}");
	train(4, 8, false, "{'stages':[{'replicas':2},{},{}],'micro_batches':3}");
	train(6, 9, false, "{'stages':[{'replicas':3},{'replicas':2},{}],'micro_batches':5}");
	train(4, 6, false, "{'stages':[{'replicas':2},{'replicas':2}],'schedule':'naive','micro_batches':2}");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(schedules),
		cmocka_unit_test(named_layers),
		cmocka_unit_test(replicas),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
