/* Answers: what a handler gives back, now or later (net_keep), exactly once. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/text.h"
#include "net/inner.h"

struct msg *reply_refusal(const struct err *e)
{
	char text[sizeof e->text];

	memcpy(text, e->text, sizeof text);
	text_clean(text);
	return msg_new(KIND_REFUSE, CLASS_control, json_pack("{s:s,s:s}", "code", err_name(e->code), "text", text),
		NO_BLOB);
}

void reply_send(struct peer *p, struct msg *m, uint64_t request, uint16_t flags, uint64_t token)
{
	m->request = request;
	out_send(p, m, flags, token, env_now(p->net->env) + POST_WAIT_US, NULL, NULL);
}

/* An answer that nobody keeps: it can be made again. */
void reply_plain(struct peer *p, const struct header *h, struct msg *m, uint16_t flags, uint64_t token)
{
	reply_send(p, m, h->request, flags, token);
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
		m = reply_refusal(&e);
	}
	if (!sv) {
		msg_unref(m);                   /* a post: nothing was due */
	} else if (sv->stale || sv->request < p->floor) {
		sv->state = SERVED_FORGOT;
		served_drop(n, sv);
		msg_unref(m);
	} else {
		sv->state = SERVED_DONE;
		sv->done_us = env_now(n->env);
		sv->reply = m;
		served_keep(n, sv);
		reply_send(p, m, sv->request, k->in_handler ? FLAG_PROMPT : 0, k->token);
		(void)FAILPOINT(n->env, "net.answer.after");
		if (n->cached_bytes > CACHED_BYTES_MAX)
			served_expire(n, sv->done_us);
	}
	k->sv = NULL;
	if (k->kept) {
		list_del(&k->link);
		p->pins--;
		free(k);
	}
}

void net_reply(struct request *req, json_t *json, struct blob blob)
{
	answered(container_of(req, struct kept, r), msg_new(KIND_REPLY, req->f.cls, json, blob));
}

void net_refuse(struct request *req, const struct err *e)
{
	answered(container_of(req, struct kept, r), reply_refusal(e));
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

void reply_free_kept(struct net *n)
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
