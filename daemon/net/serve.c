/* Requests: each runs once per boot of its caller. The answer is kept until the caller has shown that it needs it no
 * more (its frames say which of its calls is the oldest still open), or 30 s, or until memory for answers is short. */
#include <stdlib.h>
#include <string.h>
#include "common/buf.h"
#include "common/jrpc.h"
#include "common/mem.h"
#include "common/planted.h"
#include "common/text.h"
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
static void cache(struct net *n, struct served *sv)
{
	struct peer *p = sv->peer;

	list_push(&n->cached, &sv->cache);
	list_push(&p->cached, &sv->own);
	n->cached_bytes += msg_size(sv->reply);
	p->cached_bytes += msg_size(sv->reply);
	while (p->cached_bytes > CACHED_PEER_BYTES && p->cached.next != &sv->own)
		uncache(n, list_entry(p->cached.next, struct served, own));
}

static void served_free(struct net *n, struct served *sv)
{
	uncache(n, sv);
	if (!sv->stale)
		map_del(sv->peer->served, &sv->request, sizeof sv->request);
	list_del(&sv->link);
	free(sv);
}

/* Entries below the floor are of no use to the caller; a running one stays until its handler has answered. */
static void prune(struct peer *p)
{
	int look = PRUNE_LOOK;

	list_each_safe(it, &p->served_list) {
		struct served *sv = list_entry(it, struct served, link);

		if (sv->request < p->floor && sv->state != SERVED_RUNNING)
			served_free(p->net, sv);
		else if (!look--)
			return;
	}
}

/* The caller's process is over: running handlers may finish, but nobody will hear them. */
void serve_forget_boot(struct peer *p)
{
	list_each_safe(it, &p->served_list) {
		struct served *sv = list_entry(it, struct served, link);

		if (sv->state != SERVED_RUNNING) {
			served_free(p->net, sv);
			continue;
		}
		map_del(p->served, &sv->request, sizeof sv->request);
		sv->stale = true;
		list_del(&sv->link);
	}
}

void serve_free(struct peer *p)
{
	serve_forget_boot(p);
	map_free(p->served);
	p->served = NULL;
}

void serve_expire(struct net *n, uint64_t now)
{
	while (!list_empty(&n->cached)) {
		struct served *sv = list_entry(n->cached.next, struct served, cache);

		if (n->cached_bytes <= CACHED_BYTES_MAX && sv->done_us + CACHED_US > now)
			break;
		uncache(n, sv);
	}
	list_each_safe(it, &n->served) {
		struct peer *p = list_entry(it, struct peer, serve_link);

		prune(p);
		list_each_safe(x, &p->served_list) {
			struct served *sv = list_entry(x, struct served, link);

			if (sv->state == SERVED_FORGOT && sv->done_us + TOMBSTONE_US < now)
				served_free(n, sv);
			else if (sv->done_us + TOMBSTONE_US >= now)
				break;
		}
		if (list_empty(&p->served_list))
			list_del(&p->serve_link);
	}
}

/* ---- answering ---- */

static struct msg *refusal(const struct err *e)
{
	char text[sizeof e->text];

	memcpy(text, e->text, sizeof text);
	text_clean(text);
	return msg_new(KIND_REFUSE, CLASS_control, json_pack("{s:s,s:s}", "code", err_name(e->code), "text", text),
		NO_BLOB);
}

static void send_answer(struct peer *p, struct msg *m, uint64_t request, uint16_t flags, uint64_t token)
{
	m->request = request;
	out_send(p, m, flags, token, env_now(p->net->env) + POST_WAIT_US, NULL, NULL);
}

/* An answer that nobody keeps: it can be made again. */
static void answer_plain(struct peer *p, const struct header *h, struct msg *m, uint16_t flags, uint64_t token)
{
	send_answer(p, m, h->request, flags, token);
	msg_unref(m);
}

static void answered(struct kept *k, struct msg *m)
{
	struct served *sv = k->sv;
	struct peer *p = k->peer;
	struct net *n = p->net;

	k->answered = true;
	(void)FAILPOINT(n->env, "net.answer.before");
	if (m->dead) {                          /* larger than a frame can be: say so instead */
		struct err e;

		err_set(&e, ERR_LIMIT, "the answer to %s is larger than a frame", kind_name(k->r.f.kind));
		msg_unref(m);
		m = refusal(&e);
	}
	if (!sv) {
		msg_unref(m);                   /* a post: nothing was due */
	} else if (sv->stale || sv->request < p->floor) {
		sv->state = SERVED_FORGOT;
		served_free(n, sv);
		msg_unref(m);
	} else {
		sv->state = SERVED_DONE;
		sv->done_us = env_now(n->env);
		sv->reply = m;
		cache(n, sv);
		send_answer(p, m, sv->request, k->in_handler ? FLAG_PROMPT : 0, k->token);
		(void)FAILPOINT(n->env, "net.answer.after");
		if (n->cached_bytes > CACHED_BYTES_MAX)
			serve_expire(n, sv->done_us);
	}
	k->sv = NULL;
	if (k->kept) {
		list_del(&k->link);
		p->pins--;
		free(k);
	}
}

struct blob blob_copy(const void *p, size_t n)
{
	void *copy = xmemdup(p, n);

	return (struct blob){ .data = copy, .len = n, .release = free, .arg = copy };
}

struct blob blob_steal(struct buf *b)
{
	struct blob r = { .data = b->p, .len = b->len, .release = free, .arg = b->p };

	*b = (struct buf){ 0 };
	return r;
}

