/* For tests of the executor with real kernels: a small model and one batch in the simulator, plans that the test makes,
 * an owner that notes what it is told. */
#ifndef TESTS_EXEC_BED_H
#define TESTS_EXEC_BED_H
#include "t.h"
#include "kernels/gemm.h"
#include "sim.h"
#include "train/data/data.h"
#include "exec/exec.h"
#include "train/spec/spec.h"

#define N 6

struct bed {
	struct sim *sim; struct env *env;
	struct model *model; struct par par;
	struct batch batch; real x[N * 7]; int32_t y[N]; uint64_t position[N];
	real *w, *g;
	struct exec *x_;
	void (*make)(struct bed *b, struct plan *p);
	int planned, unloaded, broken, commits, troubles, withouts, asked; bool over;
	struct exec_wait *wait, *load;
	struct err error;
	double loss;
	/* Set before it is opened: */
	size_t budget, host_bytes, file_bytes; const char *folder; const struct profile *profile; bool check;
	void (*ready)(struct bed *b);           /* called when all is there and nothing runs yet */
};

static inline void *start(struct env *env, int node, void *arg) { return arg; }
static inline void stop(void *app) { }

static inline int plan(void *arg, const struct plan_results *r, uint64_t first, struct plan *ret, struct err *e)
{
	struct bed *b = arg;

	plan_init(ret, "test", 0, 2, (struct id[]){ { { 1 } }, { { 2 } } });
	ret->first = first;
	if (b->planned++ > b->troubles)
		b->over = true;
	else
		b->make(b, ret);
	return 0;
}

static inline void commit(void *arg, const struct plan_instr *i, int64_t index, const struct batch *t)
{
	struct bed *b = arg;

	assert_ptr_equal(t, &b->batch);
	b->commits++;
}

static inline void scalar(void *arg, const char *name, int64_t index, const void *p, size_t bytes)
{
	if (!strcmp(name, "loss"))
		((struct bed *)arg)->loss = *(const double *)p;
}

static inline void vec_env(void *arg, struct vec_env *ret)
{
	ret->loss = loss_find("cross_entropy");
	ret->counts = true;
}

static inline enum exec_outcome failed(void *arg, const struct plan *p, const struct plan_instr *i,
	enum exec_outcome meant, const struct err *e)
{
	struct bed *b = arg;

	b->error = *e;
	b->troubles += meant == EXEC_REPLAN;
	b->withouts += meant == EXEC_WITHOUT;
	return meant;
}

static inline void broken(void *arg, const struct err *e)
{
	struct bed *b = arg;

	b->error = *e;
	b->broken++;
}

static inline void load(void *arg, struct exec_wait *w, const struct plan_instr *i, int64_t index)
{
	struct bed *b = arg;

	b->load = w;
	exec_loaded(w, &b->batch, NULL);
}

static inline void unload(void *arg, struct batch *t) { ((struct bed *)arg)->unloaded++; }
static inline void cancel(void *arg, struct exec_wait *w) { ((struct bed *)arg)->wait = NULL; }

static inline void net(void *arg, struct exec_wait *w, const struct exec_net *n, const struct exec_span *in,
	uint32_t nin, const struct exec_span *out, uint32_t nout)
{
	struct bed *b = arg;

	b->wait = w;
	b->asked++;
}

static inline struct model *make_model(void)
{
	static const char *const out[] = { "out" };
	static const double nine[] = { 9 }, five[] = { 5 }, four[] = { 4 };
	const struct layer_desc d[] = { { "linear", "a", 1, out, nine }, { "tanh", "t", 0, NULL, NULL },
		{ "linear", "b", 1, out, five }, { "relu", "r", 0, NULL, NULL }, { "linear", "c", 1, out, four } };
	const struct shape in = { 1, { 7 } };
	struct kerr e;

	return model_new(&in, d, 5, NULL, &e);
}

/* In a world that is there (b->env). */
static inline void bed_put(struct bed *b, void (*make)(struct bed *b, struct plan *p), const struct exec_ops *ops,
	const struct exec_cb *cb)
{
	b->model = make_model();
	b->par = par_serial(CPU_PLAIN, NULL);
	b->w = calloc(b->model->nparam, sizeof(real));
	b->g = calloc(b->model->nparam, sizeof(real));
	b->make = make;
	for (size_t i = 0; i < b->model->nparam; i++)
		b->g[i] = 7;                            /* what lies there is nothing */
	model_init(b->model, 9, b->w);
	for (int i = 0; i < N * 7; i++)
		b->x[i] = (real)((i * 37) % 19) / 7 - 1;
	for (int i = 0; i < N; i++)
		b->y[i] = i % 4;
	b->batch = (struct batch){ .n = N, .x = b->x, .y = b->y, .position = b->position };
	struct exec_conf conf = { .env = b->env, .model = b->model, .par = &b->par, .ops = ops, .ops_arg = b,
		.budget_bytes = b->budget, .host_bytes = b->host_bytes, .file_bytes = b->file_bytes, .folder = b->folder,
		.profile = b->profile, .check = b->check };
	b->x_ = exec_new(&conf, cb, b);
	exec_bind(b->x_, "w", b->w, b->model->nparam * sizeof(real));
	exec_bind(b->x_, "g", b->g, b->model->nparam * sizeof(real));
	if (b->ready)
		b->ready(b);
	exec_wake(b->x_);
}

