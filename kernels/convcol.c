/* Convolution by columns: im2col and one matrix product per group of channels. */
#include "kernels/convcol.h"
#include <string.h>
#include "kernels/gemm.h"

#define WIDE 256        /* columns that a product should have */

/* Outputs [lo, hi) along one axis for which one row or column of the kernel falls inside the image. */
struct span { uint32_t lo, hi; };

struct geom {
	size_t ic, ih, iw, oc, oh, ow, kh, kw, s, ph, pw, d;   /* kernel and border by axis */
	size_t groups, gic, goc;        /* of channels that do not see each other; channels of one, in and out */
	size_t rows, cols, group;       /* gic kh kw; oh ow; images that go through one product */
	size_t params;                  /* weights and biases */
	struct span x[CONVCOL_KERNEL_MAX], y[CONVCOL_KERNEL_MAX];
};

static void spans(const struct geom *g, size_t k, size_t pad, size_t in, size_t out, struct span *ret)
{
	for (size_t i = 0; i < k; i++) {
		size_t at = i * g->d;
		size_t lo = at >= pad ? 0 : (pad - at + g->s - 1) / g->s;
		size_t hi = in + pad <= at ? 0 : (in + pad - at - 1) / g->s + 1;

		hi = hi < out ? hi : out;
		ret[i] = (struct span){ (uint32_t)(lo < hi ? lo : hi), (uint32_t)hi };
	}
}

static void geom_of(const struct convcol *c, struct geom *ret)
{
	*ret = (struct geom){ .ic = c->ic, .ih = c->ih, .iw = c->iw, .oc = c->oc, .oh = c->oh, .ow = c->ow, .kh = c->kh,
		.kw = c->kw, .s = c->stride, .ph = c->pad_h, .pw = c->pad_w, .d = c->dilation, .groups = c->groups,
		.gic = c->ic / c->groups, .goc = c->oc / c->groups };
	ret->rows = ret->gic * ret->kh * ret->kw;
	ret->cols = ret->oh * ret->ow;
	ret->params = ret->oc * ret->rows + (c->bias ? ret->oc : 0);
	ret->group = ret->cols < WIDE ? WIDE / ret->cols : 1;
	if (ret->group > c->batch)
		ret->group = c->batch ? c->batch : 1;
	spans(ret, ret->kw, ret->pw, ret->iw, ret->ow, ret->x);
	spans(ret, ret->kh, ret->ph, ret->ih, ret->oh, ret->y);
}

/* The border columns of the rows [y.lo, y.hi) of one plane: zeros, where the kernel hangs over the image. */
static void clear_sides(const struct geom *g, struct span y, struct span x, real *plane)
{
	if (x.lo == 0 && x.hi == g->ow)
		return;
	for (size_t i = y.lo; i < y.hi; i++) {
		for (size_t j = 0; j < x.lo; j++)
			plane[i * g->ow + j] = 0;
		for (size_t j = x.hi; j < g->ow; j++)
			plane[i * g->ow + j] = 0;
	}
}

static void zero(real *to, size_t n)
{
	if (n)
		memset(to, 0, n * sizeof(real));
}

/* One row of the columns: plane [ih][iw] seen through kernel element (ky, kx). When the output is as wide as the image
 * this is the image shifted, and one copy does it. */
static void columns_row(const struct geom *g, const real *plane, size_t ky, size_t kx, real *to)
{
	struct span y = g->y[ky], x = g->x[kx];
	size_t at;

	if (x.lo == x.hi || y.lo == y.hi) {
		zero(to, g->cols);
		return;
	}
	zero(to, y.lo * g->ow);
	zero(to + y.hi * g->ow, (g->oh - y.hi) * g->ow);
	at = (y.lo * g->s + ky * g->d - g->ph) * g->iw + x.lo * g->s + kx * g->d - g->pw;
	if (g->s == 1 && g->ow == g->iw) {
		memcpy(to + y.lo * g->ow + x.lo, plane + at, ((y.hi - y.lo - 1) * g->ow + x.hi - x.lo) * sizeof(real));
	} else {
		for (size_t i = y.lo; i < y.hi; i++, at += g->s * g->iw)
			for (size_t j = x.lo; j < x.hi; j++)
				to[i * g->ow + j] = plane[at + (j - x.lo) * g->s];
	}
	clear_sides(g, y, x, to);
}

