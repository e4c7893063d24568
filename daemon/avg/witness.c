/* Who has signed what another history stands on, and had stood in this one before: its witnesses. */
#include <stdlib.h>
#include "avg/seen.h"
#include "avg/witness.h"

#define TENURE 63
#define LONG_US (7 * 86400 * SECOND)            /* who has left longer ago than that is no witness */

bool among(const struct id *v, size_t n, const struct id *id)
{
	for (size_t i = 0; i < n; i++)
		if (id_eq(&v[i], id))
			return true;
	return false;
}

/* The last point of this history at which id was a member; false: none is known. Newcomers, who are in no COMMIT yet,
 * are in this peer's roster only. */
static bool stood(const struct avg *a, const struct id *id, uint64_t *ret_last)
{
	const struct avg_seen *s = seen_find(&a->point, id);
	const struct mate *m = mate_find(a, id);
	*ret_last = s ? s->last : m && m->member ? a->point.epoch : m && m->stood_us ? m->stood_last : 0;
	return s || (m && (m->member || m->stood_us));
}

/* What the word of who was a member at that point, or lately before, weighs: the points that it had been one for, at
 * most TENURE of them; so who has just come, and is not known to all, counts for little. 0: it was none. Of who is in
 * the book the book says so: it was the same for all at that point. */
size_t weight_at(const struct avg *a, const struct id *id, uint64_t epoch)
{
	const struct avg_seen *s = seen_find(&a->point, id);
	const struct mate *m = mate_find(a, id);
	uint64_t had = 0;
	if (s && s->first <= epoch) {
		if (!seen_lately(s, epoch))
			return 0;
		had = epoch - s->first;
	} else if (m && m->stood_us && m->stood_first <= epoch && epoch <= m->stood_last) {
		had = epoch - m->stood_first;
	} else if (!m || !m->member || epoch != a->point.epoch) {
		return 0;
	}
	return 1 + (size_t)(had < TENURE ? had : TENURE);
}

bool stands_here(const struct avg *a, const struct mate *m)
{
	const struct avg_seen *s = seen_find(&a->point, &m->id);
	return m->member || (s && s->last >= a->point.epoch) || (m->stood_us && m->stood_last >= a->point.epoch);
}

void witness_leaves(struct avg *a)
{
	list_each(it, &a->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		if (!m->member)
			continue;
		if (!m->stood_us)
			m->stood_first = a->point.epoch;
		m->stood_last = a->point.epoch;
		m->stood_us = now_of(a);
	}
}

void witness_forget(struct avg *a)
{
	list_each(it, &a->mates)
		list_entry(it, struct mate, link)->stood_us = 0;
}

struct witnesses { const struct avg *a; const struct body *c; struct id *v; size_t n, max; bool stranger; };

static bool may_witness(const struct witnesses *w, const struct id *id)
{
	uint64_t last;
	if (id_eq(id, &w->a->me->id))
		return false;
	return stood(w->a, id, &last) ? last < w->c->epoch : !w->stranger /* one is enough */;
}

static void witness(struct witnesses *w, const struct id *id)
{
	uint64_t last;
	if (!stood(w->a, id, &last))
		w->stranger = true;
	else if (w->n < w->max)
		w->v[w->n++] = *id;
}

/* Who has signed c, and stood at a point of this history last before; to be freed. And has anybody who never did? */
struct id *witnesses_of(const struct avg *a, const struct body *c, const uint8_t *bytes, size_t n, size_t *ret_n,
	bool *ret_stranger)
{
	struct witnesses w = { .a = a, .c = c, .max = SEEN_MAX };
	const struct id *id;
	struct acks x;
	w.v = xcalloc(w.max, sizeof *w.v);
	if (may_witness(&w, &c->leader))
		witness(&w, &c->leader);
	acks_begin(&x, a, c, bytes, n);
	while (w.n < w.max && (id = acks_next(&x)))
		if (may_witness(&w, id) && acks_signed(&x))
			witness(&w, id);
	acks_end(&x);
	*ret_n = w.n;
	*ret_stranger = w.stranger;
	return w.v;
}

/* Who has signed the COMMIT that this peer stands on, and not the other's: whoever has signed both has gone over. */
size_t signers_here(const struct avg *a, uint64_t common, const struct id *other, size_t others)
{
	const struct id *id;
	struct body c;
	struct acks x;
	if (!a->last_commit.len || body_read(&c, a->last_commit.p, a->last_commit.len, NULL))
		return 0;
	size_t weight = weight_at(a, &a->me->id, common);
	if (!id_eq(&c.leader, &a->me->id) && !among(other, others, &c.leader))
		weight += weight_at(a, &c.leader, common);
	acks_begin(&x, a, &c, a->last_commit.p, a->last_commit.len);
	while ((id = acks_next(&x)))
		if (!id_eq(id, &a->me->id) && weight_at(a, id, common) && !among(other, others, id) && acks_signed(&x))
			weight += weight_at(a, id, common);
	acks_end(&x);
	body_free(&c);
	return weight;
}

/* Not one who has left long ago, as far as this peer remembers. */
bool of_late(const struct avg *a, const struct id *id)
{
	const struct mate *m = mate_find(a, id);
	uint64_t us = m && m->member ? now_of(a) : m && m->stood_us ? m->stood_us : a->enter_us;
	return now_of(a) - us <= LONG_US;
}

/* The last point at which any of them stood here, not after the one that the other's history says: who has gone over
 * since stood here longer. As far as that says nothing of them, the last of all; but one less where that is what it
 * says: they were counted in a COMMIT that never came to them. */
uint64_t last_common(const struct avg *a, const struct id *v, size_t n, uint64_t told)
{
	uint64_t all = 0, ret = 0, last;
	bool found = false;
	for (size_t i = 0; i < n; i++) {
		if (!stood(a, &v[i], &last) || !of_late(a, &v[i]))
			continue;
		all = last > all ? last : all;
		if (last <= told) {
			ret = last > ret ? last : ret;
			found = true;
		}
	}
	return found ? ret : all == told + 1 ? told : all;
}