static inline void bed_begin(struct bed *b, void (*make)(struct bed *b, struct plan *p), const struct exec_ops *ops,
	const struct exec_cb *cb)
{
	struct sim_app app = { start, stop, b };

	*b = (struct bed){ .budget = b->budget, .host_bytes = b->host_bytes, .file_bytes = b->file_bytes,
		.folder = b->folder, .profile = b->profile, .check = b->check, .ready = b->ready };
	b->sim = sim_new(1);
	(void)sim_node_add(b->sim, NULL, &app);
	b->env = sim_env(b->sim, 0);
	bed_put(b, make, ops, cb);
	sim_run_for(b->sim, 1000000);
}

static inline void bed_open(struct bed *b, void (*make)(struct bed *b, struct plan *p), bool carries)
{
	static const struct exec_ops with = { .load = load, .unload = unload, .net = net, .cancel = cancel };
	static const struct exec_ops apart = { .load = load, .unload = unload, .cancel = cancel };
	const struct exec_cb cb = { .plan = plan, .commit = commit, .scalar = scalar, .env = vec_env, .failed = failed,
		.broken = broken };

	bed_begin(b, make, carries ? &with : &apart, &cb);
}

static inline void bed_close(struct bed *b)
{
	if (b->x_)
		exec_free(b->x_, NULL, NULL);
	sim_run_for(b->sim, 1000000);
	model_free(b->model);
	free(b->w);
	free(b->g);
	sim_free(b->sim);
}

static inline uint32_t buffer(struct plan *p, const char *name, enum plan_class class, size_t bytes, bool initial)
{
	return plan_buf(p, &(struct plan_buf){ .class = class, .bytes = (bytes + 63) / 64 * 64, .initial = initial }, "%s",
		name);
}

/* Activations between the pieces, what each keeps, and the ends. */
static inline void buffers(struct bed *b, struct plan *p)
{
	size_t params = b->model->nparam * sizeof(real);
	struct model_need need;

	plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT, .bytes = params, .initial = true }, "w");
	plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT_GRAD, .bytes = params }, "g");
	buffer(p, "batch", PLAN_BATCH, sizeof(b->x), false);
	for (int i = 1; i <= 5; i++) {
		char name[8];

		model_need(b->model, i - 1, i, N, 1, &need);
		(void)snprintf(name, sizeof(name), "a%d", i);
		buffer(p, name, PLAN_ACTIVATION, need.y, false);
		(void)snprintf(name, sizeof(name), "d%d", i);
		buffer(p, name, PLAN_ACTIVATION_GRAD, need.y, false);
		(void)snprintf(name, sizeof(name), "k%d", i);
		buffer(p, name, PLAN_ACTIVATION, 4096, false);
	}
	plan_buf(p, &(struct plan_buf){ .class = PLAN_SCALAR, .bytes = 8 }, "loss");
	plan_buf(p, &(struct plan_buf){ .class = PLAN_SCALAR, .bytes = 8 }, "correct");
	plan_section(p, PLAN_BODY);
	p->iterations = 1;
}

static inline void pass(struct plan *p, enum plan_kind kind, uint32_t a, uint32_t b, enum plan_keep keep, bool replay,
	const char *refs)
{
	struct plan_instr *i = plan_piece(plan_do(p, kind, 0, "%s", refs), a, b);

	i->keep = keep;
	i->replay = replay;
	i->work_bytes = 16384;
}

static inline void whole(struct bed *b, struct plan *p)
{
	buffers(b, p);
	plan_do(p, PLAN_LOAD, 0, "-> batch");
	pass(p, PLAN_FWD, 0, 4, PLAN_KEEP_ALL, false, "batch w -> a5 save:k1");
	plan_vec(p, 0, "loss", "a5 batch -> d5 loss correct");
	pass(p, PLAN_BWD, 0, 4, PLAN_KEEP_ALL, false, "save:k1 d5 batch w -> g");
	plan_do(p, PLAN_COMMIT, 0, "batch!");
}

static inline void run(struct bed *b, void (*make)(struct bed *b, struct plan *p))
{
	bed_open(b, make, false);
	if (b->broken)
		fail_msg("%s", b->error.text);
	assert_true(b->over);
	assert_int_equal(b->commits, 1);
	assert_int_equal(b->unloaded, 1);
}

#endif
