/* gpipe (arXiv 1811.06965): all forward, then all backward, then the flush. Every stage keeps what all micro-batches
 * need for their way back. */
#include "train/strategy/parts/schedule.h"

static void order(const struct turns_at *at, struct turn *ret)
{
	turns_fill(at->n, at->n, ret);
}

const struct turns_ops turns_gpipe = { .name = "gpipe", .help = "all micro-batches forward, then all backward",
	.micro_batches = 4, .order = order };
