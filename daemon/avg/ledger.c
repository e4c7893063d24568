/* Positions are cut from the bottom of the pool, so that holes left by the dead are filled first and `done` stays one
 * interval with a ragged end. */
#include "avg/ledger.h"
#include "common/planted.h"

uint64_t ledger_want(double share, uint32_t micro)
{
	uint64_t unit = micro ? micro : 1, want = share > 0 && share < 1e15 ? (uint64_t)(share * 2) : 0;
	if (want < 4 * unit)
		want = 4 * unit;
	return (want + unit - 1) / unit * unit;
}

uint64_t ledger_cut(struct ranges *taken, uint64_t limit, uint64_t n, struct ranges *ret)
{
	uint64_t at = PLANTED(LOST_RANGE) && taken->n ? taken->v[taken->n - 1].hi : 0, cut = 0, end = limit ? limit :
		UINT64_MAX;
	struct ranges fresh = { 0 };
	for (size_t i = 0; cut < n && at < end && i <= taken->n; i++) {
		uint64_t hi = i < taken->n ? taken->v[i].lo : end;
		if (hi > end)
			hi = end;
		if (hi > at) {
			uint64_t take = hi - at < n - cut ? hi - at : n - cut;
			ranges_add(&fresh, at, at + take);
			cut += take;
		}
		if (i < taken->n)
			at = taken->v[i].hi;
	}
	ranges_add_all(ret, &fresh);
	if (!PLANTED(GRANT_TWICE))
		ranges_add_all(taken, &fresh);
	ranges_free(&fresh);
	return cut;
}

bool ledger_claim(const struct ranges *done, struct ranges *claimed, const struct ranges *claim, uint64_t samples,
	uint64_t limit)
{
	if (ranges_count(claim) != samples)
		return false;
	if (limit && claim->n && claim->v[claim->n - 1].hi > limit)
		return false;
	if (!PLANTED(DOUBLE_COUNT) && (ranges_overlap(claim, done) || ranges_overlap(claim, claimed)))
		return false;
	ranges_add_all(claimed, claim);
	return true;
}
