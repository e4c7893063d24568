/* Batch normalization: statistics, then one pass that writes. A channel is read from memory once: its second reading
 * finds it in a cache. Large planes go row by row; of small ones several channels at a time, element by element over
 * the batch, so that vectors stay full. */
#include "kernels/bnorm.h"
#include <math.h>
#include "kernels/isa.h"

#define LANES 32
#define CHUNK 512               /* elements of a row that are summed in real */
#define SAMPLES 16              /* the same of a column */
#define WIDTH 1024              /* of a group of columns */
#define ROWS_MIN 256            /* smaller planes go by columns */

#define BODY static inline __attribute__((always_inline)) void

/* What the channels of a group have in common, per channel (rows) or per element (columns). */
struct coef { real mean, a, bias; };

/* --- sums */

BODY row_sum(const real *x, size_t n, double *d)
{
	for (size_t at = 0; at < n; at += CHUNK) {
		size_t end = n - at < CHUNK ? n : at + CHUNK, i = at;
		real v[LANES] = { 0 };

		for (; i + LANES <= end; i += LANES)
			for (int j = 0; j < LANES; j++)
				v[j] += x[i + (size_t)j];
		for (int j = 0; i < end; i++, j++)
			v[j] += x[i];
		for (int j = 0; j < LANES; j++)
			d[j] += (double)v[j];
	}
}

BODY row_square(const real *x, size_t n, real mean, double *d)
{
	for (size_t at = 0; at < n; at += CHUNK) {
		size_t end = n - at < CHUNK ? n : at + CHUNK, i = at;
		real v[LANES] = { 0 };

		for (; i + LANES <= end; i += LANES)
			for (int j = 0; j < LANES; j++)
				v[j] += (x[i + (size_t)j] - mean) * (x[i + (size_t)j] - mean);
		for (int j = 0; i < end; i++, j++)
			v[j] += (x[i] - mean) * (x[i] - mean);
		for (int j = 0; j < LANES; j++)
			d[j] += (double)v[j];
	}
}

static inline __attribute__((always_inline)) real slope(real x, real dy, struct coef k, bool rectify)
{
	return rectify ? x * k.a + k.bias > 0 ? dy : 0 : dy;
}

/* d: the sum of dy; e: that of (x - mean) dy. */
BODY row_slopes(const real *x, const real *dy, size_t n, struct coef k, bool rectify, double *d, double *e)
{
	for (size_t at = 0; at < n; at += CHUNK) {
		size_t end = n - at < CHUNK ? n : at + CHUNK, i = at;
		real v[LANES] = { 0 }, w[LANES] = { 0 };

		for (; i + LANES <= end; i += LANES)
			for (int j = 0; j < LANES; j++) {
				real g = slope(x[i + (size_t)j], dy[i + (size_t)j], k, rectify);

				v[j] += g;
				w[j] += (x[i + (size_t)j] - k.mean) * g;
			}
		for (int j = 0; i < end; i++, j++) {
			real g = slope(x[i], dy[i], k, rectify);

			v[j] += g;
			w[j] += (x[i] - k.mean) * g;
		}
		for (int j = 0; j < LANES; j++) {
			d[j] += (double)v[j];
			e[j] += (double)w[j];
		}
	}
}

static inline __attribute__((always_inline)) double fold(double *d, size_t n)
{
	double sum = 0;

	for (size_t j = 0; j < n; j++)
		sum += d[j];
	return sum;
}

BODY column_sum(const struct bnorm *g, size_t at, size_t n, double *d)
{
	for (size_t b0 = 0; b0 < g->batch; b0 += SAMPLES) {
		size_t end = g->batch - b0 < SAMPLES ? g->batch : b0 + SAMPLES;
		real v[WIDTH];

		for (size_t i = 0; i < n; i++)
			v[i] = 0;
		for (size_t b = b0; b < end; b++) {
			const real *x = g->x + b * g->channels * g->plane + at;

			for (size_t i = 0; i < n; i++)
				v[i] += x[i];
		}
		for (size_t i = 0; i < n; i++)
			d[i] += (double)v[i];
	}
}

