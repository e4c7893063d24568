/* Dropout (torch.nn.Dropout): in training each value is 0 with probability p, else divided by 1 - p. Which ones is a
 * function of the micro-batch's key and the place of the value alone: backward and a replay draw the same again, and
 * nothing is kept. */
#include "kernels/isa.h"
#include "kernels/layer.h"

enum { P };

struct args { uint64_t key, below; real scale; const real *from; real *to; };

ISA_BODY thin_body(const void *v, size_t lo, size_t hi)
{
	const struct args *s = v;
	const real *from = s->from;
	real *to = s->to, scale = s->scale;

	ISA_INDEPENDENT
	for (size_t i = lo; i < hi; i++) {
		uint64_t z = s->key + 0x9e3779b97f4a7c15u * (i + 1);    /* rand_bits, in the loop */

		z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
		z = (z ^ z >> 27) * 0x94d049bb133111ebu;
		z = z ^ z >> 31;
		to[i] = z >> 32 < s->below ? 0 : from[i] * scale;
	}
}
ISA_KERNEL(thin);

static int shape(struct layer *l, struct kerr *e)
{
	l->out = l->in;
	return 0;
}

static void thin_out(const struct par *par, const struct layer_call *c, const real *from, real *to)
{
	double p = c->train ? c->l->attr[P] : 0;
	struct args a = { c->key, (uint64_t)(p * 4294967296.0), (real)(1 / (1 - p)), from, to };

	isa_run(par, &thin, &a, c->batch * shape_count(&c->l->in), 1024, 8192);
}

static void forward(const struct par *par, const struct layer_call *c)
{
	thin_out(par, c, c->x, c->y);
}

static void backward(const struct par *par, const struct layer_call *c)
{
	if (c->dx)
		thin_out(par, c, c->dy, c->dx);
}

const struct layer_ops layer_dropout = {
	.name = "dropout", .help = "zeros a share of the values in training", .nattrs = 1, .in_place = true,
	.attr = { [P] = { "p", 0.5, 0, 0.99, false, "share that becomes zero" } },
	.each = 1, .shape = shape, .forward = forward, .backward = backward,
};
