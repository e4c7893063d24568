/* Which samples may count: those of positions that somebody could have given to whoever claims them, that nobody has
 * claimed before, and that can be written down. Who claims others spoils its own contribution and nothing else. */
#include "avg/claims.h"
#include "avg/ledger.h"

#define FAR 16                          /* epochs' samples, beside all micro-batches that may be in hand */
#define SPARE 64                        /* intervals of `done` that are left for those that are claimed by then */

/* No honest claim reaches beyond: what is committed or promised, and what a leader that died may have promised since
 * the last COMMIT, several times over. */
uint64_t claims_end_of(const struct avg *a)
{
	struct ranges taken = { 0 };
	uint64_t more = progress_goal(a), end, limit = a->conf.data_limit;
	taken_all(a, &taken);
	end = taken.n ? taken.v[taken.n - 1].hi : 0;
	ranges_free(&taken);
	list_each(it, &a->mates) {
		const struct mate *m = list_entry(it, struct mate, link);
		more += 8 * (uint64_t)(m == a->me ? a->conf.micro_batch : m->micro);
	}
	end += FAR * more;
	return limit && limit < end ? limit : end;
}

/* Intervals that a COMMIT has room for, in claims and in grants alike: beside its members and parts, which are those of
 * BEGIN, the changes that wait, and the ACKs of a majority. */
static size_t room(const struct round *r)
{
	size_t fixed = r->bytes.len + 4096 + (r->b.n / 2 + 1) * (2 + SIG_BYTES);
	for (size_t i = 0; i < r->a->props; i++)
		fixed += 160 + json_dumpb(r->a->prop[i].patch, NULL, 0, JSON_COMPACT);
	return fixed < NET_BLOB_MAX ? (NET_BLOB_MAX - fixed) / 32 : 0;
}

size_t claims_pieces(const struct round *r, size_t members)
{
	size_t n = room(r) / (members ? members : 1);
	return n < 1 ? 1 : n < CLAIMS_PIECES ? n : CLAIMS_PIECES;
}

void claims_begin(struct claims *c, const struct round *r)
{
	*c = (struct claims){ .r = r, .room = room(r), .end = claims_end_of(r->a) };
	ranges_copy(&c->done, &r->a->point.done);
}

void claims_end(struct claims *c)
{
	ranges_free(&c->done);
	ranges_free(&c->claimed);
	body_free(&c->last);
}

/* Whoever leads from the start of an epoch knows what everybody was given in it; one who has taken over, or has let
 * somebody in, does not know what others gave: at least it is
 * not what the last COMMIT promised to another. */
static bool given(struct claims *c, size_t i, const struct ranges *claim)
{
	const struct round *r = c->r;
	const struct avg *a = r->a;
	const struct mate *m = mate_find(a, &r->b.m[i].id);
	struct ranges rest = { 0 };
	if (a->conf.dealt)
		return true;
	ranges_copy(&rest, claim);
	if (m)
		ranges_sub_all(&rest, &m->grant);
	bool ok = !rest.n || r->term || a->nled > 1 || (r->b.m[i].flags & MATE_NEW);
	if (ok && rest.n && !c->last.n && a->last_commit.len)
		body_read(&c->last, a->last_commit.p, a->last_commit.len, NULL);        /* its own: it can be read */
	for (size_t k = 0; k < c->last.n && ok && rest.n; k++)
		ok = id_eq(&c->last.m[k].id, &r->b.m[i].id) || !ranges_overlap(&rest, &c->last.m[k].grant);
	ranges_free(&rest);
	return ok;
}

/* `done` with these claims can be written, and read again (RANGES_MAX). */
static bool can_be_written(const struct claims *c, const struct ranges *claim)
{
	struct ranges all = { 0 };
	ranges_copy(&all, &c->done);
	ranges_add_all(&all, claim);
	bool ok = all.n <= RANGES_MAX - SPARE || all.n <= c->done.n;
	ranges_free(&all);
	return ok;
}

bool claims_take(struct claims *c, size_t i, const struct ready *ready)
{
	const struct round *r = c->r;
	struct avg *a = r->a;
	const struct ranges *claim = &ready->claimed;
	const struct id *who = &r->b.m[i].id;
	unsigned long long n = ready->samples, epoch = r->b.epoch;
	if (a->conf.unordered)
		return true;
	if (claim->n && claim->v[claim->n - 1].hi > c->end) {
		hub_event(a, LOG_WARN_, "claimed too far", who, "its %llu samples of epoch %llu are some that nobody was "
			"given: left out", n, epoch);
		return false;
	}
	if (!PLANTED(CLAIM_NOT_GIVEN) && !given(c, i, claim)) {
		hub_event(a, LOG_WARN_, "claimed others'", who, "its %llu samples of epoch %llu are not those that it was "
			"given: left out", n, epoch);
		return false;
	}
	if (claim->n > c->room || !can_be_written(c, claim)) {
		hub_event(a, LOG_WARN_, "claimed in pieces", who, "its %llu samples of epoch %llu are in %zu pieces, too many "
			"to be written down: left out", n, epoch, claim->n);
		return false;
	}
	if (!ledger_claim(&a->point.done, &c->claimed, claim, ready->samples, a->conf.data_limit)) {
		hub_event(a, LOG_INFO_, "claimed twice", who, "its %llu samples of epoch %llu were processed by others, too: "
			"left out", n, epoch);
		return false;
	}
	ranges_add_all(&c->done, claim);
	c->room -= claim->n;
	return true;
}

int claims_check(const struct avg *a, const struct body *c, struct err *e)
{
	struct ranges all = { 0 };
	size_t before = a->point.done.n;
	if (a->conf.unordered)
		return 0;
	ranges_copy(&all, &a->point.done);
	for (size_t i = 0; i < c->n; i++)
		if (c->m[i].flags & MATE_IN)
			ranges_add_all(&all, &c->m[i].claimed);
	size_t n = all.n;
	ranges_free(&all);
	return n <= RANGES_MAX || n <= before ? 0 : err_set(e, ERR_LIMIT, "the COMMIT of epoch %llu leaves the committed "
		"positions in %zu pieces, at most %d can be written down", (unsigned long long)c->epoch, n, RANGES_MAX);
}

uint64_t grant_most(const struct avg *a)
{
	return 16 * (a->target + progress_goal(a)) + 16 * (uint64_t)a->conf.micro_batch;
}

void grant_take(struct avg *a, struct mate *m, const struct ranges *grant)
{
	struct ranges all = { 0 };
	ranges_copy(&all, grant);
	ranges_clear(&m->grant);
	ranges_take(&all, grant_most(a), &m->grant);
	ranges_free(&all);
}

void taken_all(const struct avg *a, struct ranges *ret)
{
	ranges_copy(ret, &a->point.done);
	list_each(it, &a->mates)
		ranges_add_all(ret, &list_entry(it, struct mate, link)->grant);
}
