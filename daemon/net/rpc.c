/* Calls: each ends exactly once. A call is re-sent (same request id, so that the other side runs it once) until it is
 * answered, refused, cancelled, its peer is dead or restarted, or its time is over. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "common/jrpc.h"
#include "common/mem.h"
#include "common/planted.h"
#include "common/text.h"
#include "net/inner.h"

#define AGAIN_MAX_US (5 * SECOND)
/* The other side works on it: ask again only in case its answer is lost. */
#define PENDING_US (1 * SECOND)
#define STUCK_US (1 * SECOND)                   /* that long no socket has taken it, and nothing was heard: a miss */

struct call_key { uint64_t peer, request; };

static void call_fire(struct timer *t);

static struct call_key key_of(const struct call *c)
{
	return (struct call_key){ c->peer->serial, c->m->request };
}

static void arm(struct call *c)
{
	uint64_t at = c->deadline_us;

	if (c->cur ? c->stuck_us < at : c->retry_us < at)
		at = c->cur ? c->stuck_us : c->retry_us;
	env_timer(c->net->env, &c->timer, at ? at : 1);
}

static uint64_t backed_off(uint64_t us, uint32_t times, uint64_t max)
{
	us <<= times > 6 ? 6 : times;
	return us < max ? us : max;
}

static void call_gone(void *arg, bool sent)
{
	struct call *c = arg;
	uint64_t now = env_now(c->net->env);

	c->cur = NULL;
	if (sent) {
		c->sent_us = now;
		c->retry_us = now + backed_off(live_rto(c->peer, msg_bulk(c->m)), c->timeout_tries, AGAIN_MAX_US);
	} else {
		c->retry_us = now + backed_off(50 * MS, c->timeout_tries, AGAIN_MAX_US);
	}
	if (!PLANTED(CALL_NO_TIMER))
		arm(c);
}

static void try(struct call *c)
{
	struct peer *p = c->peer;
	const struct call *oldest = list_entry(p->calls.next, struct call, link);

	c->tries++;
	c->stuck_us = env_now(c->net->env) + STUCK_US;
	c->m->span = (uint32_t)(c->m->request - oldest->m->request);
	c->cur = out_send(p, c->m, FLAG_CALL, 0, 0, call_gone, c);
	if (!c->cur)
		c->retry_us = env_now(c->net->env) + backed_off(50 * MS, c->timeout_tries, AGAIN_MAX_US);
	arm(c);
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

void rpc_end(struct call *c, const struct frame *f, const struct err *e)
{
	net_done_fn *done = c->done;
	void *arg = c->arg;

	detach(c);
	call_free(c);
	done(arg, f, e);
}

void rpc_end_later(struct call *c, const struct err *e)
{
	struct net *n = c->net;

	if (c->peer)                            /* else it never began: even its blob is given back later */
		detach(c);
	c->ending = true;
	c->why = *e;
	list_push(&n->ending, &c->link);
	net_later(n);
}

void rpc_run_ending(struct net *n)
{
	struct list *x;

	while ((x = list_pop(&n->ending))) {
		struct call *c = list_entry(x, struct call, link);
		struct err e = c->why;

		rpc_end(c, NULL, &e);
	}
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
			arm(c);
		}
	}
}

static void give_up(struct call *c)
{
	struct peer *p = c->peer;
	char who[9], at[64];
	struct err e;

	id_short(&p->id, who);
	at_text(&p->at, CHAN_CTRL, at);
	if (c->pending || (p->heard_us && p->heard_us >= c->sent_us && c->sent_us))
		err_set(&e, ERR_TIMEOUT, "peer %s at %s is there but did not answer %s in time", who, at,
			kind_name(c->m->kind));
	else if (c->sent_us)
		err_set(&e, ERR_TIMEOUT, "peer %s at %s did not answer %s (sent %u times)", who, at,
			kind_name(c->m->kind), c->tries);
	else
		err_set(&e, ERR_UNREACHABLE, "peer %s at %s cannot be reached%s%s", who, at,
			p->hello && p->hello->why.code ? ": " : "",
			p->hello ? p->hello->why.text : "");
	p->failures++;
	rpc_end(c, NULL, &e);
}

/* That may be the miss too many: the peer is dead, and whoever hears of it cancels calls to it, this one among them.
 * False when the call is over; the memory of another may lie at its address. */
