/* Multi-head attention (Vaswani et al., arXiv:1706.03762): softmax(Q K^T / sqrt(d)) V per head, by blocks with a
 * running maximum and sum (Dao et al., FlashAttention, arXiv:2205.14135), so that no T x T scores are ever held.
 *
 * Inputs: one [T, 3 width] with queries, keys and values side by side, or three (queries [T, width], keys and values
 * [S, width]); then perhaps a mask [S], whose zeros hide keys. A query that may see no key gives zeros. */
#include <math.h>
#include <string.h>
#include "kernels/arena.h"
#include "kernels/fastmath.h"
#include "kernels/gemm.h"
#include "kernels/gemm_bf16.h"
#include "kernels/gemm_tile.h"
#include "kernels/isa.h"
#include "kernels/layer.h"
#include "kernels/mixed.h"

enum { HEADS, CAUSAL, DROPOUT };
#define QUERIES ((size_t)48)                    /* of a block: what lies above the diagonal is left out by blocks */
#define KEYS ((size_t)128)
#define LANES 16
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
	real *score, *slope;            /* scratch: [QUERIES][KEYS] */
	real *most, *sum;               /* of each query of a block */
	enum dot dot;
	bool tiles;                     /* else products go through the door */
	void *room;                     /* scratch of products by tiles */
};

struct job { const struct layer_call *c; struct geom g; struct par one; bool backward; };

#define BLOCK_BYTES (QUERIES * KEYS * sizeof(real))
#define ROW_BYTES (QUERIES * sizeof(real))

/* Of one worker: two blocks, two rows, and what products by tiles need. */
static size_t scratch_bytes(const struct layer *l)
{
	size_t each = l->out.d[1] / (size_t)l->attr[HEADS], most = each > KEYS ? each : KEYS;

	size_t tiles = gemm_tile_work(most, most, most);
	size_t halves = l->precision != PRECISION_BF16 ? 0 : gemm_bf16_work(most, most, most);

	return 2 * BLOCK_BYTES + 2 * ROW_BYTES + arena_round(tiles > halves ? tiles : halves);
}

static void head_of(const struct job *j, size_t index, unsigned char *at, struct head *ret)
{
	const struct layer_call *c = j->c;
	const struct geom *g = &j->g;
	size_t b = index / g->heads, from_head = index % g->heads * g->each, rows[3] = { g->t, g->s, g->s };

	*ret = (struct head){ .c = c, .g = g, .one = j->one, .index = index, .score = (real *)at,
		.slope = (real *)(at + BLOCK_BYTES), .most = (real *)(at + 2 * BLOCK_BYTES),
		.sum = (real *)(at + 2 * BLOCK_BYTES + ROW_BYTES), .scale = (real)(1 / sqrt((double)g->each)),
		.dot = c->l->precision == PRECISION_BF16 ? j->one.dot : DOT_NONE,
		.tiles = j->one.blas && gemm_tile_has(j->one.cpu), .room = at + 2 * BLOCK_BYTES + 2 * ROW_BYTES };
	for (int i = 0; i < 3; i++) {
		size_t from = b * rows[i] * g->ld[i] + g->start[i] + from_head;

		ret->x[i] = c->xs[g->in[i]] + from;
		ret->dx[i] = c->dxs[g->in[i]] ? c->dxs[g->in[i]] + from : NULL;
	}
	ret->mask = g->mask < 0 ? NULL : c->xs[g->mask] + b * g->s;
	ret->y = c->y + b * g->t * g->width + from_head;
	ret->dy = c->dy ? c->dy + b * g->t * g->width + from_head : NULL;
	ret->lse = c->extra ? (real *)c->extra + index * g->t : NULL;
}

