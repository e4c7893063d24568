/* Sets of sample positions as sorted, disjoint, non-touching intervals. Every operation is one merge over the
 * intervals; sets have a handful of them, whatever the number of positions. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "avg/ranges.h"
#include "common/mem.h"

static void reserve(struct ranges *r, size_t n)
{
	if (n <= r->cap)
		return;
	r->cap = n < 4 ? 4 : n + n / 2;
	r->v = xrealloc(r->v, r->cap * sizeof *r->v);
}

void ranges_free(struct ranges *r)
{
	free(r->v);
	*r = (struct ranges){ 0 };
}

void ranges_clear(struct ranges *r)
{
	r->n = 0;
}

void ranges_copy(struct ranges *to, const struct ranges *from)
{
	if (to == from)
		return;
	reserve(to, from->n);
	if (from->n)
		memcpy(to->v, from->v, from->n * sizeof *to->v);
	to->n = from->n;
}

/* The first interval that ends at or behind x (touching counts) or, with strict, behind x only. */
static size_t find(const struct ranges *r, uint64_t x, bool strict)
{
	size_t lo = 0, hi = r->n;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (r->v[mid].hi < x || (strict && r->v[mid].hi == x))
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* Replaces intervals [at, at + del) by the ins given ones. */
static void splice(struct ranges *r, size_t at, size_t del, const struct range *with, size_t ins)
{
	reserve(r, r->n - del + ins);
	if (r->n > at + del)
		memmove(r->v + at + ins, r->v + at + del, (r->n - at - del) * sizeof *r->v);
	if (ins)
		memcpy(r->v + at, with, ins * sizeof *with);
	r->n = r->n - del + ins;
}

void ranges_add(struct ranges *r, uint64_t lo, uint64_t hi)
{
	if (lo >= hi)
		return;
	reserve(r, 1);
	size_t at = find(r, lo, false), end = at;
	struct range u = { lo, hi };
	while (end < r->n && r->v[end].lo <= hi) {
		if (r->v[end].lo < u.lo)
			u.lo = r->v[end].lo;
		if (r->v[end].hi > u.hi)
			u.hi = r->v[end].hi;
		end++;
	}
	splice(r, at, end - at, &u, 1);
}

void ranges_add_all(struct ranges *r, const struct ranges *s)
{
	assert(r != s);
	for (size_t i = 0; i < s->n; i++)
		ranges_add(r, s->v[i].lo, s->v[i].hi);
}

void ranges_sub(struct ranges *r, uint64_t lo, uint64_t hi)
{
	if (lo >= hi || !r->n)
		return;
	size_t at = find(r, lo, true), end = at, ins = 0;
	struct range left[2];
	while (end < r->n && r->v[end].lo < hi)
		end++;
	if (end == at)
		return;
	if (r->v[at].lo < lo)
		left[ins++] = (struct range){ r->v[at].lo, lo };
	if (r->v[end - 1].hi > hi)
		left[ins++] = (struct range){ hi, r->v[end - 1].hi };
	splice(r, at, end - at, left, ins);
}

void ranges_sub_all(struct ranges *r, const struct ranges *s)
{
	if (r == s) {
		ranges_clear(r);
		return;
	}
	for (size_t i = 0; i < s->n; i++)
		ranges_sub(r, s->v[i].lo, s->v[i].hi);
}

bool ranges_has(const struct ranges *r, uint64_t x)
{
	size_t at = find(r, x, true);
	return at < r->n && r->v[at].lo <= x;
}

bool ranges_overlap(const struct ranges *a, const struct ranges *b)
{
	for (size_t i = 0, j = 0; i < a->n && j < b->n;) {
		if (a->v[i].hi <= b->v[j].lo)
			i++;
		else if (b->v[j].hi <= a->v[i].lo)
			j++;
		else
			return true;
	}
	return false;
}

bool ranges_inside(const struct ranges *a, const struct ranges *b)
{
	for (size_t i = 0; i < a->n; i++) {
		size_t at = find(b, a->v[i].lo, true);
		if (at == b->n || b->v[at].lo > a->v[i].lo || b->v[at].hi < a->v[i].hi)
			return false;
	}
	return true;
}

uint64_t ranges_count(const struct ranges *r)
{
	uint64_t n = 0;
	for (size_t i = 0; i < r->n; i++)
		n += r->v[i].hi - r->v[i].lo;
	return n;
}

void ranges_take(struct ranges *r, uint64_t n, struct ranges *ret)
{
	size_t i = 0;
	while (n && i < r->n) {
		struct range *v = &r->v[i];
		uint64_t have = v->hi - v->lo, take = have < n ? have : n;
		ranges_add(ret, v->lo, v->lo + take);
		v->lo += take;
		n -= take;
		if (v->lo == v->hi)
			i++;
	}
	splice(r, 0, i, NULL, 0);
}

json_t *ranges_json(const struct ranges *r)
{
	json_t *a = json_array();
	for (size_t i = 0; i < r->n; i++)
		json_array_append_new(a, json_pack("[I,I]", (json_int_t)r->v[i].lo, (json_int_t)r->v[i].hi));
	return a;
}

int ranges_parse(struct ranges *ret, const json_t *j, struct err *e)
{
	size_t i;
	json_t *v;
	ranges_clear(ret);
	if (!json_is_array(j))
		return err_set(e, ERR_INVALID, "ranges: expected an array of [lo, hi]");
	if (json_array_size(j) > RANGES_MAX)
		return err_set(e, ERR_LIMIT, "ranges: %zu intervals, at most %d are allowed", json_array_size(j), RANGES_MAX);
	json_array_foreach(j, i, v) {
		json_int_t lo = json_integer_value(json_array_get(v, 0)), hi = json_integer_value(json_array_get(v, 1));
		if (json_array_size(v) != 2 || !json_is_integer(json_array_get(v, 0)) || !json_is_integer(json_array_get(v,
			1)) ||
				lo < 0 || hi <= lo || (uint64_t)hi > RANGES_END)
			return err_set(e, ERR_INVALID, "ranges: entry %zu: expected [lo, hi] with 0 <= lo < hi <= 2^62", i);
		if (ret->n && (uint64_t)lo <= ret->v[ret->n - 1].hi)
			return err_set(e, ERR_INVALID, "ranges: entry %zu: not behind the one before it", i);
		ranges_add(ret, (uint64_t)lo, (uint64_t)hi);
	}
	return 0;
}
