/* Two histories against each other: the same, one a prefix of the other, or a fork, in which the chain
 * with more samples wins (since the common ancestor, which is the same as in all), ties the smaller digest. */
#include <stdlib.h>
#include <string.h>
#include "avg/fork.h"

#define PAST_SENT 32                            /* of a follower's */

static size_t held(const struct history *h)
{
	return h->n < HISTORY ? h->n : HISTORY;
}

/* 1: the newest. */
static const struct past *nth(const struct history *h, size_t back)
{
	return &h->v[(h->n - back) % HISTORY];
}

static void put(struct history *h, uint64_t epoch, const uint8_t *mark, uint64_t us)
{
	struct past *p = &h->v[h->n++ % HISTORY];
	*p = (struct past){ .epoch = epoch, .us = us };
	memcpy(p->mark, mark, PAST_MARK);
}

void avg_remember(struct avg *a, uint64_t epoch, const uint8_t digest[DIGEST])
{
	if (!a->past.n || nth(&a->past, 1)->epoch < epoch)
		put(&a->past, epoch, digest, 0);
}

static const struct past *find(const struct history *h, uint64_t epoch)
{
	size_t lo = 1, hi = held(h);
	while (lo <= hi) {
		size_t mid = lo + (hi - lo) / 2;
		const struct past *p = nth(h, mid);
		if (p->epoch == epoch)
			return p;
		if (p->epoch > epoch)
			lo = mid + 1;
		else
			hi = mid - 1;
	}
	return NULL;
}

const struct past *past_of(const struct avg *a, uint64_t epoch)
{
	return find(&a->past, epoch);
}

static uint64_t oldest(const struct avg *a)
{
	return a->past.n ? nth(&a->past, held(&a->past))->epoch : a->point.epoch;
}

static bool leads(const struct history *h, const struct avg_point *at)
{
	const struct past *p = find(h, at->epoch);
	return p && !memcmp(p->mark, at->prev, PAST_MARK);
}

/* ---- gone back ---- */

static void tail_drop(struct avg *a)
{
	free(a->tail);
	a->tail = NULL;
}

/* Again and again, perhaps, before it goes on: the longest counts. */
static void tail_keep(struct avg *a, const struct history *mine, const struct avg_point *from)
{
	if (a->tail && !leads(a->tail, from))
		tail_drop(a);
	if (!a->tail && nth(mine, 1)->epoch > from->epoch && !PLANTED(TAIL_FORGOTTEN))
		a->tail = xmemdup(mine, sizeof *mine);
	a->tail_same = from->epoch;
}

/* Does the history that is followed now leave it? When it has come to its end nothing is lost; when it leaps over
 * it, nobody can tell. Who has not entered yet keeps it all the same: whom it follows may be gone before. */
static bool tail_left(struct avg *a)
{
	size_t back = 0, have = held(&a->past);
	uint64_t same = a->tail_same;
	while (a->tail && back < have && nth(&a->past, back + 1)->epoch > a->tail_same)
		back++;
	for (; a->tail && back; back--) {
		const struct past *now = nth(&a->past, back), *then = find(a->tail, now->epoch);
		if (then && memcmp(then->mark, now->mark, PAST_MARK)) {
			a->tail_same = same;
			return true;
		}
		if (then)
			same = now->epoch;
		if (!a->follower && (!then || then == nth(a->tail, 1)))
			tail_drop(a);
	}
	if (!a->follower)
		a->tail_same = same;
	return false;
}

/* What comes after `last` is of the new one already. */
static void parted(struct avg *a, uint64_t both, uint64_t last)
{
	if (a->forked_pending && both >= a->forked)
		return;
	a->forked = both;
	a->forked_last = last;
	a->forked_pending = true;
	kick(a);
}

/* What led to it is told later. */
static void begin_at_point(struct avg *a)
{
	a->past.n = 0;
	put(&a->past, a->point.epoch, a->point.prev, now_of(a));
}

void past_add(struct avg *a)
{
	put(&a->past, a->point.epoch, a->point.prev, now_of(a));
	if (!tail_left(a))
		return;
	parted(a, a->tail_same, nth(a->tail, 1)->epoch);
	tail_drop(a);
}

/* ---- told to others ---- */

/* Stretches without a gap, newest first: epoch of the newest, how many, the mark of each. */
static void put_from(const struct history *h, size_t back, size_t have, struct buf *b)
{
	for (size_t n; back <= have; back += n) {
		for (n = 1; back + n <= have && nth(h, back + n)->epoch + n == nth(h, back)->epoch; n++)
			;
		buf_u64(b, nth(h, back)->epoch);
		buf_u16(b, (uint16_t)n);
		for (size_t i = 0; i < n; i++)
			buf_put(b, nth(h, back + i)->mark, PAST_MARK);
	}
}

void past_put(const struct avg *a, struct buf *b)
{
	size_t have = held(&a->past);
	put_from(&a->past, 1, a->follower && have > PAST_SENT ? PAST_SENT : have, b);
}

