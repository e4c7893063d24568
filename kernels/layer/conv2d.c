/* 2-D convolution (torch.nn.Conv2d, square kernel): im2col and matrix products. Small images go through the product
 * several at a time, so that it is wide enough; the team shares the batch. */
#include <math.h>
#include <string.h>
#include "kernels/gemm.h"
#include "kernels/layer.h"

enum { OUT, KERNEL, STRIDE, PADDING, BIAS, IN };

#define WIDE 256        /* columns that a product should have */

struct geom { size_t ic, ih, iw, oc, oh, ow, k, s, pad, rows /* ic k k */, cols /* oh ow */, group /* images at once */; };

static struct geom geom_of(const struct layer *l, size_t batch)
{
	struct geom g = { l->in.d[0], l->in.d[1], l->in.d[2], l->out.d[0], l->out.d[1], l->out.d[2],
		(size_t)l->attr[KERNEL], (size_t)l->attr[STRIDE], (size_t)l->attr[PADDING], 0, 0, 1 };

	g.rows = g.ic * g.k * g.k;
	g.cols = g.oh * g.ow;
	if (g.cols < WIDE)
		g.group = WIDE / g.cols;
	if (g.group > batch)
		g.group = batch ? batch : 1;
	return g;
}

static int shape(struct layer *l, struct kerr *e)
{
	size_t k = (size_t)l->attr[KERNEL], pad = (size_t)l->attr[PADDING], s = (size_t)l->attr[STRIDE];
	size_t out = (size_t)l->attr[OUT], want = (size_t)l->attr[IN];
	char text[64];

	if (l->in.nd != 3)
		return kerr_set(e, "conv2d needs an image [channels, height, width], not an input of shape %s",
			shape_text(&l->in, text, sizeof text));
	if (want && want != l->in.d[0])
		return kerr_set(e, "conv2d says in = %zu, but its input of shape %s has %zu channels", want,
			shape_text(&l->in, text, sizeof text), l->in.d[0]);
	if (l->in.d[1] + 2 * pad < k || l->in.d[2] + 2 * pad < k)
		return kerr_set(e, "conv2d: kernel = %zu is larger than the input of shape %s with padding = %zu", k,
			shape_text(&l->in, text, sizeof text), pad);
	l->out = (struct shape){ 3, { out, (l->in.d[1] + 2 * pad - k) / s + 1, (l->in.d[2] + 2 * pad - k) / s + 1 } };
	layer_param_add(l, "weight", 4, (size_t[]){ out, l->in.d[0], k, k });
	if (l->attr[BIAS] != 0)
		layer_param_add(l, "bias", 1, (size_t[]){ out });
	return 0;
}

static void init(const struct layer *l, uint64_t key, real *param)
{
	double bound = 1 / sqrt((double)(l->param[0].count / l->param[0].shape.d[0]));  /* fan in */

	for (int i = 0; i < l->nparams; i++)
		rand_uniform(rand_key(key, (uint64_t)i), bound, l->param[i].count, param + l->param[i].offset);
}

/* Where the output columns [*lo, *hi) of kernel column kx fall inside the image. */
static void inside(const struct geom *g, size_t kx, size_t *ret_lo, size_t *ret_hi)
{
	size_t lo = kx >= g->pad ? 0 : (g->pad - kx + g->s - 1) / g->s, hi;

	hi = g->iw + g->pad <= kx ? 0 : (g->iw + g->pad - kx - 1) / g->s + 1;
	*ret_hi = hi < g->ow ? hi : g->ow;
	*ret_lo = lo < *ret_hi ? lo : *ret_hi;
}

/* x [ic][ih][iw] -> col [rows][ld], the columns of one image. */
static void im2col(const struct geom *g, const real *x, real *col, size_t ld)
{
	for (size_t r = 0; r < g->rows; r++) {
		size_t kx = r % g->k, ky = r / g->k % g->k, lo, hi;
		const real *plane = x + r / (g->k * g->k) * g->ih * g->iw;
		real *to = col + r * ld;

		inside(g, kx, &lo, &hi);
		for (size_t i = 0; i < g->oh; i++, to += g->ow) {
			size_t y = i * g->s + ky;
			size_t from = (y - g->pad) * g->iw + kx - g->pad;       /* wraps below 0; from + j s does not */

			if (y < g->pad || y - g->pad >= g->ih) {
				memset(to, 0, g->ow * sizeof(real));
				continue;
			}
			for (size_t j = 0; j < lo; j++)
				to[j] = 0;
			if (g->s == 1 && lo < hi)
				memcpy(to + lo, &plane[from + lo], (hi - lo) * sizeof(real));
			for (size_t j = lo; g->s > 1 && j < hi; j++)
				to[j] = plane[from + j * g->s];
			for (size_t j = hi; j < g->ow; j++)
				to[j] = 0;
		}
	}
}

