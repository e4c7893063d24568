/* Who has been a member of this history, and at which points: part of the point, so everybody who holds the same
 * COMMITs holds the same book, and it comes with a checkpoint, a state and a welcome. Who did not answer BEGIN was not
 * there. By it two histories that meet are judged (shown.c). Of many members the last ones stay. */
#include <stdlib.h>
#include <string.h>
#include "avg/seen.h"
#include "common/jrpc.h"
#include "common/mem.h"
#include "common/planted.h"

static int by_id(const void *x, const void *y)
{
	return memcmp(((const struct avg_seen *)x)->id.b, ((const struct avg_seen *)y)->id.b, 32);
}

const struct avg_seen *seen_find(const struct avg_point *p, const struct id *id)
{
	struct avg_seen key = { .id = *id };
	return p->nseen ? bsearch(&key, p->seen, p->nseen, sizeof key, by_id) : NULL;
}

bool seen_lately(const struct avg_seen *s, uint64_t epoch)
{
	uint64_t last = epoch < s->back ? s->was : s->last;
	return s->first <= epoch && epoch <= last + SEEN_LATELY;
}

static void put(struct avg_point *p, const struct id *id, uint64_t first, uint64_t last)
{
	struct avg_seen *s = (struct avg_seen *)seen_find(p, id);
	if (s) {
		if (last > s->last + SEEN_LATELY && !PLANTED(AWAY_FORGOTTEN)) {
			s->was = s->last;
			s->back = last;
		}
		s->last = s->last > last ? s->last : last;
		return;
	}
	p->seen = xrealloc(p->seen, (p->nseen + 1) * sizeof *p->seen);
	size_t at = p->nseen++;
	for (; at && memcmp(p->seen[at - 1].id.b, id->b, 32) > 0; at--)
		p->seen[at] = p->seen[at - 1];
	p->seen[at] = (struct avg_seen){ .id = *id, .first = first, .last = last > first ? last : first };
}

/* The one that was here longest ago; of several the one with the greatest id. */
static void forget_one(struct avg_point *p)
{
	size_t out = 0;
	for (size_t i = 1; i < p->nseen; i++)
		if (p->seen[i].last <= p->seen[out].last)
			out = i;
	memmove(p->seen + out, p->seen + out + 1, (--p->nseen - out) * sizeof *p->seen);
}

/* Of a unit that counts its head alone answers for all: what they hold was there. */
static bool was_here(const struct body *c, size_t i)
{
	size_t head = body_head(c, i);
	bool counts = head < c->n && c->m[head].flags & MATE_IN && !PLANTED(HEADS_SEEN);
	return (counts || c->m[i].flags & (MATE_IN | MATE_READY)) && !(c->m[i].flags & MATE_GONE);
}

void seen_commit(struct avg_point *p, const struct body *c)
{
	for (size_t i = 0; i < c->n; i++)
		if (!(c->m[i].flags & MATE_FOLLOWER))
			put(p, &c->m[i].id, c->epoch - 1, was_here(c, i) ? c->epoch : 0);
	while (p->nseen > SEEN_MAX)
		forget_one(p);
}

void seen_copy(struct avg_point *to, const struct avg_point *from)
{
	free(to->seen);
	to->seen = from->nseen ? xmemdup(from->seen, from->nseen * sizeof *from->seen) : NULL;
	to->nseen = from->nseen;
}

/* ---- as JSON: [{id, first, last, was, back}, ...], the two last ones where somebody was away; as bytes: u16 n, then
 * id, u64 first, u64 last of each, and with AWAY in n u64 was, u64 back: peers of before know of no such, and where
 * nobody was away for long need not ---- */

#define AWAY 0x8000

static bool away_fits(const struct avg_seen *s)
{
	return s->back ? s->first <= s->was && s->was < s->back && s->back <= s->last : !s->was;
}

/* Takes what was read, when it is in order: ids ascending, none from beyond the point. */
static int take(struct avg_point *p, struct avg_seen *v, size_t n, struct err *e)
{
	for (size_t i = 0; i < n; i++)
		if (v[i].first > v[i].last || v[i].last > p->epoch || (i && by_id(&v[i - 1], &v[i]) >= 0) ||
				!away_fits(&v[i])) {
			free(v);
			return err_set(e, ERR_INVALID, "seen: entry %zu is out of order, or later than the point", i);
		}
	free(p->seen);
	p->seen = v;
	p->nseen = n;
	return 0;
}

json_t *seen_json(const struct avg_point *p)
{
	json_t *j = json_array();
	for (size_t i = 0; i < p->nseen; i++) {
		const struct avg_seen *s = &p->seen[i];
		json_t *o = json_pack("{s:o,s:I,s:I}", "id", json_hex(s->id.b, 32), "first", (json_int_t)s->first, "last",
			(json_int_t)s->last);
		if (s->back) {
			json_object_set_new(o, "was", json_integer((json_int_t)s->was));
			json_object_set_new(o, "back", json_integer((json_int_t)s->back));
		}
		json_array_append_new(j, o);
	}
	return j;
}

int seen_parse(struct avg_point *p, const json_t *j /* NULL: of an older version */, struct err *e)
{
	size_t n = json_array_size(j), i;
	json_t *o;
	if (!j)
		return 0;
	if (!json_is_array(j) || n > SEEN_MAX)
		return err_set(e, ERR_INVALID, "seen: expected a list of at most %d members", SEEN_MAX);
	struct avg_seen *v = xcalloc(n + 1, sizeof *v);
	json_array_foreach(j, i, o)
		if (json_get_hex(o, "id", v[i].id.b, 32, e) || json_get_u64(o, "first", &v[i].first, e) ||
				json_get_u64(o, "last", &v[i].last, e) || (json_object_get(o, "back") &&
				(json_get_u64(o, "was", &v[i].was, e) || json_get_u64(o, "back", &v[i].back, e)))) {
			free(v);
			return err_wrap(e, "seen[%zu]", i);
		}
	return take(p, v, n, e);
}

void seen_put(struct buf *b, const struct avg_point *p)
{
	bool away = false;
	for (size_t i = 0; i < p->nseen; i++)
		away |= p->seen[i].back > 0;
	buf_u16(b, (uint16_t)(p->nseen | (away ? AWAY : 0)));
	for (size_t i = 0; i < p->nseen; i++) {
		buf_put(b, p->seen[i].id.b, 32);
		buf_u64(b, p->seen[i].first);
		buf_u64(b, p->seen[i].last);
		if (away) {
			buf_u64(b, p->seen[i].was);
			buf_u64(b, p->seen[i].back);
		}
	}
}

int seen_get(struct rd *r, struct avg_point *p, struct err *e)
{
	size_t n = rd_u16(r);
	bool away = n & AWAY;
	n &= ~(size_t)AWAY;
	if (n > SEEN_MAX || rd_left(r) < n * (away ? 64 : 48))
		return err_set(e, ERR_PROTOCOL, "seen: %zu entries do not fit (at most %d)", n, SEEN_MAX);
	struct avg_seen *v = xcalloc(n + 1, sizeof *v);
	for (size_t i = 0; i < n; i++) {
		memcpy(v[i].id.b, rd_bytes(r, 32), 32);
		v[i].first = rd_u64(r);
		v[i].last = rd_u64(r);
		if (away) {
			v[i].was = rd_u64(r);
			v[i].back = rd_u64(r);
		}
	}
	return take(p, v, n, e);
}
