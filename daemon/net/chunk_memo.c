/* Names of transfers that a receiver remembers: those that nobody takes yet, and those that are over, in case the last
 * acknowledgement was lost. Each sender has its share: one that names thousands pushes out none but its own. */
#include <stdlib.h>
#include "common/mem.h"
#include "net/chunk_int.h"

struct memo_peer { struct id id; struct list own; unsigned n; };

struct memo *memo_get(struct memos *m, const struct xfer_key *k)
{
	return map_get(m->map, k, sizeof *k);
}

void memo_del(struct memos *m, struct memo *x)
{
	struct memo_peer *p = x->of;

	map_del(m->map, &x->key, sizeof x->key);
	list_del(&x->link);
	list_del(&x->own);
	free(x);
	if (--p->n)
		return;
	map_del(m->peers, p->id.b, sizeof p->id.b);
	free(p);
}

static struct memo_peer *peer_of(struct memos *m, const struct id *id)
{
	struct memo_peer *p = map_get(m->peers, id->b, sizeof id->b);

	if (p)
		return p;
	p = xcalloc(1, sizeof *p);
	p->id = *id;
	list_init(&p->own);
	map_put(m->peers, id->b, sizeof id->b, p);
	return p;
}

static void make_room(struct memos *m, const struct xfer_key *k)
{
	const struct memo_peer *p = map_get(m->peers, k->peer.b, sizeof k->peer.b);

	if (p && p->n >= MEMOS_PEER_MAX)
		memo_del(m, list_entry(p->own.next, struct memo, own));
	else if (map_len(m->map) >= MEMOS_MAX)
		memo_del(m, list_entry(m->list.next, struct memo, link));
}

void memo_put(struct memos *m, const struct xfer_key *k, uint64_t serial, const struct err *e)
{
	struct memo *x = memo_get(m, k);

	if (x)
		memo_del(m, x);
	else
		make_room(m, k);
	x = xcalloc(1, sizeof *x);
	x->key = *k;
	x->serial = serial;
	if (e)
		x->e = *e;
	x->of = peer_of(m, &k->peer);
	x->of->n++;
	list_push(&x->of->own, &x->own);
	list_push(&m->list, &x->link);
	map_put(m->map, k, sizeof *k, x);
}

void memos_forget(struct memos *m, const struct id *peer)
{
	const struct memo_peer *p;

	while ((p = map_get(m->peers, peer->b, sizeof peer->b)))
		memo_del(m, list_entry(p->own.next, struct memo, own));
}

void memos_init(struct memos *m, uint64_t key)
{
	m->map = map_new(key);
	m->peers = map_new(key);
	list_init(&m->list);
}

void memos_free(struct memos *m)
{
	while (!list_empty(&m->list))
		memo_del(m, list_entry(m->list.next, struct memo, link));
	map_free(m->map);
	map_free(m->peers);
}
