/* 2bw (PipeDream-2BW, arXiv 2006.09503): one forward and one backward in turn without a flush. Weights are in two
 * versions, the second for what is under way when the first one steps; a gradient is one step late, always. */
#include "train/strategy/parts/schedule.h"

static void order(const struct turns_at *at, struct turn *ret)
{
	turns_fill(at->n, at->depth, ret);
}

const struct turns_ops turns_two_bw = { .name = "2bw", .help = "1f1b without a flush: two versions of the weights, "
	"gradients one step late", .runs_on = true, .order = order };
