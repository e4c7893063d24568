/* Mean of each window (torch.nn.AvgPool2d): zeros around the image count, as PyTorch's default has it. */
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
		return kerr_set(e, "avgpool2d needs an image [channels, height, width], not an input of shape %s",
			shape_text(&l->in, text, sizeof text));
	if (pad * 2 > k)
		return kerr_set(e, "avgpool2d: padding = %zu is more than half of kernel = %zu", pad, k);
	if (l->in.d[1] + 2 * pad < k || l->in.d[2] + 2 * pad < k)
		return kerr_set(e, "avgpool2d: kernel = %zu is larger than the input of shape %s with padding = %zu", k,
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

/* Forward: x to y. Backward: from dy into dx, which is zeroed first. */
static void plane(const struct layer *l, const real *x, real *y, const real *dy, real *dx)
{
	size_t h = l->in.d[1], w = l->in.d[2], oh = l->out.d[1], ow = l->out.d[2];
	size_t k = (size_t)l->attr[KERNEL], pad = (size_t)l->attr[PADDING], s = stride_of(l);
	real share = (real)(1.0 / (double)(k * k));

	for (size_t i = 0; i < oh; i++)
		for (size_t j = 0; j < ow; j++) {
			size_t r0, r1, c0, c1;
			real sum = 0;

			window(i, s, pad, k, h, &r0, &r1);
			window(j, s, pad, k, w, &c0, &c1);
			for (size_t r = r0; r < r1; r++)
				for (size_t c = c0; c < c1; c++) {
					if (dx)
						dx[r * w + c] += dy[i * ow + j] * share;
					else
						sum += x[r * w + c];
				}
			if (!dx)
				y[i * ow + j] = sum * share;
		}
}

static void part_run(void *arg, int part, int parts)
{
	const struct layer_call *c = arg;
	size_t lo, hi, in = c->l->in.d[1] * c->l->in.d[2], out = c->l->out.d[1] * c->l->out.d[2];

	par_slice(c->batch * c->l->in.d[0], 1, part, parts, &lo, &hi);
	for (size_t p = lo; p < hi; p++) {
		if (c->dx) {
			memset(c->dx + p * in, 0, in * sizeof(real));
			plane(c->l, NULL, NULL, c->dy + p * out, c->dx + p * in);
		} else {
			plane(c->l, c->x + p * in, c->y + p * out, NULL, NULL);
		}
	}
}

static void forward(const struct par *par, const struct layer_call *c)
{
	par_run(par, part_run, (void *)c);
}

static void backward(const struct par *par, const struct layer_call *c)
{
	if (c->dx)
		par_run(par, part_run, (void *)c);
}

static uint64_t other(const struct layer *l)
{
	return (uint64_t)(shape_count(&l->out) * (size_t)l->attr[KERNEL] * (size_t)l->attr[KERNEL]);
}

const struct layer_ops layer_avgpool2d = {
	.name = "avgpool2d", .help = "mean of each window",
	.nattrs = 3,
	.attr = {
		[KERNEL] = { "kernel", NAN, 1, 1024, true, "side of the window" },
		[STRIDE] = { "stride", 0, 0, 1024, true, "step of the window; 0: as kernel" },
		[PADDING] = { "padding", 0, 0, 512, true, "zeros around the image" },
	},
	.other = other, .shape = shape, .forward = forward, .backward = backward,
};
