/* Any shape as one row of features; no code runs and no memory moves. */
#include "kernels/layer.h"

static int shape(struct layer *l, struct kerr *e)
{
	l->out = (struct shape){ 1, { shape_count(&l->in) } };
	return 0;
}

const struct layer_ops layer_flatten = { .name = "flatten", .help = "one row of features", .view = true,
	.shape = shape };
