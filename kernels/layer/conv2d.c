/* 2-D convolution (torch.nn.Conv2d, square kernel): im2col and one matrix product per group. Small images go through
 * the product several at a time, so that it is wide enough; the team shares the batch. 3x3 kernels of stride 1 go by
 * Winograd's tiles (kernels/wino.h) where that is faster, or as the attribute says. */
#include <math.h>
#include <string.h>
#include "kernels/convpos.h"
#include "kernels/gemm.h"
#include "kernels/layer.h"
#include "kernels/wino.h"

enum { OUT, KERNEL, STRIDE, PADDING, BIAS, IN, DILATION, GROUPS, STD, WINOGRAD };

#define TILES_CHANNELS 16       /* auto: with fewer, transforms cost more than products save */
#define TILES_SIDE 4            /* auto: smaller maps waste most of a tile */

#define POSITIONS 4             /* images of at most so many always go position by position */
#define POSITIONS_GAIN 140      /* percent of multiply-adds saved that make it worth while */

#define WIDE 256        /* columns that a product should have */

#define KERNEL_MAX 255

/* Outputs [lo, hi) along one axis for which one row or column of the kernel falls inside the image. */
struct span { uint32_t lo, hi; };

struct geom {
	size_t ic, ih, iw, oc, oh, ow, k, s, pad, d;
	size_t groups, gic, goc;        /* of channels that do not see each other; channels of one, in and out */
	size_t rows, cols, group;       /* gic k k; oh ow; images that go through one product */
	struct span x[KERNEL_MAX], y[KERNEL_MAX];
};

static void spans(const struct geom *g, size_t in, size_t out, struct span *ret)
{
	for (size_t i = 0; i < g->k; i++) {
		size_t at = i * g->d;
		size_t lo = at >= g->pad ? 0 : (g->pad - at + g->s - 1) / g->s;
		size_t hi = in + g->pad <= at ? 0 : (in + g->pad - at - 1) / g->s + 1;

		hi = hi < out ? hi : out;
		ret[i] = (struct span){ (uint32_t)(lo < hi ? lo : hi), (uint32_t)hi };
	}
}

static void geom_of(const struct layer *l, size_t batch, struct geom *ret)
{
	ret->ic = l->in.d[0];
	ret->ih = l->in.d[1];
	ret->iw = l->in.d[2];
	ret->oc = l->out.d[0];
	ret->oh = l->out.d[1];
	ret->ow = l->out.d[2];
	ret->k = (size_t)l->attr[KERNEL];
	ret->s = (size_t)l->attr[STRIDE];
	ret->pad = (size_t)l->attr[PADDING];
	ret->d = (size_t)l->attr[DILATION];
	ret->groups = (size_t)l->attr[GROUPS];
	ret->gic = ret->ic / ret->groups;
	ret->goc = ret->oc / ret->groups;
	ret->rows = ret->gic * ret->k * ret->k;
	ret->cols = ret->oh * ret->ow;
	ret->group = ret->cols < WIDE ? WIDE / ret->cols : 1;
	if (ret->group > batch)
		ret->group = batch ? batch : 1;
	spans(ret, ret->iw, ret->ow, ret->x);
	spans(ret, ret->ih, ret->oh, ret->y);
}

/* By tiles of this side? */
static bool tileable(const struct layer *l, int m)
{
	return l->attr[KERNEL] == 3 && l->attr[DILATION] == 1 && l->attr[GROUPS] == 1 && ((l->attr[STRIDE] == 1 &&
		l->attr[PADDING] <= 2) || (l->attr[STRIDE] == 2 && l->attr[PADDING] == 1 && m == 4));
}

