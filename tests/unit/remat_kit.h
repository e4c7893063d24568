/* For tests of memory passes: a model on one simulated peer, random models of six blocks, and the program of one
 * micro-batch made of any schedule of passes, checked and run by the executor. */
#ifndef TESTS_REMAT_KIT_H
#define TESTS_REMAT_KIT_H
#include "t.h"
#include "common/buf.h"
#include "common/mem.h"
#include "common/rng.h"
#include "exec/exec.h"
#include "kernels/gemm.h"
#include "plan/check.h"
#include "sim.h"
#include "train/data/data.h"
#include "train/memory.h"
#include "train/profile.h"
#include "train/spec/spec.h"

#define SAMPLES 3

struct bed {
	struct sim *sim; struct env *env; struct par par;
	struct spec *spec; struct model *model;
	struct profile_source source; struct profile profile;
	struct batch batch; uint64_t position[SAMPLES];
	size_t x_bytes;
	real *w, *g, *stats;
	const struct plan *plan; bool planned, over; uint64_t instructions;
	int commits, broken; struct err error;
	double loss; uint64_t peak;
};

static inline void *bed_start(struct env *env, int node, void *arg) { return arg; }
static inline void bed_stop(void *app) { }
static inline void bed_nobody(void *arg, uint64_t us, bool backward) { }

static inline int bed_plan(void *arg, const struct plan_results *r, uint64_t first, struct plan *ret, struct err *e)
{
	struct bed *b = arg;
	json_t *j;
	int rc;

	if (b->planned) {
		b->over = true;
		plan_init(ret, "none", 0, 1, &(struct id){ { 1 } });
		return 0;
	}
	b->planned = true;
	j = plan_to_json(b->plan);
	rc = plan_from_json(ret, j, e);
	json_decref(j);
	return rc;
}

static inline void bed_commit(void *arg, const struct plan_instr *i, int64_t index, const struct batch *t)
{
	((struct bed *)arg)->commits++;
}

static inline void bed_scalar(void *arg, const char *name, int64_t index, const void *p, size_t bytes)
{
	if (!strcmp(name, "loss"))
		((struct bed *)arg)->loss = *(const double *)p;
}

static inline void bed_env(void *arg, struct vec_env *ret)
{
	struct bed *b = arg;

	ret->loss = b->spec->loss;
	ret->objective = &b->spec->objective;
	ret->counts = b->spec->loss->counts;
}

static inline void bed_broken(void *arg, const struct err *e)
{
	struct bed *b = arg;

	b->error = *e;
	b->broken++;
}

static inline void bed_load(void *arg, struct exec_wait *w, const struct plan_instr *i, int64_t index)
{
	exec_loaded(w, &((struct bed *)arg)->batch, NULL);
}

static inline void bed_unload(void *arg, struct batch *t) { }
static inline void bed_cancel(void *arg, struct exec_wait *w) { }

