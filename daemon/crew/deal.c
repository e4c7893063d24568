/* Generations that are known here, and the signatures under them. */
#include <stdlib.h>
#include "avg/signed.h"
#include "common/hash.h"
#include "crew/int.h"

struct deal *deal_hold(struct deal *d)
{
	if (d)
		d->refs++;
	return d;
}

void deal_drop(struct deal **at)
{
	struct deal *d = *at;
	*at = NULL;
	if (!d || --d->refs)
		return;
	offer_free(&d->o);
	buf_free(&d->bytes);
	buf_free(&d->go);
	found_free(&d->found);
	free(d->sig);
	free(d);
}

void deal_set(struct deal **at, struct deal *d)
{
	struct deal *was = *at;
	*at = deal_hold(d);
	deal_drop(&was);
}

struct deal *deal_known(const struct crew *c, uint64_t number)
{
	for (unsigned i = 0; i < PAST; i++)
		if (number && deal_number(c->past[i]) == number)
			return c->past[i];
	return number && deal_number(c->base) == number ? c->base : NULL;
}

static struct buf offer_bytes(const struct id *run, const uint8_t id[CREW_DIGEST])
{
	struct buf b = signed_head("hivemind-crew-offer-1", run);
	buf_put(&b, id, CREW_DIGEST);
	return b;
}

static struct buf promise_bytes(const struct deal *d, const uint8_t digest[CREW_DIGEST])
{
	struct buf b = signed_head("hivemind-crew-promise-1", &d->o.run);
	buf_put(&b, d->id, CREW_DIGEST);
	buf_put(&b, digest, CREW_DIGEST);
	return b;
}

struct deal *deal_read(const void *p, size_t n, struct err *e)
{
	struct offer o;
	if (n <= SIG_BYTES) {
		err_set(e, ERR_INVALID, "%zu bytes are no generation", n);
		return NULL;
	}
	if (offer_decode(&o, p, n - SIG_BYTES, e))
		return NULL;
	struct deal *d = xcalloc(1, sizeof *d);
	d->refs = 1;
	d->o = o;
	buf_put(&d->bytes, p, n);
	sha256_of(p, n - SIG_BYTES, d->id);
	return d;
}

struct deal *deal_make(struct crew *c, const struct offer *o)
{
	struct deal *d = xcalloc(1, sizeof *d);
	uint8_t sig[SIG_BYTES];
	d->refs = 1;
	offer_copy(&d->o, o);
	offer_encode(o, &d->bytes);
	sha256_of(d->bytes.p, d->bytes.len, d->id);
	struct buf b = offer_bytes(&o->run, d->id);
	signed_make(&b, c->net, sig);
	buf_put(&d->bytes, sig, SIG_BYTES);
	return d;
}

struct deal *deal_read_go(const void *p, size_t n, struct err *e)
{
	struct go g;
	if (go_decode(&g, p, n, e))
		return NULL;
	offer_free(&g.o);
	struct deal *d = deal_read(g.offer, g.offer_len, e);
	if (!d)
		return NULL;
	memcpy(d->said, g.digest, CREW_DIGEST);
	d->sig = xmemdup(g.sig, (size_t)d->o.n * SIG_BYTES);
	return d;
}

static void sent(void *arg)
{
	struct deal *d = arg;
	deal_drop(&d);
}

static struct blob blob_of(struct deal *d, const struct buf *b)
{
	return (struct blob){ .data = b->p, .len = b->len, .release = sent, .arg = deal_hold(d) };
}

struct blob deal_blob(struct deal *d)
{
	return blob_of(d, &d->bytes);
}

struct blob deal_blob_go(struct deal *d)
{
	if (!d->go.len)
		go_encode(d->bytes.p, d->bytes.len, d->said, d->sig, d->o.n, &d->go);
	return blob_of(d, &d->go);
}

bool deal_same_go(const struct deal *a, const struct deal *b)
{
	return !memcmp(a->id, b->id, CREW_DIGEST) && !memcmp(a->said, b->said, CREW_DIGEST) &&
		!memcmp(a->sig, b->sig, (size_t)a->o.n * SIG_BYTES) &&
		!memcmp(a->bytes.p + a->bytes.len - SIG_BYTES, b->bytes.p + b->bytes.len - SIG_BYTES, SIG_BYTES);
}

