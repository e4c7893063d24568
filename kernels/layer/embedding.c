/* Rows of a table (torch.nn.Embedding): the inputs are whole numbers, the output has one dimension more. A number that
 * is no row's gives a row of NaN, so that the check of non-finite losses names this layer; memory is never left. */
#include <math.h>
#include <string.h>
#include "kernels/layer.h"

enum { VOCAB, DIM, STD };

static int shape(struct layer *l, struct kerr *e)
{
	size_t vocab = (size_t)l->attr[VOCAB], dim = (size_t)l->attr[DIM];
	char text[64];

	if (l->in.nd >= SHAPE_MAX)
		return kerr_set(e, "embedding: an input of shape %s leaves no room for one dimension more",
			shape_text(&l->in, text, sizeof text));
	l->out = l->in;
	l->out.d[l->out.nd++] = dim;
	layer_param_add(l, "weight", 2, (size_t[]){ vocab, dim });
	return 0;
}

static void init(const struct layer *l, uint64_t key, real *param)
{
	layer_init(l, key, 0, l->attr[STD], param);
}

/* -1: no row. */
static long row_of(const struct layer_call *c, size_t i)
{
	real id = c->x[i];

	return id >= 0 && id < (real)c->l->attr[VOCAB] && id == (real)(long)id ? (long)id : -1;
}

static void forward_part(void *arg, int part, int parts)
{
	const struct layer_call *c = arg;
	size_t lo, hi, dim = (size_t)c->l->attr[DIM];

	par_slice(c->batch * shape_count(&c->l->in), 1, part, parts, &lo, &hi);
	for (size_t i = lo; i < hi; i++) {
		long id = row_of(c, i);

		if (id >= 0)
			memcpy(c->y + i * dim, c->param + (size_t)id * dim, dim * sizeof(real));
		else
			for (size_t j = 0; j < dim; j++)
				c->y[i * dim + j] = (real)NAN;
	}
}

static void forward(const struct par *par, const struct layer_call *c)
{
	par_run(par, forward_part, (void *)c);
}

/* Every worker adds its columns of all rows: two inputs may name one row. */
static void backward_part(void *arg, int part, int parts)
{
	const struct layer_call *c = arg;
	size_t lo, hi, dim = (size_t)c->l->attr[DIM], n = c->batch * shape_count(&c->l->in);

	par_slice(dim, 16, part, parts, &lo, &hi);
	for (size_t i = 0; i < n; i++) {
		long id = row_of(c, i);
		real *to = c->dparam + (size_t)(id < 0 ? 0 : id) * dim;

		for (size_t j = lo; j < hi && id >= 0; j++)
			to[j] += c->dy[i * dim + j];
	}
}

static void backward(const struct par *par, const struct layer_call *c)
{
	if (c->dparam)
		par_run(par, backward_part, (void *)c);
	if (c->dx)      /* whole numbers have no slope */
		memset(c->dx, 0, c->batch * shape_count(&c->l->in) * sizeof(real));
}

const struct layer_ops layer_embedding = {
	.name = "embedding", .help = "rows of a table by their numbers", .nattrs = 3,
	.attr = {
		[VOCAB] = { "vocab", NAN, 1, 1 << 24, true, "rows" },
		[DIM] = { "dim", NAN, 1, 1 << 20, true, "width of a row" },
		[STD] = { "std", 1, 1e-9, 1e3, false, "deviation of the initial weights" },
	},
	.needs_x = true, .shape = shape, .init = init, .forward = forward, .backward = backward,
};
