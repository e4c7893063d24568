/* Elman's recurrent network (Cognitive Science 14(2), 1990; torch.nn.RNN with one layer): h_t = tanh of the sums, or
 * max(sums, 0). Backward needs the states alone: they are the output, or kept where that is the last one.
 *
 * Products are in single precision always: the rule of kernels/mixed.h knows one matrix a layer and its input, not the
 * state. */
#include "kernels/arena.h"
#include "kernels/fastmath.h"
#include "kernels/recur.h"

enum { RELU = RECUR_OWN, ATTRS };
#define GATES ((size_t)1)
#define WORTH ((size_t)8192)                    /* values that are worth a thread: an exponential each */
#define INLINE static inline __attribute__((always_inline)) void

static int shape(struct layer *l, struct kerr *e) { return recur_shape(l, GATES, e); }
static bool last_only(const struct layer *l) { return l->attr[RECUR_LAST] != 0; }

/* Values [j, end) of sample b, in place. rect, bias: constants where it is called. */
INLINE cell_row(const struct recur *r, size_t b, size_t j, size_t end, bool rect, bool bias)
{
	real *h = recur_row(&r->h, b, r->t);
	const real *p = r->b_ih, *q = r->b_hh;

	ISA_INDEPENDENT
	for (size_t k = j; k < end; k++) {
		real sum = h[k] + (bias ? p[k] + q[k] : 0);

		h[k] = !rect ? fast_tanh(sum) : sum < 0 ? 0 : sum;
	}
}

INLINE slope_row(const struct recur *r, size_t b, size_t j, size_t end, bool rect, bool above)
{
	const real *h = recur_row(&r->h, b, r->t), *dh = r->dh + b * r->hidden;
	const real *dy = above ? recur_row(&r->dy, b, r->t) : h;
	real *ds = recur_row(&r->dgate, b, r->t);

	ISA_INDEPENDENT
	for (size_t k = j; k < end; k++) {
		real d = above ? dh[k] + dy[k] : dh[k];

		ds[k] = !rect ? d * (1 - h[k] * h[k]) : h[k] > 0 ? d : 0;
	}
}

ISA_BODY cell_body(const void *arg, size_t lo, size_t hi)
{
	const struct recur *r = arg;
	bool rect = r->l->attr[RELU] != 0;

	for (size_t at = lo, b, j, to; at < hi; at += to - j) {
		to = recur_run(r, at, hi, &b, &j);
		if (rect && r->b_ih)
			cell_row(r, b, j, to, true, true);
		else if (rect)
			cell_row(r, b, j, to, true, false);
		else if (r->b_ih)
			cell_row(r, b, j, to, false, true);
		else
			cell_row(r, b, j, to, false, false);
	}
}
ISA_KERNEL(cell);

ISA_BODY slope_body(const void *arg, size_t lo, size_t hi)
{
	const struct recur *r = arg;
	bool rect = r->l->attr[RELU] != 0;

	for (size_t at = lo, b, j, to; at < hi; at += to - j) {
		to = recur_run(r, at, hi, &b, &j);
		if (rect && r->dy.at)
			slope_row(r, b, j, to, true, true);
		else if (rect)
			slope_row(r, b, j, to, true, false);
		else if (r->dy.at)
			slope_row(r, b, j, to, false, true);
		else
			slope_row(r, b, j, to, false, false);
	}
}
ISA_KERNEL(slope);

/* The sums become the states where they are. */
static size_t places(struct recur *r, const struct layer_call *c)
{
	real *at = !last_only(c->l) ? c->y : c->extra ? c->extra : c->work;

	r->gate = r->h = (struct recur_rows){ at, r->steps * r->hidden, r->hidden };
	return at == c->work ? arena_round(r->batch * r->steps * r->hidden * sizeof(real)) : 0;
}

static void forward(const struct par *par, const struct layer_call *c)
{
	struct recur r = recur_of(c, GATES);
	size_t taken = places(&r, c);

	recur_forward(par, &r, c, &cell, WORTH, (unsigned char *)c->work + taken);
}

static void backward(const struct par *par, const struct layer_call *c)
{
	struct recur r = recur_of(c, GATES);

	(void)places(&r, c);
	recur_backward(par, &r, c, &slope, WORTH, c->work);
}

static size_t extra(const struct layer *l, size_t batch)
{
	return last_only(l) ? batch * l->in.d[0] * shape_count(&l->out) * sizeof(real) : 0;
}

static size_t work(const struct layer *l, size_t batch, int parts, bool backward)
{
	return recur_work(l, GATES, batch, parts, backward) + (backward ? 0 : arena_round(extra(l, batch)));
}

static uint64_t macs(const struct layer *l) { return recur_macs(l, GATES); }
static uint64_t inner(const struct layer *l) { return recur_inner(l, GATES); }

static uint64_t other(const struct layer *l)
{
	return (uint64_t)l->in.d[0] * l->param[1].shape.d[1] * (1 + (l->nparams > 2 ? 2 : 0));
}

const struct layer_ops layer_rnn = {
	.name = "rnn", .help = "plain recurrence over the steps", .nattrs = ATTRS,
	.attr = {
		[RECUR_OUT] = { "out", NAN, 1, 1 << 20, true, "hidden units" },
		[RECUR_LAST] = { "last", 0, 0, 1, true, "the last step's state alone is the output" },
		[RECUR_BIAS] = { "bias", 1, 0, 1, true, "add two biases" },
		[RELU] = { "relu", 0, 0, 1, true, "max(sum, 0) instead of tanh" },
	},
	.needs_x = true, .needs_y = true, .stores = true, .other = other, .shape = shape, .init = recur_init,
	.forward = forward, .backward = backward, .macs = macs, .inner = inner, .extra = extra, .work = work,
};
