/* 2-D convolution (torch.nn.Conv2d). Who computes it follows from its shape: tiles (kernels/wino.h) for
 * kernels of 3x3, positions (convpos.h) on small maps, panels (convpan.h) for few weights, columns (convcol.h) for
 * what is left, kernels that are no squares among it; or tiles and none as the attribute says. */
#include <math.h>
#include <string.h>
#include "kernels/convcol.h"
#include "kernels/convpan.h"
#include "kernels/convpos.h"
#include "kernels/layer.h"
#include "kernels/wino.h"

enum { OUT, KERNEL, STRIDE, PADDING, BIAS, IN, DILATION, GROUPS, STD, WINOGRAD, KERNEL_W, PADDING_W };

#define TILES_CHANNELS 16       /* auto: with fewer, transforms cost more than products save */
#define TILES_SIDE 4            /* auto: smaller maps waste most of a tile */

#define POSITIONS 4             /* images of at most so many always go position by position */
#define POSITIONS_GAIN 140      /* percent of multiply-adds saved that make it worth while */

#define PANELS_WEIGHTS 576       /* of an output channel: their panels should stay in the first caches */

static size_t kernel_w(const struct layer *l)
{
	return (size_t)(l->attr[KERNEL_W] > 0 ? l->attr[KERNEL_W] : l->attr[KERNEL]);
}

static size_t padding_w(const struct layer *l)
{
	return (size_t)(l->attr[PADDING_W] >= 0 ? l->attr[PADDING_W] : l->attr[PADDING]);
}

static bool square(const struct layer *l)
{
	return kernel_w(l) == (size_t)l->attr[KERNEL] && padding_w(l) == (size_t)l->attr[PADDING];
}

/* By tiles of this side? */
static bool tileable(const struct layer *l, int m)
{
	return square(l) && l->attr[KERNEL] == 3 && l->attr[DILATION] == 1 && l->attr[GROUPS] == 1 &&
		((l->attr[STRIDE] == 1 && l->attr[PADDING] <= 2) || (l->attr[STRIDE] == 2 && l->attr[PADDING] == 1 && m == 4));
}

static int shape(struct layer *l, struct kerr *e)
{
	size_t k = (size_t)l->attr[KERNEL], kw = kernel_w(l), s = (size_t)l->attr[STRIDE], d = (size_t)l->attr[DILATION];
	size_t out = (size_t)l->attr[OUT], want = (size_t)l->attr[IN], groups = (size_t)l->attr[GROUPS];
	size_t pad = (size_t)l->attr[PADDING], pad_w = padding_w(l), reach = d * (k - 1) + 1, reach_w = d * (kw - 1) + 1;
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
	if (l->in.d[2] + 2 * pad_w < reach_w && !square(l))
		return kerr_set(e, "conv2d: kernel_w = %zu with dilation = %zu is wider than the input of shape %s with "
			"padding_w = %zu", kw, d, shape_text(&l->in, text, sizeof text), pad_w);
	if (l->in.d[1] + 2 * pad < reach || l->in.d[2] + 2 * pad_w < reach_w)
		return kerr_set(e, "conv2d: kernel = %zu with dilation = %zu is larger than the input of shape %s with "
			"padding = %zu", k, d, shape_text(&l->in, text, sizeof text), pad);
	if (l->attr[WINOGRAD] == 1 || l->attr[WINOGRAD] == 3 || l->attr[WINOGRAD] == -3)
		return kerr_set(e, "conv2d: winograd = %d is no size of a tile: 2, 4, 0 (none), -1 (what is fastest), or -2 "
			"and -4 (where they fit)", (int)l->attr[WINOGRAD]);
	if (l->attr[WINOGRAD] > 0 && !tileable(l, (int)l->attr[WINOGRAD]))
		return kerr_set(e, "conv2d: winograd = %d needs a square kernel = 3, dilation and groups = 1, stride = 1 and "
			"padding of at most 2%s", (int)l->attr[WINOGRAD],
			l->attr[WINOGRAD] == 4 ? ", or stride = 2 and padding = 1" : "");
	l->out = (struct shape){ 3, { out, (l->in.d[1] + 2 * pad - reach) / s + 1,
		(l->in.d[2] + 2 * pad_w - reach_w) / s + 1 } };
	layer_param_add(l, "weight", 4, (size_t[]){ out, l->in.d[0] / groups, k, kw });
	if (l->attr[BIAS] != 0)
		layer_param_add(l, "bias", 1, (size_t[]){ out });
	return 0;
}

static void init(const struct layer *l, uint64_t key, real *param)
{
	layer_init(l, key, 1 / sqrt((double)(l->param[0].count / l->param[0].shape.d[0])), l->attr[STD], param);
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
	return square(l) && l->attr[GROUPS] == 1 && convpos_fits(ret) &&
		(ret->oh * ret->ow <= POSITIONS || convpos_gain(ret) >= POSITIONS_GAIN);
}

/* And by panels of pixels? Where the columns are short; backward to the data goes by columns all the same. */
static bool by_panels(const struct layer *l, size_t batch, struct convpan *ret)
{
	*ret = (struct convpan){ batch, l->in.d[0], l->out.d[0], l->in.d[1], l->in.d[2], l->out.d[1], l->out.d[2],
		(size_t)l->attr[KERNEL], (size_t)l->attr[STRIDE], (size_t)l->attr[PADDING] };
	return square(l) && l->attr[GROUPS] == 1 && l->attr[DILATION] == 1 &&
		l->in.d[0] * ret->k * ret->k <= PANELS_WEIGHTS;
}

/* Without a blas results are the same on every CPU: then tiles use no fused multiply-adds either. */
static struct par tiles_par(const struct par *par)
{
	struct par p = *par;

