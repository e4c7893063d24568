/* Signatures of records: a few at once on the loop, others on a lane of their own, where answers to our own questions
 * go first and what others bring has a bounded place; what was verified is remembered. */
#include <stdlib.h>
#include <string.h>
#include "common/hash.h"
#include "common/mem.h"
#include "common/planted.h"
#include "dht/int.h"

#define VERIFY_US 95                            /* for one */
#define INLINE_MOST 8                           /* more in one frame than this go to the lane, */
#define INLINE_US 1000000                       /* and, in this time, */
#define INLINE_OF_ONE 64                        /* more of one peer: a hundredth of the loop; */
#define INLINE_ALL 512                          /* or of all: a twentieth */
/* What waits for the lane, of one peer and of all. A dictionary that is passed on is 4096 signatures in 8 frames; all
 * of it takes the lane 0.4 s, and all of all peers 1.6 s. */
#define WAIT_SIGNS_OF_ONE 4096
#define WAIT_SIGNS 16384
#define WAIT_FRAMES_OF_ONE 128
#define WAIT_FRAMES 1024
#define WAIT_BYTES_OF_ONE (4u << 20)
#define WAIT_BYTES (32u << 20)
#define FORGED_PER_STRIKE 8                     /* the first is one, too */

struct batch {
	struct job job;
	struct list link;                       /* open ones */
	struct dht *d;                          /* NULL: the room is gone */
	struct rec **rec; bool *good; uint64_t *mark;
	size_t n, open /* signatures to check */, bytes, forged;
	struct id from; bool asked /* by us */;
	struct list turn;                       /* in line for the lane */
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

static void lane_next(struct dht *d);

static void strike(struct dht *d, const struct batch *b)
{
	for (size_t i = 0; i < b->forged; i += FORGED_PER_STRIKE)
		net_strike(d->net, &b->from, "records whose signature is wrong");
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
			b->forged += b->rec[i] != NULL;
			rec_free(b->rec[i]);
		}
	}
	if (b->d) {
		list_del(&b->link);
		strike(b->d, b);                /* no honest peer passes on what it has not checked */
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
	struct batch *b = container_of(j, struct batch, job);
	struct dht *d = b->d;
	if (d) {
		d->checking = NULL;
		lane_next(d);
	}
	finish(b);
}

/* ---- whose turn it is ---- */

static void lane_next(struct dht *d)
{
	struct list *it = d->checking ? NULL : list_pop(&d->checks_asked);
	if (!it && !d->checking)
		it = list_pop(&d->checks);
	if (!it)
		return;
	struct batch *b = d->checking = list_entry(it, struct batch, turn);
	b->job.lane = env_lane(d->env, "verify");
	env_work(d->env, &b->job);
}

bool verify_full(struct dht *d, const struct id *from)
{
	size_t signs = 0, bytes = 0, n = 0, my_signs = 0, my_bytes = 0, my_n = 0;
	list_each(it, &d->batches) {
		const struct batch *b = list_entry(it, struct batch, link);
		if (b->asked)
			continue;
		n++;
		signs += b->open;
		bytes += b->bytes;
		if (!id_eq(&b->from, from))
			continue;
		my_n++;
		my_signs += b->open;
		my_bytes += b->bytes;
	}
	return n >= WAIT_FRAMES || signs >= WAIT_SIGNS || bytes >= WAIT_BYTES || my_n >= WAIT_FRAMES_OF_ONE ||
		my_signs >= WAIT_SIGNS_OF_ONE || my_bytes >= WAIT_BYTES_OF_ONE;
}

/* What of that peer was checked here of late. It shares a count with another only where five have been at work who fall
 * into one row. */
static struct inlined *inlined_of(struct dht *d, const struct id *from, uint64_t now)
{
	uint64_t who = siphash(d->hash_key, 8, from->b, 32);
	struct inlined *row = &d->inlined[who % (INLINED_SLOTS / INLINED_ROW) * INLINED_ROW], *ret = NULL;
	for (int i = 0; i < INLINED_ROW && !ret; i++)
		ret = row[i].who == who ? &row[i] : NULL;
	for (int i = 0; i < INLINED_ROW && !ret; i++)
		ret = now - row[i].since_us >= INLINE_US ? &row[i] : NULL;
	ret = ret ? ret : row;
	if (now - ret->since_us >= INLINE_US)
		*ret = (struct inlined){ who, now, 0 };
	return ret;
}

/* May so many of that peer be checked here and now? */
static bool on_loop(struct dht *d, const struct id *from, size_t n)
{
	uint64_t now = env_now(d->env);
	struct inlined *of_one = inlined_of(d, from, now);
	if (!n)
		return true;
	if (now - d->inlined_all.since_us >= INLINE_US)
		d->inlined_all = (struct inlined){ .since_us = now };
	if (n > INLINE_MOST || of_one->n + n > INLINE_OF_ONE || d->inlined_all.n + n > INLINE_ALL)
		return false;
	of_one->n += (uint32_t)n;
	d->inlined_all.n += (uint32_t)n;
	return true;
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
	b->forged += !rc && !rec_owner_ok(r);
	return !rc && rec_owner_ok(r);
}

void dht_verify(struct dht *d, struct list *recs, const struct id *from, bool asked, struct err *ret_why,
	batch_fn *done, void *arg)
{
	size_t n = list_len(recs);
	struct batch *b = xcalloc(1, sizeof *b);
	*b = (struct batch){ .d = d, .done = done, .arg = arg, .rec = xcalloc(n + 1, sizeof *b->rec), .from = *from,
		.asked = asked, .good = xcalloc(n + 1, 1), .mark = xcalloc(n + 1, sizeof *b->mark) };
	struct buf room = { 0 };
	struct list *it;
	list_push(&d->batches, &b->link);
	list_init(&b->turn);
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
		b->open += !b->good[i];
		b->bytes += r->vlen + sizeof *r;
	}
	buf_free(&room);
	b->job = (struct job){ .name = "dht.verify", .run = run, .done = job_done, .cost_us = VERIFY_US * b->open };
	if (on_loop(d, from, b->open)) {
		run(&b->job);
		finish(b);
		return;
	}
	list_push(asked ? &d->checks_asked : &d->checks, &b->turn);
	lane_next(d);
}

/* Those in line are dropped here, the one in the lane when it comes back. */
void batches_orphan(struct dht *d)
{
	list_each_safe(it, &d->batches) {
		struct batch *b = list_entry(it, struct batch, link);
		list_del(&b->link);
		b->d = NULL;
		if (b == d->checking)
			continue;
		list_del(&b->turn);
		finish(b);
	}
}
