/* For tests of VEC functions alone: a small model with running statistics, operands with names of their own memory. */
#ifndef TESTS_VEC_BED_H
#define TESTS_VEC_BED_H
#include "t.h"
#include <math.h>
#include "kernels/gemm.h"
#include "exec/vec.h"

struct vbed { struct model *m; struct par par; size_t n, len; struct vec_env env; };    /* len: n and the statistics */

static inline void vbed_open(struct vbed *b, double width)
{
	static const char *const out[] = { "out" };
	const double wide[] = { width }, five[] = { 5 };
	const struct layer_desc d[] = { { "linear", "a", 1, out, wide }, { "batchnorm", "n", 0, NULL, NULL },
		{ "tanh", "t", 0, NULL, NULL }, { "linear", "b", 1, out, five } };
	const struct shape in = { 1, { 7 } };
	struct kerr e;

	b->m = model_new(&in, d, 4, NULL, &e);
	if (!b->m)
		fail_msg("%s", e.text);
	b->par = par_serial(CPU_PLAIN, NULL);
	b->n = b->m->nparam;
	b->len = b->n + b->m->nbuffer;
	assert_true(b->m->nbuffer > 0);
	b->env = (struct vec_env){ .model = b->m, .samples = 8, .unit = 8, .part_n = b->n };
}

static inline void vbed_close(struct vbed *b) { model_free(b->m); }

static inline real vbed_wave(size_t i, double phase) { return (real)(0.5 * sin(0.37 * (double)i + phase)); }

/* Optimizer, its usual values and which of its vectors are there. Returns the bytes of the buffer opt. */
static inline size_t vbed_optim(struct vbed *b, const struct optim_ops *o)
{
	size_t vectors = 0;

	b->env.optim = o;
	optim_defaults(o, b->env.hyper);
	b->env.hyper[0] = 0.05;
	if (optim_key_index(o, "momentum") >= 0)
		b->env.hyper[optim_key_index(o, "momentum")] = 0.9;
	if (optim_key_index(o, "weight_decay") >= 0)
		b->env.hyper[optim_key_index(o, "weight_decay")] = 0.01;
	for (int i = 0; i < o->nstates; i++) {
		b->env.state[i] = optim_uses_state(o, b->env.hyper, i);
		vectors += b->env.state[i];
	}
	return (vectors * b->n * sizeof(real) + 7) / 8 * 8 + 3 * sizeof(double);
}

/* A clock of no steps at the end of it, zeros before. */
static inline void vbed_fresh(void *opt, size_t bytes)
{
	double clock[3] = { 0, 1, 1 };

	memset(opt, 0, bytes);
	memcpy((char *)opt + bytes - sizeof(clock), clock, sizeof(clock));
}

static inline int vbed_call(struct vbed *b, const char *fn, struct vec_arg *in, uint32_t nin, struct vec_arg *out,
	uint32_t nout, struct kerr *e)
{
	struct vec_call c = { .par = &b->par, .env = b->env, .nin = nin, .nout = nout, .in = in, .out = out, .e = e };
	const struct vec_ops *ops = vec_find(fn);

	assert_non_null(ops);
	assert_true(nin >= ops->nin && nout >= ops->nout);
	return ops->run(&c);
}

#endif
