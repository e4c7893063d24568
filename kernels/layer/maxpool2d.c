/* Largest value of each window (torch.nn.MaxPool2d). Where it was is kept for backward; the first of equals wins and
 * NaN wins over numbers, as in PyTorch. */
#include <math.h>
#include <string.h>
#include "kernels/isa.h"
#include "kernels/layer.h"
#if defined(__x86_64__) && !defined(REAL_DOUBLE)
#include <immintrin.h>
#endif

enum { KERNEL, STRIDE, PADDING };

static size_t stride_of(const struct layer *l)
{
	return (size_t)(l->attr[STRIDE] > 0 ? l->attr[STRIDE] : l->attr[KERNEL]);
}

static int shape(struct layer *l, struct kerr *e)
{
	size_t k = (size_t)l->attr[KERNEL], pad = (size_t)l->attr[PADDING], s = stride_of(l);
	char text[64];

	if (l->in.nd != 3)
		return kerr_set(e, "maxpool2d needs an image [channels, height, width], not an input of shape %s",
			shape_text(&l->in, text, sizeof text));
	if (pad * 2 > k)
		return kerr_set(e, "maxpool2d: padding = %zu is more than half of kernel = %zu", pad, k);
	if (l->in.d[1] + 2 * pad < k || l->in.d[2] + 2 * pad < k)
		return kerr_set(e, "maxpool2d: kernel = %zu is larger than the input of shape %s with padding = %zu", k,
			shape_text(&l->in, text, sizeof text), pad);
	l->out = (struct shape){ 3, { l->in.d[0], (l->in.d[1] + 2 * pad - k) / s + 1,
		(l->in.d[2] + 2 * pad - k) / s + 1 } };
	return 0;
}

/* The window of output i along one axis, clipped to the image. */
static void window(size_t i, size_t s, size_t pad, size_t k, size_t n, size_t *ret_lo, size_t *ret_hi)
{
	size_t lo = i * s, hi = lo + k;

	*ret_lo = lo > pad ? lo - pad : 0;
	*ret_hi = hi - pad < n ? hi - pad : n;
}

/* Outputs [from, to) of row i, any window. */
static void windows(const struct layer *l, const real *x, size_t i, size_t from, size_t to, real *y, int32_t *where)
{
	size_t h = l->in.d[1], w = l->in.d[2], r0, r1;
	size_t k = (size_t)l->attr[KERNEL], pad = (size_t)l->attr[PADDING], s = stride_of(l);

	window(i, s, pad, k, h, &r0, &r1);
	for (size_t j = from; j < to; j++) {
		size_t c0, c1, at;
		real best;

		window(j, s, pad, k, w, &c0, &c1);
		at = r0 * w + c0;
		best = x[at];
		for (size_t r = r0 * w; r < r1 * w; r += w)
			for (size_t c = r + c0; c < r + c1; c++)
				if (!(x[c] <= best) && best == best) {  /* larger, or the first NaN */
					at = c;
					best = x[c];
				}
		y[j] = best;
		if (where)
			where[j] = (int32_t)at;
	}
}

#define BLOCK 64
#define PHASES 4                /* steps and windows that whole blocks are made for */
#define WINDOW 16

/* A row of the image taken apart: element j * s + q is row[q][j]. */
struct phases { real row[PHASES][BLOCK + WINDOW]; };

ISA_BODY take_apart(const real *restrict x, size_t n, size_t s, struct phases *p)
{
	size_t whole = n / s, i = 0;

	if (s == 1) {
		memcpy(p->row[0], x, n * sizeof(*x));
		return;
	}
	if (s == 2) {
		real *restrict even = p->row[0], *restrict odd = p->row[1];

		for (; i < whole; i++) {
			even[i] = x[2 * i];
			odd[i] = x[2 * i + 1];
		}
		if (n % 2)
			even[whole] = x[n - 1];
		return;
	}
	for (; i < n; i++)
		p->row[i % s][i / s] = x[i];
}

