/* Convolutions by panels of sixteen pixels. An image is first spread out with its zeros around and, for a stride of s,
 * every s-th column together, so that what one weight meets along a row of the output lies in one piece.
 *
 * Layouts: the image S[channel][row][column % s][column / s] (s = 1 for weight gradients); forward, a panel
 * B[channel ky kx][16], whose product with weights [oc][channel ky kx] goes right into y; weight gradients, lines
 * R[pixel][channel ky kx]. */
#include "kernels/convpan.h"
#include <string.h>
#include "kernels/wino_tile.h"

#define L WINO_LANES
#define PANELS 4                /* together, so that weights are read once for several */
#define PIXELS 128              /* of weight gradients, summed at once */

struct plan {
	const struct wino_tile *isa;
	size_t n, np, s, rows, len;     /* weights of an output channel, in whole vectors; rows of S and their length */
	size_t image, own;              /* elements of S, and of all that a worker has */
};

static size_t up(size_t n)
{
	return (n + L - 1) / L * L;
}

static struct plan plan_of(const struct convpan *g, enum cpu cpu, bool backward)
{
	struct plan p = { .isa = wino_tile(cpu), .n = g->ic * g->k * g->k, .rows = g->ih + 2 * g->pad };
	size_t panels, sums;

	p.np = up(p.n);
	p.s = backward ? 1 : g->stride;
	p.len = up((g->iw + 2 * g->pad + p.s - 1) / p.s + L);
	p.image = up(g->ic * p.rows * p.s * p.len);
	panels = PANELS * p.n * L + PANELS * L * L;
	sums = backward ? PIXELS * p.np + L + up(g->oc) * p.np : 0;
	p.own = p.image + up(panels > sums ? panels : sums);
	return p;
}

struct job { const struct convpan *g; const struct plan *p; const real *x, *w, *bias, *dy; real *y, *dw, *own; };

/* One image to S. Rows and columns that no weight meets, with a stride beyond the kernel, are left out. */
static void spread(const struct convpan *g, const struct plan *p, const real *x, real *to)
{
	size_t s = p->s;

	for (size_t c = 0; c < g->ic; c++)
		for (size_t r = 0; r < p->rows; r++) {
			const real *from = x + (c * g->ih + r - g->pad) * g->iw;

			for (size_t q = 0; q < s && q < g->k && r % g->stride < g->k; q++) {
				real *row = to + ((c * p->rows + r) * s + q) * p->len;
				size_t lo = q < g->pad ? (g->pad - q + s - 1) / s : 0, i = lo;
				size_t first = lo * s + q - g->pad, hi = first < g->iw ? lo + (g->iw - first + s - 1) / s : lo;

				if (r < g->pad || r >= g->pad + g->ih)
					hi = lo = i = 0;
				for (size_t j = 0; j < lo; j++)
					row[j] = 0;
				if (s == 1)
					memcpy(row + lo, from + first, (hi - lo) * sizeof(real));
				else
					for (const real *f = from + first; i < hi; i++, f += s)
						row[i] = *f;
				for (size_t j = hi; j < p->len; j++)
					row[j] = 0;
			}
		}
}

/* The panel of the pixels at .. at + 16; behind the last one, whatever lies there. Pixels of one row of the output lie
 * side by side in S as well: every piece of a row is copied as a whole vector, and what is too much is written over by
 * the next piece, by the next line, or by nobody behind the last. */
static void panel(const struct convpan *g, const struct plan *p, const real *s, size_t at, real *b)
{
	struct { size_t from, to; } piece[L];
	size_t n = 0, stride = g->stride;

	for (size_t done = 0; done < L && at + done < g->oh * g->ow; n++) {
		size_t i = (at + done) / g->ow, j = (at + done) % g->ow;

		piece[n].from = i * stride * stride * p->len + j;
		piece[n].to = done;
		done += g->ow - j;
	}
	for (size_t c = 0; c < g->ic; c++)
		for (size_t ky = 0; ky < g->k; ky++) {
			const real *row = s + (c * p->rows + ky) * stride * p->len;

			for (size_t kx = 0; kx < g->k; kx++, b += L) {
				const real *tap = row + kx % stride * p->len + kx / stride;

				for (size_t q = 0; q < n; q++)
					memcpy(b + piece[q].to, tap + piece[q].from, L * sizeof(real));
			}
		}
}

/* --- forward */

/* Some output channels of one or two panels, right to y, or by way of tmp[rows][16] when the image ends inside of the
 * one. Returns how many panels. */