/* The transpose of columns_row: adds to plane. Clears the overhanging part of `from`. */
static void columns_row_add(const struct geom *g, real *from, size_t ky, size_t kx, real *plane)
{
	struct span y = g->y[ky], x = g->x[kx];
	size_t at;

	if (x.lo == x.hi || y.lo == y.hi)
		return;
	at = (y.lo * g->s + ky * g->d - g->ph) * g->iw + x.lo * g->s + kx * g->d - g->pw;
	if (g->s == 1 && g->ow == g->iw) {
		size_t n = (size_t)(y.hi - y.lo - 1) * g->ow + x.hi - x.lo;
		real *restrict to = plane + at, *restrict add = from + y.lo * g->ow + x.lo;

		clear_sides(g, y, x, from);
		for (size_t j = 0; j < n; j++)
			to[j] += add[j];
	} else {
		for (size_t i = y.lo; i < y.hi; i++, at += g->s * g->iw)
			for (size_t j = x.lo; j < x.hi; j++)
				plane[at + (j - x.lo) * g->s] += from[i * g->ow + j];
	}
}

/* x [gic][ih][iw] -> col [rows][ld], the columns of one image in one group. */
static void im2col(const struct geom *g, const real *x, real *col, size_t ld)
{
	for (size_t c = 0; c < g->gic; c++, x += g->ih * g->iw)
		for (size_t ky = 0; ky < g->kh; ky++)
			for (size_t kx = 0; kx < g->kw; kx++, col += ld)
				columns_row(g, x, ky, kx, col);
}

static void col2im(const struct geom *g, real *col, size_t ld, real *dx)
{
	zero(dx, g->gic * g->ih * g->iw);
	for (size_t c = 0; c < g->gic; c++, dx += g->ih * g->iw)
		for (size_t ky = 0; ky < g->kh; ky++)
			for (size_t kx = 0; kx < g->kw; kx++, col += ld)
				columns_row_add(g, col, ky, kx, dx);
}

/* [group][channels][cols] <-> [channels][group cols]: how images stand in memory and in a product. */
static void gather(const struct geom *g, size_t n, const real *y, real *wide)
{
	for (size_t b = 0; b < n; b++)
		for (size_t o = 0; o < g->oc; o++)
			memcpy(wide + o * n * g->cols + b * g->cols, y + (b * g->oc + o) * g->cols,
				g->cols * sizeof(real));
}

static void scatter(const struct geom *g, size_t n, const real *wide, real *y)
{
	for (size_t b = 0; b < n; b++)
		for (size_t o = 0; o < g->oc; o++)
			memcpy(y + (b * g->oc + o) * g->cols, wide + o * n * g->cols + b * g->cols,
				g->cols * sizeof(real));
}

/* Scratch of one worker: the columns, the wide output, and (backward, not the first worker) its own gradient. */
struct scratch { size_t col, wide, grad, bytes; };

static struct scratch scratch_of(const struct geom *g, bool backward)
{
	struct scratch s = { .col = 0, .wide = g->rows * g->cols * g->group };

	s.grad = s.wide + (g->group > 1 ? g->oc * g->cols * g->group : 0);
	s.bytes = (s.grad + (backward ? g->params : 0)) * sizeof(real);
	s.bytes = (s.bytes + 63) / 64 * 64;
	return s;
}

struct job {
	const struct convcol *c;
	const real *x, *param, *dy; real *y, *dx, *dparam;
	unsigned char *work;
	struct par one; struct geom g; struct scratch s;
};

static void forward_group(const struct job *j, size_t at, size_t n, real *col, real *wide)
{
	const struct geom *g = &j->g;
	size_t ld = n * g->cols, image = g->ic * g->ih * g->iw;
	real *y = j->y + at * g->oc * g->cols, *out = n > 1 ? wide : y;
	const real *bias = j->c->bias ? j->param + g->oc * g->rows : NULL;

	for (size_t o = 0; bias && o < g->oc; o++)
		for (size_t i = 0; i < ld; i++)
			out[o * ld + i] = bias[o];
	for (size_t p = 0; p < g->groups; p++) {
		for (size_t b = 0; b < n; b++)
			im2col(g, j->x + (at + b) * image + p * g->gic * g->ih * g->iw, col + b * g->cols, ld);
		gemm(&j->one, false, false, g->goc, ld, g->rows, 1, j->param + p * g->goc * g->rows, g->rows, col, ld,
			bias != NULL, out + p * g->goc * ld, ld);
	}
	if (n > 1)
		scatter(g, n, wide, y);
}

