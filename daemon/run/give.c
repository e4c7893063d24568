/* The pieces that a donor gives (donor.c has the copies): a few at a time are on their way, the others wait in
 * line. Whoever asks for much waits for itself: each has two places and a short line of its own, and all are served in
 * turn. A place from which nobody takes anything is taken back. */
#include <stdlib.h>
#include <string.h>
#include "common/jrpc.h"
#include "common/mem.h"
#include "run/give.h"

#define AT_ONCE 4                       /* pieces that move, of all runs, to everybody together; */
#define SENDING_MAX 8                   /* with those that do not, which fill no line */
#define SENDING_OF_ONE 2                /* what one asks of one donor at one time */
#define LINE_MAX 512
#define LINE_OF_ONE 16                  /* two, of as many runs as anybody is in */
#define RATE_FLOOR 30000.0              /* bytes/s of one piece, assumed of the slowest link */
#define PATIENCE_US 10000000
#define STUCK_US 10000000               /* so long nothing of it was acknowledged: it no longer keeps others waiting */
#define NO_TAKER_US 5000000             /* who asked expects it from before it asks */
#define FIRST_BYTES 524288.0            /* on their way before the first acknowledgement: two chunks */

static struct taker *taker_of(struct donors *d, const struct id *id)
{
	list_each(it, &d->takers) {
		struct taker *t = list_entry(it, struct taker, link);
		if (id_eq(&t->id, id))
			return t;
	}
	return NULL;
}

static struct taker *taker_new(struct donors *d, const struct id *id)
{
	struct taker *t = xcalloc(1, sizeof *t);
	t->id = *id;
	list_init(&t->line);
	list_push(&d->takers, &t->link);
	return t;
}

static void given_end(struct given *g)
{
	struct donors *d = g->h->d;
	struct taker *t = g->t;
	g->h->lent--;
	list_del(&g->link);
	if (g->x) {
		d->nsending--;
		t->sending--;
	} else {
		d->nline--;
		t->waiting--;
	}
	free(g);
	if (t->waiting || t->sending)
		return;
	list_del(&t->link);
	free(t);
}

static void stop_in(struct list *of, const struct held *h, const struct id *to)
{
	list_each_safe(it, of) {
		struct given *g = list_entry(it, struct given, link);
		if ((h && g->h != h) || (to && !id_eq(&g->t->id, to)))
			continue;
		if (g->x)
			xfer_cancel(g->x);
		given_end(g);
	}
}

void give_stop(struct donors *d, const struct held *h, const struct id *to)
{
	stop_in(&d->sending, h, to);
	list_each_safe(it, &d->takers) {
		struct taker *t = list_entry(it, struct taker, link);
		unsigned all = t->waiting;
		for (unsigned i = 0; i < all; i++) {    /* it goes with the last one */
			struct given *g = list_entry(t->line.next, struct given, link);
			bool last = t->waiting + t->sending == 1;
			if ((h && g->h != h) || (to && !id_eq(&t->id, to))) {
				list_del(&g->link);
				list_push(&t->line, &g->link);
				continue;
			}
			given_end(g);
			if (last)
				break;
		}
	}
}

/* Bytes of it were acknowledged. */
static bool moved(struct given *g)
{
	uint64_t bytes = xfer_bytes(g->x), now = donors_now(g->h->d);
	if (bytes <= g->bytes)
		return false;
	g->bytes = bytes;
	g->moved_us = g->h->used_us = now;
	return true;
}

static void sent(void *arg, struct xfer *x, const struct err *e)
{
	struct given *g = arg;
	struct donors *d = g->h->d;
	if (!e)
		g->h->used_us = donors_now(d);
	given_end(g);
	give_some(d);
}

static size_t piece_len(const struct given *g)
{
	size_t off = g->piece * g->h->piece, left = g->h->snap->bytes - off;
	return left < g->h->piece ? left : g->h->piece;
}

