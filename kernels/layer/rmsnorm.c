/* Root mean square normalization (Zhang and Sennrich, arXiv:1910.07467; torch.nn.RMSNorm) over the last dimension. */
#include "kernels/layer/rows.h"

enum { EPS };

static size_t width(const struct layer *l) { return l->in.d[l->in.nd - 1]; }
static size_t rows(const struct layer_call *c) { return c->batch * (shape_count(&c->l->in) / width(c->l)); }

static int shape(struct layer *l, struct kerr *e)
{
	size_t n = width(l);

	l->out = l->in;
	layer_param_add(l, "weight", 1, &n);
	return 0;
}

static void init(const struct layer *l, uint64_t key, real *param)
{
	for (size_t i = 0; i < l->nparam; i++)
		param[i] = i < width(l);
}

static void forward_part(void *arg, int part, int parts)
{
	const struct layer_call *c = arg;
	size_t lo, hi, n = width(c->l);
	struct rows_stat *stat = c->extra;
	const real *w = c->param;

	par_slice(rows(c), 1, part, parts, &lo, &hi);
	for (size_t r = lo; r < hi; r++) {
		const real *x = c->x + r * n;
		struct rows_stat s = rows_stat(x, n, c->l->attr[EPS], false);
		real *y = c->y + r * n;

		if (stat)
			stat[r] = s;
		for (size_t i = 0; i < n; i++)
			y[i] = (x[i] * s.rstd) * w[i];
	}
}

static void forward(const struct par *par, const struct layer_call *c)
{
	par_run(par, forward_part, (void *)c);
}

static void dx_part(void *arg, int part, int parts)
{
	const struct layer_call *c = arg;
	size_t lo, hi, n = width(c->l);
	const struct rows_stat *stat = c->extra;
	const real *w = c->param;

	par_slice(rows(c), 1, part, parts, &lo, &hi);
	for (size_t r = lo; r < hi; r++) {
		const real *x = c->x + r * n, *dy = c->dy + r * n;
		real *dx = c->dx + r * n, along;
		struct rows_stat s = stat[r];

		for (size_t i = 0; i < n; i++)
			dx[i] = dy[i] * w[i];
		along = (real)(rows_dot(x, (double)s.mean, dx, n) * (double)s.rstd * (double)s.rstd / (double)n);
		for (size_t i = 0; i < n; i++)
			dx[i] = s.rstd * (dx[i] - x[i] * along);
	}
}

/* Every worker sums its columns over all rows: the order does not depend on the team. */
static void dparam_part(void *arg, int part, int parts)
{
	const struct layer_call *c = arg;
	size_t lo, hi, n = width(c->l), all = rows(c);
	const struct rows_stat *stat = c->extra;
	real *dw = c->dparam;

	par_slice(n, 16, part, parts, &lo, &hi);
	for (size_t r = 0; r < all; r++) {
		const real *x = c->x + r * n, *dy = c->dy + r * n;
		struct rows_stat s = stat[r];

		for (size_t i = lo; i < hi; i++)
			dw[i] += dy[i] * (x[i] * s.rstd);
	}
}

static void backward(const struct par *par, const struct layer_call *c)
{
	if (c->dparam)
		par_run(par, dparam_part, (void *)c);
	if (c->dx)
		par_run(par, dx_part, (void *)c);
}

static size_t extra(const struct layer *l, size_t batch)
{
	return batch * (shape_count(&l->in) / width(l)) * sizeof(struct rows_stat);
}

const struct layer_ops layer_rmsnorm = {
	.name = "rmsnorm", .help = "scales the last dimension by its root mean square", .nattrs = 1,
	.attr = { [EPS] = { "eps", 1e-5, 0, 1, false, "added to the mean square" } },
	.needs_x = true, .shape = shape, .init = init, .forward = forward, .backward = backward, .extra = extra,
};