static void forward_part(void *arg, int part, int parts)
{
	const struct job *j = arg;
	unsigned char *mine = j->work + (size_t)part * j->s.bytes;
	size_t lo, hi;

	par_slice(j->c->batch, j->g.group, part, parts, &lo, &hi);
	for (size_t at = lo; at < hi; at += j->g.group) {
		size_t n = hi - at < j->g.group ? hi - at : j->g.group;

		forward_group(j, at, n, (real *)mine + j->s.col, (real *)mine + j->s.wide);
	}
}

static real row_sum(const real *x, size_t n)
{
	real lane[8] = { 0 };
	size_t i = 0;

	for (; i + 8 <= n; i += 8)
		for (int j = 0; j < 8; j++)
			lane[j] += x[i + j];
	for (int j = 0; i + j < n; j++)
		lane[j] += x[i + j];
	return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

static void backward_group(const struct job *j, size_t at, size_t n, real *col, real *wide, real *grad)
{
	const struct geom *g = &j->g;
	size_t ld = n * g->cols, image = g->ic * g->ih * g->iw;
	const real *dy = j->dy + at * g->oc * g->cols, *out = dy;

	if (n > 1) {
		gather(g, n, dy, wide);
		out = wide;
	}
	for (size_t o = 0; grad && j->c->bias && o < g->oc; o++)
		grad[g->oc * g->rows + o] += row_sum(out + o * ld, ld);
	for (size_t p = 0; p < g->groups; p++) {
		const real *o = out + p * g->goc * ld;
		size_t w = p * g->goc * g->rows, plane = p * g->gic * g->ih * g->iw;

		if (grad) {
			for (size_t b = 0; b < n; b++)
				im2col(g, j->x + (at + b) * image + plane, col + b * g->cols, ld);
			gemm(&j->one, false, true, g->goc, g->rows, ld, 1, o, ld, col, ld, 1, grad + w, g->rows);
		}
		if (!j->dx)
			continue;
		gemm(&j->one, true, false, g->rows, ld, g->goc, 1, j->param + w, g->rows, o, ld, 0, col, ld);
		for (size_t b = 0; b < n; b++)
			col2im(g, col + b * g->cols, ld, j->dx + (at + b) * image + plane);
	}
}

static real *own_grad(const struct job *j, int part)
{
	if (part == 0 || !j->dparam)
		return j->dparam;
	return (real *)(j->work + (size_t)part * j->s.bytes) + j->s.grad;
}

static void backward_part(void *arg, int part, int parts)
{
	const struct job *j = arg;
	unsigned char *mine = j->work + (size_t)part * j->s.bytes;
	real *grad = own_grad(j, part);
	size_t lo, hi;

	if (part > 0 && grad)
		memset(grad, 0, j->g.params * sizeof(real));
	par_slice(j->c->batch, j->g.group, part, parts, &lo, &hi);
	for (size_t at = lo; at < hi; at += j->g.group) {
		size_t n = hi - at < j->g.group ? hi - at : j->g.group;

		backward_group(j, at, n, (real *)mine + j->s.col, (real *)mine + j->s.wide, grad);
	}
}

size_t convcol_work(const struct convcol *c, int parts, bool backward)
{
	struct geom g;

	geom_of(c, &g);
	return scratch_of(&g, backward).bytes * (size_t)parts;
}

void convcol_forward(const struct par *par, const struct convcol *c, const real *x, const real *param, real *y,
	void *work)
{
	struct job j = { .c = c, .x = x, .param = param, .y = y, .work = work, .one = par_serial(par->cpu, par->blas) };

	geom_of(c, &j.g);
	j.s = scratch_of(&j.g, false);
	par_run(par, forward_part, &j);
}

void convcol_backward(const struct par *par, const struct convcol *c, const real *x, const real *dy, const real *param,
	real *dx, real *dparam, void *work)
{
	struct job j = { .c = c, .x = x, .dy = dy, .param = param, .dx = dx, .dparam = dparam, .work = work,
		.one = par_serial(par->cpu, par->blas) };

	geom_of(c, &j.g);
	j.s = scratch_of(&j.g, true);
	par_run(par, backward_part, &j);
	for (int part = 1; dparam && part < par->n; part++) {           /* in order: n alone decides the bits */
		const real *g = own_grad(&j, part);

		for (size_t i = 0; i < j.g.params; i++)
			dparam[i] += g[i];
	}
}