/* model: the layers' JSON. input: "[4,6,6]". */
static inline void bed_open(struct bed *b, const char *input, const char *model)
{
	static const struct layer_host nobody = { .wait = bed_nobody };
	struct sim_app app = { bed_start, bed_stop, b };
	char *text = xasprintf("{\"name\":\"m\",\"input\":%s,\"model\":%s,\"loss\":\"cross_entropy\",\"optimizer\":"
		"{\"name\":\"sgd\"},\"target_batch\":8,\"data\":{\"name\":\"x\",\"kind\":\"synthetic\"}}", input, model);
	struct err e;
	size_t n, rows;

	memset(b, 0, sizeof(*b));
	b->sim = sim_new(1);
	(void)sim_node_add(b->sim, NULL, &app);
	b->env = sim_env(b->sim, 0);
	b->par = par_serial(CPU_PLAIN, NULL);
	b->spec = spec_parse(text, strlen(text), &e);
	b->model = b->spec ? spec_model(b->spec, &nobody, &e) : NULL;
	if (!b->model)
		fail_msg("%s: %s", text, e.text);
	free(text);
	n = SAMPLES * shape_count(&b->model->in);
	b->x_bytes = shape_count(&b->model->in) * sizeof(real);
	b->source = (struct profile_source){ .model = b->model, .parts = 1, .x_bytes = b->x_bytes };
	profile_model(&b->profile, &b->source, SAMPLES);
	b->w = xcalloc(b->model->nparam + 1, sizeof(real));
	b->g = xcalloc(b->model->nparam + 1, sizeof(real));
	b->stats = xcalloc(b->model->nbuffer + 1, sizeof(real));
	model_init(b->model, 9, b->w);
	rows = b->spec->objective.rows;
	b->batch = (struct batch){ .n = SAMPLES, .position = b->position, .x = xcalloc(n, sizeof(real)),
		.y = xcalloc(SAMPLES * rows, sizeof(int32_t)) };
	for (size_t i = 0; i < n; i++)
		b->batch.x[i] = strcmp(b->model->op[0].ops->name, "embedding") ? (real)((i * 37) % 19) / 7 - 1 : (real)(i % 5);
	for (size_t i = 0; i < SAMPLES * rows; i++)
		((int32_t *)b->batch.y)[i] = (int32_t)i % 3;
	for (int i = 0; i < SAMPLES; i++)
		b->position[i] = (uint64_t)i + 5;
}

static inline void bed_close(struct bed *b)
{
	model_free(b->model);
	profile_free(&b->profile);
	spec_free(b->spec);
	free(b->batch.x);
	free(b->batch.y);
	free(b->w);
	free(b->g);
	free(b->stats);
	sim_free(b->sim);
}

/* The program of one micro-batch; somebody wants its gradient. */
static inline void bed_program(const struct bed *b, const struct passes *s, struct plan *p)
{
	size_t params = b->model->nparam * sizeof(real);

	plan_init(p, "test", 0, 1, &(struct id){ { 1 } });
	plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT, .bytes = params, .per = UINT32_MAX, .initial = true }, "w");
	plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT_GRAD, .bytes = params }, "g");
	plan_buf(p, &(struct plan_buf){ .class = PLAN_BATCH, .bytes = SAMPLES * b->x_bytes }, "batch");
	passes_buffers(p, s);
	plan_buf(p, &(struct plan_buf){ .class = PLAN_SCALAR, .bytes = 8 }, "loss");
	plan_buf(p, &(struct plan_buf){ .class = PLAN_SCALAR, .bytes = 8 }, "correct");
	plan_buf(p, &(struct plan_buf){ .class = PLAN_SCALAR, .bytes = 8 }, "square");
	plan_section(p, PLAN_BODY);
	p->iterations = 1;
	plan_do(p, PLAN_LOAD, 0, "-> batch");
	passes_forward(p, s, "w");
	if (plan_find(p, "y") != PLAN_NONE && plan_find(p, "dy") != PLAN_NONE)
		plan_vec(p, 0, "loss", "y! batch -> dy loss correct")->inplace = true;
	passes_backward(p, s, "w");
	plan_vec(p, 0, "dot", "g g -> square");
	plan_do(p, PLAN_COMMIT, 0, "batch!");
}

/* Runs it as a trainer would, from fresh statistics and with noise where the gradient goes; what came of it is in b. */
static inline void bed_run(struct bed *b, const struct plan *p)
{
	static const struct exec_ops ops = { .load = bed_load, .unload = bed_unload, .cancel = bed_cancel };
	const struct exec_cb cb = { .plan = bed_plan, .commit = bed_commit, .scalar = bed_scalar, .env = bed_env,
		.broken = bed_broken };
	struct exec_conf conf = { .env = b->env, .model = b->model, .par = &b->par, .ops = &ops, .ops_arg = b,
		.buffers = b->model->nbuffer ? b->stats : NULL, .seed = 4, .check = true };
	struct exec *x = exec_new(&conf, &cb, b);
	struct exec_view v;

	b->plan = p;
	b->planned = b->over = false;
	b->commits = b->broken = 0;
	model_init_buffers(b->model, b->stats);
	for (size_t i = 0; i < b->model->nparam; i++)
		b->g[i] = (real)i;
	exec_bind(x, "w", b->w, b->model->nparam * sizeof(real));
	exec_bind(x, "g", b->g, b->model->nparam * sizeof(real));
	exec_wake(x);
	sim_run_for(b->sim, 100000);
	exec_view(x, &v);
	b->peak = v.arena_peak_bytes;
	b->instructions = v.instructions;
	if (!b->broken)
		assert_true(b->over && b->commits == 1);
	exec_free(x, NULL, NULL);
	sim_run_for(b->sim, 100000);
}