void avg_past_of(const struct avg *a, struct avg_point *at)
{
	const struct history *h = leads(&a->past, at) ? &a->past : a->was && leads(a->was, at) ? a->was : NULL;
	struct buf b = { 0 };
	size_t back = 1;
	free(at->past);
	at->past = NULL;
	at->npast = 0;
	if (!h)
		return;
	while (nth(h, back)->epoch > at->epoch)
		back++;
	put_from(h, back, held(h), &b);
	at->past = xmemdup(b.p, b.len);
	at->npast = b.len;
	buf_free(&b);
}

struct told { struct rd r; uint64_t epoch; unsigned left; };

static const uint8_t *next(struct told *t)
{
	uint64_t before = t->epoch;
	if (t->left) {
		t->epoch--;
	} else {
		t->epoch = rd_u64(&t->r);
		t->left = rd_u16(&t->r);
		if (t->r.bad || !t->left || t->epoch >= before || t->left > t->epoch + 1)
			return NULL;
	}
	t->left--;
	return rd_bytes(&t->r, PAST_MARK);
}

static struct told told_by(const void *past, size_t n)
{
	return (struct told){ .r = rd_of(past, n), .epoch = UINT64_MAX };
}

bool past_deeper(const struct avg *a, const void *past, size_t n)
{
	struct told t = told_by(past, n);
	uint64_t first = UINT64_MAX;
	while (next(&t))
		first = t.epoch;
	return oldest(a) < first;
}

bool past_fits(const struct avg_point *at, const void *past, size_t n)
{
	struct told t = told_by(past, n);
	const uint8_t *mark = next(&t);
	size_t marks = 1;
	if (!mark || t.epoch != at->epoch || memcmp(mark, at->prev, PAST_MARK))
		return false;
	while (t.left || rd_left(&t.r))
		if (!next(&t) || ++marks > HISTORY)
			return false;
	return true;
}

/* What is older than all that it has goes before it. */
static void take(struct history *h, const void *past, size_t n)
{
	struct history *mine = xmemdup(h, sizeof *h);
	struct past *v = h->v;
	struct told t = told_by(past, n);
	const uint8_t *mark;
	size_t have = held(mine), at = HISTORY - have;
	uint64_t before = have ? nth(mine, have)->epoch : UINT64_MAX;
	for (size_t i = 0; i < have; i++)
		v[at + i] = *nth(mine, have - i);
	while (at && (mark = next(&t)))
		if (t.epoch < before) {
			v[--at] = (struct past){ .epoch = t.epoch };
			memcpy(v[at].mark, mark, PAST_MARK);
		}
	memmove(v, v + at, (HISTORY - at) * sizeof *v);
	h->n = HISTORY - at;
	free(mine);
}

/* ---- compared ---- */

/* UNKNOWN: it passed before all that this peer knows, or is one of those that it has leapt over. */
enum known { UNKNOWN, SAME, OTHER };
static enum known known(const struct history *h, uint64_t epoch, const uint8_t *mark)
{
	const struct past *p = find(h, epoch);
	return !epoch ? SAME /* everybody began there */ : !p ? UNKNOWN : memcmp(p->mark, mark, PAST_MARK) ? OTHER : SAME;
}

/* The last epoch of both. When they part further back than is told: the one before those that are. */
static uint64_t common(const struct history *h, const void *past, size_t n)
{
	struct told t = told_by(past, n);
	uint64_t first = UINT64_MAX;
	const uint8_t *mark;
	while ((mark = next(&t))) {
		first = t.epoch;
		if (known(h, first, mark) == SAME)
			return first + PLANTED(FORK_KEPT);
	}
	return first == UINT64_MAX || !first ? 0 : first - 1;
}

uint64_t past_common(const struct avg *a, const void *past, size_t n)
{
	return common(&a->past, past, n);
}

/* Of it what leads to the point. */
static void cut(struct history *h, const struct avg_point *at)
{
	struct history *was = xmemdup(h, sizeof *h);
	h->n = 0;
	for (size_t back = held(was); back && nth(was, back)->epoch <= at->epoch; back--)
		h->v[h->n++] = *nth(was, back);
	free(was);
}

void past_enter(struct avg *a)
{
	struct avg_point *at = &a->point;
	bool known = true;
	if (!a->follower && a->tail && leads(a->tail, at) && at->epoch < nth(a->tail, 1)->epoch)
		a->tail_same = at->epoch;
	else if (!a->follower && a->tail)
		tail_drop(a);
	if (leads(&a->past, at)) {
		cut(&a->past, at);
	} else if (a->was && leads(a->was, at)) {
		a->past = *a->was;
		cut(&a->past, at);
	} else {
		known = at->past || !a->past.n;
		if (!known && !a->was)          /* the first one is what the owner held */
			a->was = xmemdup(&a->past, sizeof a->past);
		begin_at_point(a);
	}
	if (at->past)
		take(&a->past, at->past, at->npast);
	free(at->past);                         /* the point goes on, and this would not */
	at->past = NULL;
	at->npast = 0;
	if (!known)
		return;
	free(a->was);
	a->was = a->follower ? xmemdup(&a->past, sizeof a->past) : NULL;
}

