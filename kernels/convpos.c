/* Convolutions of small images as matrix products over the batch, one for each pair of positions with a tap between.
 *
 * Layouts: weights [tap][oc][ic]; a tensor by images [position][channel][batch], by channels
 * [position][batch][channel]; the last dimension is filled up with zeros to whole vectors. */
#include "kernels/convpos.h"
#include <string.h>
#include "kernels/wino_tile.h"

#define L WINO_LANES
#define NONE 255

struct map {
	const struct wino_tile *isa;
	size_t in, out, taps, bp, icp, ocp;     /* positions; taps; batch and channels rounded up */
	uint8_t tap[CONVPOS_MAX][CONVPOS_MAX];  /* [out][in]: the tap between them, or NONE */
	bool used[CONVPOS_MAX];                 /* taps that any pair has */
};

static size_t up(size_t n)
{
	return (n + L - 1) / L * L;
}

bool convpos_fits(const struct convpos *g)
{
	return g->ih * g->iw <= CONVPOS_MAX && g->oh * g->ow <= CONVPOS_MAX && g->k * g->k <= CONVPOS_MAX;
}

static void map_of(const struct convpos *g, enum cpu cpu, struct map *m)
{
	*m = (struct map){ .isa = wino_tile(cpu), .in = g->ih * g->iw, .out = g->oh * g->ow, .taps = g->k * g->k,
		.bp = up(g->batch), .icp = up(g->ic), .ocp = up(g->oc) };
	memset(m->tap, NONE, sizeof(m->tap));
	for (size_t o = 0; o < m->out; o++)
		for (size_t t = 0; t < m->taps; t++) {
			size_t y = o / g->ow * g->stride + t / g->k * g->dilation - g->pad;
			size_t x = o % g->ow * g->stride + t % g->k * g->dilation - g->pad;

			if (y >= g->ih || x >= g->iw)   /* below zero wraps around */
				continue;
			m->tap[o][y * g->iw + x] = (uint8_t)t;
			m->used[t] = true;
		}
}

size_t convpos_gain(const struct convpos *g)
{
	size_t pairs = 0;
	struct map m;

	map_of(g, CPU_PLAIN, &m);
	for (size_t o = 0; o < m.out; o++)
		for (size_t i = 0; i < m.in; i++)
			pairs += m.tap[o][i] != NONE;
	return pairs ? m.out * m.taps * 100 / pairs : 100;
}

struct job {
	const struct convpos *g;
	const struct map *m;
	const real *x, *w, *bias, *dy; real *y, *dx, *dw;
	real *weight, *from, *to;       /* in the layouts above */
};

/* --- layouts */

/* x [batch][channels][positions] -> [position][channel][bp], channels [lo, hi) */
static void by_images(const struct map *m, size_t batch, size_t channels, size_t positions, size_t lo, size_t hi,
	const real *x, real *ret)
{
	for (size_t c = lo; c < hi; c++)
		for (size_t p = 0; p < positions; p++) {
			real *to = ret + (p * channels + c) * m->bp;

			for (size_t b = 0; b < batch; b++)
				to[b] = x[(b * channels + c) * positions + p];
			for (size_t b = batch; b < m->bp; b++)
				to[b] = 0;
		}
}

/* x -> [position][batch][cp], images [lo, hi) */
static void by_channels(size_t batch, size_t channels, size_t cp, size_t positions, size_t lo, size_t hi, const real *x,
	real *ret)
{
	for (size_t b = lo; b < hi; b++)
		for (size_t p = 0; p < positions; p++) {
			real *to = ret + (p * batch + b) * cp;

			for (size_t c = 0; c < channels; c++)
				to[c] = x[(b * channels + c) * positions + p];
			for (size_t c = channels; c < cp; c++)
				to[c] = 0;
		}
}

static void weights_part(void *arg, int part, int parts)
{
	const struct job *j = arg;
	const struct map *m = j->m;
	size_t ic = j->g->ic, lo, hi;

	par_slice(j->g->oc, 1, part, parts, &lo, &hi);
	for (size_t k = lo; k < hi; k++)
		for (size_t t = 0; t < m->taps; t++) {
			const real *from = j->w + k * ic * m->taps + t;
			real *to = j->weight + (t * j->g->oc + k) * m->icp;

			if (!m->used[t])
				continue;
			for (size_t c = 0; c < ic; c++)
				to[c] = from[c * m->taps];
			for (size_t c = ic; c < m->icp; c++)
				to[c] = 0;
		}
}