BODY column_square(const struct bnorm *g, size_t at, size_t n, const real *mean, double *d)
{
	for (size_t b0 = 0; b0 < g->batch; b0 += SAMPLES) {
		size_t end = g->batch - b0 < SAMPLES ? g->batch : b0 + SAMPLES;
		real v[WIDTH];

		for (size_t i = 0; i < n; i++)
			v[i] = 0;
		for (size_t b = b0; b < end; b++) {
			const real *x = g->x + b * g->channels * g->plane + at;

			for (size_t i = 0; i < n; i++)
				v[i] += (x[i] - mean[i]) * (x[i] - mean[i]);
		}
		for (size_t i = 0; i < n; i++)
			d[i] += (double)v[i];
	}
}

struct columns { real mean[WIDTH], a[WIDTH], bias[WIDTH]; };

BODY column_slopes(const struct bnorm *g, size_t at, size_t n, const struct columns *k, bool rectify, double *d,
	double *e)
{
	for (size_t b0 = 0; b0 < g->batch; b0 += SAMPLES) {
		size_t end = g->batch - b0 < SAMPLES ? g->batch : b0 + SAMPLES;
		real v[WIDTH], w[WIDTH];

		for (size_t i = 0; i < n; i++)
			v[i] = w[i] = 0;
		for (size_t b = b0; b < end; b++) {
			const real *x = g->x + b * g->channels * g->plane + at;
			const real *dy = g->dy + b * g->channels * g->plane + at;

			for (size_t i = 0; i < n; i++) {
				real s = slope(x[i], dy[i], (struct coef){ 0, k->a[i], k->bias[i] }, rectify);

				v[i] += s;
				w[i] += (x[i] - k->mean[i]) * s;
			}
		}
		for (size_t i = 0; i < n; i++) {
			d[i] += (double)v[i];
			e[i] += (double)w[i];
		}
	}
}

/* --- forward */

static struct coef coef_of(const struct bnorm *g, size_t ch, struct bnorm_stat s)
{
	real a = (g->weight ? g->weight[ch] : 1) * s.rstd;

	return (struct coef){ s.mean, a, (g->bias ? g->bias[ch] : 0) - s.mean * a };
}

/* square: the sum of squares around the mean. */
static struct bnorm_stat settle(const struct bnorm *g, size_t ch, double mean, double square)
{
	double n = (double)(g->batch * g->plane), var = square / n;

	if (g->move && isfinite(square)) {      /* one batch of nonsense would stay in them for ever */
		double m = g->momentum, unbiased = n > 1 ? square / (n - 1) : var;      /* as in torch */

		g->run[ch] = (real)((1 - m) * (double)g->run[ch] + m * mean);
		g->run[g->channels + ch] = (real)((1 - m) * (double)g->run[g->channels + ch] + m * unbiased);
	}
	return (struct bnorm_stat){ (real)mean, (real)(1 / sqrt(var + g->eps)) };
}

static struct bnorm_stat running(const struct bnorm *g, size_t ch)
{
	return (struct bnorm_stat){ g->run[ch], (real)(1 / sqrt((double)g->run[g->channels + ch] + g->eps)) };
}

static inline __attribute__((always_inline)) struct bnorm_stat row_stat(const struct bnorm *g, size_t ch)
{
	double d[LANES] = { 0 }, e[LANES] = { 0 }, mean;

	for (size_t b = 0; b < g->batch; b++)
		row_sum(g->x + (b * g->channels + ch) * g->plane, g->plane, d);
	mean = fold(d, LANES) / (double)(g->batch * g->plane);
	for (size_t b = 0; b < g->batch; b++)
		row_square(g->x + (b * g->channels + ch) * g->plane, g->plane, (real)mean, e);
	return settle(g, ch, mean, fold(e, LANES));
}

