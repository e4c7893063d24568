/* Fully connected (torch.nn.Linear): y = x W^T + b over the last dimension; transposed: W is kept as [in, out], as in
 * the Conv1D of GPT-2's checkpoints. */
#include <math.h>
#include <string.h>
#include "kernels/gemm.h"
#include "kernels/layer.h"

enum { OUT, BIAS, IN, TRANSPOSED, STD };

static int shape(struct layer *l, struct kerr *e)
{
	size_t out = (size_t)l->attr[OUT], in, want = (size_t)l->attr[IN];
	char text[64];

	if (l->in.nd < 1 || l->in.nd > 2)
		return kerr_set(e,
			"linear needs a row of features, not an input of shape %s: put a flatten layer before it",
			shape_text(&l->in, text, sizeof text));
	in = l->in.d[l->in.nd - 1];
	if (want && want != in)
		return kerr_set(e, "linear says in = %zu, but its input of shape %s has %zu features", want,
			shape_text(&l->in, text, sizeof text), in);
	l->out = l->in;
	l->out.d[l->out.nd - 1] = out;
	layer_param_add(l, "weight", 2, l->attr[TRANSPOSED] != 0 ? (size_t[]){ in, out } : (size_t[]){ out, in });
	if (l->attr[BIAS] != 0)
		layer_param_add(l, "bias", 1, (size_t[]){ out });
	return 0;
}

static size_t features(const struct shape *s) { return s->d[s->nd - 1]; }

static void init(const struct layer *l, uint64_t key, real *param)
{
	layer_init(l, key, 1 / sqrt((double)features(&l->in)), l->attr[STD], param);    /* kaiming_uniform_(a = sqrt(5)) */
}

static void forward(const struct par *par, const struct layer_call *c)
{
	size_t in = features(&c->l->in), out = features(&c->l->out), rows = c->batch * (shape_count(&c->l->in) / in);
	bool across = c->l->attr[TRANSPOSED] != 0;

	if (c->l->nparams > 1)
		for (size_t r = 0; r < rows; r++)
			memcpy(c->y + r * out, c->param + c->l->param[1].offset, out * sizeof(real));
	gemm(par, false, !across, rows, out, in, 1, c->x, in, c->param, across ? out : in, c->l->nparams > 1, c->y, out);
}

static void backward(const struct par *par, const struct layer_call *c)
{
	size_t in = features(&c->l->in), out = features(&c->l->out), rows = c->batch * (shape_count(&c->l->in) / in);
	bool across = c->l->attr[TRANSPOSED] != 0;

	if (c->dparam) {
		if (across)
			gemm(par, true, false, in, out, rows, 1, c->x, in, c->dy, out, 1, c->dparam, out);
		else
			gemm(par, true, false, out, in, rows, 1, c->dy, out, c->x, in, 1, c->dparam, in);
		if (c->l->nparams > 1) {
			real *db = c->dparam + c->l->param[1].offset;

			for (size_t r = 0; r < rows; r++)
				for (size_t j = 0; j < out; j++)
					db[j] += c->dy[r * out + j];
		}
	}
	if (c->dx)
		gemm(par, false, across, rows, in, out, 1, c->dy, out, c->param, across ? out : in, 0, c->dx, in);
}

static uint64_t macs(const struct layer *l)
{
	return (uint64_t)shape_count(&l->in) * features(&l->out);
}

const struct layer_ops layer_linear = {
	.name = "linear", .help = "fully connected",
	.nattrs = 5,
	.attr = {
		[OUT] = { "out", NAN, 1, 1 << 24, true, "output features" },
		[BIAS] = { "bias", 1, 0, 1, true, "add a bias" },
		[IN] = { "in", 0, 0, 1 << 24, true, "input features, to be checked; 0: whatever comes" },
		[TRANSPOSED] = { "transposed", 0, 0, 1, true, "the weight is kept as [in, out]" },
		[STD] = { "std", 0, 0, 1e3, false, "deviation of normal initial weights (bias 0); 0: PyTorch's uniform ones" },
	},
	.needs_x = true, .shape = shape, .init = init, .forward = forward, .backward = backward, .macs = macs,
};