/* C = alpha op(A) op(B) (+ C) */
static void product(const struct head *h, bool ta, bool tb, size_t m, size_t n, size_t k, real alpha, const real *a,
	size_t lda, const real *b, size_t ldb, bool add, real *c, size_t ldc)
{
	const struct gemm_tile g = { .trans_a = ta, .trans_b = tb, .add = add, .m = m, .n = n, .k = k, .alpha = alpha,
		.a = a, .lda = lda, .b = b, .ldb = ldb, .c = c, .ldc = ldc };

	if (h->dot)
		gemm_bf16(h->dot, &g, h->room);
	else if (h->tiles)
		gemm_tile(h->one.cpu, &g, h->room);
	else
		gemm(&h->one, ta, tb, m, n, k, alpha, a, lda, b, ldb, add ? 1 : 0, c, ldc);
}

static bool causal(const struct head *h) { return h->c->l->attr[CAUSAL] != 0; }

/* Scores of queries [i, i + n) and keys [k, k + m), hidden ones as -infinity. */
static void scores(const struct head *h, size_t i, size_t n, size_t k, size_t m)
{
	const struct geom *g = h->g;

	product(h, false, true, n, m, g->each, h->scale, h->x[0] + i * g->ld[0], g->ld[0], h->x[1] + k * g->ld[1],
		g->ld[1], false, h->score, KEYS);
	for (size_t a = 0; a < n; a++) {
		real *s = h->score + a * KEYS;

		for (size_t b = 0; b < m && h->mask; b++)
			s[b] = h->mask[k + b] == 0 ? HIDDEN : s[b];
		for (size_t b = i + a + 1 > k ? i + a + 1 - k : 0; b < m && causal(h); b++)
			s[b] = HIDDEN;
	}
}

static size_t keys_seen(const struct head *h, size_t i, size_t n)
{
	return causal(h) && i + n < h->g->s ? i + n : h->g->s;
}

/* Dropout of the weights: by the number of the pair, so that backward finds the same. */
static real thinned(const struct head *h, double p, size_t i, size_t k)
{
	return rand_unit(h->c->key, (h->index * h->g->t + i) * h->g->s + k) < p ? 0 : (real)(1 / (1 - p));
}

static double dropped(const struct head *h) { return h->c->train ? h->c->l->attr[DROPOUT] : 0; }

/* Rows of a block: a row of scores has KEYS reals, m of them in use; rows of y are ld apart. */
struct rows { size_t m, each, ld; real *score, *most, *sum, *y; };

#define INLINE static inline __attribute__((always_inline)) real

/* In sixteen lanes, folded in one order whatever the width of vectors. */
INLINE fold(real *v)
{
	for (int half = LANES / 2; half; half /= 2)
		for (int j = 0; j < half; j++)
			v[j] += v[j + half];
	return v[0];
}

INLINE highest(const real *s, size_t m, real most)
{
	real v[LANES];
	size_t b = 0;

	for (int j = 0; j < LANES; j++)
		v[j] = most;
	for (; b + LANES <= m; b += LANES)
		for (int j = 0; j < LANES; j++)
			v[j] = s[b + j] > v[j] ? s[b + j] : v[j];
	for (int j = 0; b < m; b++, j++)
		v[j] = s[b] > v[j] ? s[b] : v[j];
	for (int half = LANES / 2; half; half /= 2)
		for (int j = 0; j < half; j++)
			v[j] = v[j + half] > v[j] ? v[j + half] : v[j];
	return v[0];
}

INLINE weight(real s, real high) { return s == HIDDEN ? 0 : fast_exp_negative(s - high); }

/* Scores become weights against the running maximum of their row; what was summed before shrinks with it. */
ISA_BODY weigh_body(const void *arg, size_t lo, size_t hi)
{
	const struct rows *r = arg;

	for (size_t a = lo; a < hi; a++) {
		real *s = r->score + a * KEYS, *y = r->y + a * r->ld, v[LANES] = { 0 }, shrink;
		real high = highest(s, r->m, r->most[a]);
		size_t b = 0;

		if (high == HIDDEN) {
			for (; b < r->m; b++)
				s[b] = 0;
			continue;
		}
		shrink = weight(r->most[a], high);
		for (; b + LANES <= r->m; b += LANES)
			for (int j = 0; j < LANES; j++) {
				s[b + j] = weight(s[b + j], high);
				v[j] += s[b + j];
			}
		for (int j = 0; b < r->m; b++, j++) {
			s[b] = weight(s[b], high);
			v[j] += s[b];
		}
		r->sum[a] = r->sum[a] * shrink + fold(v);
		for (size_t j = 0; j < r->each && shrink != 1 && r->most[a] != HIDDEN; j++)
			y[j] *= shrink;
		r->most[a] = high;
	}
}
ISA_KERNEL(weigh);

