/* A state download as others of the room know it, and how it lets go: of a donor, of a piece on its way, of what has
 * come to lie beside the state. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "run/fetch.h"

#define RETRY_MAX_US 1000000

/* ---- beside the state ---- */

static size_t piece_len(const struct pieces *p, size_t i)
{
	return p->bytes - i * p->piece < p->piece ? p->bytes - i * p->piece : p->piece;
}

void piece_free(struct pieces *p, size_t i)
{
	big_free(p->v[i], piece_len(p, i));
	p->v[i] = NULL;
}

void pieces_drop(struct pieces *p)
{
	for (size_t i = 0; p->v && i < p->n; i++)
		piece_free(p, i);
	free(p->v);
	*p = (struct pieces){ 0 };
}

void pieces_free(struct pieces *p)
{
	if (p)
		pieces_drop(p);
	free(p);
}

void pieces_put(const struct pieces *p, struct shard *s)
{
	char *state = s->block;
	for (size_t i = 0; i < p->n; i++)
		if (p->v[i])
			memcpy(state + i * p->piece, p->v[i], piece_len(p, i));
}

const void *pieces_at(void *arg, size_t off, size_t *ret_len)
{
	const struct pieces *p = arg;
	size_t i = off / p->piece;
	*ret_len = piece_len(p, i);
	return p->v[i];
}

/* ---- ends ---- */

void flight_free(struct flight *l)
{
	big_free(l->data, l->len);
	free(l);
}

void flight_end(struct flight *l)
{
	struct fetch *f = l->f;
	if (l->call)
		net_cancel(f->r->rs->ctx.net, l->call);
	if (l->x)
		xfer_cancel(l->x);
	l->d->flying--;
	if (f->have[l->piece] == PIECE_FLYING)
		f->have[l->piece] = PIECE_NEEDED;
	list_del(&l->link);
	l->over = true;
	if (!l->hashing)
		flight_free(l);
}

/* It gives nothing any more. told: it is asked to stop what it still sends. */
void fetch_drop(struct fetch *f, struct donor *d, bool tell)
{
	struct net *net = f->r->rs->ctx.net;
	tell = tell && d->flying;
	if (d->call)
		net_cancel(net, d->call);
	d->call = NULL;
	list_each_safe(it, &f->flights) {
		struct flight *l = list_entry(it, struct flight, link);
		if (l->d == d)
			flight_end(l);
	}
	if (tell)
		net_post(net, &d->id, KIND_RUN_STATE, json_pack("{s:s}", "run", f->r->hex), NO_BLOB, CLASS_weight);
	if (!d->out)
		net_care(net, &d->id, -1);
	d->out = true;
}

void fetch_forget_donors(struct fetch *f)
{
	for (size_t i = 0; i < f->nd; i++) {
		struct donor *d = &f->d[i];
		fetch_drop(f, d, true);
		free(d->hash);
		avg_point_done(&d->point);
	}
	f->nd = 0;
	f->ref = NULL;
}

void fetch_forget(struct fetch *f)
{
	free(f->have);
	f->have = NULL;
}

void fetch_again(struct fetch *f, const char *why)
{
	struct run *r = f->r;
	bool met = f->nd > 0;
	char text[sizeof f->why];
	snprintf(text, sizeof text, "%s", why); /* why may lie in what goes now */
	fetch_forget_donors(f);
	f->backoff_us = f->backoff_us && met ? f->backoff_us * 2 : RETRY_MIN_US;
	if (f->backoff_us > RETRY_MAX_US)
		f->backoff_us = RETRY_MAX_US;
	if (f->tries++ % 5 == 0)
		run_log(r, LOG_WARN_, "sync.retry", "state: %s; asking again", text);
	f->resting = true;
	env_after(r->rs->ctx.env, &f->timer, f->backoff_us);
}

void fetch_free(struct fetch *f)
{
	if (!f)
		return;
	net_unwatch(f->r->rs->ctx.net, f->news, f);
	fetch_forget_donors(f);
	env_timer(f->r->rs->ctx.env, &f->timer, 0);
	pieces_drop(&f->aside);
	free(f->have);
	free(f->hash);
	free(f);
}

/* ---- what it knows ---- */

uint64_t fetch_epoch(const struct fetch *f)
{
	return f->ref ? f->ref->point.epoch : UINT64_MAX;
}

bool fetch_all_answered(const struct fetch *f)
{
	for (size_t i = 0; i < f->nd; i++)
		if (f->d[i].call)
			return false;
	return true;
}

bool fetch_same_list(const struct donor *a, const struct donor *b)
{
	return a->listed && b->listed && !a->out && !b->out && a->point.epoch == b->point.epoch &&
		!memcmp(a->point.prev, b->point.prev, DIGEST) && !memcmp(a->list, b->list, sizeof a->list);
}

bool fetch_usable(const struct fetch *f, const struct donor *d)
{
	return d->listed && !d->out && d->point.epoch == f->ref->point.epoch &&
		!memcmp(d->point.prev, f->ref->point.prev, DIGEST);
}