/* The transpose of im2col: adds col into dx, which it zeroes first. */
static void col2im(const struct geom *g, const real *col, size_t ld, real *dx)
{
	memset(dx, 0, g->ic * g->ih * g->iw * sizeof(real));
	for (size_t r = 0; r < g->rows; r++) {
		size_t kx = r % g->k, ky = r / g->k % g->k, lo, hi;
		real *plane = dx + r / (g->k * g->k) * g->ih * g->iw;
		const real *from = col + r * ld;

		inside(g, kx, &lo, &hi);
		for (size_t i = 0; i < g->oh; i++, from += g->ow) {
			size_t y = i * g->s + ky;

			if (y < g->pad || y - g->pad >= g->ih)
				continue;
			for (size_t j = lo; j < hi; j++)
				plane[(y - g->pad) * g->iw + j * g->s + kx - g->pad] += from[j];
		}
	}
}

/* [group][channels][cols] <-> [channels][group cols]: how images stand in memory and in a product. */
static void gather(const struct geom *g, size_t n, const real *y, real *wide)
{
	for (size_t b = 0; b < n; b++)
		for (size_t o = 0; o < g->oc; o++)
			memcpy(wide + o * n * g->cols + b * g->cols, y + (b * g->oc + o) * g->cols, g->cols * sizeof(real));
}

static void scatter(const struct geom *g, size_t n, const real *wide, real *y)
{
	for (size_t b = 0; b < n; b++)
		for (size_t o = 0; o < g->oc; o++)
			memcpy(y + (b * g->oc + o) * g->cols, wide + o * n * g->cols + b * g->cols, g->cols * sizeof(real));
}

/* Scratch of one worker: the columns, the wide output, and (backward, not the first worker) its own gradient. */
struct scratch { size_t col, wide, grad, bytes; };

static struct scratch scratch_of(const struct layer *l, const struct geom *g, bool backward)
{
	struct scratch s = { .col = 0, .wide = g->rows * g->cols * g->group };

	s.grad = s.wide + (g->group > 1 ? g->oc * g->cols * g->group : 0);
	s.bytes = (s.grad + (backward ? l->nparam : 0)) * sizeof(real);
	s.bytes = (s.bytes + 63) / 64 * 64;
	return s;
}

static size_t work(const struct layer *l, size_t batch, int parts, bool backward)
{
	struct geom g = geom_of(l, batch);

	return scratch_of(l, &g, backward).bytes * (size_t)parts;
}

struct job { const struct layer_call *c; struct par one; struct geom g; struct scratch s; };

static void forward_group(const struct job *j, size_t at, size_t n, real *col, real *wide)
{
	const struct geom *g = &j->g;
	const struct layer *l = j->c->l;
	size_t ld = n * g->cols, image = g->ic * g->ih * g->iw;
	real *y = j->c->y + at * g->oc * g->cols, *out = n > 1 ? wide : y;
	const real *bias = l->nparams > 1 ? j->c->param + l->param[1].offset : NULL;

	for (size_t b = 0; b < n; b++)
		im2col(g, j->c->x + (at + b) * image, col + b * g->cols, ld);
	for (size_t o = 0; bias && o < g->oc; o++)
		for (size_t i = 0; i < ld; i++)
			out[o * ld + i] = bias[o];
	gemm(&j->one, false, false, g->oc, ld, g->rows, 1, j->c->param, g->rows, col, ld, bias != NULL, out, ld);
	if (n > 1)
		scatter(g, n, wide, y);
}

static void forward_part(void *arg, int part, int parts)
{
	const struct job *j = arg;
	unsigned char *mine = (unsigned char *)j->c->work + (size_t)part * j->s.bytes;
	size_t lo, hi;

	par_slice(j->c->batch, j->g.group, part, parts, &lo, &hi);
	for (size_t at = lo; at < hi; at += j->g.group) {
		size_t n = hi - at < j->g.group ? hi - at : j->g.group;

		forward_group(j, at, n, (real *)mine + j->s.col, (real *)mine + j->s.wide);
	}
}

