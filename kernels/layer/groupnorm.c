/* Group normalization (Wu and He, arXiv:1803.08494; torch.nn.GroupNorm): per sample over groups of channels, with a
 * weight and a bias per channel. */
#include "kernels/layer/rows.h"

enum { GROUPS, EPS };

static int shape(struct layer *l, struct kerr *e)
{
	size_t c = l->in.d[0], groups = (size_t)l->attr[GROUPS];

	if (c % groups)
		return kerr_set(e, "groupnorm: groups = %zu must divide the %zu channels", groups, c);
	l->out = l->in;
	layer_param_add(l, "weight", 1, &c);
	layer_param_add(l, "bias", 1, &c);
	return 0;
}

static void init(const struct layer *l, uint64_t key, real *param)
{
	for (size_t i = 0; i < l->nparam; i++)
		param[i] = i < l->in.d[0];
}

/* Rows are (sample, group) pairs of `each` channels of `plane` elements. */
struct geom { size_t groups, each, plane, row; };

static struct geom geom_of(const struct layer *l)
{
	size_t groups = (size_t)l->attr[GROUPS], each = l->in.d[0] / groups;

	return (struct geom){ groups, each, shape_count(&l->in) / l->in.d[0], shape_count(&l->in) / groups };
}

static void forward_part(void *arg, int part, int parts)
{
	const struct layer_call *c = arg;
	const struct geom g = geom_of(c->l);
	struct rows_stat *stat = c->extra;
	size_t lo, hi;

	par_slice(c->batch * g.groups, 1, part, parts, &lo, &hi);
	for (size_t r = lo; r < hi; r++) {
		struct rows_stat s = rows_stat(c->x + r * g.row, g.row, c->l->attr[EPS], true);

		if (stat)
			stat[r] = s;
		for (size_t k = 0; k < g.each; k++) {
			size_t ch = r % g.groups * g.each + k, at = r * g.row + k * g.plane;
			real a = c->param[ch] * s.rstd, bias = c->param[c->l->in.d[0] + ch];

			for (size_t i = at; i < at + g.plane; i++)
				c->y[i] = (c->x[i] - s.mean) * a + bias;
		}
	}
}

static void forward(const struct par *par, const struct layer_call *c)
{
	par_run(par, forward_part, (void *)c);
}

static void dx_part(void *arg, int part, int parts)
{
	const struct layer_call *c = arg;
	const struct geom g = geom_of(c->l);
	const struct rows_stat *stat = c->extra;
	size_t lo, hi;

	par_slice(c->batch * g.groups, 1, part, parts, &lo, &hi);
	for (size_t r = lo; r < hi; r++) {
		const real *w = c->param + r % g.groups * g.each;
		struct rows_stat s = stat[r];
		double sum = 0, dot = 0;
		real shift, along;

		for (size_t k = 0; k < g.each; k++) {
			size_t at = r * g.row + k * g.plane;

			sum += (double)w[k] * rows_sum(c->dy + at, g.plane);
			dot += (double)w[k] * rows_dot(c->x + at, (double)s.mean, c->dy + at, g.plane);
		}
		shift = (real)(sum / (double)g.row);
		along = (real)(dot * (double)s.rstd * (double)s.rstd / (double)g.row);
		for (size_t k = 0; k < g.each; k++)
			for (size_t i = r * g.row + k * g.plane; i < r * g.row + (k + 1) * g.plane; i++)
				c->dx[i] = s.rstd * (w[k] * c->dy[i] - shift - (c->x[i] - s.mean) * along);
	}
}

/* Sums over the batch, channel by channel: their order does not depend on the team. */
static void dparam_part(void *arg, int part, int parts)
{
	const struct layer_call *c = arg;
	const struct geom g = geom_of(c->l);
	const struct rows_stat *stat = c->extra;
	size_t lo, hi, channels = c->l->in.d[0];

	par_slice(channels, 1, part, parts, &lo, &hi);
	for (size_t ch = lo; ch < hi; ch++) {
		double dw = 0, db = 0;

		for (size_t b = 0; b < c->batch; b++) {
			struct rows_stat s = stat[b * g.groups + ch / g.each];
			size_t at = (b * channels + ch) * g.plane;

			dw += (double)s.rstd * rows_dot(c->x + at, (double)s.mean, c->dy + at, g.plane);
			db += rows_sum(c->dy + at, g.plane);
		}
		c->dparam[ch] += (real)dw;
		c->dparam[channels + ch] += (real)db;
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
	return batch * (size_t)l->attr[GROUPS] * sizeof(struct rows_stat);
}

const struct layer_ops layer_groupnorm = {
	.name = "groupnorm", .help = "normalization of groups of channels", .nattrs = 2,
	.attr = {
		[GROUPS] = { "groups", NAN, 1, 65536, true, "groups of channels" },
		[EPS] = { "eps", 1e-5, 0, 1, false, "added to the variance" },
	},
	.needs_x = true, .each = 8, .shape = shape, .init = init, .forward = forward, .backward = backward, .extra = extra,
};