	if (!par->blas)
		p.cpu = CPU_PLAIN;
	return p;
}

static struct convcol by_columns(const struct layer *l, size_t batch)
{
	return (struct convcol){ batch, l->in.d[0], l->out.d[0], l->in.d[1], l->in.d[2], l->out.d[1], l->out.d[2],
		(size_t)l->attr[KERNEL], kernel_w(l), (size_t)l->attr[STRIDE], (size_t)l->attr[PADDING], padding_w(l),
		(size_t)l->attr[DILATION], (size_t)l->attr[GROUPS], l->nparams > 1 };
}

/* One of these, the first that fits; columns take over from panels what those do not do. */
struct ways {
	bool tiles, positions, panels;
	struct wino w; struct convpos pos; struct convpan pan; struct convcol col;
};

static struct ways ways_of(const struct layer *l, size_t batch)
{
	struct ways v = { .col = by_columns(l, batch) };

	v.tiles = by_tiles(l, batch, &v.w);
	v.positions = !v.tiles && by_positions(l, batch, &v.pos);
	v.panels = !v.tiles && !v.positions && by_panels(l, batch, &v.pan);
	return v;
}

static size_t work(const struct layer *l, size_t batch, int parts, bool backward)
{
	struct ways v = ways_of(l, batch);
	size_t columns, panels;

	if (v.tiles)
		return wino_work(&v.w, parts, backward);
	if (v.positions)
		return convpos_work(&v.pos, backward);
	columns = convcol_work(&v.col, parts, backward);
	if (!v.panels)
		return columns;
	panels = convpan_work(&v.pan, parts, backward);
	return backward && columns > panels ? columns : panels;
}

static void forward(const struct par *par, const struct layer_call *c)
{
	const real *bias = c->l->nparams > 1 ? c->param + c->l->param[1].offset : NULL;
	struct ways v = ways_of(c->l, c->batch);
	struct par p = tiles_par(par);

	if (v.tiles)
		wino_forward(&p, &v.w, c->x, c->param, bias, c->y, c->work);
	else if (v.positions)
		convpos_forward(&p, &v.pos, c->x, c->param, bias, c->y, c->work);
	else if (v.panels)
		convpan_forward(&p, &v.pan, c->x, c->param, bias, c->y, c->work);
	else
		convcol_forward(par, &v.col, c->x, c->param, c->y, c->work);
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

static void backward(const struct par *par, const struct layer_call *c)
{
	struct ways v = ways_of(c->l, c->batch);
	struct par p = tiles_par(par);

	if (!v.tiles && !v.positions && !v.panels) {
		if (c->dparam || c->dx)
			convcol_backward(par, &v.col, c->x, c->dy, c->param, c->dx, c->dparam, c->work);
		return;
	}
	if (c->dparam && c->l->nparams > 1)
		par_run(&p, bias_part, (void *)c);
	if (c->dparam && v.tiles)
		wino_backward_weights(&p, &v.w, c->x, c->dy, c->dparam, c->work);
	else if (c->dparam && v.positions)
		convpos_backward_weights(&p, &v.pos, c->x, c->dy, c->dparam, c->work);
	else if (c->dparam)
		convpan_backward_weights(&p, &v.pan, c->x, c->dy, c->dparam, c->work);
	if (c->dx && v.tiles)
		wino_backward_data(&p, &v.w, c->dy, c->param, c->dx, c->work);
	else if (c->dx && v.positions)
		convpos_backward_data(&p, &v.pos, c->dy, c->param, c->dx, c->work);
	else if (c->dx)
		convcol_backward(par, &v.col, NULL, c->dy, c->param, c->dx, NULL, c->work);
}

static uint64_t macs(const struct layer *l)
{
	return (uint64_t)l->param[0].count * l->out.d[1] * l->out.d[2];
}

static uint64_t other(const struct layer *l)
{
	return l->nparams > 1 ? (uint64_t)shape_count(&l->out) : 0;
}

const struct layer_ops layer_conv2d = {
	.name = "conv2d", .help = "2-D convolution",
	.nattrs = 12,
	.attr = {
		[OUT] = { "out", NAN, 1, 65536, true, "output channels" },
		[KERNEL] = { "kernel", NAN, 1, CONVCOL_KERNEL_MAX, true, "side of the kernel" },
		[STRIDE] = { "stride", 1, 1, 255, true, "step of the kernel" },
		[PADDING] = { "padding", 0, 0, 255, true, "zeros around the image" },
		[BIAS] = { "bias", 1, 0, 1, true, "add a bias" },
		[IN] = { "in", 0, 0, 1 << 24, true, "input channels, to be checked; 0: whatever comes" },
		[DILATION] = { "dilation", 1, 1, 255, true, "distance of the kernel's elements" },
		[GROUPS] = { "groups", 1, 1, 65536, true, "parts of the channels that do not see each other" },
		[STD] = { "std", 0, 0, 1e3, false, "deviation of normal initial weights (bias 0); 0: PyTorch's uniform ones" },
		[WINOGRAD] = { "winograd", -1, -4, 4, true, "tiles of a 3x3 convolution: 2, 4, 0 none, -1 what is "
			"fastest, -2 and -4 where they fit" },
		[KERNEL_W] = { "kernel_w", 0, 0, CONVCOL_KERNEL_MAX, true, "width of a kernel that is no square, kernel its "
			"height; 0: as kernel" },
		[PADDING_W] = { "padding_w", -1, -1, 255, true, "zeros left and right, padding those above and below; -1: as "
			"padding" },
	},
	.multiplies = true, .needs_x = true, .other = other, .shape = shape, .init = init, .forward = forward,
	.backward = backward, .macs = macs, .work = work,
};
