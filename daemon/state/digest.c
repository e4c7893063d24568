/* A part on the wire: u64 lo, u64 n, then for each leaf that it touches, in order: a leaf that is its own, 16 bytes of
 * digest; else the elements that it has of that leaf. */
#include "state/digest.h"
#include <stdlib.h>
#include <string.h>
#include "common/hash.h"
#include "common/mem.h"

static uint64_t least(uint64_t x, uint64_t y) { return x < y ? x : y; }

static uint64_t leaves_of(uint64_t n) { return (n + DIGEST_LEAF - 1) / DIGEST_LEAF; }

/* From the leaves' digests to the root, in place. */
static void root(uint8_t *leaf, uint64_t nleaves, uint8_t ret[STATE_DIGEST])
{
	uint64_t granules = 0;

	for (uint64_t i = 0; i < nleaves; i += DIGEST_GRANULE)
		xxh128_of(leaf + i * STATE_DIGEST, least(nleaves - i, DIGEST_GRANULE) * STATE_DIGEST,
			leaf + granules++ * STATE_DIGEST);
	xxh128_of(leaf, granules * STATE_DIGEST, ret);
}

void digest_of(const void *p, uint64_t n, uint32_t unit, uint8_t ret[STATE_DIGEST])
{
	uint64_t nleaves = leaves_of(n);
	uint8_t *leaf = xmalloc(nleaves * STATE_DIGEST + 1);

	for (uint64_t i = 0; i < nleaves; i++)
		xxh128_of((const char *)p + i * DIGEST_LEAF * unit, least(n - i * DIGEST_LEAF, DIGEST_LEAF) * unit,
			leaf + i * STATE_DIGEST);
	root(leaf, nleaves, ret);
	free(leaf);
}

void digest_part(const void *p, uint64_t lo, uint64_t n, uint64_t all, uint32_t unit, struct buf *ret)
{
	const char *from = p;

	buf_u64(ret, lo);
	buf_u64(ret, n);
	for (uint64_t at = lo; at < lo + n;) {
		uint64_t first = at / DIGEST_LEAF * DIGEST_LEAF, end = least(first + DIGEST_LEAF, all);
		uint64_t upto = least(end, lo + n);
		uint8_t digest[STATE_DIGEST];

		if (at == first && upto == end) {
			xxh128_of(from, (upto - at) * unit, digest);
			buf_put(ret, digest, sizeof(digest));
		} else {
			buf_put(ret, from, (upto - at) * unit);
		}
		from += (upto - at) * unit;
		at = upto;
	}
}

/* --- joining */

struct join {
	uint64_t all, nleaves; uint32_t unit;
	uint8_t *leaf;
	struct edge { uint64_t leaf; uint8_t *p; } *edge; size_t nedges;        /* leaves that come from several */
};

static uint8_t *edge_of(struct join *j, uint64_t leaf)
{
	for (size_t i = 0; i < j->nedges; i++)
		if (j->edge[i].leaf == leaf)
			return j->edge[i].p;
	j->edge = xrealloc(j->edge, (j->nedges + 1) * sizeof(*j->edge));
	j->edge[j->nedges] = (struct edge){ leaf, xcalloc(DIGEST_LEAF, j->unit) };
	return j->edge[j->nedges++].p;
}

/* Elements from..upto of one leaf; those before have come. */
static int take_some(struct join *j, struct rd *r, uint64_t from, uint64_t upto, struct err *e)
{
	uint64_t leaf = from / DIGEST_LEAF, first = leaf * DIGEST_LEAF, end = least(first + DIGEST_LEAF, j->all);
	bool whole = from == first && upto == end;
	const void *p = rd_bytes(r, whole ? STATE_DIGEST : (upto - from) * j->unit);

	if (!p)
		return err_set(e, ERR_PROTOCOL, "digest: a part ends before its element %llu", (unsigned long long)from);
	if (whole) {
		memcpy(j->leaf + leaf * STATE_DIGEST, p, STATE_DIGEST);
		return 0;
	}
	uint8_t *edge = edge_of(j, leaf);
	memcpy(edge + (from - first) * j->unit, p, (upto - from) * j->unit);
	if (upto == end)
		xxh128_of(edge, (end - first) * j->unit, j->leaf + leaf * STATE_DIGEST);
	return 0;
}

static int take_part(struct join *j, const struct digest_bytes *b, uint64_t *at, struct err *e)
{
	struct rd r = rd_of(b->p, b->len);
	uint64_t lo = rd_u64(&r), n = rd_u64(&r);

	if (r.bad || lo > j->all || n > j->all - lo)
		return err_set(e, ERR_PROTOCOL, "digest: a part of elements %llu to %llu of %llu", (unsigned long long)lo,
			(unsigned long long)(lo + n), (unsigned long long)j->all);
	if (lo != *at)
		return err_set(e, ERR_PROTOCOL, lo < *at ? "digest: two parts have element %llu" :
			"digest: no part has the elements before %llu", (unsigned long long)lo);
	while (*at < lo + n) {
		uint64_t upto = least(least((*at / DIGEST_LEAF + 1) * DIGEST_LEAF, j->all), lo + n);

		if (take_some(j, &r, *at, upto, e) < 0)
			return -1;
		*at = upto;
	}
	return rd_left(&r) ? err_set(e, ERR_PROTOCOL, "digest: %zu bytes too many in a part", rd_left(&r)) : 0;
}

static int by_lo(const void *x, const void *y)
{
	struct rd a = rd_of(((const struct digest_bytes *)x)->p, ((const struct digest_bytes *)x)->len);
	struct rd b = rd_of(((const struct digest_bytes *)y)->p, ((const struct digest_bytes *)y)->len);
	uint64_t m = rd_u64(&a), n = rd_u64(&b);

	if (m == n) {                           /* an empty part before the one that begins where it lies */
		m = rd_u64(&a);
		n = rd_u64(&b);
	}
	return m < n ? -1 : m > n;
}

int digest_join(const struct digest_bytes *part, size_t n, uint64_t all, uint32_t unit, uint8_t ret[STATE_DIGEST],
	struct err *e)
{
	struct join j = { .all = all, .nleaves = leaves_of(all), .unit = unit };
	struct digest_bytes *v = xmalloc(n * sizeof(*v) + 1);
	uint64_t at = 0;
	int rc = 0;

	j.leaf = xcalloc(j.nleaves + 1, STATE_DIGEST);
	memcpy(v, part, n * sizeof(*v));
	qsort(v, n, sizeof(*v), by_lo);
	for (size_t i = 0; i < n && !rc; i++)
		rc = take_part(&j, &v[i], &at, e);
	if (!rc && at != all)
		rc = err_set(e, ERR_PROTOCOL, "digest: no part has the elements from %llu on", (unsigned long long)at);
	if (!rc)
		root(j.leaf, j.nleaves, ret);
	for (size_t i = 0; i < j.nedges; i++)
		free(j.edge[i].p);
	free(j.edge);
	free(j.leaf);
	free(v);
	return rc;
}
