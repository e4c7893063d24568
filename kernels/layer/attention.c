/* Multi-head attention (Vaswani et al., arXiv:1706.03762): softmax(Q K^T / sqrt(d)) V per head, by blocks with a
 * running maximum and sum (Dao et al., FlashAttention, arXiv:2205.14135), so that no T x T scores are ever held.
 *
 * Inputs: one [T, 3 width] with queries, keys and values side by side, or three (queries [T, width], keys and values
 * [S, width]); then perhaps a mask [S], whose zeros hide keys. A query that may see no key gives zeros. */
#include <math.h>
#include <string.h>
#include "kernels/fastmath.h"
#include "kernels/gemm.h"
#include "kernels/layer.h"

enum { HEADS, CAUSAL, DROPOUT };
#define BLOCK ((size_t)128)
#define HIDDEN ((real)-INFINITY)

struct geom {
	size_t t, s, width, heads, each;        /* queries, keys, features, heads, features of one */
	size_t ld[3], start[3];                 /* rows of q, k, v: elements apart; where the first begins */
	int in[3], mask;                        /* which input holds q, k, v; the mask's, or -1 */
};

static struct geom geom_of(const struct layer *l)
{
	bool packed = l->nin < 3;
	struct geom g = { .t = l->in.d[0], .s = packed ? l->in.d[0] : l->ins[1].d[0], .width = l->out.d[1],
		.heads = (size_t)l->attr[HEADS], .mask = l->nin == 2 ? 1 : l->nin == 4 ? 3 : -1 };

	g.each = g.width / g.heads;
	for (int i = 0; i < 3; i++) {
		g.ld[i] = packed ? 3 * g.width : g.width;
		g.start[i] = packed ? (size_t)i * g.width : 0;
		g.in[i] = packed ? 0 : i;
	}
	return g;
}

static int shape(struct layer *l, struct kerr *e)
{
	bool packed = l->nin < 3;
	size_t heads = (size_t)l->attr[HEADS], keys;
	char text[64];

	if (l->in.nd != 2 || (packed && l->in.d[1] % 3))
		return kerr_set(e, "attention needs rows [positions, %s], not an input of shape %s",
			packed ? "3 widths" : "width", shape_text(&l->in, text, sizeof text));
	l->out = l->in;
	l->out.d[1] /= packed ? 3 : 1;
	if (l->out.d[1] % heads)
		return kerr_set(e, "attention: heads = %zu must divide the width %zu", heads, l->out.d[1]);
	for (int k = 1; k < 3 && !packed; k++)
		if (l->ins[k].nd != 2 || l->ins[k].d[1] != l->out.d[1] || l->ins[k].d[0] != l->ins[1].d[0])
			return kerr_set(e, "attention: its %s of shape %s do not go with queries of width %zu and %zu keys",
				k == 1 ? "keys" : "values", shape_text(&l->ins[k], text, sizeof text), l->out.d[1],
				l->ins[1].d[0]);
	keys = packed ? l->in.d[0] : l->ins[1].d[0];
	if (l->attr[CAUSAL] != 0 && keys != l->in.d[0])
		return kerr_set(e, "attention: causal needs as many keys (%zu) as queries (%zu)", keys, l->in.d[0]);
	if (l->nin % 2 == 0 && (l->ins[l->nin - 1].nd != 1 || l->ins[l->nin - 1].d[0] != keys))
		return kerr_set(e, "attention: a mask of shape %s does not go with %zu keys",
			shape_text(&l->ins[l->nin - 1], text, sizeof text), keys);
	return 0;
}

/* One head of one sample. */
struct head {
	const struct layer_call *c;
	const struct geom *g;
	struct par one;
	size_t index;                   /* sample heads + head */
	const real *x[3], *mask, *y, *dy;
	real *dx[3], *lse;              /* lse: log of the sum of exp of each query's scores */
	real scale;
	real *score, *slope, *most;     /* scratch: two blocks and a row */
};

struct job { const struct layer_call *c; struct geom g; struct par one; size_t bytes; bool backward; };

static void head_of(const struct job *j, size_t index, real *scratch, struct head *ret)
{
	const struct layer_call *c = j->c;
	const struct geom *g = &j->g;
	size_t b = index / g->heads, at = index % g->heads * g->each, rows[3] = { g->t, g->s, g->s };

	*ret = (struct head){ .c = c, .g = g, .one = j->one, .index = index, .score = scratch,
		.slope = scratch + BLOCK * BLOCK, .most = scratch + 2 * BLOCK * BLOCK,
		.scale = (real)(1 / sqrt((double)g->each)) };
	for (int i = 0; i < 3; i++) {
		size_t from = b * rows[i] * g->ld[i] + g->start[i] + at;

		ret->x[i] = c->xs[g->in[i]] + from;
		ret->dx[i] = c->dxs[g->in[i]] ? c->dxs[g->in[i]] + from : NULL;
	}
	ret->mask = g->mask < 0 ? NULL : c->xs[g->mask] + b * g->s;
	ret->y = c->y + b * g->t * g->width + at;
	ret->dy = c->dy ? c->dy + b * g->t * g->width + at : NULL;
	ret->lse = c->extra ? (real *)c->extra + index * g->t : NULL;
}

