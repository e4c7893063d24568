/* Batch normalization per channel (Ioffe and Szegedy, arXiv:1502.03167; torch.nn.BatchNorm1d and 2d). Training uses
 * the batch's statistics and moves the running ones, which evaluation uses; a replay moves nothing. */
#include "kernels/bnorm.h"
#include "kernels/layer.h"

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

static struct bnorm pass_of(const struct layer_call *c)
{
	const struct layer *l = c->l;
	size_t n = l->in.d[0];

	return (struct bnorm){ .batch = c->batch, .channels = n, .plane = shape_count(&l->in) / n, .x = c->x,
		.weight = l->nparams ? c->param : NULL, .bias = l->nparams ? c->param + n : NULL, .eps = l->attr[EPS],
		.momentum = l->attr[MOMENTUM], .train = c->train, .run = c->buffer, .move = c->train && !c->replay,
		.stat = c->extra, .rectify = c->rectify };
}

static void forward(const struct par *par, const struct layer_call *c)
{
	struct bnorm n = pass_of(c);

	n.plus = c->plus;
	n.y = c->y;
	bnorm_forward(par, &n);
}

static void backward(const struct par *par, const struct layer_call *c)
{
	struct bnorm n = pass_of(c);

	n.dy = c->dy;
	n.dx = c->dx;
	if (c->dparam && c->l->nparams) {
		n.dweight = c->dparam;
		n.dbias = c->dparam + n.channels;
	}
	bnorm_backward(par, &n);
}

static size_t extra(const struct layer *l, size_t batch)
{
	return l->in.d[0] * sizeof(struct bnorm_stat);
}

const struct layer_ops layer_batchnorm = {
	.name = "batchnorm", .help = "batch normalization per channel", .nattrs = 3,
	.attr = {
		[EPS] = { "eps", 1e-5, 0, 1, false, "added to the variance" },
		[MOMENTUM] = { "momentum", 0.1, 0, 1, false, "share of a batch in the running statistics" },
		[AFFINE] = { "affine", 1, 0, 1, true, "a weight and a bias per channel" },
	},
	.needs_x = true, .in_place = true, .fuse = FUSE_HEAD, .each = 8, .shape = shape, .init = init,
		.init_buffer = init_buffer,
	.forward = forward, .backward = backward, .extra = extra,
};
