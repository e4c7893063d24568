/* The loop's figures as status tells them. */
#include "loop/told.h"
#include "loop/loop.h"

/* Upper bound of what so many of a thousand callbacks took at most. */
static json_int_t took_at_most(const struct loop_stats *s, unsigned per_mille)
{
	uint64_t seen = 0;
	int i;

	for (i = 0; i < LOOP_BUCKETS - 1; i++) {
		seen += s->bucket[i];
		if (seen * 1000 >= s->callbacks * per_mille)
			break;
	}
	return (uint64_t)1 << i < s->worst_us ? (json_int_t)1 << i : (json_int_t)s->worst_us;
}

json_t *loop_told(const struct loop *l)
{
	struct loop_stats s;

	loop_stats(l, &s);
	return json_pack("{s:I,s:I,s:I,s:I,s:s,s:I}", "callbacks", (json_int_t)s.callbacks, "half_under_us",
		took_at_most(&s, 500), "p999_under_us", took_at_most(&s, 999), "longest_us", (json_int_t)s.worst_us,
		"longest_in", s.worst, "slow", (json_int_t)s.slow);
}