static inline uint64_t bed_predicted(const struct bed *b, const struct plan *p)
{
	struct predict_conf c = { .profile = &b->profile };
	struct prediction r;
	struct err e;
	uint64_t peak;

	if (predict(&p, 1, &c, &r, &e) < 0)
		fail_msg("%s", e.text);
	assert_false(r.stuck);
	peak = r.peer[0].peak[0];
	prediction_free(&r);
	return peak;
}

/* --- random models of BLOCKS blocks; block i begins with op first[i], and one value flows there */

#define BLOCKS 6

static inline void block_text(struct buf *t, struct rng *r, bool pictures, int i)
{
	static const char *const picture[] = {
		"{\"type\":\"conv2d\",\"out\":4,\"kernel\":3,\"padding\":1,\"name\":\"c%d\"},{\"type\":\"batchnorm\",\"name\":"
		"\"n%d\"},{\"type\":\"relu\",\"name\":\"b%d\"}",
		"{\"type\":\"conv2d\",\"out\":4,\"kernel\":1,\"name\":\"c%d\"},{\"type\":\"batchnorm\",\"name\":\"n%d\"},"
		"{\"type\":\"add\",\"inputs\":[\"n%d\",\"b%d\"],\"name\":\"a%d\"},{\"type\":\"relu\",\"name\":\"b%d\"}",
		"{\"type\":\"dropout\",\"p\":0.3,\"name\":\"b%d\"}",
		"{\"type\":\"groupnorm\",\"groups\":2,\"name\":\"n%d\"},{\"type\":\"silu\",\"name\":\"b%d\"}",
		"{\"type\":\"maxpool2d\",\"kernel\":3,\"stride\":1,\"padding\":1,\"name\":\"b%d\"}",
		"{\"type\":\"conv2d\",\"out\":4,\"kernel\":3,\"padding\":1,\"name\":\"c%d\"},{\"type\":\"tanh\",\"name\":"
		"\"b%d\"}" };
	static const char *const row[] = {
		"{\"type\":\"layernorm\",\"name\":\"n%d\"},{\"type\":\"linear\",\"out\":24,\"name\":\"q%d\"},{\"type\":"
		"\"attention\",\"heads\":2,\"causal\":1,\"dropout\":0.2,\"name\":\"t%d\"},{\"type\":\"linear\",\"out\":8,"
		"\"name\":\"c%d\"},{\"type\":\"add\",\"inputs\":[\"c%d\",\"b%d\"],\"name\":\"b%d\"}",
		"{\"type\":\"rmsnorm\",\"name\":\"n%d\"},{\"type\":\"linear\",\"out\":12,\"name\":\"q%d\"},{\"type\":\"gelu\","
		"\"name\":\"t%d\"},{\"type\":\"linear\",\"out\":8,\"name\":\"c%d\"},{\"type\":\"dropout\",\"p\":0.2,\"name\":"
		"\"d%d\"},{\"type\":\"add\",\"inputs\":[\"d%d\",\"b%d\"],\"name\":\"b%d\"}",
		"{\"type\":\"linear\",\"out\":8,\"name\":\"c%d\"},{\"type\":\"sigmoid\",\"name\":\"b%d\"}",
		"{\"type\":\"dropout\",\"p\":0.3,\"name\":\"b%d\"}",
		"{\"type\":\"softmax\",\"name\":\"b%d\"}",
		"{\"type\":\"position\",\"max\":5,\"name\":\"b%d\"}" };
	const char *s = (pictures ? picture : row)[rng_below(r, 6)];

	for (const char *p = s; *p; p++)        /* "b%d" is this block's end, the first of two the end of the one before */
		if (p[0] == '%' && p[1] == 'd') {
			bool before = p[-1] == 'b' && strstr(p + 2, "b%d");

			buf_printf(t, "%d", before ? i - 1 : i);
			p++;
		} else {
			buf_u8(t, (uint8_t)*p);
		}
}