/* n <= BLOCK windows that lie inside the image, the first at x, whose index is `first`. Works in whole vectors. */
ISA_BODY inside(const real *x, size_t w, size_t n, size_t k, size_t s, int32_t first, struct phases *p, real *y,
	int32_t *where)
{
	size_t m = (n + 7) / 8 * 8;
	int32_t at[BLOCK];
	real best[BLOCK];

	for (size_t r = 0; r < k; r++) {
		take_apart(x + r * w, (n - 1) * s + k, s, p);
		for (size_t c = 0; c < k; c++) {
			const real *restrict v = p->row[c % s] + c / s;
			int32_t tap = (int32_t)(r * w + c);

			if (!tap) {
				for (size_t j = 0; j < m; j++) {
					best[j] = v[j];
					at[j] = 0;
				}
				continue;
			}
			for (size_t j = 0; j < m; j++) {
				real u = v[j], b = best[j];
				bool take = !(u <= b) & (b == b);       /* larger, or the first NaN */

				best[j] = take ? u : b;
				at[j] = take ? tap : at[j];
			}
		}
	}
	memcpy(y, best, n * sizeof(*y));
	for (size_t j = 0; where && j < n; j++)
		where[j] = first + (int32_t)(j * s) + at[j];
}

#define PAIRS 64

/* The commonest windows, 2 x 2 side by side, n <= PAIRS of them at x: no detours, no branches. t: the four taps; what
 * is behind the n-th is looked at and counts for nothing. */
ISA_BODY pairs(const real *restrict x, size_t w, size_t n, int32_t first, real t[4][PAIRS], real *restrict y,
	int32_t *restrict where)
{
	real *restrict best = t[0];
	size_t m = (n + 7) / 8 * 8;
	int32_t at[PAIRS];

	for (size_t j = 0; j < n; j++) {
		t[0][j] = x[2 * j];
		t[1][j] = x[2 * j + 1];
	}
	for (size_t j = 0; j < n; j++) {
		t[2][j] = x[w + 2 * j];
		t[3][j] = x[w + 2 * j + 1];
	}
	for (size_t j = 0; j < m; j++)
		at[j] = 0;
	for (int q = 1; q < 4; q++) {
		const real *restrict v = t[q];
		int32_t tap = (q & 2 ? (int32_t)w : 0) + (q & 1);

		for (size_t j = 0; j < m; j++) {
			real u = v[j], b = best[j];
			bool take = !(u <= b) & (b == b);       /* larger, or the first NaN */

			best[j] = take ? u : b;
			at[j] = take ? tap : at[j];
		}
	}
	for (size_t j = 0; j < n; j++)
		y[j] = best[j];
	for (size_t j = 0; where && j < n; j++)
		where[j] = first + (int32_t)(2 * j) + at[j];
}

ISA_BODY plane_of_pairs(const struct layer *l, const real *x, real t[4][PAIRS], real *y, int32_t *where)
{
	size_t w = l->in.d[2], ow = l->out.d[2];

	for (size_t i = 0; i < l->out.d[1]; i++)
		for (size_t j = 0; j < ow; j += PAIRS) {
			size_t at = 2 * i * w + 2 * j;

			pairs(x + at, w, ow - j < PAIRS ? ow - j : PAIRS, (int32_t)at, t, y + i * ow + j,
				where ? where + i * ow + j : NULL);
		}
}

