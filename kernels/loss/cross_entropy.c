/* Softmax cross entropy over class indices (torch.nn.functional.cross_entropy): log sum exp(z) - z[target], with
 * label_smoothing and ignore_index. A row of scores is read twice, for its greatest score and for the sum of
 * exponentials, which are left in dout on the way; a third pass over dout, warm in the cache, makes them the
 * gradient. */
#include <math.h>
#include "kernels/fastmath.h"
#include "kernels/isa.h"
#include "kernels/loss/cross_entropy.h"

#define LANES 16
#define BLOCK 256
#define NOTHING -64             /* exp of this beside 1 is nothing; what is smaller would be denormal soon */

int cross_entropy_check(const struct shape *out, struct kerr *e)
{
	char text[64];

	if (out->nd < 1 || out->nd > 2 || out->d[out->nd - 1] < 2)
		return kerr_set(e,
			"loss cross_entropy needs one row of at least 2 scores per sample, or one for each position, not an "
			"output of shape %s", shape_text(out, text, sizeof text));
	return 0;
}

/* One row: what the passes take and make. */
struct row {
	const real *z; real *dout;      /* dout NULL: evaluation */
	real most;                      /* greatest score */
	double total, plain;            /* sums of exp(z - most), and of z - most if that is wanted */
	real by, less;                  /* dout = exp * by - less */
	bool smooth;
};

ISA_BODY row_most_body(const void *args, size_t lo, size_t hi)
{
	struct row *r = (struct row *)args;
	real m[LANES];
	size_t i = LANES;

	r->most = r->z[0];
	if (hi >= LANES) {
		for (int j = 0; j < LANES; j++)
			m[j] = r->z[j];
		for (; i + LANES <= hi; i += LANES)
			for (int j = 0; j < LANES; j++)
				m[j] = r->z[i + (size_t)j] > m[j] ? r->z[i + (size_t)j] : m[j];
		for (int j = 0; j < LANES; j++)
			r->most = m[j] > r->most ? m[j] : r->most;
	} else {
		i = 1;
	}
	for (; i < hi; i++)
		r->most = r->z[i] > r->most ? r->z[i] : r->most;
}
ISA_KERNEL(row_most);

/* Sum of a block: short chains of real, then double. */
static inline __attribute__((always_inline)) double block_sum(const real *x, size_t n)
{
	real v[LANES] = { 0 };
	double sum = 0;
	size_t i = 0;

	for (; i + LANES <= n; i += LANES)
		for (int j = 0; j < LANES; j++)
			v[j] += x[i + (size_t)j];
	for (; i < n; i++)
		sum += (double)x[i];
	for (int j = 0; j < LANES; j++)
		sum += (double)v[j];
	return sum;
}

ISA_BODY row_exp_body(const void *args, size_t lo, size_t hi)
{
	struct row *r = (struct row *)args;
	real room[BLOCK], most = r->most;

	r->total = r->plain = 0;
	for (size_t at = 0; at < hi; at += BLOCK) {
		size_t n = hi - at < BLOCK ? hi - at : BLOCK;
		const real *z = r->z + at;
		real *e = r->dout ? r->dout + at : room;

		if (r->smooth) {
			ISA_INDEPENDENT
			for (size_t i = 0; i < n; i++)
				room[i] = z[i] - most;
			r->plain += block_sum(room, n);
		}
		ISA_INDEPENDENT
		for (size_t i = 0; i < n; i++) {
			real d = z[i] - most, v = fast_exp_negative(d);

			e[i] = d < NOTHING ? 0 : v;
		}
		r->total += block_sum(e, n);
	}
}
ISA_KERNEL(row_exp);

ISA_BODY row_gradient_body(const void *args, size_t lo, size_t hi)
{
	const struct row *r = args;
	real *d = r->dout, by = r->by, less = r->less;

	ISA_INDEPENDENT
	for (size_t i = 0; i < hi; i++)
		d[i] = d[i] * by - less;
}
ISA_KERNEL(row_gradient);

/* What a row weighs in its sample's loss, and as a right answer: known once per part of a sample. */
struct weight { size_t until; double loss, right; };

static size_t counted(const struct loss *l, const int32_t *label, size_t n)
{
	size_t k = 0;

	for (size_t i = 0; i < n && l->ignores; i++)
		k += label[i] != l->ignore;
	return l->ignores ? k : n;
}

/* Of the part in which row `at` lies. */
static void weigh(const struct loss *l, const int32_t *label, size_t at, struct weight *w)
{
	size_t first = at / l->rows * l->rows, all = counted(l, label + first, l->rows), from = first, len = l->rows, some;
	double sum = 0, mine = 1;

	w->until = first + l->rows;
	if (l->nparts) {
		int p = 0;

		for (int i = 0; i < l->nparts; i++)
			sum += l->part[i].weight;
		for (; p + 1 < l->nparts && at >= from + l->part[p].len; p++)
			from += l->part[p].len;
		len = l->part[p].len;
		mine = l->part[p].weight / sum;
		w->until = from + len;
	}
	some = len == l->rows ? all : counted(l, label + from, len);
	w->loss = some ? mine / (double)some : 0;
	w->right = all ? 1 / (double)all : 0;
}

/* The first of the greatest, so that a model that says nothing is not right by chance. */
static bool is_right(const struct row *r, size_t t)
{
	if (!(r->z[t] >= r->most))
		return false;
	for (size_t j = 0; j < t; j++)
		if (r->z[j] == r->most)
			return false;
	return true;
}

static void nothing(const struct loss_call *c, size_t i)
{
	for (size_t j = 0; c->dout && j < c->loss->n; j++)
		c->dout[i * c->loss->n + j] = 0;
}

void cross_entropy_rows(const struct loss_call *c, size_t lo, size_t hi, double *sum, double *right)
{
	const struct loss *l = c->loss;
	const int32_t *label = c->target;
	size_t n = l->n;
	double even = l->smoothing / (double)n;
	struct weight w = { .until = lo };

	for (size_t i = lo; i < hi; i++) {
		struct row r = { .z = c->out + i * n, .dout = c->dout ? c->dout + i * n : NULL, .smooth = l->smoothing > 0 };
		size_t t = (size_t)label[i];
		double score, nll;

		if (i == w.until)
			weigh(l, label, i, &w);
		if (l->ignores && label[i] == l->ignore) {
			nothing(c, i);
			continue;
		}
		row_most.fn[c->cpu](&r, 0, n);
		*right += is_right(&r, t) ? w.right : 0;
		if (w.loss == 0) {
			nothing(c, i);
			continue;
		}
		score = (double)r.z[t] - (double)r.most;
		row_exp.fn[c->cpu](&r, 0, n);
		nll = log(r.total) - score;
		if (r.smooth)
			nll += l->smoothing * (score - r.plain / (double)n);
		*sum += w.loss * nll;
		if (!r.dout)
			continue;
		r.by = (real)(c->scale * w.loss / r.total);
		r.less = (real)(c->scale * w.loss * even);
		score = (double)r.dout[t] / r.total - (1 - l->smoothing) - even;
		row_gradient.fn[c->cpu](&r, 0, n);
		r.dout[t] = (real)(c->scale * w.loss * score);
	}
}

const struct loss_ops loss_cross_entropy = {
	.name = "cross_entropy", .help = "softmax cross entropy over class labels, one a sample or one a position",
	.target = TARGET_CLASS, .counts = true, .check = cross_entropy_check, .rows = cross_entropy_rows,
};
