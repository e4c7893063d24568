/* The registry of schedules: in which order a stage of a pipeline takes its micro-batches forward and backward. To add
 * one: schedule/NAME.c with `const struct turns_ops turns_NAME` and a line in schedule/list.h. */
#ifndef TRAIN_STRATEGY_SCHEDULE_H
#define TRAIN_STRATEGY_SCHEDULE_H
#include <stdbool.h>
#include <stdint.h>

struct turn { bool back; uint32_t k; };         /* micro-batch k of this member goes forward, or backward */
/* n: micro-batches of this member. depth: how many must be under way here for no stage behind to wait: members from
 * this stage on, for each member of this stage (without replicas stages - stage). */
struct turns_at { uint32_t n, depth; };
struct turns_ops {
	const char *name, *help;
	uint32_t micro_batches;         /* of a flush, for each stage, when the spec does not say; 0: one in all */
	/* Epochs run on into each other: there is no flush. Each is one program, which also takes as many micro-batches of
	 * the next epoch forward as are under way in the middle of it, with the weights that come of the epoch before this
	 * one; passes of this epoch keep those from before that step. So there are two versions of the weights, and every
	 * gradient is one step late (round.c). order() is then asked for the micro-batches of an epoch and those. */
	bool runs_on;
	/* 2 n turns. Backward passes come in the order of the micro-batches, so that sums have the bits of one process. */
	void (*order)(const struct turns_at *at, struct turn *ret);
};
const struct turns_ops *turns_find(const char *name);     /* NULL: unknown */
const char *turns_names(char *out, uint32_t cap);

/* Forward while fewer than `most` are under way, else backward. */
static inline void turns_fill(uint32_t n, uint32_t most, struct turn *ret)
{
	uint32_t forward = 0, backward = 0;

	while (backward < n)
		if (forward < n && forward - backward < most)
			*ret++ = (struct turn){ false, forward++ };
		else
			*ret++ = (struct turn){ true, backward++ };
}
/* Most micro-batches that are forward and not yet backward at once: what is kept of so many. */
uint32_t turns_stash(const struct turns_ops *s, const struct turns_at *at);

#endif