ISA_BODY plane(const struct layer *l, const real *x, real *y, int32_t *where)
{
	size_t h = l->in.d[1], w = l->in.d[2], ow = l->out.d[2], k = (size_t)l->attr[KERNEL];
	size_t pad = (size_t)l->attr[PADDING], s = stride_of(l);
	size_t lo = (pad + s - 1) / s, hi = w + pad < k ? 0 : (w + pad - k) / s + 1;    /* whole windows of a row */
	bool blocks = lo < hi && k <= WINDOW && s <= PHASES;
	struct phases p = { 0 };

	for (size_t i = 0; i < l->out.d[1]; i++, y += ow, where += where ? ow : 0) {
		size_t at;

		if (!blocks || i * s < pad || i * s - pad + k > h) {
			windows(l, x, i, 0, ow, y, where);
			continue;
		}
		at = (i * s - pad) * w + lo * s - pad;
		windows(l, x, i, 0, lo, y, where);
		for (size_t j = lo; j < hi; j += BLOCK, at += BLOCK * s)
			inside(x + at, w, hi - j < BLOCK ? hi - j : BLOCK, k, s, (int32_t)at, &p, y + j, where ? where + j : NULL);
		windows(l, x, i, hi, ow, y, where);
	}
}

ISA_BODY planes_body(const void *v, size_t lo, size_t hi)
{
	const struct layer_call *c = v;
	size_t in = c->l->in.d[1] * c->l->in.d[2], out = c->l->out.d[1] * c->l->out.d[2];
	int32_t *where = c->extra;
	bool twos = c->l->attr[KERNEL] == 2 && stride_of(c->l) == 2 && c->l->attr[PADDING] == 0;

	real taps[4][PAIRS] = { 0 };

	for (size_t p = lo; p < hi && twos; p++)
		plane_of_pairs(c->l, c->x + p * in, taps, c->y + p * out, where ? where + p * out : NULL);
	for (size_t p = lo; p < hi && !twos; p++)
		plane(c->l, c->x + p * in, c->y + p * out, where ? where + p * out : NULL);
}
ISA_KERNEL(planes);

#if defined(__x86_64__) && !defined(REAL_DOUBLE)
#define AVX512 __attribute__((target(ISA_AVX512)))
#define ACROSS 16               /* outputs of a row at once */

/* Which of the sixteen columns from p on are in a row of w. */
static inline __mmask16 columns(ptrdiff_t p, size_t w)
{
	ptrdiff_t lo = p < 0 ? -p : 0, hi = (ptrdiff_t)w - p;

	return lo >= ACROSS || hi <= lo ? 0 : (__mmask16)((hi >= ACROSS ? 0xffffu : (1u << hi) - 1) & ~((1u << lo) - 1));
}

/* Columns p, p + s, ... of a row, s one or two; those outside are zeros. */
static inline __attribute__((always_inline)) AVX512 __m512 across(const real *row, ptrdiff_t p, size_t w, size_t s)
{
	const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
	__m512 v = _mm512_maskz_loadu_ps(columns(p, w), row + p);

	if (s == 1)
		return v;
	p += ACROSS;
	return _mm512_permutex2var_ps(v, even, _mm512_maskz_loadu_ps(columns(p, w), row + p));
}

/* Row i of the output, borders and all. Every lane begins with the first element of its window, which any other that
 * is larger than nothing takes the place of. */