void net_reply(struct request *req, json_t *json, struct blob blob)
{
	answered(container_of(req, struct kept, r), msg_new(KIND_REPLY, req->f.cls, json, blob));
}

void net_refuse(struct request *req, const struct err *e)
{
	answered(container_of(req, struct kept, r), refusal(e));
}

struct request *net_keep(struct request *req)
{
	struct kept *k = container_of(req, struct kept, r), *copy;

	if (k->kept)
		return req;
	copy = xmemdup(k, sizeof *k);
	copy->kept = true;
	copy->in_handler = false;
	copy->r.f.json = NULL;
	copy->r.f.blob = NULL;
	copy->r.f.blob_len = 0;
	list_push(&k->peer->net->kept, &copy->link);
	k->peer->pins++;
	k->answered = true;                     /* the copy is who answers now */
	return &copy->r;
}

void serve_free_kept(struct net *n)
{
	list_each_safe(it, &n->kept) {
		struct kept *k = list_entry(it, struct kept, link);

		k->peer->pins--;
		if (k->sv && k->sv->stale)
			free(k->sv);
		else if (k->sv)
			k->sv->state = SERVED_FORGOT;   /* freed with its peer */
		list_del(&k->link);
		free(k);
	}
}

/* ---- running ---- */

static void run(struct net *n, struct peer *p, const struct header *h, const json_t *j, const uint8_t *blob,
	struct served *sv, uint64_t token)
{
	struct kept k = { .peer = p, .sv = sv, .token = token, .in_handler = true };
	struct err e;

	k.r = (struct request){ .net = n, .wants_reply = sv, .f = { .kind = h->pre.kind, .from = p->id, .json = j,
		.blob = blob, .blob_len = h->blob_len, .cls = h->cls } };
	list_init(&k.link);
	n->handlers[h->pre.kind].fn(n->handlers[h->pre.kind].arg, &k.r);
	if (!sv || k.answered)
		return;
	log_write(n->env->log, LOG_ERROR_, "net", "the handler of %s has not answered", kind_name(h->pre.kind));
	err_set(&e, ERR_INTERNAL, "the handler of %s has not answered", kind_name(h->pre.kind));
	net_refuse(&k.r, &e);
}

/* Seen before? Then the answer is sent again, or that it is being worked on. */
static bool again(struct peer *p, const struct header *h, uint64_t token)
{
	struct served *sv = map_get(p->served, &h->request, sizeof h->request);
	struct err e;

	if (!sv || PLANTED(RUN_AGAIN))
		return false;
	if (sv->state == SERVED_RUNNING) {
		answer_plain(p, h, msg_new(KIND_REPLY, CLASS_control, NULL, NO_BLOB), FLAG_PENDING, token);
	} else if (sv->state == SERVED_DONE) {
		send_answer(p, sv->reply, h->request, 0, token);
	} else {
		err_set(&e, ERR_STATE, "this call was answered before, and the answer is no longer kept");
		answer_plain(p, h, refusal(&e), 0, token);
	}
	return true;
}

static void serve_call(struct net *n, struct peer *p, const struct header *h, const json_t *j, const uint8_t *blob,
	uint64_t token)
{
	struct served *sv;

	sv = xcalloc(1, sizeof *sv);
	sv->peer = p;
	sv->request = h->request;
	sv->done_us = env_now(n->env);
	list_init(&sv->cache);
	list_init(&sv->own);
	list_push(&p->served_list, &sv->link);
	if (list_empty(&p->serve_link))
		list_push(&p->net->served, &p->serve_link);
	map_put(p->served, &sv->request, sizeof sv->request, sv);
	p->pins++;
	run(n, p, h, j, blob, sv, token);
	p->pins--;
}

void serve_request(struct net *n, struct peer *p, uint64_t token, const struct header *h, const char *json,
	const uint8_t *blob)
{
	bool call = h->pre.flags & FLAG_CALL;
	uint64_t low = h->request - h->span;
	struct json_limits lim = JSON_BULK;
	json_t *j = NULL;
	struct err e = {0};

	lim.bytes = json_max(h->pre.kind);
	if (call) {
		if (!p->served)
			p->served = map_new(n->map_key);
		if (low <= h->request && low > p->floor) {
			p->floor = low;
			prune(p);
		}
		if (h->request < p->floor || again(p, h, token))
			return;
	}
	if (h->pre.kind == KIND_PING) {
		if (call)
			answer_plain(p, h, msg_new(KIND_REPLY, CLASS_control, NULL, NO_BLOB), FLAG_PROMPT, token);
		return;
	}
	if (h->json_len && !(j = json_read(json, h->json_len, lim, &e))) {
		n->count.bad_json++;
		err_wrap(&e, "%s", kind_name(h->pre.kind));
		guard_strike(p, e.text);
	} else if (!n->handlers[h->pre.kind].fn) {
		err_set(&e, ERR_NO_METHOD, "this daemon does not serve %s", kind_name(h->pre.kind));
	} else if (call && map_len(p->served) >= SERVED_PER_PEER) {
		err_set(&e, ERR_BUSY, "more than %u open calls of one peer", SERVED_PER_PEER);
	}
	if (e.code && call)
		answer_plain(p, h, refusal(&e), FLAG_PROMPT, token);
	else if (!e.code && call)
		serve_call(n, p, h, j ? j : n->empty, blob, token);
	else if (!e.code)
		run(n, p, h, j ? j : n->empty, blob, NULL, token);
	json_decref(j);
}
