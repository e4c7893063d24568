/* Means over windows such that the output has a stated size (torch.nn.AdaptiveAvgPool2d): output i takes the inputs
 * from floor(i n / out) to before ceil((i + 1) n / out). */
#include <math.h>
#include <string.h>
#include "kernels/layer.h"

enum { OUT };

static int shape(struct layer *l, struct kerr *e)
{
	size_t out = (size_t)l->attr[OUT];
	char text[64];

	if (l->in.nd != 3)
		return kerr_set(e, "adaptiveavgpool2d needs an image [channels, height, width], not an input of shape %s",
			shape_text(&l->in, text, sizeof text));
	l->out = (struct shape){ 3, { l->in.d[0], out, out } };
	return 0;
}

struct span { size_t lo, hi; };

static struct span span_of(size_t i, size_t n, size_t out)
{
	return (struct span){ i * n / out, ((i + 1) * n + out - 1) / out };
}

static void plane(const struct layer *l, const real *x, real *y, const real *dy, real *dx)
{
	size_t w = l->in.d[2], out = l->out.d[1];

	for (size_t i = 0; i < out; i++)
		for (size_t j = 0; j < out; j++) {
			struct span r = span_of(i, l->in.d[1], out), c = span_of(j, w, out);
			double share = 1.0 / (double)((r.hi - r.lo) * (c.hi - c.lo)), sum = 0;
			real each = dx ? (real)((double)dy[i * out + j] * share) : 0;

			for (size_t a = r.lo; a < r.hi; a++)
				for (size_t b = c.lo; b < c.hi; b++) {
					if (dx)
						dx[a * w + b] += each;
					else
						sum += (double)x[a * w + b];
				}
			if (!dx)
				y[i * out + j] = (real)(sum * share);
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
	return (uint64_t)(shape_count(&l->in) + shape_count(&l->out));
}

const struct layer_ops layer_adaptiveavgpool2d = {
	.name = "adaptiveavgpool2d", .help = "means over windows of an image, to a stated size",
	.nattrs = 1, .attr = { [OUT] = { "out", NAN, 1, 1024, true, "side of the output" } },
	.other = other, .shape = shape, .forward = forward, .backward = backward,
};