/* Scores of queries [i, i + n) and keys [k, k + m), hidden ones as -infinity. */
static void scores(const struct head *h, size_t i, size_t n, size_t k, size_t m)
{
	const struct geom *g = h->g;

	gemm(&h->one, false, true, n, m, g->each, h->scale, h->x[0] + i * g->ld[0], g->ld[0], h->x[1] + k * g->ld[1],
		g->ld[1], 0, h->score, m);
	for (size_t a = 0; a < n; a++)
		for (size_t b = 0; b < m; b++)
			if ((h->c->l->attr[CAUSAL] != 0 && k + b > i + a) || (h->mask && h->mask[k + b] == 0))
				h->score[a * m + b] = HIDDEN;
}

static size_t keys_seen(const struct head *h, size_t i, size_t n)
{
	return h->c->l->attr[CAUSAL] != 0 && i + n < h->g->s ? i + n : h->g->s;
}

/* Dropout of the weights: by the number of the pair, so that backward finds the same. */
static real thinned(const struct head *h, size_t i, size_t k)
{
	double p = h->c->train ? h->c->l->attr[DROPOUT] : 0;

	if (p == 0)
		return 1;
	return rand_unit(h->c->key, (h->index * h->g->t + i) * h->g->s + k) < p ? 0 : (real)(1 / (1 - p));
}

/* Scores to weights against the running maximum of their row; what was summed before shrinks with it. */
static void weigh_row(const struct head *h, size_t row, size_t k, size_t m, real *s, real *most, real *sum, real *y)
{
	real high = *most, shrink;

	for (size_t b = 0; b < m; b++)
		high = s[b] > high ? s[b] : high;
	if (high == HIDDEN) {
		memset(s, 0, m * sizeof(real));
		return;
	}
	shrink = *most == HIDDEN ? 0 : fast_exp_negative(*most - high);
	for (size_t b = 0; b < m; b++)
		s[b] = s[b] == HIDDEN ? 0 : fast_exp_negative(s[b] - high);
	*sum *= shrink;
	for (size_t b = 0; b < m; b++)
		*sum += s[b];
	for (size_t b = 0; b < m && h->c->train && h->c->l->attr[DROPOUT] > 0; b++)
		s[b] *= thinned(h, row, k + b);
	for (size_t j = 0; j < h->g->each && shrink != 1; j++)
		y[j] *= shrink;
	*most = high;
}

static void forward_head(const struct head *h)
{
	const struct geom *g = h->g;
	real *out = (real *)h->y, *sum = h->most + BLOCK;

	for (size_t i = 0; i < g->t; i += BLOCK) {
		size_t n = g->t - i < BLOCK ? g->t - i : BLOCK, keys = keys_seen(h, i, n);
		real *y = out + i * g->width;

		for (size_t a = 0; a < n; a++) {
			h->most[a] = HIDDEN;
			sum[a] = 0;
			memset(y + a * g->width, 0, g->each * sizeof(real));
		}
		for (size_t k = 0; k < keys; k += BLOCK) {
			size_t m = keys - k < BLOCK ? keys - k : BLOCK;

			scores(h, i, n, k, m);
			for (size_t a = 0; a < n; a++)
				weigh_row(h, i + a, k, m, h->score + a * m, &h->most[a], &sum[a], y + a * g->width);
			gemm(&h->one, false, false, n, g->each, m, 1, h->score, m, h->x[2] + k * g->ld[2], g->ld[2], 1, y,
				g->width);
		}
		for (size_t a = 0; a < n; a++) {
			real part = sum[a] > 0 ? 1 / sum[a] : 0;

			for (size_t j = 0; j < g->each; j++)
				y[a * g->width + j] *= part;
			if (h->lse)
				h->lse[i + a] = sum[a] > 0 ? h->most[a] + (real)log((double)sum[a]) : INFINITY;
		}
	}
}