static inline void bed_random(struct bed *b, struct rng *r, uint32_t first[BLOCKS + 1])
{
	bool pictures = rng_below(r, 2);
	struct buf t = { 0 };
	char name[16];

	buf_printf(&t, "[%s", pictures ? "{\"type\":\"conv2d\",\"out\":4,\"kernel\":3,\"padding\":1,\"name\":\"b0\"}" :
		"{\"type\":\"linear\",\"out\":8,\"name\":\"b0\"}");
	for (int i = 1; i < BLOCKS - 1; i++) {
		buf_u8(&t, ',');
		block_text(&t, r, pictures, i);
	}
	buf_printf(&t, ",{\"type\":\"flatten\"},{\"type\":\"linear\",\"out\":3,\"name\":\"b%d\"}]", BLOCKS - 1);
	buf_u8(&t, 0);
	bed_open(b, pictures ? "[3,5,5]" : "[5,6]", (const char *)t.p);
	buf_free(&t);
	first[0] = 0;
	for (int i = 0, o = 0; i < BLOCKS; o++) {
		(void)snprintf(name, sizeof(name), "b%d", i);
		if (!strcmp(b->model->op[o].name, name))
			first[++i] = (uint32_t)o + 1;
	}
	assert_int_equal(first[BLOCKS], b->model->nops);
}

/* --- random schedules: block i of n is there when its input is */

struct draw { struct rng *r; const uint32_t *first; struct passes *s; uint32_t last; };

static inline void draw_fwd(struct draw *d, uint32_t i, uint32_t j, enum plan_keep keep, bool replay)
{
	passes_add(d->s, PLAN_FWD, d->first[i], d->first[j + 1] - 1, keep, replay);
}

/* Forward and backward of blocks i..j, whose input is there and is kept; afterwards it is gone. */
static inline void draw_stretch(struct draw *d, uint32_t i, uint32_t j, bool replay)
{
	uint32_t n = j - i + 1, k;

	if (n == 1 || !rng_below(d->r, 3)) {     /* all of some is kept, the rest comes behind it */
		k = i + (uint32_t)rng_below(d->r, n);
		draw_fwd(d, i, k, PLAN_KEEP_ALL, replay);
		if (k < j)
			draw_stretch(d, k + 1, j, replay);
		passes_add(d->s, PLAN_BWD, d->first[i], d->first[k + 1] - 1, PLAN_KEEP_NONE, false);
		return;
	}
	k = i + 1 + (uint32_t)rng_below(d->r, n - 1);  /* up to k nothing is kept but the input */
	for (uint32_t from = i; from < k; ) {
		uint32_t m = from + (uint32_t)rng_below(d->r, k - from);

		draw_fwd(d, from, m, from == i ? PLAN_KEEP_INPUT : PLAN_KEEP_NONE, replay);
		from = m + 1;
	}
	draw_stretch(d, k, j, replay);
	draw_stretch(d, i, k - 1, true);
}

static inline void draw_schedule(const struct bed *b, struct rng *r, const uint32_t *first, struct passes *ret)
{
	struct draw d = { r, first, ret, BLOCKS - 1 };

	*ret = (struct passes){ .a = 0, .b = (uint32_t)b->model->nops - 1 };
	draw_stretch(&d, 0, BLOCKS - 1, false);
	passes_size(&b->profile, ret);
}

#endif