static void images_part(void *arg, int part, int parts)
{
	const struct job *j = arg;
	size_t lo, hi;

	par_slice(j->g->ic, 1, part, parts, &lo, &hi);
	by_images(j->m, j->g->batch, j->g->ic, j->m->in, lo, hi, j->x, j->from);
}

static void channels_part(void *arg, int part, int parts)
{
	const struct job *j = arg;
	size_t lo, hi;

	par_slice(j->g->batch, 1, part, parts, &lo, &hi);
	by_channels(j->g->batch, j->g->ic, j->m->icp, j->m->in, lo, hi, j->x, j->from);
}

static void slopes_images_part(void *arg, int part, int parts)
{
	const struct job *j = arg;
	size_t lo, hi;

	par_slice(j->g->oc, 1, part, parts, &lo, &hi);
	by_images(j->m, j->g->batch, j->g->oc, j->m->out, lo, hi, j->dy, j->to);
}

static void slopes_channels_part(void *arg, int part, int parts)
{
	const struct job *j = arg;
	size_t lo, hi;

	par_slice(j->g->batch, 1, part, parts, &lo, &hi);
	by_channels(j->g->batch, j->g->oc, j->m->ocp, j->m->out, lo, hi, j->dy, j->to);
}

/* --- forward: Y[o][oc][batch] = sum of weight[tap][oc][ic] X[i][ic][batch] */

static void forward_part(void *arg, int part, int parts)
{
	const struct job *j = arg;
	const struct map *m = j->m;
	size_t oc = j->g->oc, lo, hi;
	struct wino_product x = { .lda = m->icp, .ldb = m->bp, .bn = L, .n = j->g->ic, .ldc = m->bp, .cn = L,
		.panels = (int)(m->bp / L) };

	par_slice(oc, (size_t)m->isa->rows, part, parts, &lo, &hi);
	for (size_t k = lo; k < hi; k += (size_t)x.rows) {
		x.rows = wino_even(hi - k, m->isa->rows);
		for (size_t o = 0; o < m->out; o++) {
			x.c = j->to + (o * oc + k) * m->bp;
			x.add = false;
			for (size_t i = 0; i < m->in; i++) {
				size_t t = m->tap[o][i];

				if (t == NONE)
					continue;
				x.a = j->weight + (t * oc + k) * m->icp;
				x.b = j->from + i * j->g->ic * m->bp;
				wino_products(m->isa, &x, true);
				x.add = true;
			}
			if (!x.add)
				memset(x.c, 0, (size_t)x.rows * m->bp * sizeof(real));
		}
	}
	for (size_t k = lo; k < hi; k++)
		for (size_t b = 0; b < j->g->batch; b++)
			for (size_t o = 0; o < m->out; o++)
				j->y[(b * oc + k) * m->out + o] = j->to[(o * oc + k) * m->bp + b] + (j->bias ? j->bias[k] : 0);
}

/* --- data: dX[i][batch][ic] = sum of dY[o][batch][oc] weight[tap][oc][ic] */

static void data_part(void *arg, int part, int parts)
{
	const struct job *j = arg;
	const struct map *m = j->m;
	size_t oc = j->g->oc, ic = j->g->ic, batch = j->g->batch, lo, hi;
	struct wino_product x = { .lda = m->ocp, .ldb = m->icp, .bn = L, .n = oc, .ldc = m->icp, .cn = L,
		.rows = (int)batch };

	par_slice(m->icp, L, part, parts, &lo, &hi);
	for (size_t c = lo, end; c < hi; c = end) {
		x.panels = wino_even((hi - c) / L, m->isa->panels);
		end = c + (size_t)x.panels * L;
		for (size_t i = 0; i < m->in; i++) {
			x.add = false;
			for (size_t o = 0; o < m->out; o++) {
				size_t t = m->tap[o][i];

				if (t == NONE)
					continue;
				x.a = j->to + o * batch * m->ocp;
				x.b = j->weight + t * oc * m->icp + c;
				x.c = j->from + i * batch * m->icp + c;
				wino_products(m->isa, &x, false);
				x.add = true;
			}
			for (size_t b = 0; b < batch; b++)
				for (size_t l = c; l < end && l < ic; l++)
					j->dx[(b * ic + l) * m->in + i] = x.add ? j->from[(i * batch + b) * m->icp + l] : 0;
		}
	}
}