/* To a point of its own. What it follows may have left its history since. */
static bool went_back(struct avg *a, const struct history *mine, const struct avg_point *to, uint64_t *ret_common)
{
	const struct past *newest = nth(mine, 1), *now = nth(&a->past, 1);      /* the same: it was not welcomed yet */
	bool follows = a->was && (now->epoch != newest->epoch || memcmp(now->mark, newest->mark, PAST_MARK));
	tail_keep(a, mine, to);
	if (!follows || !tail_left(a))
		return false;
	*ret_common = a->tail_same;
	tail_drop(a);
	return true;
}

bool avg_given(struct avg *a, const struct avg_point *at, uint64_t *ret_common)
{
	const struct history *mine = a->was ? a->was : &a->past;
	struct buf b = { 0 };
	struct avg_point told;
	avg_point_init(&told);
	told.epoch = at->epoch;
	memcpy(told.prev, at->prev, DIGEST);
	if (!at->past)                          /* by one who does not tell: of the history that is followed? */
		avg_past_of(a, &told);
	buf_put(&b, at->past ? at->past : told.past, at->past ? at->npast : told.npast);
	avg_point_done(&told);
	if (leads(mine, at)) {
		buf_free(&b);
		return went_back(a, mine, at, ret_common);
	}
	if (!b.len || PLANTED(BASE_AS_SAID)) {
		buf_free(&b);
		return false;
	}
	const struct history *had = a->tail ? a->tail : mine;
	*ret_common = common(had, b.p, b.len);
	bool lost = held(had) && *ret_common < nth(had, 1)->epoch;
	tail_drop(a);
	struct history *now = xcalloc(1, sizeof *now);
	take(now, b.p, b.len);
	buf_free(&b);
	free(a->was);
	a->was = now;
	return lost;
}

/* The history that is followed now, and this peer's own, which does not lead to the point. */
static void left_behind(struct avg *a, const void *past, size_t n)
{
	const struct history *h = a->tail ? a->tail : a->was;
	uint64_t both = held(h) ? common(h, past, n) : 0;
	if (held(h) && both < nth(h, 1)->epoch)
		parted(a, both, nth(h, 1)->epoch);
	tail_drop(a);
}

void past_welcomed(struct avg *a, const void *past, size_t n)
{
	const struct past *p = nth(&a->past, 1);
	if (p->epoch != a->point.epoch || memcmp(p->mark, a->point.prev, PAST_MARK)) {
		if (!a->was)
			a->was = xmemdup(&a->past, sizeof a->past);
		begin_at_point(a);
	}
	if (a->was && n && !a->follower) {      /* else its state is what it was, and goes when another is given */
		left_behind(a, past, n);
		free(a->was);
		a->was = NULL;
	}
	take(&a->past, past, n);
}

bool past_leads_here(const struct avg *a, const void *past, size_t n)
{
	struct told t = told_by(past, n);
	const uint8_t *mark;
	while ((mark = next(&t)))
		if (t.epoch <= a->point.epoch)
			return known(&a->past, t.epoch, mark) == SAME;
	return !a->point.epoch;
}

enum relation past_compare(const struct avg *a, uint64_t epoch, const uint8_t *prev, uint64_t samples,
	const void *past, size_t n)
{
	struct told t = told_by(past, n);
	uint64_t theirs_oldest = epoch;
	enum known near = UNKNOWN, theirs = epoch < a->point.epoch ? known(&a->past, epoch, prev) : OTHER;
	const uint8_t *mark;
	if (same_point(a, epoch, prev))
		return REL_SAME;
	if (theirs == SAME)
		return REL_BEHIND;
	while ((mark = next(&t))) {
		theirs_oldest = t.epoch;
		if (near == UNKNOWN && t.epoch <= a->point.epoch)
			near = known(&a->past, t.epoch, mark);
	}
	if (epoch > a->point.epoch && near == SAME && samples >= a->point.samples)     /* as far as it shows: no fork */
		return REL_AHEAD;
	if (theirs == UNKNOWN && near == SAME)
		return REL_BEHIND;
	if (!a->point.epoch)
		return REL_AHEAD;
	if (epoch < oldest(a))                  /* nothing is known that far back: not provably a fork */
		return REL_APART;
	if (a->point.epoch < theirs_oldest)
		return REL_AHEAD;
	if (samples != a->point.samples)
		return samples < a->point.samples ? REL_FORK_WON : REL_FORK_LOST;
	return memcmp(a->point.prev, prev, DIGEST) < 0 ? REL_FORK_WON : REL_FORK_LOST;
}
