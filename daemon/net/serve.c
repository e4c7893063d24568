/* Requests: each runs once per boot of its caller (served.c: what is remembered of it; reply.c: its answer). */
#include "common/jrpc.h"
#include "common/mem.h"
#include "common/planted.h"
#include "net/inner.h"

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
		reply_plain(p, h, msg_new(KIND_REPLY, CLASS_control, NULL, NO_BLOB), FLAG_PENDING, token);
	} else if (sv->state == SERVED_DONE) {
		reply_send(p, sv->reply, h->request, 0, token);
	} else {
		err_set(&e, ERR_STATE, "this call was answered before, and the answer is no longer kept");
		reply_plain(p, h, reply_refusal(&e), 0, token);
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
			served_prune(p);
		}
		if (h->request < p->floor || again(p, h, token))
			return;
	}
	if (h->pre.kind == KIND_PING) {
		if (call)
			reply_plain(p, h, msg_new(KIND_REPLY, CLASS_control, NULL, NO_BLOB), FLAG_PROMPT, token);
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
		reply_plain(p, h, reply_refusal(&e), FLAG_PROMPT, token);
	else if (!e.code && call)
		serve_call(n, p, h, j ? j : n->empty, blob, token);
	else if (!e.code)
		run(n, p, h, j ? j : n->empty, blob, NULL, token);
	json_decref(j);
}
