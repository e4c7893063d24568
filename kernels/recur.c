/* Unrolls a recurrence. Rows are kept as they come, samples outermost, so that nothing is moved: a step is every T-th
 * row, and only the states of the steps before are copied once, for the gradient of what they are multiplied with. */
#include "kernels/recur.h"
#include <limits.h>
#include <math.h>
#include <string.h>
#include "kernels/arena.h"
#include "kernels/gemm.h"
#include "kernels/gemm_tile.h"

static bool last_only(const struct layer *l) { return l->attr[RECUR_LAST] != 0; }
static size_t hidden_of(const struct layer *l) { return (size_t)l->attr[RECUR_OUT]; }

int recur_shape(struct layer *l, size_t gates, struct kerr *e)
{
	size_t hidden = hidden_of(l), wide = gates * hidden;
	char text[64];

	if (l->in.nd != 2)
		return kerr_set(e, "%s needs rows [steps, features], not an input of shape %s%s", l->ops->name,
			shape_text(&l->in, text, sizeof text),
			l->in.nd < 2 ? ": an embedding layer before it makes rows of tokens" : "");
	if (wide > INT_MAX / l->in.d[0])
		return kerr_set(e, "%s: %zu steps of %zu sums each are more than %d", l->ops->name, l->in.d[0], wide, INT_MAX);
	l->out = last_only(l) ? (struct shape){ 1, { hidden } } : (struct shape){ 2, { l->in.d[0], hidden } };
	layer_param_add(l, "weight_ih_l0", 2, (size_t[]){ wide, l->in.d[1] });
	layer_param_add(l, "weight_hh_l0", 2, (size_t[]){ wide, hidden });
	if (l->attr[RECUR_BIAS] == 0)
		return 0;
	layer_param_add(l, "bias_ih_l0", 1, (size_t[]){ wide });
	layer_param_add(l, "bias_hh_l0", 1, (size_t[]){ wide });
	return 0;
}

void recur_init(const struct layer *l, uint64_t key, real *param)
{
	layer_init(l, key, 1 / sqrt((double)hidden_of(l)), 0, param);
}

struct recur recur_of(const struct layer_call *c, size_t gates)
{
	const struct layer *l = c->l;
	bool bias = l->nparams > 2;

	return (struct recur){ .l = l, .batch = c->batch, .steps = l->in.d[0], .in = l->in.d[1], .hidden = hidden_of(l),
		.gates = gates, .w_ih = c->param, .w_hh = c->param + l->param[1].offset,
		.b_ih = bias ? c->param + l->param[2].offset : NULL, .b_hh = bias ? c->param + l->param[3].offset : NULL };
}

/* --- products with the state: few rows go by tiles, which read the weights where they lie, unless those are so few
 * that OpenBLAS wins; its products with a transposed matrix do up to some twenty */

static bool tiled(const struct par *par, const struct recur *r, bool trans)
{
	return par->blas && gemm_tile_has(par->cpu) && r->batch >= (trans ? 24 : 5) && r->batch <= GEMM_TILE_FEW &&
		r->hidden >= 16;
}

static size_t tiles_bytes(const struct layer *l, size_t gates, size_t batch)
{
	size_t wide = gates * hidden_of(l);

	return hidden_of(l) < 16 ? 0 :
		arena_round(gemm_tile_work(batch < GEMM_TILE_FEW ? batch : GEMM_TILE_FEW, wide, wide));
}

struct job { struct gemm_tile g; enum cpu cpu; unsigned char *work; size_t bytes; };

/* Columns of C are shared out. */
static void tiles_part(void *arg, int part, int parts)
{
	const struct job *j = arg;
	struct gemm_tile g = j->g;

	if (gemm_tile_part(&g, part, parts))
		gemm_tile(j->cpu, &g, j->work + (size_t)part * j->bytes);
}

/* C (+)= A op(W_hh) over the batch. */
static void product(const struct par *par, const struct recur *r, bool trans, size_t n, size_t k, const real *a,
	size_t lda, real *c, size_t ldc, void *work)
{
	struct job j = { .cpu = par->cpu, .work = work, .bytes = tiles_bytes(r->l, r->gates, r->batch),
		.g = { .trans_b = trans, .add = trans, .m = r->batch, .n = n, .k = k, .alpha = 1, .a = a, .lda = lda,
		.b = r->w_hh, .ldb = r->hidden, .c = c, .ldc = ldc } };

	if (!tiled(par, r, trans))
		gemm(par, false, trans, r->batch, n, k, 1, a, lda, r->w_hh, r->hidden, trans ? 1 : 0, c, ldc);
	else if (gemm_flops(r->batch, n, k) < 1e6)
		tiles_part(&j, 0, 1);
	else
		par_run(par, tiles_part, &j);
}

