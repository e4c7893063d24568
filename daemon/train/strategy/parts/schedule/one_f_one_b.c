/* 1f1b with a flush (DAPPLE, PipeDream-Flush, Megatron-LM): as many micro-batches forward as stages follow, then one
 * forward and one backward in turn, then the rest backward: the bubble of gpipe, and memory for the depth alone. */
#include "train/strategy/parts/schedule.h"

static void order(const struct turns_at *at, struct turn *ret)
{
	turns_fill(at->n, at->depth, ret);
}

const struct turns_ops turns_one_f_one_b = { .name = "1f1b",
	.help = "one forward and one backward in turn, kept for as many as stages follow", .micro_batches = 4,
	.order = order };
