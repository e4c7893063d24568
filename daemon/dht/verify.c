/* Signatures of records: a few at once on the loop, many as one job; what was verified is remembered. */
#include <stdlib.h>
#include <string.h>
#include "common/hash.h"
#include "common/mem.h"
#include "common/planted.h"
#include "dht/int.h"

struct batch {
	struct job job;
	struct list link;                       /* open ones */
	struct dht *d;                          /* NULL: the room is gone */
	struct rec **rec; bool *good; uint64_t *mark;
	size_t n;
	batch_fn *done; void *arg;
};

void rec_sign(struct dht *d, struct rec *r)
{
	struct buf b = { 0 };
	r->owner = *net_self(d->net);
	r->is_signed = true;
	rec_signed_bytes(&b, r);
	net_sign(d->net, b.p, b.len, r->sig);
	buf_free(&b);
}

/* The signer of a protected record must be the peer that its subkey names. */
bool rec_owner_ok(const struct rec *r)
{
	struct id named;
	if (!rec_must_sign(r) || PLANTED(DHT_NOT_OWNER))
		return true;
	return r->is_signed && !id_parse(&named, r->subkey, NULL) && id_eq(&named, &r->owner);
}

static bool check(const struct rec *r, struct buf *room)
{
	buf_clear(room);
	rec_signed_bytes(room, r);
	return net_verify(&r->owner, room->p, room->len, r->sig) || PLANTED(DHT_FORGED);
}

static uint64_t mark_of(struct dht *d, const struct rec *r, struct buf *room)
{
	buf_clear(room);
	rec_signed_bytes(room, r);
	buf_put(room, r->owner.b, 32);
	buf_put(room, r->sig, 64);
	return siphash(d->hash_key, 7, room->p, room->len);
}

static void run(struct job *j)
{
	struct batch *b = container_of(j, struct batch, job);
	struct buf room = { 0 };
	for (size_t i = 0; i < b->n; i++)
		if (!b->good[i] && b->rec[i])
			b->good[i] = check(b->rec[i], &room);
	buf_free(&room);
}

static void finish(struct batch *b)
{
	struct list good;
	size_t bad = 0;
	list_init(&good);
	for (size_t i = 0; i < b->n; i++) {
		if (b->good[i] && b->d) {
			if (b->rec[i]->is_signed)
				b->d->verified[b->mark[i] % VERIFIED_SLOTS] = b->mark[i];
			list_push(&good, &b->rec[i]->link);
		} else {
			bad++;
			rec_free(b->rec[i]);
		}
	}
	if (b->d) {
		list_del(&b->link);
		b->done(b->arg, &good, bad);
	}
	list_each_safe(it, &good)               /* what done did not move out */
		rec_free(list_entry(it, struct rec, link));
	free(b->rec);
	free(b->good);
	free(b->mark);
	free(b);
}

static void job_done(struct job *j)
{
	finish(container_of(j, struct batch, job));
}

/* What was verified once, bit for bit, was in order then. */
static bool well_formed(struct dht *d, struct batch *b, size_t i, struct buf *room, struct err *ret_why)
{
	const struct rec *r = b->rec[i];
	struct err e = { 0 };
	if (rec_sane(r, env_now(d->env), env_wall(d->env), &e)) {
		if (ret_why && !ret_why->code)
			*ret_why = e;
		return false;
	}
	b->mark[i] = r->is_signed ? mark_of(d, r, room) : 0;
	b->good[i] = r->is_signed && d->verified[b->mark[i] % VERIFIED_SLOTS] == b->mark[i];
	if (b->good[i])
		return true;
	b->good[i] = !r->is_signed;
	int rc = schema_check(d, r, &e);
	if (rc && ret_why && !ret_why->code)
		*ret_why = e;
	return !rc && rec_owner_ok(r);
}

void dht_verify(struct dht *d, struct list *recs, struct err *ret_why, batch_fn *done, void *arg)
{
	size_t n = list_len(recs);
	struct batch *b = xcalloc(1, sizeof *b);
	*b = (struct batch){ .d = d, .done = done, .arg = arg, .rec = xcalloc(n + 1, sizeof *b->rec),
		.good = xcalloc(n + 1, 1), .mark = xcalloc(n + 1, sizeof *b->mark) };
	size_t open = 0;
	struct buf room = { 0 };
	struct list *it;
	list_push(&d->batches, &b->link);
	while ((it = list_pop(recs))) {
		struct rec *r = list_entry(it, struct rec, link);
		size_t i = b->n++;
		b->rec[i] = r;
		if (!well_formed(d, b, i, &room, ret_why)) {
			rec_free(r);
			b->rec[i] = NULL;
			b->good[i] = false;
			continue;
		}
		open += !b->good[i];
	}
	buf_free(&room);
	b->job = (struct job){ .name = "dht.verify", .run = run, .done = job_done, .cost_us = 95 * open };
	if (open > VERIFY_INLINE) {
		b->job.lane = env_lane(d->env, "reduce");
		env_work(d->env, &b->job);
		return;
	}
	run(&b->job);
	finish(b);
}

void batches_orphan(struct dht *d)
{
	list_each_safe(it, &d->batches) {
		struct batch *b = list_entry(it, struct batch, link);
		list_del(&b->link);
		b->d = NULL;
	}
}
