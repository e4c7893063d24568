/* What this peer contributes grows while the round runs: pieces leave and sums begin as its parts come. Who has it all
 * when the deadline is near is in the mean; who has not says so by itself (the one word that costs nobody else), and
 * the round goes on without it. */
#include "avg/grow.h"

void grow_begin(struct round *r)
{
	r->growing = r->x && r->samples;
	ranges_clear(&r->there);
}

static uint64_t all_of(const struct round *r)
{
	return r->b.held ? r->b.held[r->me].hi - r->b.held[r->me].lo : r->b.len;
}

bool grow_by(struct round *r, uint64_t lo, uint64_t hi)
{
	if (!r->growing || lo >= hi)
		return false;
	ranges_add(&r->there, lo, hi);
	r->growing = ranges_count(&r->there) < all_of(r);
	r->grew = true;
	return true;
}

bool grow_has(const struct round *r, size_t p)
{
	uint64_t lo = r->part[p].off, hi = lo + r->part[p].len;
	if (!r->growing || PLANTED(GROWN_UNREADY) || (r->a->leaving && PLANTED(GROWN_LEAVES)))
		return true;
	for (size_t i = 0; i < r->there.n; i++)
		if (r->there.v[i].lo <= lo && hi <= r->there.v[i].hi)
			return true;
	return lo == hi;
}

void grow_inherit(struct round *r, const struct round *old)
{
	r->growing = old->growing;
	r->grew = old->growing;
	ranges_copy(&r->there, &old->there);
}

uint64_t grow_first_us(struct round *r, uint64_t deadline_us)
{
	r->early_word = r->growing;
	r->warned = r->own_late = false;
	return deadline_us - (r->early_word ? deadline_us / 4 : 0);
}

bool grow_fired(struct round *r)
{
	if (!r->early_word || r->warned)
		return false;
	r->warned = true;
	r->own_late = r->growing && !PLANTED(GROWN_UNTOLD);
	return true;
}
