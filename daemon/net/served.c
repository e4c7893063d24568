/* What is remembered of each peer's requests, so that each runs once: which run, and the answers of those that have
 * run, until the caller has shown that it needs them no more (its frames say which of its calls is the oldest still
 * open), or 30 s, or until memory for answers is short. */
#include <stdlib.h>
#include "net/inner.h"

#define TOMBSTONE_US (60 * SECOND)
#define PRUNE_LOOK 16

static size_t msg_size(const struct msg *m)
{
	return sizeof *m + m->json_len + m->blob.len;
}

static void uncache(struct net *n, struct served *sv)
{
	if (!sv->reply)
		return;
	n->cached_bytes -= msg_size(sv->reply);
	sv->peer->cached_bytes -= msg_size(sv->reply);
	list_del(&sv->cache);
	list_del(&sv->own);
	msg_unref(sv->reply);
	sv->reply = NULL;
	sv->state = SERVED_FORGOT;
}

/* One peer's answers make room for its own, not for everybody's. */
void served_keep(struct net *n, struct served *sv)
{
	struct peer *p = sv->peer;

	list_push(&n->cached, &sv->cache);
	list_push(&p->cached, &sv->own);
	n->cached_bytes += msg_size(sv->reply);
	p->cached_bytes += msg_size(sv->reply);
	while (p->cached_bytes > CACHED_PEER_BYTES && p->cached.next != &sv->own)
		uncache(n, list_entry(p->cached.next, struct served, own));
}

void served_drop(struct net *n, struct served *sv)
{
	uncache(n, sv);
	if (!sv->stale)
		map_del(sv->peer->served, &sv->request, sizeof sv->request);
	list_del(&sv->link);
	free(sv);
}

/* Entries below the floor are of no use to the caller; a running one stays until its handler has answered. */
void served_prune(struct peer *p)
{
	int look = PRUNE_LOOK;

	list_each_safe(it, &p->served_list) {
		struct served *sv = list_entry(it, struct served, link);

		if (sv->request < p->floor && sv->state != SERVED_RUNNING)
			served_drop(p->net, sv);
		else if (!look--)
			return;
	}
}

/* The caller's process is over: running handlers may finish, but nobody will hear them. */
void served_forget_boot(struct peer *p)
{
	list_each_safe(it, &p->served_list) {
		struct served *sv = list_entry(it, struct served, link);

		if (sv->state != SERVED_RUNNING) {
			served_drop(p->net, sv);
			continue;
		}
		map_del(p->served, &sv->request, sizeof sv->request);
		sv->stale = true;
		list_del(&sv->link);
	}
}

void served_free(struct peer *p)
{
	served_forget_boot(p);
	map_free(p->served);
	p->served = NULL;
}

void served_expire(struct net *n, uint64_t now)
{
	while (!list_empty(&n->cached)) {
		struct served *sv = list_entry(n->cached.next, struct served, cache);

		if (n->cached_bytes <= CACHED_BYTES_MAX && sv->done_us + CACHED_US > now)
			break;
		uncache(n, sv);
	}
	list_each_safe(it, &n->served) {
		struct peer *p = list_entry(it, struct peer, serve_link);

		served_prune(p);
		list_each_safe(x, &p->served_list) {
			struct served *sv = list_entry(x, struct served, link);

			if (sv->state == SERVED_FORGOT && sv->done_us + TOMBSTONE_US < now)
				served_drop(n, sv);
			else if (sv->done_us + TOMBSTONE_US >= now)
				break;
		}
		if (list_empty(&p->served_list))
			list_del(&p->serve_link);
	}
}