static int shape(struct layer *l, struct kerr *e)
{
	size_t k = (size_t)l->attr[KERNEL], pad = (size_t)l->attr[PADDING], s = (size_t)l->attr[STRIDE];
	size_t out = (size_t)l->attr[OUT], want = (size_t)l->attr[IN], groups = (size_t)l->attr[GROUPS];
	size_t reach = (size_t)l->attr[DILATION] * (k - 1) + 1;
	char text[64];

	if (l->in.nd != 3)
		return kerr_set(e, "conv2d needs an image [channels, height, width], not an input of shape %s",
			shape_text(&l->in, text, sizeof text));
	if (want && want != l->in.d[0])
		return kerr_set(e, "conv2d says in = %zu, but its input of shape %s has %zu channels", want,
			shape_text(&l->in, text, sizeof text), l->in.d[0]);
	if (l->in.d[0] % groups || out % groups)
		return kerr_set(e, "conv2d: groups = %zu must divide the %zu input channels and out = %zu", groups, l->in.d[0],
			out);
	if (l->in.d[1] + 2 * pad < reach || l->in.d[2] + 2 * pad < reach)
		return kerr_set(e, "conv2d: kernel = %zu with dilation = %zu is larger than the input of shape %s with "
			"padding = %zu", k, (size_t)l->attr[DILATION], shape_text(&l->in, text, sizeof text), pad);
	if (l->attr[WINOGRAD] == 1 || l->attr[WINOGRAD] == 3 || l->attr[WINOGRAD] == -3)
		return kerr_set(e, "conv2d: winograd = %d is no size of a tile: 2, 4, 0 (none), -1 (what is fastest), or -2 "
			"and -4 (where they fit)", (int)l->attr[WINOGRAD]);
	if (l->attr[WINOGRAD] > 0 && !tileable(l, (int)l->attr[WINOGRAD]))
		return kerr_set(e, "conv2d: winograd = %d needs kernel = 3, dilation and groups = 1, stride = 1 and padding "
			"of at most 2%s", (int)l->attr[WINOGRAD], l->attr[WINOGRAD] == 4 ? ", or stride = 2 and padding = 1" : "");
	l->out = (struct shape){ 3, { out, (l->in.d[1] + 2 * pad - reach) / s + 1,
		(l->in.d[2] + 2 * pad - reach) / s + 1 } };
	layer_param_add(l, "weight", 4, (size_t[]){ out, l->in.d[0] / groups, k, k });
	if (l->attr[BIAS] != 0)
		layer_param_add(l, "bias", 1, (size_t[]){ out });
	return 0;
}

static void init(const struct layer *l, uint64_t key, real *param)
{
	layer_init(l, key, 1 / sqrt((double)(l->param[0].count / l->param[0].shape.d[0])), l->attr[STD], param);
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
	at = (y.lo * g->s + ky * g->d - g->pad) * g->iw + x.lo * g->s + kx * g->d - g->pad;
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
	at = (y.lo * g->s + ky * g->d - g->pad) * g->iw + x.lo * g->s + kx * g->d - g->pad;
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
		for (size_t ky = 0; ky < g->k; ky++)
			for (size_t kx = 0; kx < g->k; kx++, col += ld)
				columns_row(g, x, ky, kx, col);
}

