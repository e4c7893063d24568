/* What led to a peer's point, as another tells it in JOIN and in the welcome (avg/fork.c). Input: one byte of flags
 * (1: this peer held another history before, 2: the welcome is of another point, 4: it follows, 8: a state is given
 * with what it is told), how many epochs this peer knows, two bytes of each (how far behind the one before, its
 * mark); the rest is what it is told. It stays in order, ends at the point, and is told on as it is known. */
#include <stdlib.h>
#include <string.h>
#include "avg/fork.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum flags { WAS = 1, MOVED = 2, FOLLOWS = 4, GIVEN = 8 };

static uint64_t no_time(struct env *e) { return 1; }
static const struct env_ops ops = { .now = no_time };
static struct env env = { .ops = &ops };

static void check(bool ok)
{
	if (!ok)
		abort();
}

static void stand_at(struct avg *a, uint64_t epoch, uint8_t mark)
{
	a->point.epoch = a->point.samples = epoch;
	memset(a->point.prev, epoch ? mark : 0, DIGEST);
}

static void whole(const struct avg *a)
{
	const struct history *h = &a->past;
	size_t have = h->n < HISTORY ? h->n : HISTORY;
	const struct past *newest = &h->v[(h->n - 1) % HISTORY];

	check(have && newest->epoch == a->point.epoch && !memcmp(newest->mark, a->point.prev, PAST_MARK));
	for (size_t back = 2; back <= have; back++)
		check(h->v[(h->n - back) % HISTORY].epoch < h->v[(h->n - back + 1) % HISTORY].epoch);
	for (size_t back = 1; back <= have; back += 1 + have / 8)
		check(past_of(a, h->v[(h->n - back) % HISTORY].epoch) == &h->v[(h->n - back) % HISTORY]);
}

/* A state that is given, of the newest epoch that is told. */
static void give(struct avg *a, const uint8_t *p, size_t n)
{
	struct avg_point *at = &a->point;
	uint64_t was = at->epoch, common;

	if (n < 8 + 2 + PAST_MARK)
		return;
	memset(at->prev, 0, DIGEST);
	memcpy(&at->epoch, p, 8);
	memcpy(at->prev, p + 10, PAST_MARK);
	at->samples = at->epoch;
	if (!past_fits(at, p, n)) {
		at->epoch = at->samples = was;
		memcpy(at->prev, a->past.v[(a->past.n - 1) % HISTORY].mark, PAST_MARK);
		return;
	}
	at->past = xmemdup(p, n);
	at->npast = n;
	check(!avg_given(a, at, &common) || common < was);
	past_enter(a);
	check(!at->past);
}

/* The same point and the same past: told to itself it is neither behind nor deeper, and all of it is known. */
static void tell(struct avg *a)
{
	struct buf b = { 0 };
	size_t had = a->past.n;

	past_put(a, &b);
	check(past_compare(a, a->point.epoch, a->point.prev, a->point.samples, b.p, b.len) == REL_SAME);
	check(a->follower || !past_deeper(a, b.p, b.len));
	a->forked_pending = false;
	free(a->was);                           /* what nobody has told yet */
	a->was = NULL;
	past_welcomed(a, b.p, b.len);
	check(!a->forked_pending && (a->past.n == had || had > HISTORY));
	whole(a);
	buf_free(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rd r = rd_of(data, size);
	struct avg *a = xcalloc(1, sizeof *a);
	uint8_t flags = rd_u8(&r);
	uint64_t epoch = 0, newest;
	const uint8_t *p;
	size_t n;

	a->env = &env;
	a->kicked = true;                       /* nobody listens */
	a->follower = flags & FOLLOWS;
	past_add(a);
	for (unsigned i = rd_u8(&r); i && rd_left(&r); i--) {
		epoch += 1u + rd_u8(&r);
		stand_at(a, epoch, rd_u8(&r));
		past_add(a);
	}
	whole(a);
	if (flags & WAS) {
		stand_at(a, epoch / 2 + 1, 0x55);
		past_enter(a);
		whole(a);
	}
	newest = epoch > a->point.epoch ? epoch : a->point.epoch;
	n = rd_left(&r);
	p = rd_bytes(&r, n);
	enum relation one = past_compare(a, epoch + 3, (const uint8_t[DIGEST]){ 1 }, 7, p, n);
	check(one == past_compare(a, epoch + 3, (const uint8_t[DIGEST]){ 1 }, 7, p, n) && one != REL_SAME);
	past_deeper(a, p, n);
	if (flags & GIVEN) {
		give(a, p, n);
		whole(a);
		newest = newest > a->point.epoch ? newest : a->point.epoch;
		epoch = epoch > a->point.epoch ? epoch : a->point.epoch % (1ull << 40);
	}
	if (flags & MOVED)
		stand_at(a, epoch + 2, 0x66);
	past_welcomed(a, p, n);
	check(!a->forked_pending || a->forked < newest);
	whole(a);
	tell(a);
	free(a->was);
	free(a->tail);
	free(a);
	return 0;
}