static bool missed(struct call *c, uint64_t since_us)
{
	const struct net *n = c->net;
	const struct call_key k = key_of(c);

	live_missed(c->peer, since_us);
	return map_get(n->calls, &k, sizeof k) == c;
}

/* One connection keeps its order: as long as bulk that was sent before this one is still being answered, this one is in
 * the queue behind it, in a socket that the other side's download limit lets it read slowly. As in RFC 6298, 5.3 the
 * time runs anew with every answer. What was sent later and has been answered has overtaken it: it is lost. */
static bool in_queue(struct call *c, uint64_t now)
{
	const struct peer *p = c->peer;
	uint64_t again = p->bulk_us + live_rto(p, true);

	if (!msg_bulk(c->m) || !c->sent_us || p->bulk_us < c->sent_us || p->bulk_sent_us > c->sent_us || again <= now)
		return false;
	c->retry_us = again;
	return true;
}

static void call_fire(struct timer *t)
{
	struct call *c = container_of(t, struct call, timer);
	uint64_t now = env_now(c->net->env);

	if (now >= c->deadline_us) {
		give_up(c);
		return;
	}
	/* A connection that is being made may have to wait for TCP's next SYN, up to a minute after a cut has healed. */
	if (c->cur && now >= c->stuck_us) {
		c->stuck_us = now + STUCK_US;
		if (c->cur->submitted && !missed(c, now - STUCK_US))
			return;
	}
	if (c->cur || now < c->retry_us || in_queue(c, now)) {
		arm(c);
		return;
	}
	if (c->sent_us && !missed(c, c->sent_us))
		return;
	c->timeout_tries++;
	try(c);
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
	c->timer = (struct timer){ .fire = call_fire, .name = "net call" };
	c->deadline_us = env_now(n->env) + timeout_us;
	c->m = msg_new(k, cls, json, blob);
	list_init(&c->link);
	if (c->m->dead)
		err_set(&e, ERR_LIMIT, "%s: more than %zu bytes of JSON or %u of blob", kind_name(k), json_max(k),
			NET_BLOB_MAX);
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
	try(c);
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

/* ---- answers ---- */

static void refused(const json_t *j, struct err *e)
{
	const char *code = json_string_value(json_object_get(j, "code"));
	const char *text = json_string_value(json_object_get(j, "text"));

	err_set(e, err_from_name(code), "%s", text ? text : "refused without a reason");
	if (!e->code)
		e->code = ERR_REFUSED;
	text_clean(e->text);
}

void rpc_answer(struct net *n, struct peer *p, const struct header *h, const char *json, const uint8_t *blob)
{
	struct call_key key = { p->serial, h->request };
	struct call *c = map_get(n->calls, &key, sizeof key);
	struct json_limits lim = JSON_BULK;
	struct frame f;
	json_t *j = NULL;
	struct err e;

	if (!c) {                               /* late: its call has ended; or there was none */
		guard_frame(p);
		return;
	}
	if (h->pre.flags & FLAG_PENDING) {
		c->pending = true;
		c->timeout_tries = 0;
		c->retry_us = env_now(n->env) + PENDING_US;
		if (!c->cur)
			arm(c);
		return;
	}
	if ((h->pre.flags & FLAG_PROMPT) && c->tries == 1 && c->sent_us)
		live_sample(p, msg_bulk(c->m), env_now(n->env) - c->sent_us);
	else if (c->tries > 1 && c->timeout_tries)
		live_backoff(p, msg_bulk(c->m));
	if (msg_bulk(c->m)) {
		p->bulk_us = env_now(n->env);
		if (c->tries == 1 && c->sent_us > p->bulk_sent_us)
			p->bulk_sent_us = c->sent_us;
	}
	lim.bytes = json_max(c->m->kind);
	if (h->json_len && !(j = json_read(json, h->json_len, lim, &e))) {
		n->count.bad_json++;
		err_wrap(&e, "the answer to %s", kind_name(c->m->kind));
		e.code = ERR_PROTOCOL;
		rpc_end(c, NULL, &e);
		guard_strike(p, e.text);
		return;
	}
	if (h->pre.kind == KIND_REFUSE) {
		refused(j, &e);
		rpc_end(c, NULL, &e);
	} else {
		f = (struct frame){ .kind = c->m->kind, .from = p->id, .json = j ? j : n->empty, .blob = blob,
			.blob_len = h->blob_len, .cls = h->cls };
		rpc_end(c, &f, NULL);
	}
	json_decref(j);
}
