/* Batch normalization per channel (Ioffe and Szegedy, arXiv:1502.03167; torch.nn.BatchNorm1d and 2d). Training uses
 * the batch's statistics and moves the running ones, which evaluation uses; a replay moves nothing. */
#include "kernels/layer/rows.h"

enum { EPS, MOMENTUM, AFFINE };

static int shape(struct layer *l, struct kerr *e)
{
	size_t c = l->in.d[0];

	l->out = l->in;
	if (l->attr[AFFINE] != 0) {
		layer_param_add(l, "weight", 1, &c);
		layer_param_add(l, "bias", 1, &c);
	}
	layer_buffer_add(l, "running_mean", 1, &c);
	layer_buffer_add(l, "running_var", 1, &c);
	return 0;
}

static void init(const struct layer *l, uint64_t key, real *param)
{
	for (size_t i = 0; i < l->nparam; i++)
		param[i] = i < l->in.d[0];      /* weight 1, bias 0 */
}

static void init_buffer(const struct layer *l, real *buffer)
{
	for (size_t i = 0; i < l->nbuffer; i++)
		buffer[i] = i >= l->in.d[0];    /* mean 0, variance 1 */
}

/* Channel c of sample b begins at (b * channels + c) * plane. */
struct geom { size_t channels, plane, batch; };

static struct geom geom_of(const struct layer_call *c)
{
	size_t n = c->l->in.d[0];

	return (struct geom){ n, shape_count(&c->l->in) / n, c->batch };
}

static struct rows_stat batch_stat(const struct layer_call *c, const struct geom *g, size_t ch)
{
	double n = (double)(g->batch * g->plane), sum = 0, square = 0, mean, var;
	real *run = c->buffer;

	for (size_t b = 0; b < g->batch; b++)
		sum += rows_sum(c->x + (b * g->channels + ch) * g->plane, g->plane);
	mean = sum / n;
	for (size_t b = 0; b < g->batch; b++)
		square += rows_square(c->x + (b * g->channels + ch) * g->plane, mean, g->plane);
	var = square / n;
	if (!c->replay) {       /* the running variance is the unbiased one */
		double m = c->l->attr[MOMENTUM], unbiased = n > 1 ? square / (n - 1) : var;

		run[ch] = (real)((1 - m) * (double)run[ch] + m * mean);
		run[g->channels + ch] = (real)((1 - m) * (double)run[g->channels + ch] + m * unbiased);
	}
	return (struct rows_stat){ (real)mean, (real)(1 / sqrt(var + c->l->attr[EPS])) };
}

static void forward_part(void *arg, int part, int parts)
{
	const struct layer_call *c = arg;
	const struct geom g = geom_of(c);
	struct rows_stat *stat = c->extra;
	size_t lo, hi;

	par_slice(g.channels, 1, part, parts, &lo, &hi);
	for (size_t ch = lo; ch < hi; ch++) {
		struct rows_stat s = c->train ? batch_stat(c, &g, ch) : (struct rows_stat){ c->buffer[ch],
			(real)(1 / sqrt((double)c->buffer[g.channels + ch] + c->l->attr[EPS])) };
		real w = c->l->nparams ? c->param[ch] : 1, a = w * s.rstd;
		real bias = (c->l->nparams ? c->param[g.channels + ch] : 0) - s.mean * a;

		if (stat)
			stat[ch] = s;
		for (size_t b = 0; b < g.batch; b++) {
			const real *x = c->x + (b * g.channels + ch) * g.plane;
			real *y = c->y + (b * g.channels + ch) * g.plane;

			for (size_t i = 0; i < g.plane; i++)
				y[i] = x[i] * a + bias;
		}
	}
}

static void forward(const struct par *par, const struct layer_call *c)
{
	par_run(par, forward_part, (void *)c);
}

static void backward_channel(const struct layer_call *c, const struct geom *g, size_t ch)
{
	struct rows_stat s = ((const struct rows_stat *)c->extra)[ch];
	double n = (double)(g->batch * g->plane), sum = 0, dot = 0;
	real w = c->l->nparams ? c->param[ch] : 1, a = w * s.rstd, along, shift;

	for (size_t b = 0; b < g->batch; b++) {
		size_t at = (b * g->channels + ch) * g->plane;

		sum += rows_sum(c->dy + at, g->plane);
		dot += rows_dot(c->x + at, (double)s.mean, c->dy + at, g->plane);
	}
	if (c->dparam && c->l->nparams) {
		c->dparam[ch] += (real)(dot * (double)s.rstd);
		c->dparam[g->channels + ch] += (real)sum;
	}
	if (!c->dx)
		return;
	/* In training the statistics depend on x as well. */
	along = c->train ? (real)(dot * (double)s.rstd * (double)s.rstd / n) : 0;
	shift = c->train ? (real)(sum / n) : 0;
	for (size_t b = 0; b < g->batch; b++) {
		size_t at = (b * g->channels + ch) * g->plane;

		for (size_t i = at; i < at + g->plane; i++)
			c->dx[i] = a * (c->dy[i] - shift - (c->x[i] - s.mean) * along);
	}
}

static void backward_part(void *arg, int part, int parts)
{
	const struct layer_call *c = arg;
	const struct geom g = geom_of(c);
	size_t lo, hi;

	par_slice(g.channels, 1, part, parts, &lo, &hi);
	for (size_t ch = lo; ch < hi; ch++)
		backward_channel(c, &g, ch);
}

static void backward(const struct par *par, const struct layer_call *c)
{
	par_run(par, backward_part, (void *)c);
}

static size_t extra(const struct layer *l, size_t batch)
{
	return l->in.d[0] * sizeof(struct rows_stat);
}

const struct layer_ops layer_batchnorm = {
	.name = "batchnorm", .help = "batch normalization per channel", .nattrs = 3,
	.attr = {
		[EPS] = { "eps", 1e-5, 0, 1, false, "added to the variance" },
		[MOMENTUM] = { "momentum", 0.1, 0, 1, false, "share of a batch in the running statistics" },
		[AFFINE] = { "affine", 1, 0, 1, true, "a weight and a bias per channel" },
	},
	.needs_x = true, .shape = shape, .init = init, .init_buffer = init_buffer, .forward = forward,
	.backward = backward, .extra = extra,
};