static inline __attribute__((always_inline)) AVX512 void row_across(const struct layer *l, size_t s, const real *x,
	size_t i, real *y, int32_t *where)
{
	size_t h = l->in.d[1], w = l->in.d[2], ow = l->out.d[2], k = (size_t)l->attr[KERNEL], r0, r1;
	const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);

	window(i, s, (size_t)l->attr[PADDING], k, h, &r0, &r1);
	for (size_t j = 0; j < ow; j += ACROSS) {
		ptrdiff_t p = (ptrdiff_t)(j * s) - (ptrdiff_t)l->attr[PADDING];
		__m512i at = _mm512_add_epi32(_mm512_set1_epi32((int)p), _mm512_slli_epi32(lanes, s == 2));
		__m512i first = _mm512_set1_epi32((int)(r0 * w)), here = _mm512_add_epi32(first, at);
		__m512 best = _mm512_set1_ps(-INFINITY);
		__mmask16 whole = columns((ptrdiff_t)j, ow);

		first = _mm512_add_epi32(first, _mm512_max_epi32(at, _mm512_setzero_si512()));
		for (size_t r = r0; r < r1; r++, here = _mm512_add_epi32(here, _mm512_set1_epi32((int)w)))
			for (size_t q = 0; q < k; q++) {
				__m512i column = _mm512_add_epi32(at, _mm512_set1_epi32((int)q));
				__m512 v = across(x + r * w, p + (ptrdiff_t)q, w, s);
				__mmask16 take = _mm512_cmplt_epu32_mask(column, _mm512_set1_epi32((int)w));

				take = _mm512_mask_cmp_ps_mask(take, v, best, _CMP_NLE_UQ);     /* larger, or the first NaN */
				take = _mm512_mask_cmp_ps_mask(take, best, best, _CMP_ORD_Q);
				best = _mm512_mask_mov_ps(best, take, v);
				first = _mm512_mask_add_epi32(first, take, here, _mm512_set1_epi32((int)q));
			}
		_mm512_mask_storeu_ps(y + j, whole, best);
		if (where)
			_mm512_mask_storeu_epi32(where + j, whole, first);
	}
}

AVX512 static void planes_across(const void *v, size_t lo, size_t hi)
{
	const struct layer_call *c = v;
	const struct layer *l = c->l;
	size_t in = l->in.d[1] * l->in.d[2], ow = l->out.d[2], s = stride_of(l);
	int32_t *where = c->extra;

	if (s > 2) {
		planes.fn[CPU_AVX512](v, lo, hi);
		return;
	}
	for (size_t p = lo; p < hi; p++)
		for (size_t i = 0; i < l->out.d[1]; i++) {
			size_t at = (p * l->out.d[1] + i) * ow;

			if (s == 2)
				row_across(l, 2, c->x + p * in, i, c->y + at, where ? where + at : NULL);
			else
				row_across(l, 1, c->x + p * in, i, c->y + at, where ? where + at : NULL);
		}
}
static const struct isa pools = { { planes_plain, planes_avx2, planes_across } };
#else
#define pools planes
#endif

static void forward(const struct par *par, const struct layer_call *c)
{
	isa_run(par, &pools, c, c->batch * c->l->in.d[0], 1, 0);
}

static void backward_part(void *arg, int part, int parts)
{
	const struct layer_call *c = arg;
	size_t lo, hi, in = c->l->in.d[1] * c->l->in.d[2], out = c->l->out.d[1] * c->l->out.d[2];
	const int32_t *where = c->extra;

	par_slice(c->batch * c->l->in.d[0], 1, part, parts, &lo, &hi);
	for (size_t p = lo; p < hi; p++) {
		memset(c->dx + p * in, 0, in * sizeof(real));
		for (size_t i = p * out; i < (p + 1) * out; i++)
			c->dx[p * in + (size_t)where[i]] += c->dy[i];
	}
}

static void backward(const struct par *par, const struct layer_call *c)
{
	if (c->dx)
		par_run(par, backward_part, (void *)c);
}

static size_t extra(const struct layer *l, size_t batch)
{
	return batch * shape_count(&l->out) * sizeof(int32_t);
}

static uint64_t other(const struct layer *l)
{
	return (uint64_t)(shape_count(&l->out) * ((size_t)l->attr[KERNEL] * (size_t)l->attr[KERNEL] - 1));
}

const struct layer_ops layer_maxpool2d = {
	.name = "maxpool2d", .help = "largest value of each window",
	.nattrs = 3,
	.attr = {
		[KERNEL] = { "kernel", NAN, 1, 1024, true, "side of the window" },
		[STRIDE] = { "stride", 0, 0, 1024, true, "step of the window; 0: as kernel" },
		[PADDING] = { "padding", 0, 0, 512, true, "border that never wins" },
	},
	.other = other, .shape = shape, .forward = forward, .backward = backward, .extra = extra,
};
