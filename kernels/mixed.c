/* Operands of products, rounded into the scratch of their call: inputs, then the gradient of the output, then the
 * parameters. */
#include "kernels/mixed.h"
#include "kernels/arena.h"
#include "kernels/vec.h"

void mixed_round(const struct par *par, enum precision p, size_t n, const real *x, real *y)
{
	switch (p) {
	case PRECISION_FP32: vec_copy(par, n, x, y); return;
	case PRECISION_BF16: vec_round_bf16(par, n, x, y); return;
	case PRECISION_FP16: vec_round_f16(par, n, x, y); return;
	}
}

static size_t input_count(const struct layer *l, int k, size_t batch) { return batch * shape_count(&l->ins[k]); }

size_t mixed_bytes(const struct layer *l, size_t batch, bool backward)
{
	size_t n = arena_round(l->nparam * sizeof(real));

	if (l->precision == PRECISION_FP32)
		return 0;
	for (int k = 0; k < l->nin; k++)
		n += arena_round(input_count(l, k, batch) * sizeof(real));
	return n + (backward ? arena_round(batch * shape_count(&l->out) * sizeof(real)) : 0);
}

static const real *rounded(const struct par *par, const struct layer *l, size_t n, const real *x, unsigned char **at)
{
	real *y = (real *)*at;

	*at += arena_round(n * sizeof(real));
	mixed_round(par, l->precision, n, x, y);
	return y;
}

struct layer_call mixed_call(const struct par *par, const struct layer_call *c, bool backward)
{
	const struct layer *l = c->l;
	struct layer_call r = *c;
	unsigned char *at = c->work;
	bool itself = l->precision == PRECISION_BF16 && par->dot && l->ops->packs;
	bool data = !backward;                  /* are weights multiplied? backward: where an input's gradient is made */

	if (l->precision == PRECISION_FP32)
		return r;
	for (int k = 0; k < l->nin && !itself; k++) {
		r.xs[k] = rounded(par, l, input_count(l, k, c->batch), c->xs[k], &at);
		data = data || c->dxs[k];
	}
	r.x = r.xs[0];
	if (backward)
		r.dy = rounded(par, l, c->batch * shape_count(&l->out), c->dy, &at);
	if (l->nparams && data && !itself) {
		size_t first = l->param[0].count;
		real *w = (real *)at;

		mixed_round(par, l->precision, first, c->param, w);
		vec_copy(par, l->nparam - first, c->param + first, w + first);
		r.param = w;
	}
	r.work = (unsigned char *)c->work + mixed_bytes(l, c->batch, backward);
	return r;
}