static void give(struct donors *d, struct taker *t)
{
	struct given *g = list_entry(list_pop(&t->line), struct given, link);
	uint64_t now = donors_now(d);
	size_t len = piece_len(g);
	list_del(&t->link);                     /* and the others come first */
	list_push(&d->takers, &t->link);
	t->waiting--;
	t->sending++;
	d->nline--;
	d->nsending++;
	list_push(&d->sending, &g->link);
	g->moved_us = now;
	g->x = xfer_send(d->rs->ctx.chunks, &t->id, &g->tag, (const char *)g->h->snap->data + g->piece * g->h->piece, len,
		CLASS_weight, now + PATIENCE_US + (uint64_t)((double)len * SENDING_MAX / RATE_FLOOR * 1e6), sent, g);
}

void give_some(struct donors *d)
{
	uint64_t now = donors_now(d);
	size_t busy = 0;
	list_each(it, &d->sending)
		busy += now - list_entry(it, struct given, link)->moved_us < STUCK_US;
	while (busy < AT_ONCE && d->nsending < SENDING_MAX) {
		struct taker *next = NULL;
		list_each(it, &d->takers) {
			struct taker *t = list_entry(it, struct taker, link);
			if (!next && t->waiting && t->sending < SENDING_OF_ONE)
				next = t;
		}
		if (!next)
			return;
		give(d, next);
		busy++;
	}
}

/* Nobody expects it; or not even the first chunks have come there in the time that the slowest link takes. */
static bool stalled(const struct given *g)
{
	double len = (double)piece_len(g), first = len < FIRST_BYTES ? len : FIRST_BYTES;
	uint64_t most = xfer_waits(g->x) ? NO_TAKER_US : PATIENCE_US + (uint64_t)(first * AT_ONCE / RATE_FLOOR * 1e6);
	return donors_now(g->h->d) - g->moved_us >= most;
}

void give_tick(struct donors *d)
{
	list_each_safe(it, &d->sending) {
		struct given *g = list_entry(it, struct given, link);
		if (moved(g) || !stalled(g))
			continue;
		d->stalled++;
		net_strike(d->rs->ctx.net, &g->t->id, "it asks for a state and does not take it");
		xfer_cancel(g->x);
		given_end(g);
	}
	give_some(d);
}

void give_piece(struct donors *d, struct request *req, const struct id *run)
{
	uint64_t piece;
	uint8_t list[TREE256];
	struct id tag;
	struct err e;
	struct held *h = NULL;
	struct taker *t = taker_of(d, &req->f.from);
	if (json_get_u64(req->f.json, "piece", &piece, &e) || json_get_hex(req->f.json, "list", list, sizeof list, &e) ||
			json_get_hex(req->f.json, "tag", tag.b, 32, &e)) {
		net_refuse(req, &e);
		return;
	}
	list_each(it, &d->held) {
		struct held *o = list_entry(it, struct held, link);
		if (o->ready && id_eq(&o->run, run) && !memcmp(o->list, list, sizeof list))
			h = o;
	}
	if (!h)
		err_set(&e, ERR_NOT_FOUND, "this peer holds that copy no more");
	else if (piece >= h->n)
		err_set(&e, ERR_INVALID, "piece %llu of %zu", (unsigned long long)piece, h->n);
	else if (t && t->waiting >= LINE_OF_ONE)
		err_set(&e, ERR_BUSY, "%u pieces wait for this peer already: it should take those first", t->waiting);
	else if (d->nline >= LINE_MAX)
		err_set(&e, ERR_BUSY, "%d pieces wait in line already", LINE_MAX);
	else if (FAILPOINT(d->rs->ctx.env, "run.state.give") < 0)
		err_set(&e, ERR_BUSY, "a fail point");
	else {
		struct given *g = xcalloc(1, sizeof *g);
		t = t ? t : taker_new(d, &req->f.from);
		*g = (struct given){ .h = h, .t = t, .tag = tag, .piece = (size_t)piece };
		h->lent++;
		list_push(&t->line, &g->link);
		t->waiting++;
		d->nline++;
		net_reply(req, NULL, NO_BLOB);
		give_some(d);
		return;
	}
	net_refuse(req, &e);
}
