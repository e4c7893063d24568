/* What the kernel tests share: seeded data, teams that split without threads, models from one-line specs. */
#ifndef TESTS_KERNELS_UTIL_H
#define TESTS_KERNELS_UTIL_H
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "kernels/layer.h"
#include "kernels/model.h"

/* Runs the parts last to first: results must not depend on the order. */
static inline void backwards_run(const struct par *par, void (*fn)(void *arg, int part, int parts), void *arg)
{
	for (int i = par->n - 1; i >= 0; i--)
		fn(arg, i, par->n);
}

static inline struct par team(int n, enum cpu cpu, const struct blas *blas)
{
	return (struct par){ .n = n, .cpu = cpu, .blas = blas, .run = backwards_run };
}

static inline real *reals(size_t n)
{
	real *x = aligned_alloc(64, (n * sizeof(real) + 64) / 64 * 64);

	assert_non_null(x);
	return x;
}

static inline real *noise(uint64_t key, double bound, size_t n)
{
	real *x = reals(n);

	rand_uniform(key, bound, n, x);
	return x;
}

static inline void *bytes(size_t n)
{
	void *p = aligned_alloc(64, (n + 64) / 64 * 64);

	assert_non_null(p);
	memset(p, 0xff, n);     /* NaN: what is not written shows */
	return p;
}

/* A model from text: layers parted by ';', each "TYPE attr=value ... :name <input,input @shared". Lines may break. */
#define KIT_OPS 96
struct kit_op {
	const char *attr[LAYER_ATTRS_MAX], *input[LAYER_INPUTS_MAX];
	double value[LAYER_ATTRS_MAX];
};

static inline void kit_word(struct layer_desc *d, struct kit_op *k, char *w)
{
	char *eq = strchr(w, '=');

	if (*w == ':') {
		d->name = w + 1;
	} else if (*w == '@') {
		d->share = w + 1;
	} else if (*w == '<') {
		char *rest = w + 1;

		for (char *one; (one = strsep(&rest, ",")); d->ninputs++) {
			assert_true(d->ninputs < LAYER_INPUTS_MAX);
			k->input[d->ninputs] = one;
		}
	} else if (eq) {
		*eq = 0;
		assert_true(d->nattrs < LAYER_ATTRS_MAX);
		k->attr[d->nattrs] = w;
		k->value[d->nattrs++] = strtod(eq + 1, NULL);
	} else {
		d->type = w;
	}
}

static inline struct model *model_text(struct shape in, const char *text, const struct layer_host *host, struct kerr *e)
{
	struct layer_desc *desc = calloc(KIT_OPS, sizeof *desc);
	struct kit_op *op = calloc(KIT_OPS, sizeof *op);
	char *copy = strdup(text), *rest = copy;
	struct model *m;
	int n = 0;

	for (char *line; (line = strsep(&rest, ";")); n++) {
		assert_true(n < KIT_OPS);
		desc[n].attr = op[n].attr;
		desc[n].value = op[n].value;
		desc[n].input = op[n].input;
		for (char *w; (w = strsep(&line, " \n\t")); )
			if (*w)
				kit_word(&desc[n], &op[n], w);
	}
	m = model_new(&in, desc, n, host, e);
	free(copy);
	free(desc);
	free(op);
	return m;
}

static inline real *buffers(const struct model *m)
{
	real *b = bytes(m->nbuffer * sizeof(real));

	model_init_buffers(m, b);
	return b;
}

/* Everything that a pass over a model makes. Without fresh the gradient is added to what is there, which is noise. */
struct model_pass { real *y, *dx, *grad; };

static inline struct model_pass model_pass(const struct par *par, const struct model *m, size_t batch, const real *x,
	const real *dy, const real *param, bool fresh)
{
	struct model_pass p = { reals(batch * shape_count(&m->out)), reals(batch * shape_count(&m->in)),
		noise(8, 1, m->nparam + 1) };
	struct model_call c = { .batch = batch, .param = param, .train = true, .key = 5, .fresh = fresh };
	struct model_need need;

	model_need(m, 0, m->nops, batch, par->n, &need);
	c.saved = bytes(need.saved);
	c.work = bytes(need.work_fwd);
	c.buffer = buffers(m);
	model_forward(par, m, 0, m->nops, &c, x, p.y);
	free(c.work);
	c.work = bytes(need.work_bwd);
	model_backward(par, m, 0, m->nops, &c, x, dy, p.dx, p.grad);
	free(c.work);
	free(c.saved);
	free(c.buffer);
	return p;
}

static inline void model_pass_free(struct model_pass *p)
{
	free(p->y);
	free(p->dx);
	free(p->grad);
}

#endif