BODY column_stats(const struct bnorm *g, size_t ch, size_t channels, struct bnorm_stat *ret)
{
	size_t p = g->plane, n = channels * p;
	double d[WIDTH] = { 0 }, e[WIDTH] = { 0 }, mean[WIDTH];
	real m[WIDTH];

	column_sum(g, ch * p, n, d);
	for (size_t i = 0; i < channels; i++) {
		mean[i] = fold(d + i * p, p) / (double)(g->batch * p);
		for (size_t j = 0; j < p; j++)
			m[i * p + j] = (real)mean[i];
	}
	column_square(g, ch * p, n, m, e);
	for (size_t i = 0; i < channels; i++)
		ret[i] = settle(g, ch + i, mean[i], fold(e + i * p, p));
}

/* plus may be y. */
BODY row_apply(const real *x, size_t n, struct coef k, const real *plus, bool rectify, real *y)
{
	if (plus && rectify) {
		ISA_INDEPENDENT
		for (size_t i = 0; i < n; i++) {
			real v = x[i] * k.a + k.bias + plus[i];

			y[i] = v < 0 ? 0 : v;
		}
	} else if (plus) {
		ISA_INDEPENDENT
		for (size_t i = 0; i < n; i++)
			y[i] = x[i] * k.a + k.bias + plus[i];
	} else if (rectify) {
		ISA_INDEPENDENT
		for (size_t i = 0; i < n; i++) {
			real v = x[i] * k.a + k.bias;

			y[i] = v < 0 ? 0 : v;
		}
	} else {
		ISA_INDEPENDENT
		for (size_t i = 0; i < n; i++)
			y[i] = x[i] * k.a + k.bias;
	}
}

BODY column_apply(const real *x, size_t n, const struct columns *k, const real *plus, bool rectify, real *y)
{
	ISA_INDEPENDENT
	for (size_t i = 0; i < n; i++) {
		real v = x[i] * k->a[i] + k->bias[i];

		v = plus ? v + plus[i] : v;
		y[i] = rectify && v < 0 ? 0 : v;
	}
}

static size_t group_of(const struct bnorm *g)
{
	return g->plane >= ROWS_MIN ? 1 : WIDTH / (g->plane ? g->plane : 1);
}

BODY columns_fill(const struct bnorm *g, size_t ch, size_t channels, const struct bnorm_stat *s, struct columns *k)
{
	for (size_t i = 0; i < channels; i++) {
		struct coef one = coef_of(g, ch + i, s[i]);

		for (size_t j = i * g->plane; j < (i + 1) * g->plane; j++) {
			k->mean[j] = one.mean;
			k->a[j] = one.a;
			k->bias[j] = one.bias;
		}
	}
}

BODY forward_columns(const struct bnorm *g, size_t ch, size_t channels)
{
	struct bnorm_stat s[WIDTH];
	struct columns k;

	if (g->train)
		column_stats(g, ch, channels, s);
	for (size_t i = 0; i < channels; i++) {
		s[i] = g->train ? s[i] : running(g, ch + i);
		if (g->stat)
			g->stat[ch + i] = s[i];
	}
	columns_fill(g, ch, channels, s, &k);
	for (size_t b = 0; b < g->batch; b++) {
		size_t at = (b * g->channels + ch) * g->plane;

		column_apply(g->x + at, channels * g->plane, &k, g->plus ? g->plus + at : NULL, g->rectify, g->y + at);
	}
}

BODY forward_row(const struct bnorm *g, size_t ch)
{
	struct bnorm_stat s = g->train ? row_stat(g, ch) : running(g, ch);
	struct coef k = coef_of(g, ch, s);

	if (g->stat)
		g->stat[ch] = s;
	for (size_t b = 0; b < g->batch; b++) {
		size_t at = (b * g->channels + ch) * g->plane;

		row_apply(g->x + at, g->plane, k, g->plus ? g->plus + at : NULL, g->rectify, g->y + at);
	}
}

ISA_BODY forward_body(const void *v, size_t lo, size_t hi)
{
	const struct bnorm *g = v;
	size_t group = group_of(g);

	for (size_t ch = lo; ch < hi; ch += group) {
		if (g->plane >= ROWS_MIN)
			forward_row(g, ch);
		else
			forward_columns(g, ch, hi - ch < group ? hi - ch : group);
	}
}
ISA_KERNEL(forward);

