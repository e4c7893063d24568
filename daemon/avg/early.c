/* COMMITs that come before the round at hand is over here: it is decided, and its mean is still on its way, since data
 * and decisions travel apart. Where epochs are shorter than a lost packet costs, whoever refused those would never
 * follow. Each is a round of its own at once, so that its mean travels beside the one at hand; they become this peer's
 * state one after the other. And the BEGIN behind the last of them waits for that. */
#include <string.h>
#include "avg/int.h"

/* The one that the next COMMIT must stand on. */
static const struct round *newest(const struct avg *a)
{
	return list_empty(&a->early) ? a->round : list_entry(a->early.prev, struct round, link);
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

bool early_begin(struct avg *a, const struct body *b, struct request *req)
{
	if (a->state != AVG_IN || !stands_on(newest(a), b->epoch, b->prev))
		return false;
	early_begin_drop(a);
	buf_put(&a->begin_bytes, req->f.blob, req->f.blob_len);
	a->begin_json = json_deep_copy(req->f.json);
	a->begin_req = net_keep(req);
	return true;
}

const struct body *early_on(const struct avg *a, const struct body *c)
{
	const struct round *last = newest(a);
	return a->state == AVG_IN && stands_on(last, c->epoch - 1, c->prev) ? last->commit : NULL;
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
