/* Layer normalization (Ba, Kiros and Hinton, arXiv:1607.06450; torch.nn.LayerNorm) over the last dimension. */
#include "kernels/isa.h"
#include "kernels/layer/rows.h"

enum { EPS };

static size_t width(const struct layer *l) { return l->in.d[l->in.nd - 1]; }
static size_t rows(const struct layer_call *c) { return c->batch * (shape_count(&c->l->in) / width(c->l)); }
/* Below this, waking the team costs more than it saves. */
static size_t serial_rows(const struct layer *l) { return 32768 / width(l); }

static int shape(struct layer *l, struct kerr *e)
{
	size_t n = width(l);

	l->out = l->in;
	layer_param_add(l, "weight", 1, &n);
	layer_param_add(l, "bias", 1, &n);
	return 0;
}

static void init(const struct layer *l, uint64_t key, real *param)
{
	for (size_t i = 0; i < l->nparam; i++)
		param[i] = i < width(l);
}

ISA_BODY normal_body(const void *arg, size_t lo, size_t hi)
{
	const struct layer_call *c = arg;
	size_t n = width(c->l);
	struct rows_stat *stat = c->extra;
	const real *w = c->param, *b = w + n;

	for (size_t r = lo; r < hi; r++) {
		const real *x = c->x + r * n;
		struct rows_stat s = rows_stat(x, n, c->l->attr[EPS], true);
		real *y = c->y + r * n;

		if (stat)
			stat[r] = s;
		for (size_t i = 0; i < n; i++)
			y[i] = ((x[i] - s.mean) * s.rstd) * w[i] + b[i];
	}
}
ISA_KERNEL(normal);

static void forward(const struct par *par, const struct layer_call *c)
{
	isa_run(par, &normal, c, rows(c), 1, serial_rows(c->l));
}

ISA_BODY slope_body(const void *arg, size_t lo, size_t hi)
{
	const struct layer_call *c = arg;
	size_t n = width(c->l);
	const struct rows_stat *stat = c->extra;
	const real *w = c->param;

	for (size_t r = lo; r < hi; r++) {
		const real *x = c->x + r * n, *dy = c->dy + r * n;
		real *dx = c->dx + r * n, along, shift;
		struct rows_stat s = stat[r];

		for (size_t i = 0; i < n; i++)
			dx[i] = dy[i] * w[i];
		shift = (real)(rows_sum(dx, n) / (double)n);
		along = (real)(rows_dot(x, (double)s.mean, dx, n) * (double)s.rstd * (double)s.rstd / (double)n);
		for (size_t i = 0; i < n; i++)
			dx[i] = s.rstd * (dx[i] - shift - (x[i] - s.mean) * along);
	}
}
ISA_KERNEL(slope);

/* Every worker sums its columns over all rows: the order does not depend on the team. */
ISA_BODY scale_body(const void *arg, size_t lo, size_t hi)
{
	const struct layer_call *c = arg;
	size_t n = width(c->l), all = rows(c);
	const struct rows_stat *stat = c->extra;
	real *restrict dw = c->dparam, *restrict db = dw + n;

	for (size_t r = 0; r < all; r++) {
		const real *x = c->x + r * n, *dy = c->dy + r * n;
		struct rows_stat s = stat[r];

		for (size_t i = lo; i < hi; i++) {
			dw[i] += dy[i] * ((x[i] - s.mean) * s.rstd);
			db[i] += dy[i];
		}
	}
}
ISA_KERNEL(scale);

static void backward(const struct par *par, const struct layer_call *c)
{
	if (c->dparam)
		isa_run(par, &scale, c, width(c->l), 16, rows(c) < serial_rows(c->l) ? width(c->l) : 0);
	if (c->dx)
		isa_run(par, &slope, c, rows(c), 1, serial_rows(c->l));
}

static size_t extra(const struct layer *l, size_t batch)
{
	return batch * (shape_count(&l->in) / width(l)) * sizeof(struct rows_stat);
}

const struct layer_ops layer_layernorm = {
	.name = "layernorm", .help = "normalization of the last dimension", .nattrs = 1,
	.attr = { [EPS] = { "eps", 1e-5, 0, 1, false, "added to the variance" } },
	.needs_x = true, .each = 8, .shape = shape, .init = init, .forward = forward, .backward = backward, .extra = extra,
};