static void col2im(const struct geom *g, real *col, size_t ld, real *dx)
{
	zero(dx, g->gic * g->ih * g->iw);
	for (size_t c = 0; c < g->gic; c++, dx += g->ih * g->iw)
		for (size_t ky = 0; ky < g->k; ky++)
			for (size_t kx = 0; kx < g->k; kx++, col += ld)
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

static struct scratch scratch_of(const struct layer *l, const struct geom *g, bool backward)
{
	struct scratch s = { .col = 0, .wide = g->rows * g->cols * g->group };

	s.grad = s.wide + (g->group > 1 ? g->oc * g->cols * g->group : 0);
	s.bytes = (s.grad + (backward ? l->nparam : 0)) * sizeof(real);
	s.bytes = (s.bytes + 63) / 64 * 64;
	return s;
}

/* Is this layer computed by tiles? The choice does not depend on the batch: neither does the order of sums. */
static bool by_tiles(const struct layer *l, size_t batch, struct wino *ret)
{
	int m = (int)l->attr[WINOGRAD];

	*ret = (struct wino){ batch, l->in.d[0], l->out.d[0], l->in.d[1], l->in.d[2], (int)l->attr[PADDING],
		m == -1 ? 4 : m < 0 ? -m : m, (int)l->attr[STRIDE] };
	if (m == 0 || !tileable(l, ret->m))
		return false;
	return m != -1 || (ret->ic >= TILES_CHANNELS && ret->oc >= TILES_CHANNELS && l->out.d[1] >= TILES_SIDE &&
		l->out.d[2] >= TILES_SIDE);
}

/* And by positions? Small images, where most of the kernel would hang over the border. */
static bool by_positions(const struct layer *l, size_t batch, struct convpos *ret)
{
	*ret = (struct convpos){ batch, l->in.d[0], l->out.d[0], l->in.d[1], l->in.d[2], l->out.d[1], l->out.d[2],
		(size_t)l->attr[KERNEL], (size_t)l->attr[STRIDE], (size_t)l->attr[PADDING], (size_t)l->attr[DILATION] };
	return l->attr[GROUPS] == 1 && convpos_fits(ret) &&
		(ret->oh * ret->ow <= POSITIONS || convpos_gain(ret) >= POSITIONS_GAIN);
}

/* Without a blas results are the same on every CPU: then tiles use no fused multiply-adds either. */
static struct par tiles_par(const struct par *par)
{
	struct par p = *par;

	if (!par->blas)
		p.cpu = CPU_PLAIN;
	return p;
}

static size_t work(const struct layer *l, size_t batch, int parts, bool backward)
{
	struct convpos p;
	struct geom g;
	struct wino w;

	if (by_tiles(l, batch, &w))
		return wino_work(&w, parts, backward);
	if (by_positions(l, batch, &p))
		return convpos_work(&p, backward);
	geom_of(l, batch, &g);
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

	for (size_t o = 0; bias && o < g->oc; o++)
		for (size_t i = 0; i < ld; i++)
			out[o * ld + i] = bias[o];
	for (size_t p = 0; p < g->groups; p++) {
		for (size_t b = 0; b < n; b++)
			im2col(g, j->c->x + (at + b) * image + p * g->gic * g->ih * g->iw, col + b * g->cols, ld);
		gemm(&j->one, false, false, g->goc, ld, g->rows, 1, j->c->param + p * g->goc * g->rows, g->rows, col, ld,
			bias != NULL, out + p * g->goc * ld, ld);
	}
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
	const real *bias = c->l->nparams > 1 ? c->param + c->l->param[1].offset : NULL;
	struct job j = { .c = c, .one = par_serial(par->cpu, par->blas) };
	struct par p = tiles_par(par);
	struct convpos pos;
	struct wino w;

	if (by_tiles(c->l, c->batch, &w)) {
		wino_forward(&p, &w, c->x, c->param, bias, c->y, c->work);
		return;
	}
	if (by_positions(c->l, c->batch, &pos)) {
		convpos_forward(&p, &pos, c->x, c->param, bias, c->y, c->work);
		return;
	}
	geom_of(c->l, c->batch, &j.g);
	j.s = scratch_of(c->l, &j.g, false);
	par_run(par, forward_part, &j);
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
	const struct layer *l = j->c->l;
	size_t ld = n * g->cols, image = g->ic * g->ih * g->iw;
	const real *dy = j->c->dy + at * g->oc * g->cols, *out = dy;

	if (n > 1) {
		gather(g, n, dy, wide);
		out = wide;
	}
	for (size_t o = 0; grad && l->nparams > 1 && o < g->oc; o++)
		grad[l->param[1].offset + o] += row_sum(out + o * ld, ld);
	for (size_t p = 0; p < g->groups; p++) {
		const real *o = out + p * g->goc * ld;
		size_t w = p * g->goc * g->rows, plane = p * g->gic * g->ih * g->iw;

		if (grad) {
			for (size_t b = 0; b < n; b++)
				im2col(g, j->c->x + (at + b) * image + plane, col + b * g->cols, ld);
			gemm(&j->one, false, true, g->goc, g->rows, ld, 1, o, ld, col, ld, 1, grad + w, g->rows);
		}
		if (!j->c->dx)
			continue;
		gemm(&j->one, true, false, g->rows, ld, g->goc, 1, j->c->param + w, g->rows, o, ld, 0, col, ld);
		for (size_t b = 0; b < n; b++)
			col2im(g, col + b * g->cols, ld, j->c->dx + (at + b) * image + plane);
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

static void bias_part(void *arg, int part, int parts)
{
	const struct layer_call *c = arg;
	const struct layer *l = c->l;
	size_t plane = l->out.d[1] * l->out.d[2], lo, hi;

	par_slice(l->out.d[0], 1, part, parts, &lo, &hi);
	for (size_t o = lo; o < hi; o++)
		for (size_t b = 0; b < c->batch; b++)
			c->dparam[l->param[1].offset + o] += row_sum(c->dy + (b * l->out.d[0] + o) * plane, plane);
}

static void backward_tiles(const struct par *par, const struct layer_call *c, const struct wino *w)
{
	struct par p = tiles_par(par);

	if (c->dparam)
		wino_backward_weights(&p, w, c->x, c->dy, c->dparam, c->work);
	if (c->dparam && c->l->nparams > 1)
		par_run(&p, bias_part, (void *)c);
	if (c->dx)
		wino_backward_data(&p, w, c->dy, c->param, c->dx, c->work);
}

static void backward_positions(const struct par *par, const struct layer_call *c, const struct convpos *g)
{
	struct par p = tiles_par(par);

	if (c->dparam)
		convpos_backward_weights(&p, g, c->x, c->dy, c->dparam, c->work);
	if (c->dparam && c->l->nparams > 1)
		par_run(&p, bias_part, (void *)c);
	if (c->dx)
		convpos_backward_data(&p, g, c->dy, c->param, c->dx, c->work);
}

static void backward(const struct par *par, const struct layer_call *c)
{
	struct job j = { .c = c, .one = par_serial(par->cpu, par->blas) };
	struct convpos pos;
	struct wino w;

	if (!c->dparam && !c->dx)
		return;
	if (by_tiles(c->l, c->batch, &w)) {
		backward_tiles(par, c, &w);
		return;
	}
	if (by_positions(c->l, c->batch, &pos)) {
		backward_positions(par, c, &pos);
		return;
	}
	geom_of(c->l, c->batch, &j.g);
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
	.nattrs = 10,
	.attr = {
		[OUT] = { "out", NAN, 1, 65536, true, "output channels" },
		[KERNEL] = { "kernel", NAN, 1, KERNEL_MAX, true, "side of the kernel" },
		[STRIDE] = { "stride", 1, 1, 255, true, "step of the kernel" },
		[PADDING] = { "padding", 0, 0, 255, true, "zeros around the image" },
		[BIAS] = { "bias", 1, 0, 1, true, "add a bias" },
		[IN] = { "in", 0, 0, 1 << 24, true, "input channels, to be checked; 0: whatever comes" },
		[DILATION] = { "dilation", 1, 1, 255, true, "distance of the kernel's elements" },
		[GROUPS] = { "groups", 1, 1, 65536, true, "parts of the channels that do not see each other" },
		[STD] = { "std", 0, 0, 1e3, false, "deviation of normal initial weights (bias 0); 0: PyTorch's uniform ones" },
		[WINOGRAD] = { "winograd", -1, -4, 4, true, "tiles of a 3x3 convolution: 2, 4, 0 none, -1 what is fastest, -2 and -4 "
			"where they fit" },
	},
	.needs_x = true, .shape = shape, .init = init, .forward = forward, .backward = backward, .macs = macs,
	.work = work,
};