static size_t panels_out(const struct job *j, const real *b, size_t k, int rows, size_t at, size_t panels, real *y,
	real *tmp)
{
	size_t plane = j->g->oh * j->g->ow, left = plane - at;
	int whole = left < L ? 1 : wino_even(left / L < panels ? left / L : panels, j->p->isa->panels);
	size_t n = left < L ? left : (size_t)whole * L, ld = left < L ? L : plane;
	real *to = left < L ? tmp : y + k * plane + at;
	struct wino_product x = { .a = j->w + k * j->p->n, .lda = j->p->n, .b = b, .ldb = L, .bn = j->p->n * L,
		.n = j->p->n, .rows = rows, .panels = whole, .c = to, .ldc = ld, .cn = L };

	j->p->isa->product(&x);
	for (size_t r = 0; j->bias && r < (size_t)rows; r++)
		for (size_t l = 0; l < n; l++)
			to[r * ld + l] += j->bias[k + r];
	for (size_t r = 0; left < L && r < (size_t)rows; r++)
		memcpy(y + (k + r) * plane + at, tmp + r * L, n * sizeof(real));
	return (size_t)whole;
}

static void forward_part(void *arg, int part, int parts)
{
	const struct job *j = arg;
	const struct convpan *g = j->g;
	const struct plan *p = j->p;
	real *s = j->own + (size_t)part * p->own, *b = s + p->image, *tmp = b + PANELS * p->n * L;
	size_t plane = g->oh * g->ow, lo, hi;

	memset(b, 0, PANELS * p->n * L * sizeof(real));
	par_slice(g->batch, 1, part, parts, &lo, &hi);
	for (size_t image = lo; image < hi; image++) {
		spread(g, p, j->x + image * g->ic * g->ih * g->iw, s);
		for (size_t at = 0; at < plane; at += PANELS * L) {
			for (size_t q = 0; q < PANELS && at + q * L < plane; q++)
				panel(g, p, s, at + q * L, b + q * p->n * L);
			for (size_t k = 0, rows; k < g->oc; k += rows) {
				rows = (size_t)wino_even(g->oc - k, p->isa->rows);
				for (size_t q = 0; q < PANELS && at + q * L < plane;)
					q += panels_out(j, b + q * p->n * L, k, (int)rows, at + q * L, PANELS - q,
						j->y + image * g->oc * plane, tmp);
			}
		}
	}
}

/* --- weights */

/* The line of pixel (i, j): what each weight meets there. Writes up to a vector behind it. */
static void line(const struct convpan *g, const struct plan *p, const real *s, size_t i, size_t j, real *to)
{
	const real *from = s + i * g->stride * p->len + j * g->stride;

	for (size_t c = 0; c < g->ic; c++, from += p->rows * p->len)
		for (size_t ky = 0; ky < g->k; ky++, to += g->k) {
			if (g->k == 1)
				*to = *from;
			else if (g->k <= 8)     /* what is too much is written over */
				memcpy(to, from + ky * p->len, 8 * sizeof(real));
			else
				memcpy(to, from + ky * p->len, g->k * sizeof(real));
		}
	for (size_t l = p->n; l < p->np; l++)
		*to++ = 0;
}

/* Each worker has some output channels and takes the images apart by itself: sums do not depend on the others. */
static void gradient_part(void *arg, int part, int parts)
{
	const struct job *j = arg;
	const struct convpan *g = j->g;
	const struct plan *p = j->p;
	real *s = j->own + (size_t)part * p->own, *lines = s + p->image, *sum = lines + PIXELS * p->np + L;
	size_t plane = g->oh * g->ow, lo, hi;
	struct wino_product x = { .b = lines, .c = sum, .lda = plane, .ldb = p->np, .bn = L, .ldc = p->np, .cn = L,
		.panels = (int)(p->np / L) };
	bool add = false;

	par_slice(g->oc, (size_t)p->isa->rows, part, parts, &lo, &hi);
	x.rows = (int)(hi - lo);
	for (size_t image = 0; lo < hi && image < g->batch; image++) {
		spread(g, p, j->x + image * g->ic * g->ih * g->iw, s);
		for (size_t at = 0; at < plane; at += PIXELS, add = true) {
			size_t n = plane - at < PIXELS ? plane - at : PIXELS;

			for (size_t l = 0; l < n; l++)
				line(g, p, s, (at + l) / g->ow, (at + l) % g->ow, lines + l * p->np);
			x.a = j->dy + (image * g->oc + lo) * plane + at;
			x.n = n;
			x.add = add;
			wino_products(p->isa, &x, false);
		}
	}
	for (size_t k = lo; add && k < hi; k++)
		for (size_t i = 0; i < p->n; i++)
			j->dw[k * p->n + i] += sum[(k - lo) * p->np + i];
}

size_t convpan_work(const struct convpan *g, int parts, bool backward)
{
	return plan_of(g, CPU_PLAIN, backward).own * sizeof(real) * (size_t)parts;
}

void convpan_forward(const struct par *par, const struct convpan *g, const real *x, const real *w, const real *bias,
	real *y, void *work)
{
	struct plan p = plan_of(g, par->cpu, false);

	par_run(par, forward_part, &(struct job){ .g = g, .p = &p, .x = x, .w = w, .bias = bias, .y = y, .own = work });
}

void convpan_backward_weights(const struct par *par, const struct convpan *g, const real *x, const real *dy, real *dw,
	void *work)
{
	struct plan p = plan_of(g, par->cpu, true);

	par_run(par, gradient_part, &(struct job){ .g = g, .p = &p, .x = x, .dy = dy, .dw = dw, .own = work });
}
