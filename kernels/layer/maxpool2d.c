/* Largest value of each window (torch.nn.MaxPool2d). Where it was is kept for backward; the first of equals wins and
 * NaN wins over numbers, as in PyTorch. */
#include <math.h>
#include <string.h>
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

static void plane(const struct layer *l, const real *x, real *y, int32_t *where)
{
	size_t h = l->in.d[1], w = l->in.d[2], oh = l->out.d[1], ow = l->out.d[2];
	size_t k = (size_t)l->attr[KERNEL], pad = (size_t)l->attr[PADDING], s = stride_of(l);

	for (size_t i = 0; i < oh; i++) {
		size_t r0, r1;

		window(i, s, pad, k, h, &r0, &r1);
		for (size_t j = 0; j < ow; j++) {
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
			y[i * ow + j] = best;
			if (where)
				where[i * ow + j] = (int32_t)at;
		}
	}
}

static void forward_part(void *arg, int part, int parts)
{
	const struct layer_call *c = arg;
	size_t lo, hi, in = c->l->in.d[1] * c->l->in.d[2], out = c->l->out.d[1] * c->l->out.d[2];
	int32_t *where = c->extra;

	par_slice(c->batch * c->l->in.d[0], 1, part, parts, &lo, &hi);
	for (size_t p = lo; p < hi; p++)
		plane(c->l, c->x + p * in, c->y + p * out, where ? where + p * out : NULL);
}

static void forward(const struct par *par, const struct layer_call *c)
{
	par_run(par, forward_part, (void *)c);
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
