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

uint64_t ledger_cut(struct ranges *taken, uint64_t limit, uint64_t n, size_t pieces, struct ranges *ret)
{
	uint64_t at = PLANTED(LOST_RANGE) && taken->n ? taken->v[taken->n - 1].hi : 0, cut = 0, end = limit ? limit :
		RANGES_END;
	struct ranges fresh = { 0 };
	for (size_t i = 0; cut < n && at < end && fresh.n < pieces && i <= taken->n; i++) {
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

/* Positions of [lo, hi) that are done; ret_missing, at most OPEN_SHOWN of them: the others. */
static uint64_t done_within(const struct ranges *done, uint64_t lo, uint64_t hi, json_t **ret_missing)
{
	struct ranges missing = { 0 }, shown = { 0 };
	ranges_add(&missing, lo, hi);
	ranges_sub_all(&missing, done);
	uint64_t n = hi - lo - ranges_count(&missing);
	for (size_t i = 0; i < missing.n && i < OPEN_SHOWN; i++)
		ranges_add(&shown, missing.v[i].lo - lo, missing.v[i].hi - lo);
	*ret_missing = ranges_json(&shown);
	ranges_free(&missing);
	ranges_free(&shown);
	return n;
}

static json_t *data_epochs(const struct ranges *done, uint64_t n)
{
	struct ranges holes = { 0 };
	json_t *open = json_array(), *missing;
	uint64_t end = done->n ? done->v[done->n - 1].hi : 0, epochs = end / n + (end % n != 0), next = 0, incomplete = 0;
	if (epochs <= UINT64_MAX / n)
		ranges_add(&holes, 0, epochs * n);
	ranges_sub_all(&holes, done);
	for (size_t i = 0; i < holes.n; i++) {
		uint64_t first = holes.v[i].lo / n, last = (holes.v[i].hi - 1) / n;
		first = first < next ? next : first;
		for (uint64_t e = first; e <= last && json_array_size(open) < OPEN_SHOWN; e++) {
			uint64_t count = done_within(done, e * n, (e + 1) * n, &missing);
			json_array_append_new(open, json_pack("{s:I,s:I,s:I,s:o}", "data_epoch", (json_int_t)e, "committed",
				(json_int_t)count, "of", (json_int_t)n, "missing", missing));
		}
		if (last >= first)
			incomplete += last - first + 1;
		next = last + 1;
	}
	ranges_free(&holes);
	return json_pack("{s:I,s:o}", "complete", (json_int_t)(epochs - incomplete), "open", open);
}

json_t *ledger_proof(const struct ranges *done, uint64_t samples, uint64_t per_epoch)
{
	uint64_t positions = ranges_count(done);
	json_t *o = json_pack("{s:I,s:I,s:b}", "samples", (json_int_t)samples, "positions", (json_int_t)positions,
		"exactly_once", samples == positions);
	if (per_epoch)
		json_object_set_new(o, "data_epochs", data_epochs(done, per_epoch));
	return o;
}