/* dQ, dK, dV of one block of queries and keys: P = exp(S - lse), dP = dO V^T, dS = P (dP - dO . O). */
static void backward_block(const struct head *h, size_t i, size_t n, size_t k, size_t m)
{
	const struct geom *g = h->g;
	const real *dy = h->dy + i * g->width;

	scores(h, i, n, k, m);
	gemm(&h->one, false, true, n, m, g->each, 1, dy, g->width, h->x[2] + k * g->ld[2], g->ld[2], 0, h->slope, m);
	for (size_t a = 0; a < n; a++) {
		real *p = h->score + a * m, *d = h->slope + a * m;

		for (size_t b = 0; b < m; b++) {
			real w = p[b] == HIDDEN ? 0 : fast_exp_negative(p[b] - h->lse[i + a]), keep = thinned(h, i + a, k + b);

			p[b] = w * keep;
			d[b] = w * (d[b] * keep - h->most[a]) * h->scale;
		}
	}
	if (h->dx[2])
		gemm(&h->one, true, false, m, g->each, n, 1, h->score, m, dy, g->width, 1, h->dx[2] + k * g->ld[2],
			g->ld[2]);
	if (h->dx[0])
		gemm(&h->one, false, false, n, g->each, m, 1, h->slope, m, h->x[1] + k * g->ld[1], g->ld[1], 1,
			h->dx[0] + i * g->ld[0], g->ld[0]);
	if (h->dx[1])
		gemm(&h->one, true, false, m, g->each, n, 1, h->slope, m, h->x[0] + i * g->ld[0], g->ld[0], 1,
			h->dx[1] + k * g->ld[1], g->ld[1]);
}

static void backward_head(const struct head *h)
{
	const struct geom *g = h->g;
	size_t rows[3] = { g->t, g->s, g->s };

	for (int x = 0; x < 3; x++)
		for (size_t r = 0; r < rows[x] && h->dx[x]; r++)
			memset(h->dx[x] + r * g->ld[x], 0, g->each * sizeof(real));
	for (size_t i = 0; i < g->t; i += BLOCK) {
		size_t n = g->t - i < BLOCK ? g->t - i : BLOCK, keys = keys_seen(h, i, n);

		for (size_t a = 0; a < n; a++) {
			const real *y = h->y + (i + a) * g->width, *dy = h->dy + (i + a) * g->width;

			h->most[a] = 0;
			for (size_t j = 0; j < g->each; j++)
				h->most[a] += y[j] * dy[j];
		}
		for (size_t k = 0; k < keys; k += BLOCK)
			backward_block(h, i, n, k, keys - k < BLOCK ? keys - k : BLOCK);
	}
}

static void heads_part(void *arg, int part, int parts)
{
	const struct job *j = arg;
	real *scratch = (real *)((unsigned char *)j->c->work + (size_t)part * j->bytes);
	size_t lo, hi;

	par_slice(j->c->batch * j->g.heads, 1, part, parts, &lo, &hi);
	for (size_t i = lo; i < hi; i++) {
		struct head h;

		head_of(j, i, scratch, &h);
		if (j->backward)
			backward_head(&h);
		else
			forward_head(&h);
	}
}

static size_t scratch_bytes(void) { return (2 * BLOCK * BLOCK + 2 * BLOCK) * sizeof(real); }

static void forward(const struct par *par, const struct layer_call *c)
{
	struct job j = { c, geom_of(c->l), par_serial(par->cpu, par->blas), scratch_bytes(), false };

	par_run(par, heads_part, &j);
}

static void backward(const struct par *par, const struct layer_call *c)
{
	struct job j = { c, geom_of(c->l), par_serial(par->cpu, par->blas), scratch_bytes(), true };
	size_t mask = c->l->nin % 2 ? 0 : shape_count(&c->l->ins[c->l->nin - 1]);

	par_run(par, heads_part, &j);
	if (mask && c->dxs[c->l->nin - 1])      /* hidden or not has no slope */
		memset(c->dxs[c->l->nin - 1], 0, c->batch * mask * sizeof(real));
}

static uint64_t macs(const struct layer *l)
{
	struct geom g = geom_of(l);

	return (uint64_t)2 * g.t * g.s * g.width;
}

static size_t extra(const struct layer *l, size_t batch)
{
	return batch * (size_t)l->attr[HEADS] * l->in.d[0] * sizeof(real);
}

static size_t work(const struct layer *l, size_t batch, int parts, bool backward)
{
	return scratch_bytes() * (size_t)parts;
}

const struct layer_ops layer_attention = {
	.name = "attention", .help = "multi-head attention by blocks", .inputs_min = 1, .inputs_max = 4, .nattrs = 3,
	.attr = {
		[HEADS] = { "heads", NAN, 1, 4096, true, "heads" },
		[CAUSAL] = { "causal", 0, 0, 1, true, "a position sees none after it" },
		[DROPOUT] = { "dropout", 0, 0, 0.99, false, "share of the weights that becomes zero in training" },
	},
	.needs_x = true, .needs_y = true, .shape = shape, .forward = forward, .backward = backward, .macs = macs,
	.extra = extra, .work = work,
};
