/* What a member has summed, or can show of another's sum, with the signatures of those who sent it: held for a while,
 * and given to who looks at it (audit.c). */
#include <stdlib.h>
#include <string.h>
#include "avg/held.h"
#include "avg/sent.h"
#include "common/jrpc.h"

#define HELD_FEW 4                              /* parts; more in */
#define HELD_BYTES (64u << 20)
#define TAKERS 8                                /* of one at a time, each of them once */

/* A transfer. Those of one taker stand together. */
struct given { struct list link; struct held *h; struct id to; struct xfer *x; };

static void given_free(struct given *g)
{
	list_del(&g->link);
	free(g);
}

/* It asks anew, or is gone: what was on its way to it of h is not waited for. NULL: whoever it goes to. */
static void take_back(struct audits *s, const struct held *h, const struct id *to)
{
	list_each_safe(it, &s->given) {
		struct given *g = list_entry(it, struct given, link);
		if (g->h != h || (to && !id_eq(&g->to, to)))
			continue;
		xfer_cancel(g->x);
		given_free(g);
	}
}

static size_t takers(const struct audits *s, const struct held *h)
{
	const struct given *last = NULL;
	size_t n = 0;
	list_each(it, &s->given) {
		const struct given *g = list_entry(it, struct given, link);
		if (g->h != h)
			continue;
		n += !last || !id_eq(&last->to, &g->to);
		last = g;
	}
	return n;
}

void held_free(struct audits *s, struct held *h)
{
	take_back(s, h, NULL);
	for (size_t i = 0; i < h->n; i++)
		big_free(h->data[i], h->bytes);
	big_free(h->mean, h->len * sizeof(float));
	free(h->data);
	list_del(&h->link);
	free(h);
}

void held_sweep(struct timer *t)
{
	struct audits *s = container_of(t, struct audits, sweep);
	list_each_safe(it, &s->held) {
		struct held *h = list_entry(it, struct held, link);
		if (now_of(s->a) >= h->until_us)
			held_free(s, h);
	}
	if (!list_empty(&s->held))
		env_after(s->a->env, t, SECOND);
}

void held_put(struct audits *s, struct held *h)
{
	size_t bytes = h->n * h->bytes;
	list_each(it, &s->held)
		bytes += list_entry(it, struct held, link)->n * list_entry(it, struct held, link)->bytes;
	while (list_len(&s->held) >= HELD_FEW && bytes > HELD_BYTES) {
		struct held *old = list_entry(s->held.next, struct held, link);
		bytes -= old->n * old->bytes;
		held_free(s, old);
	}
	h->until_us = now_of(s->a) + HELD_US;
	list_push(&s->held, &h->link);
	if (!s->sweep.at_us)
		env_after(s->a->env, &s->sweep, SECOND);
}

/* Of part p, which this peer has summed. */
void held_own(struct round *r, size_t p)
{
	const struct rpart *rp = &r->part[p];
	struct held *h = xcalloc(1, sizeof *h);
	bool whole = true;
	memcpy(h->round, r->id, DIGEST);
	h->part = p;
	h->len = rp->len;
	h->bytes = held_bytes(r->b.parts, rp->len);
	h->data = xcalloc(r->b.n + 1, sizeof *h->data);
	list_init(&h->link);
	for (size_t i = 0; i < r->b.n && whole; i++) {
		const struct sent_list *l = &r->sent->of[i];
		const void *x = (int)i == r->me ? r->x + rp->off : rp->raw ? rp->raw[i] : NULL;
		if (!r->w[i])
			continue;
		uint8_t *to = l->known && x ? big_alloc(h->bytes) : NULL;
		whole = to != NULL;
		if (!whole)
			break;
		h->data[h->n++] = to;
		memcpy(to, l->hash, r->b.parts * TREE256);
		memcpy(to + r->b.parts * TREE256, l->sig, SIG_BYTES);
		memcpy(to + r->b.parts * TREE256 + SIG_BYTES, x, rp->len * sizeof(float));
	}
	if (whole)
		held_put(audits_of(r->a), h);
	else
		held_free(audits_of(r->a), h);
}

/* ---- giving it ---- */

void held_tag(const uint8_t tag[32], size_t i, struct id *ret)
{
	uint8_t b[36];
	memcpy(b, tag, 32);
	for (int k = 0; k < 4; k++)
		b[32 + k] = (uint8_t)(i >> 8 * k);
	id_of(ret, b, sizeof b);
}

static void given_over(void *arg, struct xfer *x, const struct err *e)
{
	given_free(arg);
}

static void give(struct audits *s, struct held *h, const struct id *to, const uint8_t tag[32], size_t i,
	const void *data, size_t bytes)
{
	struct given *g = xcalloc(1, sizeof *g);
	struct id id;
	held_tag(tag, i, &id);
	*g = (struct given){ .h = h, .to = *to };
	list_push(&s->given, &g->link);
	g->x = xfer_send(s->a->chunks, to, &id, data, bytes, CLASS_weight_grad, now_of(s->a) + LOOK_US, given_over, g);
}

static struct held *held_find(struct audits *s, const uint8_t *round, uint64_t part, bool mean)
{
	list_each(it, &s->held) {
		struct held *h = list_entry(it, struct held, link);
		if (!memcmp(h->round, round, DIGEST) && h->part == part && (!mean || h->mean))
			return h;
	}
	return NULL;
}

void audit_on(struct avg *a, struct request *req)
{
	struct audits *s = a->audits;
	struct err e;
	uint8_t round[DIGEST], tag[32];
	uint64_t part;
	bool mean = false;
	struct mate *m = mate_find(a, &req->f.from);
	if (json_get_hex(req->f.json, "round", round, DIGEST, &e) || json_get_hex(req->f.json, "tag", tag, 32, &e) ||
			json_get_u64(req->f.json, "part", &part, &e)) {
		net_refuse(req, &e);
		return;
	}
	json_get_bool(req->f.json, "mean", &mean, NULL);
	struct held *h = s && m && m->member ? held_find(s, round, part, mean) : NULL;
	if (h)
		take_back(s, h, &req->f.from);
	if (!h) {
		err_set(&e, ERR_NOT_FOUND, "that part is not held here (any more)");
		net_refuse(req, &e);
	} else if (takers(s, h) >= TAKERS) {
		err_set(&e, ERR_BUSY, "others look at it now");
		net_refuse(req, &e);
	} else {
		for (size_t i = 0; i < h->n; i++)
			give(s, h, &req->f.from, tag, i, h->data[i], h->bytes);
		if (mean)
			give(s, h, &req->f.from, tag, h->n, h->mean, h->len * sizeof(float));
		net_reply(req, NULL, NO_BLOB);
	}
}

struct audits *audits_of(struct avg *a)
{
	struct audits *s = a->audits;
	if (s)
		return s;
	s = a->audits = xcalloc(1, sizeof *s);
	s->a = a;
	list_init(&s->held);
	list_init(&s->given);
	list_init(&s->said);
	s->sweep = (struct timer){ .fire = held_sweep, .name = "avg.held" };
	return s;
}

bool audit_owns(const struct avg *a, const struct mate *m)
{
	return m->unaudited < TIMES_SILENT || now_of(a) - m->unaudited_us > REST_US;
}
