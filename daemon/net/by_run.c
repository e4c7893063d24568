/* Handlers of runs (by_run.h). */
#include <stdlib.h>
#include "common/jrpc.h"
#include "common/mem.h"
#include "net/by_run.h"

struct by_run_hub { struct net *net; struct list owners; const enum kind *kinds; size_t n; };

static struct by_run *owner_of(struct by_run_hub *h, const struct id *run)
{
	list_each(it, &h->owners) {
		struct by_run *b = list_entry(it, struct by_run, link);

		if (id_eq(b->run, run))
			return b;
	}
	return NULL;
}

static void dispatch(void *arg, struct request *req)
{
	struct by_run *b = NULL;
	struct id run;
	struct err e;

	if (json_get_hex(req->f.json, "run", run.b, sizeof run.b, &e) == 0) {
		b = owner_of(arg, &run);
		(void)err_set(&e, ERR_NOT_FOUND, "this peer is not in that run");
	}
	if (b)
		b->hand(b->owner, req);
	else if (req->wants_reply)
		net_refuse(req, &e);
}

int by_run_enter(struct by_run *b, struct net *net, const enum kind *kinds, size_t n, const struct id *run,
	by_run_fn *hand, void *owner, struct err *e)
{
	struct by_run_hub *h = net_on_arg(net, kinds[0], dispatch);

	if (h && owner_of(h, run))
		return err_set(e, ERR_EXISTS, "this run is here already");
	if (!h) {
		h = xcalloc(1, sizeof(*h));
		*h = (struct by_run_hub){ .net = net, .kinds = kinds, .n = n };
		list_init(&h->owners);
		for (size_t i = 0; i < n; i++)
			net_on(net, kinds[i], dispatch, h);
	}
	*b = (struct by_run){ .hub = h, .run = run, .hand = hand, .owner = owner };
	list_push(&h->owners, &b->link);
	return 0;
}

void by_run_leave(struct by_run *b)
{
	struct by_run_hub *h = b->hub;

	if (!h)
		return;
	list_del(&b->link);
	b->hub = NULL;
	if (!list_empty(&h->owners))
		return;
	for (size_t i = 0; i < h->n; i++)
		net_on(h->net, h->kinds[i], NULL, NULL);
	free(h);
}
