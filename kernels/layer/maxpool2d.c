/* Largest value of each window (torch.nn.MaxPool2d). Where it was is kept for backward; the first of equals wins and
 * NaN wins over numbers, as in PyTorch. */
#include <math.h>
#include <string.h>
#include "kernels/isa.h"
#include "kernels/layer.h"

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

/* Windows that lie inside the image, the first at x, n <= BLOCK of them; s and keep are constants where called. */
ISA_BODY inside_block(const real *restrict x, size_t w, size_t n, size_t k, size_t s, bool keep, int32_t first,
	real *restrict y, int32_t *restrict where)
{
	int32_t at[BLOCK];
	real best[BLOCK];

	for (size_t j = 0; j < n; j++) {
		best[j] = x[j * s];
		at[j] = 0;
	}
	for (size_t r = 0; r < k; r++)
		for (size_t c = 0; c < k; c++) {
			const real *restrict p = x + r * w + c;
			int32_t tap = (int32_t)(r * w + c);

			for (size_t j = 0; j < n; j++) {
				real v = p[j * s], b = best[j];
				bool take = !(v <= b) & (b == b);       /* larger, or the first NaN */

				best[j] = take ? v : b;
				at[j] = take ? tap : at[j];
			}
		}
	for (size_t j = 0; j < n; j++) {
		y[j] = best[j];
		if (keep)
			where[j] = first + (int32_t)(j * s) + at[j];
	}
}

ISA_BODY inside(const real *x, size_t w, size_t n, size_t k, size_t s, int32_t first, real *y, int32_t *where)
{
	for (size_t j = 0; j < n; j += BLOCK) {
		size_t m = n - j < BLOCK ? n - j : BLOCK;
		int32_t at = first + (int32_t)(j * s);

		if (s == 2 && where)
			inside_block(x + j * 2, w, m, k, 2, true, at, y + j, where + j);
		else if (s == 2)
			inside_block(x + j * 2, w, m, k, 2, false, at, y + j, NULL);
		else if (s == 1 && where)
			inside_block(x + j, w, m, k, 1, true, at, y + j, where + j);
		else if (s == 1)
			inside_block(x + j, w, m, k, 1, false, at, y + j, NULL);
		else
			inside_block(x + j * s, w, m, k, s, where != NULL, at, y + j, where ? where + j : NULL);
	}
}

ISA_BODY plane(const struct layer *l, const real *x, real *y, int32_t *where)
{
	size_t h = l->in.d[1], w = l->in.d[2], ow = l->out.d[2], k = (size_t)l->attr[KERNEL];
	size_t pad = (size_t)l->attr[PADDING], s = stride_of(l);
	size_t lo = (pad + s - 1) / s, hi = w + pad < k ? 0 : (w + pad - k) / s + 1;    /* whole windows of a row */

	for (size_t i = 0; i < l->out.d[1]; i++, y += ow, where += where ? ow : 0) {
		size_t at;

		if (lo >= hi || i * s < pad || i * s - pad + k > h) {
			windows(l, x, i, 0, ow, y, where);
			continue;
		}
		at = (i * s - pad) * w + lo * s - pad;
		windows(l, x, i, 0, lo, y, where);
		inside(x + at, w, hi - lo, k, s, (int32_t)at, y + lo, where ? where + lo : NULL);
		windows(l, x, i, hi, ow, y, where);
	}
}

ISA_BODY planes_body(const void *v, size_t lo, size_t hi)
{
	const struct layer_call *c = v;
	size_t in = c->l->in.d[1] * c->l->in.d[2], out = c->l->out.d[1] * c->l->out.d[2];
	int32_t *where = c->extra;

	for (size_t p = lo; p < hi; p++)
		plane(c->l, c->x + p * in, c->y + p * out, where ? where + p * out : NULL);
}
ISA_KERNEL(planes);

static void forward(const struct par *par, const struct layer_call *c)
{
	isa_run(par, &planes, c, c->batch * c->l->in.d[0], 1, 0);
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

const struct layer_ops layer_maxpool2d = {
	.name = "maxpool2d", .help = "largest value of each window",
	.nattrs = 3,
	.attr = {
		[KERNEL] = { "kernel", NAN, 1, 1024, true, "side of the window" },
		[STRIDE] = { "stride", 0, 0, 1024, true, "step of the window; 0: as kernel" },
		[PADDING] = { "padding", 0, 0, 512, true, "border that never wins" },
	},
	.shape = shape, .forward = forward, .backward = backward, .extra = extra,
};
