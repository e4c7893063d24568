/* COMMITs that come before the round at hand is over here: it is decided, and its mean is still on its way, since data
 * and decisions travel apart. Where epochs are shorter than a lost packet costs, whoever refused those would never
 * follow. Each is a round of its own at once, so that its mean travels beside the one at hand; they become this peer's
 * state one after the other. And the BEGIN behind the last of them waits for that. */
#include <string.h>
#include "avg/claims.h"
#include "avg/lead.h"
#include "common/hash.h"

#define EARLY_MAX 32
#define EARLY_BYTES (64u << 20)                 /* of their means */

static struct round *first(const struct avg *a)
{
	return list_empty(&a->early) ? NULL : list_entry(a->early.next, struct round, link);
}

void early_drop(struct avg *a)
{
	struct round *r;
	while ((r = first(a)))
		round_close(r);
}

/* The one that the next COMMIT must stand on. */
static const struct round *newest(const struct avg *a, size_t *ret_n)
{
	const struct round *r = a->round;
	*ret_n = 0;
	list_each(it, &a->early) {
		r = list_entry(it, struct round, link);
		++*ret_n;
	}
	return r;
}

/* Does what comes after `epoch` and has this prev stand on it? */
static bool stands_on(const struct round *r, uint64_t epoch, const uint8_t *prev)
{
	uint8_t digest[DIGEST];
	if (!r || !r->commit || r->commit->epoch != epoch)
		return false;
	body_digest(r->commit_bytes.p, r->commit_bytes.len, digest);
	return !memcmp(prev, digest, DIGEST);
}

bool early_begin(struct avg *a, const struct body *b, struct request *req)
{
	size_t kept;
	if (a->state != AVG_IN || !stands_on(newest(a, &kept), b->epoch, b->prev))
		return false;
	early_begin_drop(a);
	buf_put(&a->begin_bytes, req->f.blob, req->f.blob_len);
	a->begin_json = json_deep_copy(req->f.json);
	a->begin_req = net_keep(req);
	return true;
}

static void forget_begin(struct avg *a)
{
	a->begin_req = NULL;
	buf_free(&a->begin_bytes);
	json_decref(a->begin_json);
	a->begin_json = NULL;
}

void early_begin_drop(struct avg *a)
{
	struct err e;
	if (!a->begin_req)
		return;
	err_set(&e, ERR_BUSY, "another BEGIN came, or too late");
	net_refuse(a->begin_req, &e);
	forget_begin(a);
}

void early_begun(struct avg *a)
{
	struct request *req = a->begin_req;
	if (!req || a->round || !list_empty(&a->early))
		return;
	struct buf bytes = a->begin_bytes;      /* a kept request has neither blob nor JSON of its own */
	json_t *j = a->begin_json;
	a->begin_bytes = (struct buf){ 0 };
	a->begin_json = NULL;
	a->begin_req = NULL;
	req->f.blob = bytes.p;
	req->f.blob_len = bytes.len;
	req->f.json = j;
	member_begin_on(a, req);
	buf_free(&bytes);
	json_decref(j);
}

const struct body *early_on(const struct avg *a, const struct body *c)
{
	size_t kept;
	const struct round *last = newest(a, &kept);
	return a->state == AVG_IN && stands_on(last, c->epoch - 1, c->prev) ? last->commit : NULL;
}

bool early_take(struct avg *a, struct body *c, const void *bytes, size_t n)
{
	size_t kept;
	struct err e;
	newest(a, &kept);
	if (c->grid.dims || kept >= EARLY_MAX || (kept + 1) * a->conf.len * sizeof(float) > EARLY_BYTES)
		return false;
	struct round *now = a->round;
	a->round = NULL;
	bool bad = commit_take(a, c, bytes, n, &e) != 0;
	struct round *r = a->round;
	a->round = now;
	if (!r)
		return false;
	list_push(&a->early, &r->link);
	r->early = true;
	if (bad)
		round_close(r);
	return !bad;
}

void early_next(struct avg *a)
{
	struct round *r = first(a);
	if (!r)
		return;
	struct err e;
	if (a->state != AVG_IN || a->round || !same_point(a, r->commit->epoch - 1, r->commit->prev) ||
			propose_check(a, r->commit, &e) || claims_check(a, r->commit, &e)) {
		early_drop(a);
		return;
	}
	list_del(&r->link);
	r->early = false;
	a->round = r;
	recover_free(a);
	round_touch(r);
	kick(a);
}

const struct buf *early_commit(const struct avg *a, uint64_t epoch, const uint8_t *prev)
{
	list_each(it, &a->early) {
		const struct round *r = list_entry(it, struct round, link);
		if (r->commit->epoch == epoch && !memcmp(r->commit->prev, prev, DIGEST))
			return &r->commit_bytes;
	}
	return NULL;
}
