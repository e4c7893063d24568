/* Several runs share one network, which has one handler per kind: the hub reads "run" and hands on. It belongs to the
 * crews in it; the first makes it, the last frees it. */
#include <stdlib.h>
#include "crew/int.h"

struct crew_hub { struct net *net; struct list crews; };

static const struct { enum kind kind; void (*fn)(struct crew *c, struct request *req); } handlers[] = {
	{ KIND_CREW_PROPOSE, crew_propose_on }, { KIND_CREW_GO, crew_go_on }, { KIND_CREW_ASK, crew_ask_on },
	{ KIND_CREW_SHOW, crew_show_on },
};
#define HANDLERS (sizeof handlers / sizeof *handlers)

static struct crew *crew_of(struct crew_hub *h, const struct id *run)
{
	list_each(it, &h->crews) {
		struct crew *c = list_entry(it, struct crew, in_hub);
		if (id_eq(&c->conf.run, run))
			return c;
	}
	return NULL;
}

static void dispatch(void *arg, struct request *req)
{
	struct id run;
	struct err e;
	if (!req->wants_reply)
		return;
	if (json_get_hex(req->f.json, "run", run.b, 32, &e)) {
		net_refuse(req, &e);
		return;
	}
	struct crew *c = crew_of(arg, &run);
	for (size_t i = 0; i < HANDLERS && c; i++)
		if (handlers[i].kind == req->f.kind) {
			handlers[i].fn(c, req);
			return;
		}
	err_set(&e, ERR_NOT_FOUND, "this peer is not in that run");
	net_refuse(req, &e);
}

int crew_hub_enter(struct crew *c, struct err *e)
{
	struct crew_hub *h = net_on_arg(c->net, handlers[0].kind, dispatch);
	if (!h) {
		h = xcalloc(1, sizeof *h);
		h->net = c->net;
		list_init(&h->crews);
		for (size_t i = 0; i < HANDLERS; i++)
			net_on(c->net, handlers[i].kind, dispatch, h);
	}
	if (crew_of(h, &c->conf.run))
		return err_set(e, ERR_EXISTS, "this run has a crew here already");
	list_push(&h->crews, &c->in_hub);
	c->hub = h;
	return 0;
}

void crew_hub_leave(struct crew *c)
{
	struct crew_hub *h = c->hub;
	if (!h)
		return;
	list_del(&c->in_hub);
	c->hub = NULL;
	if (!list_empty(&h->crews))
		return;
	for (size_t i = 0; i < HANDLERS; i++)
		net_on(h->net, handlers[i].kind, NULL, NULL);
	free(h);
}

json_t *crew_head(const struct crew *c)
{
	return json_pack("{s:s}", "run", c->hex);
}

struct blob crew_blob(struct buf *b)
{
	struct blob r = { .data = b->p, .len = b->len, .release = free, .arg = b->p };
	*b = (struct buf){ 0 };
	return r;
}
