/* exp(x) / sum exp(x) over the last dimension, torch.nn.Softmax(-1). */
#include "kernels/fastmath.h"
#include "kernels/layer/rows.h"

static size_t width(const struct layer *l) { return l->in.d[l->in.nd - 1]; }

static int shape(struct layer *l, struct kerr *e)
{
	l->out = l->in;
	return 0;
}

static void forward_part(void *arg, int part, int parts)
{
	const struct layer_call *c = arg;
	size_t lo, hi, n = width(c->l);

	par_slice(c->batch * (shape_count(&c->l->in) / n), 1, part, parts, &lo, &hi);
	for (size_t r = lo; r < hi; r++) {
		const real *x = c->x + r * n;
		real *y = c->y + r * n, most = x[0], scale;

		for (size_t i = 1; i < n; i++)
			most = x[i] > most ? x[i] : most;
		for (size_t i = 0; i < n; i++)
			y[i] = fast_exp_negative(x[i] - most);
		scale = (real)(1 / rows_sum(y, n));
		for (size_t i = 0; i < n; i++)
			y[i] *= scale;
	}
}

static void forward(const struct par *par, const struct layer_call *c)
{
	par_run(par, forward_part, (void *)c);
}

static void backward_part(void *arg, int part, int parts)
{
	const struct layer_call *c = arg;
	size_t lo, hi, n = width(c->l);

	par_slice(c->batch * (shape_count(&c->l->in) / n), 1, part, parts, &lo, &hi);
	for (size_t r = lo; r < hi; r++) {
		const real *y = c->y + r * n, *dy = c->dy + r * n;
		real mean = (real)rows_dot(y, 0, dy, n), *dx = c->dx + r * n;

		for (size_t i = 0; i < n; i++)
			dx[i] = y[i] * (dy[i] - mean);
	}
}

static void backward(const struct par *par, const struct layer_call *c)
{
	if (c->dx)
		par_run(par, backward_part, (void *)c);
}

const struct layer_ops layer_softmax = {
	.name = "softmax", .help = "exp(x) / sum exp(x) over the last dimension", .needs_y = true, .in_place = true,
	.each = 5, .shape = shape, .forward = forward, .backward = backward,
};
