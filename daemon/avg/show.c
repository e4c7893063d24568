/* SHOW: where this peer stands, and by which COMMITs; those of late are kept for it. */
#include <string.h>
#include "avg/fork.h"
#include "avg/proof.h"

#define KEPT_BYTES (512 * 1024)                 /* of all COMMITs before the last one */

/* The last one is about to be another. */
void kept_put(struct avg *a)
{
	struct kept_commits *k = &a->kept;
	if (!a->last_commit.len)
		return;
	struct kept_commit *slot = &k->v[a->point.epoch % KEPT_COMMITS];
	k->bytes -= slot->bytes.len;
	buf_free(&slot->bytes);
	*slot = (struct kept_commit){ .epoch = a->point.epoch, .bytes = a->last_commit };
	a->last_commit = (struct buf){ 0 };
	k->bytes += slot->bytes.len;
	for (uint64_t back = KEPT_COMMITS - 1; back && k->bytes > KEPT_BYTES; back--) {
		slot = &k->v[(a->point.epoch + KEPT_COMMITS - back) % KEPT_COMMITS];
		k->bytes -= slot->bytes.len;
		buf_free(&slot->bytes);
	}
}

void kept_forget(struct avg *a)
{
	for (int i = 0; i < KEPT_COMMITS; i++)
		buf_free(&a->kept.v[i].bytes);
	a->kept.bytes = 0;
}

const struct buf *commit_kept(const struct avg *a, uint64_t epoch)
{
	const struct kept_commit *k = &a->kept.v[epoch % KEPT_COMMITS];
	return epoch == a->point.epoch ? &a->last_commit : k->epoch == epoch ? &k->bytes : NULL;
}

static void put(struct buf *b, const struct buf *commit)
{
	buf_u32(b, commit ? (uint32_t)commit->len : 0);
	if (commit)
		buf_put(b, commit->p, commit->len);
}

/* The COMMIT of the point, the one that stands on the asker's, the history: as much as a frame takes. */
static void put_commits(const struct avg *a, uint64_t after, struct buf *b)
{
	const struct buf *next = commit_kept(a, after + 1);
	bool both = !next || next == &a->last_commit || next->len + a->last_commit.len + 8 <= NET_BLOB_MAX;
	put(b, both ? &a->last_commit : NULL);
	put(b, next);
	size_t at = b->len;
	past_put(a, b);
	if (b->len > NET_BLOB_MAX)
		b->len = at;
}

bool show_can(const struct avg *a)
{
	return a->state == AVG_IN && !a->follower && !(a->me->flags & MATE_FOLLOWER) && a->last_commit.len;
}

void show_on(struct avg *a, struct request *req)
{
	struct err e;
	struct buf b = { 0 };
	bool full = false;
	uint64_t after = UINT64_MAX - 1;
	json_get_bool(req->f.json, "commit", &full, NULL);
	json_get_u64(req->f.json, "after", &after, NULL);
	if (a->state != AVG_IN || a->follower || (a->me->flags & MATE_FOLLOWER)) {
		err_set(&e, ERR_BUSY, "this peer is in no history now");
		net_refuse(req, &e);
		return;
	}
	json_t *j = json_pack("{s:I,s:o,s:I}", "epoch", (json_int_t)a->point.epoch, "prev", json_hex(a->point.prev, DIGEST),
		"samples", (json_int_t)a->point.samples);
	if (a->digest_epoch && a->digest_epoch == a->point.epoch)
		json_object_set_new(j, DIGEST_KEY, json_hex(a->digest, 16));
	uint64_t decided;
	if (!json_get_u64(req->f.json, "decided", &decided, NULL))
		proof_show(a, decided, j);
	if (full)
		put_commits(a, after, &b);
	net_reply(req, j, b.len ? blob_steal(&b) : NO_BLOB);
}
