/* naive: a micro-batch goes through all stages and back before the next one begins: one stage works at a time. */
#include "train/strategy/parts/schedule.h"

static void order(const struct turns_at *at, struct turn *ret)
{
	turns_fill(at->n, 1, ret);
}

const struct turns_ops turns_naive = { .name = "naive", .help = "one micro-batch at a time through all stages",
	.order = order };
