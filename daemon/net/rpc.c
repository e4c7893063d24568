/* Calls, as long as they are open (rpc_end.c: how they end). A call is re-sent (same request id, so that the other side
 * runs it once) until it is answered, refused, cancelled, its peer is dead or restarted, or its time is over. One that
 * this room makes itself is the ping that asks whether a peer is there, a probe. */
#include <stdlib.h>
#include "common/mem.h"
#include "net/inner.h"

#define PROBE_AGAIN_US (100 * MS)

struct call_key { uint64_t peer, request; };

static struct call_key key_of(const struct call *c)
{
	return (struct call_key){ c->peer->serial, c->m->request };
}

struct call *rpc_find(const struct net *n, uint64_t peer, uint64_t request)
{
	const struct call_key k = { peer, request };

	return map_get(n->calls, &k, sizeof k);
}

void rpc_try(struct call *c)
{
	struct peer *p = c->peer;
	const struct call *oldest = list_entry(p->calls.next, struct call, link);

	c->tries++;
	c->stuck_us = env_now(c->net->env) + STUCK_US;
	c->m->span = (uint32_t)(c->m->request - oldest->m->request);
	c->cur = out_send(p, c->m, FLAG_CALL, 0, 0, call_gone, c);
	if (!c->cur)
		call_unsent(c);
	call_arm(c);
}

/* Takes it out of everything but its owner's hand. */
static void detach(struct call *c)
{
	struct call_key k;

	env_timer(c->net->env, &c->timer, 0);
	if (c->peer) {
		k = key_of(c);
		map_del(c->net->calls, &k, sizeof k);
		if (c->peer->probe == c)
			c->peer->probe = NULL;
		c->net->count.calls_open--;
	}
	list_del(&c->link);
	msg_kill(c->m);
	if (c->cur)
		out_forget(c->cur);
	c->cur = NULL;
	c->peer = NULL;
}

static void call_free(struct call *c)
{
	msg_unref(c->m);
	free(c);
}

void rpc_end_later(struct call *c, const struct err *e)
{
	struct net *n = c->net;

	if (c->peer)                            /* else it never began: even its blob is given back later */
		detach(c);
	c->ending = true;
	c->why = *e;
	list_push(&n->ending, &c->link);
	if (!n->later.at_us)
		env_after(n->env, &n->later, 1);
}

void rpc_end_peer(struct peer *p, bool only_sent, const struct err *e)
{
	list_each_safe(it, &p->calls) {
		struct call *c = list_entry(it, struct call, link);

		if (!only_sent || c->sent_us)
			rpc_end_later(c, e);
	}
}

void rpc_hello_failed(struct peer *p, const struct err *e)
{
	struct err mine = *e;
	char who[9];

	err_wrap(&mine, "peer %s", id_short(&p->id, who));
	rpc_end_peer(p, false, &mine);
}

/* What was sent with an older session and has no answer yet may have been lost with it. */
void rpc_hurry(struct peer *p, bool bulk_too)
{
	uint64_t soon = env_now(p->net->env) + 1;

	list_each(it, &p->calls) {
		struct call *c = list_entry(it, struct call, link);

		if (!c->cur && !c->pending && c->tries && c->retry_us > soon && (bulk_too || !msg_bulk(c->m))) {
			c->retry_us = soon;
			c->sent_us = 0;         /* not a miss of the peer's */
			call_arm(c);
		}
	}
}

struct call *net_call(struct net *n, const struct id *to, enum kind k, json_t *json, struct blob blob,
	enum net_class cls, uint64_t timeout_us, net_done_fn *done, void *arg)
{
	struct call *c = xcalloc(1, sizeof *c);
	struct call_key key;
	struct err e;
	char who[9];

	c->net = n;
	c->done = done;
	c->arg = arg;
	c->timer = (struct timer){ .fire = n->does->call, .name = "net call" };
	c->deadline_us = env_now(n->env) + timeout_us;
	c->m = msg_new(k, cls, json, blob);
	list_init(&c->link);
	if (c->m->dead)
		err_set(&e, ERR_LIMIT, "%s: more than %zu bytes of JSON or %zu of blob", kind_name(k), json_max(k),
			blob_max(k));
	else if (id_eq(to, &n->self.id))
		err_set(&e, ERR_INVALID, "a call to this daemon itself");
	else if (map_len(n->calls) >= n->conf.calls_max || !(c->peer = peer_make(n, to)))
		err_set(&e, ERR_FULL, "too many open calls or peers");
	else if (c->peer->banned_until_us)
		err_set(&e, ERR_REFUSED, "peer %s is banned", id_short(to, who));
	else if (c->peer->barred_us > env_now(n->env))
		err_set(&e, ERR_REFUSED, "peer %s does not let this daemon in: it is banned there, or not on the list",
			id_short(to, who));
	else if (c->peer->at_level == AT_NONE && !peer_session(c->peer))
		err_set(&e, ERR_UNREACHABLE, "no address of peer %s is known", id_short(to, who));
	else
		e.code = ERR_NONE;
	if (e.code) {
		c->peer = NULL;
		rpc_end_later(c, &e);
		return c;
	}
	c->m->request = c->peer->next_request++;
	key = key_of(c);
	map_put(n->calls, &key, sizeof key, c);
	list_push(&c->peer->calls, &c->link);
	n->count.calls_open++;
	rpc_try(c);
	return c;
}

void net_cancel(struct net *n, struct call *c)
{
	detach(c);
	call_free(c);
}

int net_post(struct net *n, const struct id *to, enum kind k, json_t *json, struct blob blob, enum net_class cls)
{
	struct msg *m = msg_new(k, cls, json, blob);
	struct peer *p = id_eq(to, &n->self.id) ? NULL : peer_make(n, to);
	int rc = -1;

	if (p && !m->dead && out_send(p, m, 0, 0, env_now(n->env) + POST_WAIT_US, NULL, NULL))
		rc = 0;
	msg_unref(m);
	return rc;
}

/* ---- is it there? ---- */

static void ask(struct peer *p, uint64_t deadline_us, bool second)
{
	struct net *n = p->net;
	uint64_t now = env_now(n->env);
	struct probe *q = p->probe_of;

	if (!q)
		q = xcalloc(1, sizeof *q);
	*q = (struct probe){ n, p->id, now, second };
	p->probe_next_us = now + PROBE_AGAIN_US;
	p->probe_of = q;
	p->probe = net_call(n, &p->id, KIND_PING, NULL, NO_BLOB, CLASS_control, deadline_us, n->does->probe_done, q);
	if (p->probe->ending)
		p->probe = NULL;
}

/* A more urgent question takes the place of one that is under way: its ping may be in the connection that broke. */
void rpc_probe(struct peer *p, uint64_t deadline_us)
{
	struct net *n = p->net;
	uint64_t now = env_now(n->env);

	if (n->freeing || (p->probe_of && !p->probe))
		return;
	if (p->probe) {
		if (p->probe_of->second || p->probe->deadline_us <= now + deadline_us)
			return;
		net_cancel(n, p->probe);
		p->probe = NULL;
	} else if (now < p->probe_next_us) {
		return;
	}
	ask(p, deadline_us, false);
}

void rpc_probe_second(struct peer *p, uint64_t deadline_us) { ask(p, deadline_us, true); }