static void forward(const struct par *par, const struct layer_call *c)
{
	struct job j = { .c = c, .one = par_serial(par->cpu, par->blas), .g = geom_of(c->l, c->batch) };

	j.s = scratch_of(c->l, &j.g, false);
	par_run(par, forward_part, &j);
}

static void backward_group(const struct job *j, size_t at, size_t n, real *col, real *wide, real *grad)
{
	const struct geom *g = &j->g;
	const struct layer *l = j->c->l;
	size_t ld = n * g->cols, image = g->ic * g->ih * g->iw;
	const real *dy = j->c->dy + at * g->oc * g->cols, *out = dy;

	if (n > 1) {
		gather(g, n, dy, wide);
		out = wide;
	}
	if (grad) {
		for (size_t b = 0; b < n; b++)
			im2col(g, j->c->x + (at + b) * image, col + b * g->cols, ld);
		gemm(&j->one, false, true, g->oc, g->rows, ld, 1, out, ld, col, ld, 1, grad, g->rows);
		for (size_t o = 0; l->nparams > 1 && o < g->oc; o++) {
			real sum = 0;

			for (size_t i = 0; i < ld; i++)
				sum += out[o * ld + i];
			grad[l->param[1].offset + o] += sum;
		}
	}
	if (j->c->dx) {
		gemm(&j->one, true, false, g->rows, ld, g->oc, 1, j->c->param, g->rows, out, ld, 0, col, ld);
		for (size_t b = 0; b < n; b++)
			col2im(g, col + b * g->cols, ld, j->c->dx + (at + b) * image);
	}
}

static real *own_grad(const struct job *j, int part)
{
	if (part == 0 || !j->c->dparam)
		return j->c->dparam;
	return (real *)((unsigned char *)j->c->work + (size_t)part * j->s.bytes) + j->s.grad;
}

static void backward_part(void *arg, int part, int parts)
{
	const struct job *j = arg;
	unsigned char *mine = (unsigned char *)j->c->work + (size_t)part * j->s.bytes;
	real *grad = own_grad(j, part);
	size_t lo, hi;

	if (part > 0 && grad)
		memset(grad, 0, j->c->l->nparam * sizeof(real));
	par_slice(j->c->batch, j->g.group, part, parts, &lo, &hi);
	for (size_t at = lo; at < hi; at += j->g.group) {
		size_t n = hi - at < j->g.group ? hi - at : j->g.group;

		backward_group(j, at, n, (real *)mine + j->s.col, (real *)mine + j->s.wide, grad);
	}
}

static void backward(const struct par *par, const struct layer_call *c)
{
	struct job j = { .c = c, .one = par_serial(par->cpu, par->blas), .g = geom_of(c->l, c->batch) };

	if (!c->dparam && !c->dx)
		return;
	j.s = scratch_of(c->l, &j.g, true);
	par_run(par, backward_part, &j);
	for (int part = 1; c->dparam && part < par->n; part++) {        /* in order: n alone decides the bits */
		const real *g = own_grad(&j, part);

		for (size_t i = 0; i < c->l->nparam; i++)
			c->dparam[i] += g[i];
	}
}

static uint64_t macs(const struct layer *l)
{
	return (uint64_t)l->param[0].count * l->out.d[1] * l->out.d[2];
}

const struct layer_ops layer_conv2d = {
	.name = "conv2d", .help = "2-D convolution with a square kernel",
	.nattrs = 6,
	.attr = {
		[OUT] = { "out", NAN, 1, 65536, true, "output channels" },
		[KERNEL] = { "kernel", NAN, 1, 255, true, "side of the kernel" },
		[STRIDE] = { "stride", 1, 1, 255, true, "step of the kernel" },
		[PADDING] = { "padding", 0, 0, 255, true, "zeros around the image" },
		[BIAS] = { "bias", 1, 0, 1, true, "add a bias" },
		[IN] = { "in", 0, 0, 1 << 24, true, "input channels, to be checked; 0: whatever comes" },
	},
	.needs_x = true, .shape = shape, .init = init, .forward = forward, .backward = backward, .macs = macs,
	.work = work,
};