static void thin(const struct head *h, size_t i, size_t n, size_t k, size_t m)
{
	double p = dropped(h);

	for (size_t a = 0; a < n && p > 0; a++)
		for (size_t b = 0; b < m; b++)
			if (h->score[a * KEYS + b] != 0)        /* hidden ones need no dice */
				h->score[a * KEYS + b] *= thinned(h, p, i + a, k + b);
}

/* Scores and slopes are operands, too (kernels/mixed.h): a block of n queries and m keys becomes what is multiplied,
 * unless that is rounded where it is packed. */
static void round_block(const struct head *h, size_t n, size_t m, real *block)
{
	for (size_t a = 0; a < n && h->c->l->precision != PRECISION_FP32 && !h->dot; a++)
		mixed_round(&h->one, h->c->l->precision, m, block + a * KEYS, block + a * KEYS);
}

static void forward_head(const struct head *h)
{
	const struct geom *g = h->g;
	real *out = (real *)h->y;

	for (size_t i = 0; i < g->t; i += QUERIES) {
		size_t n = g->t - i < QUERIES ? g->t - i : QUERIES, keys = keys_seen(h, i, n);
		struct rows r = { .each = g->each, .ld = g->width, .score = h->score, .most = h->most, .sum = h->sum,
			.y = out + i * g->width };

		for (size_t a = 0; a < n; a++) {
			h->most[a] = HIDDEN;
			h->sum[a] = 0;
		}
		for (size_t k = 0; k < keys; k += KEYS) {
			r.m = keys - k < KEYS ? keys - k : KEYS;
			scores(h, i, n, k, r.m);
			weigh.fn[h->one.cpu](&r, 0, n);
			thin(h, i, n, k, r.m);
			round_block(h, n, r.m, h->score);
			product(h, false, false, n, g->each, r.m, 1, h->score, KEYS, h->x[2] + k * g->ld[2], g->ld[2], k > 0,
				r.y, g->width);
		}
		for (size_t a = 0; a < n; a++) {
			real part = h->sum[a] > 0 ? 1 / h->sum[a] : 0;

			for (size_t j = 0; j < g->each; j++)
				r.y[a * g->width + j] *= part;
			if (h->lse)
				h->lse[i + a] = h->sum[a] > 0 ? h->most[a] + (real)log((double)h->sum[a]) : INFINITY;
		}
	}
}

/* most: dO . O of each query. */
struct slopes { size_t m; real *p, *d, scale; const real *lse, *most; };

/* P = exp(S - lse), dS = P (dP - dO . O), without dropout. */
ISA_BODY slope_body(const void *arg, size_t lo, size_t hi)
{
	const struct slopes *r = arg;

	for (size_t a = lo; a < hi; a++) {
		real *restrict p = r->p + a * KEYS, *restrict d = r->d + a * KEYS, lse = r->lse[a], most = r->most[a];
		real scale = r->scale;

		for (size_t b = 0; b < r->m; b++) {
			p[b] = weight(p[b], lse);
			d[b] = p[b] * (d[b] - most) * scale;
		}
	}
}
ISA_KERNEL(slope);

static void thin_slopes(const struct head *h, double p, size_t i, size_t n, size_t k, size_t m)
{
	for (size_t a = 0; a < n; a++)
		for (size_t b = 0; b < m; b++) {
			real *s = h->score + a * KEYS + b, *d = h->slope + a * KEYS + b;
			real w = weight(*s, h->lse[i + a]), keep = w != 0 ? thinned(h, p, i + a, k + b) : 0;

			*s = w * keep;
			*d = w * (*d * keep - h->most[a]) * h->scale;
		}
}