/* --- backward */

/* What pass two takes off: in training the statistics depend on x as well. */
struct off { real along, shift; };

static struct off finish(const struct bnorm *g, size_t ch, double sum, double dot)
{
	double n = (double)(g->batch * g->plane), rstd = (double)g->stat[ch].rstd;

	if (g->dweight)
		g->dweight[ch] += (real)(dot * rstd);
	if (g->dbias)
		g->dbias[ch] += (real)sum;
	return g->train ? (struct off){ (real)(dot * rstd * rstd / n), (real)(sum / n) } : (struct off){ 0, 0 };
}

BODY row_spread(const real *x, const real *dy, size_t n, struct coef k, struct off o, bool rectify, real *dx)
{
	ISA_INDEPENDENT
	for (size_t i = 0; i < n; i++)
		dx[i] = k.a * (slope(x[i], dy[i], k, rectify) - o.shift - (x[i] - k.mean) * o.along);
}

BODY backward_row(const struct bnorm *g, size_t ch, bool rectify)
{
	struct coef k = coef_of(g, ch, g->stat[ch]);
	double d[LANES] = { 0 }, e[LANES] = { 0 };
	struct off o;

	for (size_t b = 0; b < g->batch; b++) {
		size_t at = (b * g->channels + ch) * g->plane;

		row_slopes(g->x + at, g->dy + at, g->plane, k, rectify, d, e);
	}
	o = finish(g, ch, fold(d, LANES), fold(e, LANES));
	for (size_t b = 0; g->dx && b < g->batch; b++) {
		size_t at = (b * g->channels + ch) * g->plane;

		row_spread(g->x + at, g->dy + at, g->plane, k, o, rectify, g->dx + at);
	}
}

BODY backward_columns(const struct bnorm *g, size_t ch, size_t channels, bool rectify)
{
	double d[WIDTH] = { 0 }, e[WIDTH] = { 0 };
	real along[WIDTH], shift[WIDTH];
	size_t n = channels * g->plane;
	struct columns k;

	columns_fill(g, ch, channels, g->stat + ch, &k);
	column_slopes(g, ch * g->plane, n, &k, rectify, d, e);
	for (size_t i = 0; i < channels; i++) {
		struct off o = finish(g, ch + i, fold(d + i * g->plane, g->plane), fold(e + i * g->plane, g->plane));

		for (size_t j = i * g->plane; j < (i + 1) * g->plane; j++) {
			along[j] = o.along;
			shift[j] = o.shift;
		}
	}
	for (size_t b = 0; g->dx && b < g->batch; b++) {
		size_t at = (b * g->channels + ch) * g->plane;
		const real *x = g->x + at, *dy = g->dy + at;
		real *dx = g->dx + at;

		ISA_INDEPENDENT
		for (size_t i = 0; i < n; i++)
			dx[i] = k.a[i] * (slope(x[i], dy[i], (struct coef){ 0, k.a[i], k.bias[i] }, rectify) - shift[i] -
				(x[i] - k.mean[i]) * along[i]);
	}
}

ISA_BODY backward_body(const void *v, size_t lo, size_t hi)
{
	const struct bnorm *g = v;
	size_t group = group_of(g);

	for (size_t ch = lo; ch < hi; ch += group) {
		size_t n = hi - ch < group ? hi - ch : group;

		if (g->plane >= ROWS_MIN && g->rectify)
			backward_row(g, ch, true);
		else if (g->plane >= ROWS_MIN)
			backward_row(g, ch, false);
		else if (g->rectify)
			backward_columns(g, ch, n, true);
		else
			backward_columns(g, ch, n, false);
	}
}
ISA_KERNEL(backward);

void bnorm_forward(const struct par *par, const struct bnorm *n)
{
	if (n->batch)
		isa_run(par, &forward, n, n->channels, 1, 0);
}

void bnorm_backward(const struct par *par, const struct bnorm *n)
{
	isa_run(par, &backward, n, n->channels, 1, 0);
}