/* --- weights: dW[tap][oc][ic] = sum of dY[o][oc][batch] X[i][batch][ic] */

static void gradient_tap(const struct job *j, size_t k, int n, size_t t)
{
	const struct map *m = j->m;
	size_t oc = j->g->oc, ic = j->g->ic;
	real *to = j->weight + (t * oc + k) * m->icp;
	struct wino_product x = { .lda = m->bp, .ldb = m->icp, .bn = L, .n = j->g->batch, .rows = n, .ldc = m->icp,
		.cn = L };

	for (size_t c = 0; c < m->icp; c += (size_t)x.panels * L) {
		x.panels = wino_even((m->icp - c) / L, m->isa->panels);
		x.c = to + c;
		x.add = false;
		for (size_t o = 0; o < m->out; o++)
			for (size_t i = 0; i < m->in; i++) {
				if (m->tap[o][i] != t)
					continue;
				x.a = j->to + (o * oc + k) * m->bp;
				x.b = j->from + i * j->g->batch * m->icp + c;
				m->isa->product(&x);
				x.add = true;
			}
	}
	for (size_t r = 0; r < (size_t)n; r++)
		for (size_t c = 0; c < ic; c++)
			j->dw[((k + r) * ic + c) * m->taps + t] += to[r * m->icp + c];
}

static void gradient_part(void *arg, int part, int parts)
{
	const struct job *j = arg;
	const struct map *m = j->m;
	size_t lo, hi;

	par_slice(j->g->oc, (size_t)m->isa->rows, part, parts, &lo, &hi);
	for (size_t k = lo, rows; k < hi; k += rows) {
		rows = (size_t)wino_even(hi - k, m->isa->rows);
		for (size_t t = 0; t < m->taps; t++)
			if (m->used[t])
				gradient_tap(j, k, (int)rows, t);
	}
}

/* --- the three computations */

/* Scratch: weights, then the input's side, then the output's, in the larger of their layouts. */
static size_t areas(const struct convpos *g, const struct map *m, unsigned char *work, struct job *j)
{
	size_t w = m->taps * g->oc * m->icp, in = m->in * (g->batch * m->icp > g->ic * m->bp ? g->batch * m->icp : g->ic *
		m->bp), out = m->out * (g->batch * m->ocp > g->oc * m->bp ? g->batch * m->ocp : g->oc * m->bp);

	j->weight = (real *)work;
	j->from = j->weight + up(w);
	j->to = j->from + up(in);
	return (up(w) + up(in) + up(out)) * sizeof(real);
}

size_t convpos_work(const struct convpos *g, bool backward)
{
	struct job j;
	struct map m;

	map_of(g, CPU_PLAIN, &m);
	return areas(g, &m, NULL, &j);
}

void convpos_forward(const struct par *par, const struct convpos *g, const real *x, const real *w, const real *bias,
	real *y, void *work)
{
	struct map m;
	struct job j = { .g = g, .m = &m, .x = x, .w = w, .bias = bias, .y = y };

	map_of(g, par->cpu, &m);
	(void)areas(g, &m, work, &j);
	par_run(par, weights_part, &j);
	par_run(par, images_part, &j);
	par_run(par, forward_part, &j);
}

void convpos_backward_data(const struct par *par, const struct convpos *g, const real *dy, const real *w, real *dx,
	void *work)
{
	struct map m;
	struct job j = { .g = g, .m = &m, .dy = dy, .w = w, .dx = dx };

	map_of(g, par->cpu, &m);
	(void)areas(g, &m, work, &j);
	par_run(par, weights_part, &j);
	par_run(par, slopes_channels_part, &j);
	par_run(par, data_part, &j);
}

void convpos_backward_weights(const struct par *par, const struct convpos *g, const real *x, const real *dy, real *dw,
	void *work)
{
	struct map m;
	struct job j = { .g = g, .m = &m, .x = x, .dy = dy, .dw = dw };

	map_of(g, par->cpu, &m);
	(void)areas(g, &m, work, &j);
	par_run(par, channels_part, &j);
	par_run(par, slopes_images_part, &j);
	par_run(par, gradient_part, &j);
}
