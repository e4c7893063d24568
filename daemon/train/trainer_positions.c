/* Which samples a seat's micro-batches are of: micro-batch k of an epoch has the k-th lowest positions of those that
 * are the epoch's, and each unit makes its share of them (trainer_crew.c). What is to be loaded follows from a
 * program's LOADs. */
#include <stdlib.h>
#include "common/mem.h"
#include "exec/batch.h"
#include "train/trainer_int.h"

/* Micro-batches from .. from + n - 1 of g (every `every`th of them); n 0: to its end. */
static void chunks(const struct trainer *t, const struct ranges *g, uint64_t from, uint64_t n, uint64_t every,
	struct ranges *ret)
{
	uint64_t size = t->profile.batch, at = 0, end = n ? (from + n) * size : UINT64_MAX;

	for (size_t i = 0; i < g->n && at < end; i++) {
		uint64_t lo = g->v[i].lo, hi = g->v[i].hi;

		while (lo < hi && at < end) {           /* to the first one, then from one to the next */
			uint64_t c = at / size, left = c < from ? from * size - at : size - at % size;
			uint64_t len = hi - lo < left ? hi - lo : left;

			if (c >= from && (c - from) % every == 0)
				ranges_add(ret, lo, lo + len);
			lo += len;
			at += len;
		}
	}
}

/* Where the program's micro-batches lie, and those that its unit makes behind them: in this epoch, and in the next one,
 * should all units bring theirs. */
static void find_positions(struct trainer *t, const struct plan *p)
{
	const struct planner_unit *share = &t->seat.share;
	uint64_t made = p->first - t->seat.base, epoch = t->epoch + (t->samples > 0);
	struct ranges *at = t->seat.at;

	ranges_clear(&at[0]);
	ranges_clear(&at[1]);
	if (runs_on(t)) {
		chunks(t, late_set(t, epoch), share->first, share->n, 1, &at[0]);
		chunks(t, late_set(t, epoch + 1), share->first, share->n, 1, &at[1]);
		return;
	}
	if (made < share->n)
		chunks(t, &t->grant, share->first + made, share->n - made, 1, &at[0]);
	chunks(t, &t->grant, seat_batches(t) + share->first, share->n, 1, &at[1]);
}

void seat_positions(const struct trainer *t, uint64_t k, uint64_t n, uint64_t every, struct ranges *ret)
{
	const struct ranges *at = t->seat.at;
	uint64_t here = ranges_count(&at[0]) / t->profile.batch;
	uint64_t next = k < here ? k + (here - k + every - 1) / every * every : k;

	if (k < here)
		chunks(t, &at[0], k, n && k + n < here ? n : here - k, every, ret);
	if (!n || k + n > next)
		chunks(t, &at[1], next - here, n ? k + n - next : 0, every, ret);
}

/* Its own micro-batches of the program, and where they follow each other in even steps those behind them, to be
 * prepared meanwhile. The loader takes what it is granted from the lowest position on. */
static void to_load(struct trainer *t, const struct plan *p, struct ranges *ret)
{
	struct seat *s = &t->seat;
	uint64_t here = ranges_count(&s->at[0]) / t->profile.batch, step = 0, last = 0, n = 0;
	bool even = true, apart = s->at[0].n && s->at[1].n && s->at[1].v[0].lo < s->at[0].v[s->at[0].n - 1].hi;

	s->loads = 0;
	ranges_clear(&s->later);
	for (uint32_t k = 0; k < p->ninstrs; k++) {
		const struct plan_instr *i = &p->instr[k];

		if (i->kind != PLAN_LOAD)
			continue;
		if (n == 1)
			step = (uint64_t)i->mb - last;
		even = even && (n < 2 || (uint64_t)i->mb - last == step);
		s->loads += apart && (uint64_t)i->mb < here;
		seat_positions(t, (uint64_t)i->mb, 1, 1, apart && (uint64_t)i->mb >= here ? &s->later : ret);
		last = (uint64_t)i->mb;
		n++;
	}
	if (!apart && even && (n > 1 || p->step == 1) && (s->share.n == seat_batches(t) || p->step == n))
		seat_positions(t, last, 0, n > 1 ? step : 1, ret);
	else if (!apart && even && n > 1 && last < here)
		seat_positions(t, last, here - last, step, ret);
	if (apart && !s->loads)
		ranges_copy(ret, &s->later);
}

void seat_find(struct trainer *t, const struct plan *p, struct ranges *ret)
{
	find_positions(t, p);
	if (t->seat.reads)
		to_load(t, p, ret);
}

const struct ranges *seat_loaded(struct trainer *t)
{
	return t->seat.loads && !--t->seat.loads ? &t->seat.later : NULL;
}

/* The samples of the micro-batch with this index, without the samples: who only needs to know which they are. */
struct batch *seat_batch(const struct trainer *t, uint64_t index)
{
	struct batch *b = xcalloc(1, sizeof(*b) + t->profile.batch * sizeof(uint64_t));
	struct ranges r = { 0 };

	list_init(&b->link);
	b->position = (uint64_t *)(b + 1);
	seat_positions(t, index - t->seat.first, 1, 1, &r);
	for (size_t i = 0; i < r.n; i++)
		for (uint64_t p = r.v[i].lo; p < r.v[i].hi; p++)
			b->position[b->n++] = p;
	ranges_free(&r);
	return b;
}
