/* Two histories against each other (amendments C3): the same, one a prefix of the other, or a fork, in which the chain
 * with more samples wins (since the common ancestor, which is the same as in all), ties the smaller digest. */
#include <string.h>
#include "avg/int.h"

#define PAST_SENT 32                            /* of a follower's */
#define PAST_STRIDE 64
#define PAST_BYTES 48

void past_add(struct avg *a)
{
	struct past *p = &a->past[a->npast++ % HISTORY];
	*p = (struct past){ .epoch = a->point.epoch, .samples = a->point.samples };
	memcpy(p->digest, a->point.prev, DIGEST);
}

/* The newest epochs one by one, then every second, fourth, eighth: who may have gone its own way for long shows where
 * its history has come from without telling all of it. */
void past_put(const struct avg *a, struct buf *b)
{
	size_t have = a->npast < HISTORY ? a->npast : HISTORY, step = 1, sent = 0;
	for (size_t back = 1; back <= have && !(a->follower && sent == PAST_SENT); back += step) {
		const struct past *p = &a->past[(a->npast - back) % HISTORY];
		buf_u64(b, p->epoch);
		buf_put(b, p->digest, DIGEST);
		buf_u64(b, p->samples);
		if (++sent % PAST_STRIDE == 0)
			step *= 2;
	}
}

static bool in_past(const struct avg *a, uint64_t epoch, const uint8_t *digest)
{
	if (!epoch)
		return true;                    /* everybody began there */
	size_t n = a->npast < HISTORY ? a->npast : HISTORY;
	for (size_t i = a->npast - n; i < a->npast; i++) {
		const struct past *p = &a->past[i % HISTORY];
		if (p->epoch == epoch)
			return !memcmp(p->digest, digest, DIGEST);
	}
	return false;
}

uint64_t past_common(const struct avg *a, const void *past, size_t n)
{
	struct rd r = rd_of(past, n);
	uint64_t best = 0, first = UINT64_MAX;
	while (rd_left(&r) >= PAST_BYTES) {
		uint64_t at = rd_u64(&r);
		const uint8_t *digest = rd_bytes(&r, DIGEST);
		rd_u64(&r);
		first = at < first ? at : first;
		if (at > best && in_past(a, at, digest))
			best = at;
	}
	return best || first == UINT64_MAX || first <= 1 ? best : first - 1;
}

static uint64_t oldest(const struct avg *a)
{
	size_t n = a->npast < HISTORY ? a->npast : HISTORY;
	return n ? a->past[(a->npast - n) % HISTORY].epoch : a->point.epoch;
}

enum relation past_compare(const struct avg *a, uint64_t epoch, const uint8_t *prev, uint64_t samples,
	const void *past, size_t n)
{
	uint64_t theirs_oldest = epoch, near = 0;
	bool shared = false;
	if (same_point(a, epoch, prev))
		return REL_SAME;
	if (epoch < a->point.epoch && in_past(a, epoch, prev))
		return REL_BEHIND;
	struct rd r = rd_of(past, n);
	while (rd_left(&r) >= PAST_BYTES) {
		uint64_t at = rd_u64(&r);
		const uint8_t *digest = rd_bytes(&r, DIGEST);
		rd_u64(&r);
		if (at < theirs_oldest)
			theirs_oldest = at;
		if (at <= a->point.epoch && at >= near) {
			near = at;
			shared = at == a->point.epoch ? !memcmp(digest, a->point.prev, DIGEST) : in_past(a, at, digest);
		}
	}
	if (epoch > a->point.epoch && shared && samples >= a->point.samples) /* as far as it shows: no fork */
		return REL_AHEAD;
	if (!a->point.epoch)
		return REL_AHEAD;
	if (epoch < oldest(a))                  /* nothing is known that far back: not provably a fork */
		return REL_BEHIND;
	if (a->point.epoch < theirs_oldest)
		return REL_AHEAD;
	if (samples != a->point.samples)
		return samples < a->point.samples ? REL_FORK_WON : REL_FORK_LOST;
	return memcmp(a->point.prev, prev, DIGEST) < 0 ? REL_FORK_WON : REL_FORK_LOST;
}