bool deal_signed(const struct deal *d)
{
	struct buf b = offer_bytes(&d->o.run, d->id);
	return signed_by(&b, &d->o.leader, d->bytes.p + d->bytes.len - SIG_BYTES);
}

bool deal_promised_by(const struct deal *d, uint32_t rank, const uint8_t digest[CREW_DIGEST],
	const uint8_t sig[SIG_BYTES])
{
	struct buf b = promise_bytes(d, digest);
	return signed_by(&b, &d->o.m[rank].id, sig);
}

bool deal_all_signed(const struct deal *d)
{
	for (uint32_t i = 0; i < d->o.n; i++)
		if (!deal_promised_by(d, i, d->said, d->sig + (size_t)i * SIG_BYTES))
			return false;
	return true;
}

void deal_promise(const struct crew *c, const struct deal *d, uint8_t ret[SIG_BYTES])
{
	struct buf b = promise_bytes(d, d->found.digest);
	signed_make(&b, c->net, ret);
}

int deal_rank(const struct crew *c, const struct deal *d)
{
	int r = offer_find(&d->o, &c->me);
	return r >= 0 && d->o.m[r].life == c->life ? r : -1;
}

static bool lives(const struct crew *c, const struct crew_member *x)
{
	const struct mate *m = mate_of(c, &x->id);
	return id_eq(&x->id, &c->me) ? x->life == c->life && c->in : m && (!m->known || m->card.life == x->life);
}

bool deal_whole(const struct crew *c, const struct deal *d)
{
	for (uint32_t i = 0; i < d->o.n; i++)
		if (!lives(c, &d->o.m[i]))
			return false;
	return true;
}

void deal_units(const struct crew *c, const struct deal *d, uint32_t unit[CREW_MEMBERS_MAX])
{
	if (d && d->found.unit)
		memcpy(unit, d->found.unit, d->o.n * sizeof *unit);
	else if (d)
		plans_units(c->conf.strategy, &c->conf.view, &d->o, NULL, unit);
}

bool deal_unit_whole(const struct crew *c, const struct deal *d, const uint32_t *unit, uint32_t which)
{
	for (uint32_t i = 0; i < d->o.n && which != PLAN_NO_UNIT; i++)
		if (unit[i] == which && !lives(c, &d->o.m[i]))
			return false;
	return which != PLAN_NO_UNIT;
}

/* Is one of its members from `rank` to `end` - 1 of a unit of which all live? */
static bool some_goes_on(const struct crew *c, const struct deal *d, uint32_t rank, uint32_t end)
{
	uint32_t unit[CREW_MEMBERS_MAX];
	if (!d->computed || PLANTED(CREW_ALL_STAND))
		return deal_whole(c, d);
	deal_units(c, d, unit);
	for (; rank < end; rank++)
		if (deal_unit_whole(c, d, unit, unit[rank]))
			return true;
	return false;
}

bool deal_goes_on(const struct crew *c, const struct deal *d) { return some_goes_on(c, d, 0, d->o.n); }

bool deal_unit_of(const struct crew *c, const struct deal *d, uint32_t rank)
{
	return some_goes_on(c, d, rank, rank + 1);
}

bool deal_lives_on(const struct crew *c, const struct crew_member *x)
{
	const struct mate *m = mate_of(c, &x->id);
	if (id_eq(&x->id, &c->me))
		return c->in && x->life == c->life;
	if (m && m->hearsay)
		return m->own_word == x->life && !PLANTED(CREW_DEAF);
	return m && (!m->known || m->card.life == x->life);
}

bool deal_base_there(struct crew *c, uint64_t *ret_missing)
{
	bool there[CREW_MEMBERS_MAX] = { 0 };
	*ret_missing = 0;
	if (!c->base || c->base->o.generation != c->base_number || !c->base->computed)
		return false;
	for (uint32_t i = 0; i < c->base->o.n; i++) {
		const struct mate *m = mate_of(c, &c->base->o.m[i].id);
		there[i] = deal_lives_on(c, &c->base->o.m[i]) && !(m && leads(c) && benched(c, m));
	}
	if (!PLANTED(CREW_NO_BASE))
		*ret_missing = shards_missing(&c->base->found.shards, there);
	return true;
}
