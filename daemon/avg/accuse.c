/* Others say that an owner has summed falsely: one accusation of each member waits, until this peer has the COMMIT and
 * the time to look for itself (audit.c). */
#include <stdlib.h>
#include <string.h>
#include "avg/held.h"
#include "avg/lead.h"
#include "common/jrpc.h"

#define ACCUSATIONS 16                          /* that wait, one of each peer */

/* It waits for the COMMIT of that round, or for its turn: then that COMMIT may not be kept any more. */
struct accusation { struct list link; struct id from; uint8_t round[DIGEST]; uint64_t epoch, part, until_us;
	struct buf commit /* empty: not yet */; };

static enum robust robust_of(const struct avg *a, const struct body *c)
{
	const json_t *live = json_object_get(c->params, "robust");
	enum robust robust = a->conf.robust;
	if (live && robust_parse(json_string_value(live), &robust, NULL))
		robust = a->conf.robust;
	return robust;
}

static void forget(struct accusation *x)
{
	list_del(&x->link);
	buf_free(&x->commit);
	free(x);
}

/* The COMMIT is one that this peer has applied, so that the hash is of what it got from the owner itself. False: it has
 * none, and will have none. */
static bool has_commit(const struct audits *s, struct accusation *x)
{
	const struct buf *bytes = x->commit.len ? NULL : commit_kept(s->a, x->epoch);
	if (bytes)
		buf_put(&x->commit, bytes->p, bytes->len);
	return x->commit.len || x->epoch > s->a->point.epoch;
}

static void take_up(struct audits *s, const struct accusation *x)
{
	struct avg *a = s->a;
	struct mate *m = mate_find(a, &x->from);
	struct body c;
	struct peer_info info;
	if (body_read(&c, x->commit.p, x->commit.len, NULL))
		return;
	bool mine = m && !memcmp(c.round, x->round, DIGEST) && x->part < c.parts && c.rows <= 1 && !c.grid.dims;
	const struct id *owner = mine ? &c.m[c.part[x->part].owner].id : NULL;
	enum robust robust = robust_of(a, &c);
	bool known = owner && net_peer(a->net, owner, &info) && info.banned_until_us;
	if (mine && PLANTED(WRONG_BELIEVED))
		net_ban(a->net, owner, UINT64_MAX, "so it was said", NULL);
	if (mine && !known && robust != ROBUST_NONE && !id_eq(owner, &a->me->id) && !id_eq(owner, &m->id))
		audit_look(a, &c, x->part, robust, &m->id, NULL);
	body_free(&c);
}

void accusations_next(struct audits *s)
{
	list_each_safe(it, &s->said) {
		struct accusation *x = list_entry(it, struct accusation, link);
		bool over = now_of(s->a) >= x->until_us || !has_commit(s, x), due = !over && x->commit.len && !s->one;
		if (due)
			take_up(s, x);
		if (over || due)
			forget(x);
	}
}

/* It has said so of somebody, and that is not settled yet. */
static bool has_accused(const struct audits *s, const struct id *who)
{
	if (audit_for(s, who))
		return true;
	list_each(it, &s->said)
		if (id_eq(&list_entry(it, struct accusation, link)->from, who))
			return true;
	return false;
}

void wrong_on(struct avg *a, struct request *req)
{
	struct audits *s = audits_of(a);
	struct accusation x = { .from = req->f.from, .until_us = now_of(a) + HELD_US };
	struct mate *m = mate_find(a, &req->f.from);
	if (!m || !m->member || now_of(a) < m->accused_us || has_accused(s, &m->id) || list_len(&s->said) >= ACCUSATIONS ||
			json_get_hex(req->f.json, "round", x.round, DIGEST, NULL) ||
			json_get_u64(req->f.json, "epoch", &x.epoch, NULL) || json_get_u64(req->f.json, "part", &x.part, NULL) ||
			x.epoch > a->point.epoch + 2)
		return;
	m->accused_us = now_of(a) + ACCUSED_US;
	struct accusation *kept = xmemdup(&x, sizeof x);
	list_push(&s->said, &kept->link);
	audit_yield(s);
	accusations_next(s);
}

void accusations_free(struct audits *s)
{
	list_each_safe(it, &s->said)
		forget(list_entry(it, struct accusation, link));
}
