/* Long short-term memory (Hochreiter and Schmidhuber, Neural Computation 9(8), 1997; torch.nn.LSTM with one layer):
 * i, f, g, o = sigmoid, sigmoid, tanh, sigmoid of the sums; c_t = f c_{t-1} + i g; h_t = o tanh(c_t); c_{-1} = 0.
 *
 * Kept for backward are the four gates and c of every step, and h where the output is the last one alone. Products are
 * in single precision always: the rule of kernels/mixed.h knows one matrix a layer and its input, not the state. */
#include "kernels/arena.h"
#include "kernels/fastmath.h"
#include "kernels/recur.h"

#define GATES ((size_t)4)
#define WORTH ((size_t)2048)                    /* values that are worth a thread: five exponentials each */
#define INLINE static inline __attribute__((always_inline)) void

static int shape(struct layer *l, struct kerr *e) { return recur_shape(l, GATES, e); }
static bool last_only(const struct layer *l) { return l->attr[RECUR_LAST] != 0; }

/* Values [j, end) of sample b. first, bias: constants where it is called. */
INLINE cell_row(const struct recur *r, size_t b, size_t j, size_t end, bool first, bool bias)
{
	size_t n = r->hidden;
	real *gate = recur_row(&r->gate, b, r->t), *i = gate, *f = i + n, *g = f + n, *o = g + n;
	real *c = recur_row(&r->cell, b, r->t), *was = first ? c : recur_row(&r->cell, b, r->t - 1);
	real *h = recur_row(&r->h, b, r->t);
	const real *p = r->b_ih, *q = r->b_hh;

	ISA_INDEPENDENT
	for (size_t k = j; k < end; k++) {
		real in = fast_sigmoid(i[k] + (bias ? p[k] + q[k] : 0));
		real keep = fast_sigmoid(f[k] + (bias ? p[n + k] + q[n + k] : 0));
		real new = fast_tanh(g[k] + (bias ? p[2 * n + k] + q[2 * n + k] : 0));
		real out = fast_sigmoid(o[k] + (bias ? p[3 * n + k] + q[3 * n + k] : 0));
		real state = first ? in * new : keep * was[k] + in * new;

		i[k] = in;
		f[k] = keep;
		g[k] = new;
		o[k] = out;
		c[k] = state;
		h[k] = out * fast_tanh(state);
	}
}

ISA_BODY cell_body(const void *arg, size_t lo, size_t hi)
{
	const struct recur *r = arg;

	for (size_t at = lo, b, j, to; at < hi; at += to - j) {
		to = recur_run(r, at, hi, &b, &j);
		if (r->t && r->b_ih)
			cell_row(r, b, j, to, false, true);
		else if (r->t)
			cell_row(r, b, j, to, false, false);
		else if (r->b_ih)
			cell_row(r, b, j, to, true, true);
		else
			cell_row(r, b, j, to, true, false);
	}
}
ISA_KERNEL(cell);

/* The slopes of the sums, and what flows on to the state before. */
INLINE slope_row(const struct recur *r, size_t b, size_t j, size_t end, bool first, bool above)
{
	size_t n = r->hidden;
	const real *i = recur_row(&r->gate, b, r->t), *f = i + n, *g = f + n, *o = g + n;
	const real *c = recur_row(&r->cell, b, r->t), *was = first ? c : recur_row(&r->cell, b, r->t - 1);
	const real *dy = above ? recur_row(&r->dy, b, r->t) : i, *dh = r->dh + b * n;
	real *dc = r->dcell + b * n, *di = recur_row(&r->dgate, b, r->t), *df = di + n, *dg = df + n, *d_o = dg + n;

	ISA_INDEPENDENT
	for (size_t k = j; k < end; k++) {
		real curve = fast_tanh(c[k]), d = above ? dh[k] + dy[k] : dh[k];
		real state = dc[k] + d * o[k] * (1 - curve * curve);

		d_o[k] = d * curve * (o[k] * (1 - o[k]));
		di[k] = state * g[k] * (i[k] * (1 - i[k]));
		dg[k] = state * i[k] * (1 - g[k] * g[k]);
		df[k] = first ? 0 : state * was[k] * (f[k] * (1 - f[k]));
		dc[k] = state * f[k];
	}
}

ISA_BODY slope_body(const void *arg, size_t lo, size_t hi)
{
	const struct recur *r = arg;

	for (size_t at = lo, b, j, to; at < hi; at += to - j) {
		to = recur_run(r, at, hi, &b, &j);
		if (r->t && r->dy.at)
			slope_row(r, b, j, to, false, true);
		else if (r->t)
			slope_row(r, b, j, to, false, false);
		else if (r->dy.at)
			slope_row(r, b, j, to, true, true);
		else
			slope_row(r, b, j, to, true, false);
	}
}
ISA_KERNEL(slope);

/* Where a call keeps what: gates, cells, states. Without extra only one cell and one state a sample, in place. */
static size_t places(struct recur *r, const struct layer_call *c)
{
	size_t n = r->hidden, step = GATES * n, rows = r->batch * r->steps;
	real *at = c->extra ? c->extra : c->work;

	r->gate = (struct recur_rows){ at, r->steps * step, step };
	at += rows * step;
	r->cell = c->extra ? (struct recur_rows){ at, r->steps * n, n } : (struct recur_rows){ at, n, 0 };
	at += (c->extra ? rows : r->batch) * n;
	r->h = !last_only(c->l) ? (struct recur_rows){ c->y, r->steps * n, n } :
		c->extra ? (struct recur_rows){ at, r->steps * n, n } : (struct recur_rows){ c->y, n, 0 };
	return c->extra ? 0 : arena_round((rows * step + r->batch * n) * sizeof(real));
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

/* Of one value a unit and step. */
static size_t steps_bytes(const struct layer *l, size_t batch)
{
	return batch * l->in.d[0] * l->param[1].shape.d[1] * sizeof(real);
}

static size_t extra(const struct layer *l, size_t batch)
{
	return steps_bytes(l, batch) * (GATES + (last_only(l) ? 2 : 1));
}

static size_t work(const struct layer *l, size_t batch, int parts, bool backward)
{
	size_t here = steps_bytes(l, batch) * GATES + steps_bytes(l, batch) / l->in.d[0];

	return recur_work(l, GATES, batch, parts, backward) + (backward ? 0 : arena_round(here));
}

static uint64_t macs(const struct layer *l) { return recur_macs(l, GATES); }
static uint64_t inner(const struct layer *l) { return recur_inner(l, GATES); }

/* Three sigmoids of four, two tanh, four of the cell and the state; eight for biases. */
static uint64_t other(const struct layer *l)
{
	return (uint64_t)l->in.d[0] * l->param[1].shape.d[1] * (18 + (l->nparams > 2 ? 8 : 0));
}

const struct layer_ops layer_lstm = {
	.name = "lstm", .help = "long short-term memory over the steps", .nattrs = RECUR_OWN,
	.attr = {
		[RECUR_OUT] = { "out", NAN, 1, 1 << 20, true, "hidden units" },
		[RECUR_LAST] = { "last", 0, 0, 1, true, "the last step's state alone is the output" },
		[RECUR_BIAS] = { "bias", 1, 0, 1, true, "add two biases" },
	},
	.needs_x = true, .needs_y = true, .stores = true, .other = other, .shape = shape, .init = recur_init,
	.forward = forward, .backward = backward, .macs = macs, .inner = inner, .extra = extra, .work = work,
};