/* dQ, dK, dV of one block of queries and keys. */
static void backward_block(const struct head *h, size_t i, size_t n, size_t k, size_t m)
{
	const struct geom *g = h->g;
	const real *dy = h->dy + i * g->width;

	scores(h, i, n, k, m);
	product(h, false, true, n, m, g->each, 1, dy, g->width, h->x[2] + k * g->ld[2], g->ld[2], false, h->slope, KEYS);
	if (dropped(h) > 0)
		thin_slopes(h, dropped(h), i, n, k, m);
	else
		slope.fn[h->one.cpu](&(struct slopes){ m, h->score, h->slope, h->scale, h->lse + i, h->most }, 0, n);
	round_block(h, n, m, h->score);
	round_block(h, n, m, h->slope);
	if (h->dx[2])
		product(h, true, false, m, g->each, n, 1, h->score, KEYS, dy, g->width, true, h->dx[2] + k * g->ld[2],
			g->ld[2]);
	if (h->dx[0])
		product(h, false, false, n, g->each, m, 1, h->slope, KEYS, h->x[1] + k * g->ld[1], g->ld[1], k > 0,
			h->dx[0] + i * g->ld[0], g->ld[0]);
	if (h->dx[1])
		product(h, true, false, m, g->each, n, 1, h->slope, KEYS, h->x[0] + i * g->ld[0], g->ld[0], true,
			h->dx[1] + k * g->ld[1], g->ld[1]);
}

static void backward_head(const struct head *h)
{
	const struct geom *g = h->g;

	for (int x = 1; x < 3; x++)
		for (size_t r = 0; r < g->s && h->dx[x]; r++)
			memset(h->dx[x] + r * g->ld[x], 0, g->each * sizeof(real));
	for (size_t i = 0; i < g->t; i += QUERIES) {
		size_t n = g->t - i < QUERIES ? g->t - i : QUERIES, keys = keys_seen(h, i, n);

		for (size_t a = 0; a < n; a++) {
			const real *y = h->y + (i + a) * g->width, *dy = h->dy + (i + a) * g->width;
			real v[LANES] = { 0 };
			size_t j = 0;

			for (; j + LANES <= g->each; j += LANES)
				for (int l = 0; l < LANES; l++)
					v[l] += y[j + l] * dy[j + l];
			for (int l = 0; j < g->each; j++, l++)
				v[l] += y[j] * dy[j];
			h->most[a] = fold(v);
		}
		for (size_t k = 0; k < keys; k += KEYS)
			backward_block(h, i, n, k, keys - k < KEYS ? keys - k : KEYS);
	}
}

static void heads_part(void *arg, int part, int parts)
{
	const struct job *j = arg;
	unsigned char *scratch = (unsigned char *)j->c->work + (size_t)part * scratch_bytes(j->c->l);
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

static struct par one_of(const struct par *par)
{
	struct par one = par_serial(par->cpu, par->blas);

	one.dot = par->dot;
	return one;
}

static void forward(const struct par *par, const struct layer_call *c)
{
	struct job j = { c, geom_of(c->l), one_of(par), false };

	par_run(par, heads_part, &j);
}

static void backward(const struct par *par, const struct layer_call *c)
{
	struct job j = { c, geom_of(c->l), one_of(par), true };
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
	return scratch_bytes(l) * (size_t)parts;
}

static uint64_t other(const struct layer *l)
{
	struct geom g = geom_of(l);

	return (uint64_t)6 * (uint64_t)l->attr[HEADS] * g.t * g.s;     /* scale and softmax of every score */
}

const struct layer_ops layer_attention = {
	.name = "attention", .help = "multi-head attention by blocks", .inputs_min = 1, .inputs_max = 4, .nattrs = 3,
	.attr = {
		[HEADS] = { "heads", NAN, 1, 4096, true, "heads" },
		[CAUSAL] = { "causal", 0, 0, 1, true, "a position sees none after it" },
		[DROPOUT] = { "dropout", 0, 0, 0.99, false, "share of the weights that becomes zero in training" },
	},
	.multiplies = true, .packs = true, .needs_x = true, .needs_y = true, .other = other, .shape = shape,
	.forward = forward, .backward = backward, .macs = macs, .extra = extra, .work = work,
};
