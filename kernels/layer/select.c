/* One part along an axis: [k, ...] becomes [...]; or some that lie side by side, which stay a dimension. Of several
 * token rows, of one position, of some columns. */
#include <math.h>
#include <string.h>
#include "kernels/layer.h"

enum { INDEX, AXIS, COUNT };

static int shape(struct layer *l, struct kerr *e)
{
	size_t index = (size_t)l->attr[INDEX], count = (size_t)l->attr[COUNT];
	int axis = (int)l->attr[AXIS], at = 0;
	char text[64];

	if (axis >= l->in.nd)
		return kerr_set(e, "select: axis = %d, but its input of shape %s has axes 0 to %d", axis,
			shape_text(&l->in, text, sizeof text), l->in.nd - 1);
	if ((l->in.nd < 2 && !count) || index >= l->in.d[axis])
		return kerr_set(e, "select: an input of shape %s has no part %zu that is a tensor",
			shape_text(&l->in, text, sizeof text), index);
	if (count > l->in.d[axis] - index)
		return kerr_set(e, "select: an input of shape %s has %zu parts from %zu on, not %zu",
			shape_text(&l->in, text, sizeof text), l->in.d[axis] - index, index, count);
	for (int i = 0; i < l->in.nd; i++)
		if (i != axis || count)
			l->out.d[at++] = i == axis ? count : l->in.d[i];
	l->out.nd = at;
	return 0;
}

/* Elements of the axis and what lies inside of it; those that are taken, and where they begin. */
struct run { size_t all, taken, at; };

static struct run run_of(const struct layer *l)
{
	size_t inside = 1, count = l->attr[COUNT] > 0 ? (size_t)l->attr[COUNT] : 1;

	for (int i = (int)l->attr[AXIS] + 1; i < l->in.nd; i++)
		inside *= l->in.d[i];
	return (struct run){ inside * l->in.d[(int)l->attr[AXIS]], inside * count, inside * (size_t)l->attr[INDEX] };
}

static void forward(const struct par *par, const struct layer_call *c)
{
	struct run r = run_of(c->l);
	size_t n = c->batch * (shape_count(&c->l->in) / r.all);

	for (size_t b = 0; b < n; b++)
		memcpy(c->y + b * r.taken, c->x + b * r.all + r.at, r.taken * sizeof(real));
}

static void backward(const struct par *par, const struct layer_call *c)
{
	struct run r = run_of(c->l);
	size_t n = c->batch * (shape_count(&c->l->in) / r.all);

	for (size_t b = 0; b < n && c->dx; b++) {
		memset(c->dx + b * r.all, 0, r.all * sizeof(real));
		memcpy(c->dx + b * r.all + r.at, c->dy + b * r.taken, r.taken * sizeof(real));
	}
}

const struct layer_ops layer_select = {
	.name = "select", .help = "parts along one axis", .nattrs = 3,
	.attr = {
		[INDEX] = { "index", NAN, 0, 1 << 24, true, "which, from 0" },
		[AXIS] = { "axis", 0, 0, SHAPE_MAX - 1, true, "of its dimensions, from 0" },
		[COUNT] = { "count", 0, 0, 1 << 24, true, "parts from there on; 0: one, whose dimension goes" },
	},
	.shape = shape, .forward = forward, .backward = backward,
};
