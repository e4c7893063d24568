/* How calls end: answered, refused, timed out. Each ends exactly once, and says so to who made it. */
#include "common/jrpc.h"
#include "common/text.h"
#include "net/inner.h"

/* The other side works on it: ask again only in case its answer is lost. */
#define PENDING_US (1 * SECOND)

void rpc_end(struct call *c, const struct frame *f, const struct err *e)
{
	net_done_fn *done = c->done;
	void *arg = c->arg;

	net_cancel(c->net, c);
	done(arg, f, e);
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
	uint64_t peer = c->peer->serial, request = c->m->request;

	live_missed(c->peer, since_us);
	return rpc_find(n, peer, request) == c;
}

/* One connection keeps its order: as long as bulk that was sent before this one is still being answered, this one is in
 * the queue behind it, in a socket that the other side's download limit lets it read slowly. As in RFC 6298, 5.3 the
 * time runs anew with every answer. What was sent later and has been answered has overtaken it: it is lost. */
static bool in_queue(struct call *c, uint64_t now)
{
	const struct peer *p = c->peer;
	uint64_t again = p->bulk_us + rtt_rto(p, true);

	if (!msg_bulk(c->m) || !c->sent_us || p->bulk_us < c->sent_us || p->bulk_sent_us > c->sent_us || again <= now)
		return false;
	c->retry_us = again;
	return true;
}

void call_fire(struct timer *t)
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
		call_arm(c);
		return;
	}
	if (c->sent_us && !missed(c, c->sent_us))
		return;
	c->timeout_tries++;
	rpc_try(c);
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
	struct call *c = rpc_find(n, p->serial, h->request);
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
			call_arm(c);
		return;
	}
	if ((h->pre.flags & FLAG_PROMPT) && c->tries == 1 && c->sent_us)
		rtt_sample(p, msg_bulk(c->m), env_now(n->env) - c->sent_us);
	else if (c->tries > 1 && c->timeout_tries)
		rtt_backoff(p, msg_bulk(c->m));
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
