/* Random chains of layers with random attributes: whatever model_new accepts must run in exactly the memory that
 * model_need says (checked by the arena, and by ASan), and its gradient along a random direction must be the slope. */
#include "kernels_util.h"
#include <math.h>
#include <stdio.h>
#include "kernels/arena.h"
#include "kernels/vec.h"

enum { LAYERS_MAX = 7, ATTRS_MAX = LAYER_ATTRS_MAX, MODELS = 2000 };

struct dice { uint64_t key, at; };

static uint64_t roll(struct dice *d, uint64_t n)
{
	return rand_bits(d->key, d->at++) % n;
}

struct blueprint {
	struct shape in;
	int n;
	struct layer_desc desc[LAYERS_MAX];
	const char *attr[LAYERS_MAX][ATTRS_MAX];
	double value[LAYERS_MAX][ATTRS_MAX];
};

static void nobody_waits(void *arg, uint64_t us, bool backward) {}

static void draw_layer(struct dice *d, struct blueprint *b, int i, int types)
{
	const struct layer_ops *o;
	int n = 0;

	do
		o = layer_at((int)roll(d, (uint64_t)types));
	while (!strcmp(o->name, "embedding"));  /* reads ids, which noise is not */
	for (int a = 0; a < o->nattrs; a++) {
		const struct layer_attr *row = &o->attr[a];

		if (!strcmp(row->name, "in") || !strcmp(row->name, "eps") || (!isnan(row->def) && roll(d, 2)))
			continue;
		b->attr[i][n] = row->name;
		b->value[i][n++] = strstr(row->name, "bytes") ? (double)(4 * roll(d, 6)) :
			row->max == 1 ? (double)roll(d, 2) : row->min + (double)roll(d, 4);
	}
	b->desc[i] = (struct layer_desc){ o->name, NULL, n, b->attr[i], b->value[i] };
}

static void draw(struct dice *d, struct blueprint *b)
{
	int types = 0;

	while (layer_at(types))
		types++;
	b->in.nd = roll(d, 4) ? 3 : 1 + (int)roll(d, 4);
	for (int i = 0; i < b->in.nd; i++)
		b->in.d[i] = 1 + roll(d, b->in.nd == 3 ? 7 : 5);
	b->n = 1 + (int)roll(d, LAYERS_MAX);
	for (int i = 0; i < b->n; i++)
		draw_layer(d, b, i, types);
}

struct run { struct par par; struct model *m; size_t batch; real *param, *x, *weight, *buffer; };

/* sum of weight * output; with grad also backward, all in an arena without a byte to spare. */
static double pass(const struct run *r, real *grad, real *dx)
{
	const struct model *m = r->m;
	struct model_call c = { .batch = r->batch, .param = r->param, .buffer = r->buffer, .train = true };
	struct model_need need;
	struct arena a;
	struct arena_mark mark;
	struct kerr e;
	size_t budget;
	double sum;
	real *y;

	model_need(m, 0, m->nops, r->batch, r->par.n, &need);
	budget = arena_round(need.y) + (grad ? need.saved : 0) + (!grad ? need.work_eval :
		need.work_fwd > need.work_bwd ? need.work_fwd : need.work_bwd);
	assert_int_equal(arena_init(&a, budget, &e), 0);
	y = arena_alloc(&a, need.y, "y", &e);
	c.saved = grad ? arena_alloc(&a, need.saved, "saved", &e) : NULL;
	mark = arena_mark(&a);
	c.work = arena_alloc(&a, grad ? need.work_fwd : need.work_eval, "forward", &e);
	assert_true(y && c.work && (!grad || c.saved));
	model_forward(&r->par, m, 0, m->nops, &c, r->x, y);
	sum = vec_dot(&r->par, need.y / sizeof(real), y, r->weight);
	arena_release(&a, mark);
	if (grad) {
		c.work = arena_alloc(&a, need.work_bwd, "backward", &e);
		assert_non_null(c.work);
		model_backward(&r->par, m, 0, m->nops, &c, r->x, r->weight, dx, grad);
	}
	arena_done(&a);
	return sum;
}

static double along(struct run *r, const real *dir_p, const real *dir_x, size_t nx, double step)
{
	double f;

	vec_axpy(&r->par, r->m->nparam, step, dir_p, r->param);
	vec_axpy(&r->par, nx, step, dir_x, r->x);
	f = pass(r, NULL, NULL);
	vec_axpy(&r->par, r->m->nparam, -step, dir_p, r->param);
	vec_axpy(&r->par, nx, -step, dir_x, r->x);
	return f;
}

static void check(struct model *m, struct dice *d, int number)
{
	size_t batch = 1 + roll(d, 4), nx = batch * shape_count(&m->in), ny = batch * shape_count(&m->out);
	struct run r = { team(1 + (int)roll(d, 3), CPU_PLAIN, NULL), m, batch, noise(d->key + 1, 1, m->nparam),
		noise(d->key + 2, 1, nx), noise(d->key + 3, 1, ny), buffers(m) };
	real *dir_p = noise(d->key + 4, 1, m->nparam), *dir_x = noise(d->key + 5, 1, nx);
	real *grad = calloc(m->nparam + 1, sizeof(real)), *dx = bytes(nx * sizeof(real));
	const double step = 1e-6;
	double want, got;

	pass(&r, grad, dx);
	got = vec_dot(&r.par, m->nparam, grad, dir_p) + vec_dot(&r.par, nx, dx, dir_x);
	want = (along(&r, dir_p, dir_x, nx, step) - along(&r, dir_p, dir_x, nx, -step)) / (2 * step);
	if (!(fabs(got - want) <= 1e-6 * (1 + fabs(want) + vec_norm2(&r.par, m->nparam, grad)))) {
		for (int i = 0; i < m->nops; i++)
			printf("  %s", m->op[i].ops->name);
		fail_msg("model %d: slope %.12g by backward, %.12g by differences", number, got, want);
	}
	free(r.param); free(r.x); free(r.weight); free(r.buffer); free(dir_p); free(dir_x); free(grad); free(dx);
}

/* Layers of several inputs fit nothing in a chain, and of images few: test_kernels_shapes has fifty of each. */
static bool in_chains(const char *name)
{
	return !strstr("embedding add concat attention select", name);
}

static void random_models_hold(void **state)
{
	const struct layer_host host = { nobody_waits, NULL };
	int accepted = 0, seen[64] = { 0 };

	for (int i = 0; i < MODELS; i++) {
		struct dice d = { rand_key(2026, (uint64_t)i), 0 };
		struct blueprint b;
		struct kerr e = { "" };
		struct model *m;

		draw(&d, &b);
		m = model_new(&b.in, b.desc, b.n, &host, &e);
		if (!m) {
			assert_non_null(strstr(e.text, "layer "));
			continue;
		}
		accepted++;
		for (int k = 0; k < b.n; k++)
			for (int t = 0; layer_at(t); t++)
				seen[t] += !strcmp(layer_at(t)->name, b.desc[k].type);
		check(m, &d, i);
		model_free(m);
	}
	printf("%d of %d random models make sense\n", accepted, MODELS);
	assert_true(accepted > MODELS / 5);
	for (int t = 0; layer_at(t); t++)
		if (in_chains(layer_at(t)->name) && !seen[t])
			fail_msg("layer %s was in %d of the models that make sense", layer_at(t)->name, seen[t]);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(random_models_hold) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