void recur_forward(const struct par *par, struct recur *r, const struct layer_call *c, const struct isa *cell,
	size_t worth, void *work)
{
	size_t n = r->hidden, wide = r->gates * n, values = r->batch * n;

	gemm(par, false, true, r->batch * r->steps, wide, r->in, 1, c->x, r->in, r->w_ih, r->in, 0, r->gate.at, wide);
	for (r->t = 0; r->t < r->steps; r->t++) {
		if (r->t)
			product(par, r, true, wide, n, recur_row(&r->h, 0, r->t - 1), r->h.sample, recur_row(&r->gate, 0, r->t),
				r->gate.sample, work);
		isa_run(par, cell, r, values, 16, worth);
	}
	for (size_t b = 0; b < r->batch && last_only(r->l) && r->h.at != c->y; b++)
		memcpy(c->y + b * n, recur_row(&r->h, b, r->steps - 1), n * sizeof(real));
}

struct columns { const real *dy; real *db[2]; size_t rows, n; };

/* Sums of columns [lo, hi), for both biases: in the order of the rows, whoever adds them. */
ISA_BODY columns_body(const void *v, size_t lo, size_t hi)
{
	const struct columns *s = v;
	real *restrict a = s->db[0], *restrict b = s->db[1];

	for (size_t r = 0; r < s->rows; r++) {
		const real *restrict dy = s->dy + r * s->n;

		for (size_t j = lo; j < hi; j++) {
			a[j] += dy[j];
			b[j] += dy[j];
		}
	}
}
ISA_KERNEL(columns);

/* The states that the steps multiplied: zeros, then those of the steps before. */
static void states_before(const struct recur *r, real *to)
{
	size_t n = r->hidden;

	for (size_t b = 0; b < r->batch; b++, to += r->steps * n) {
		memset(to, 0, n * sizeof(real));
		for (size_t t = 1; t < r->steps; t++)
			memcpy(to + t * n, recur_row(&r->h, b, t - 1), n * sizeof(real));
	}
}

static void weight_grads(const struct par *par, const struct recur *r, const struct layer_call *c, real *before)
{
	size_t rows = r->batch * r->steps, wide = r->gates * r->hidden;
	const struct layer_param *p = r->l->param;
	const real *d = r->dgate.at;
	real add = c->fresh ? 0 : 1;

	states_before(r, before);
	gemm(par, true, false, wide, r->in, rows, 1, d, wide, c->x, r->in, add, c->dparam, r->in);
	gemm(par, true, false, wide, r->hidden, rows, 1, d, wide, before, r->hidden, add, c->dparam + p[1].offset,
		r->hidden);
	if (!r->b_ih)
		return;
	if (c->fresh)
		memset(c->dparam + p[2].offset, 0, 2 * wide * sizeof(real));
	isa_run(par, &columns, &(struct columns){ d, { c->dparam + p[2].offset, c->dparam + p[3].offset }, rows, wide },
		wide, 16, rows * wide < 32768 ? wide : 0);
}

/* Scratch of backward: slopes of all sums, two rows of what flows back, the states before, and what products need. */
struct rooms { size_t dgate, dh, dcell, before, all; };

static struct rooms rooms_of(const struct layer *l, size_t gates, size_t batch)
{
	size_t row = batch * hidden_of(l) * sizeof(real), steps = l->in.d[0];
	struct rooms o = { .dh = arena_round(gates * steps * row) };

	o.dcell = o.dh + arena_round(row);
	o.before = o.dcell + arena_round(row);
	o.all = o.before + arena_round(steps * row);
	return o;
}

void recur_backward(const struct par *par, struct recur *r, const struct layer_call *c, const struct isa *slope,
	size_t worth, void *work)
{
	struct rooms o = rooms_of(r->l, r->gates, r->batch);
	size_t n = r->hidden, wide = r->gates * n, values = r->batch * n;
	unsigned char *at = work;

	r->dgate = (struct recur_rows){ work, r->steps * wide, wide };
	r->dh = (real *)(at + o.dh);
	r->dcell = (real *)(at + o.dcell);
	memset(r->dcell, 0, values * sizeof(real));
	if (last_only(r->l)) {
		memcpy(r->dh, c->dy, values * sizeof(real));
	} else {
		memset(r->dh, 0, values * sizeof(real));
		r->dy = (struct recur_rows){ (real *)(uintptr_t)c->dy, r->steps * n, n };
	}
	for (r->t = r->steps; r->t-- > 0; ) {
		isa_run(par, slope, r, values, 16, worth);
		if (r->t)
			product(par, r, false, n, wide, recur_row(&r->dgate, 0, r->t), r->dgate.sample, r->dh, n, at + o.all);
	}
	if (c->dparam)
		weight_grads(par, r, c, (real *)(at + o.before));
	if (c->dx)
		gemm(par, false, false, r->batch * r->steps, r->in, wide, 1, r->dgate.at, wide, r->w_ih, r->in, 0, c->dx,
			r->in);
}

size_t recur_work(const struct layer *l, size_t gates, size_t batch, int parts, bool backward)
{
	return tiles_bytes(l, gates, batch) * (size_t)parts + (backward ? rooms_of(l, gates, batch).all : 0);
}

uint64_t recur_inner(const struct layer *l, size_t gates)
{
	return (uint64_t)gates * l->in.d[0] * hidden_of(l) * hidden_of(l);
}

uint64_t recur_macs(const struct layer *l, size_t gates)
{
	return (uint64_t)gates * l->in.d[0] * hidden_of(l) * l->in.d[1] + recur_inner(l, gates);
}
