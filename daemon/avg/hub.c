/* Several runs share one network, which has one handler per kind: the hub reads "run" and hands on. It belongs to the
 * runs in it; the first makes it, the last frees it. Also the small change of messages: blobs, endpoints, events. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "avg/int.h"
#include "avg/audit.h"
#include "avg/proof.h"
#include "avg/sent.h"
#include "common/jrpc.h"

struct hub { struct net *net; struct list avgs; };

static const struct { enum kind kind; void (*fn)(struct avg *a, struct request *req); } handlers[] = {
	{ KIND_AVG_JOIN, join_on }, { KIND_AVG_PROGRESS, progress_on }, { KIND_AVG_BEGIN, member_begin_on },
	{ KIND_AVG_ATTEMPT, member_attempt_on }, { KIND_AVG_MISSING, member_missing_on }, { KIND_AVG_COMMIT,
	member_commit_on },
	{ KIND_AVG_RECOVER, recover_on }, { KIND_AVG_LEAVE, leave_on }, { KIND_AVG_PROPOSE, propose_on },
	{ KIND_AVG_GRANT, grant_on }, { KIND_AVG_REDIRECT, redirect_on }, { KIND_AVG_SHOW, show_on },
	{ KIND_AVG_PROOF, proof_on }, { KIND_AVG_SENT, sent_on }, { KIND_AVG_AUDIT, audit_on },
	{ KIND_AVG_WRONG, wrong_on },
};
#define HANDLERS (sizeof handlers / sizeof *handlers)

static void dispatch(void *arg, struct request *req)
{
	struct hub *h = arg;
	struct id run;
	struct err e;
	if (json_get_hex(req->f.json, "run", run.b, 32, &e)) {
		if (req->wants_reply)
			net_refuse(req, &e);
		return;
	}
	list_each(it, &h->avgs) {
		struct avg *a = list_entry(it, struct avg, in_hub);
		if (!id_eq(&a->conf.run, &run))
			continue;
		for (size_t i = 0; i < HANDLERS; i++)
			if (handlers[i].kind == req->f.kind) {
				handlers[i].fn(a, req);
				return;
			}
	}
	if (req->wants_reply) {
		err_set(&e, ERR_NOT_FOUND, "this peer is not in that run");
		net_refuse(req, &e);
	}
}

int hub_enter(struct avg *a, struct err *e)
{
	struct hub *h = net_on_arg(a->net, handlers[0].kind, dispatch);
	if (!h) {
		h = xcalloc(1, sizeof *h);
		h->net = a->net;
		list_init(&h->avgs);
		for (size_t i = 0; i < HANDLERS; i++)
			net_on(a->net, handlers[i].kind, dispatch, h);
	}
	list_each(it, &h->avgs)
		if (id_eq(&list_entry(it, struct avg, in_hub)->conf.run, &a->conf.run))
			return err_set(e, ERR_EXISTS, "this run is being averaged already");
	list_push(&h->avgs, &a->in_hub);
	a->hub = h;
	return 0;
}

void hub_leave(struct avg *a)
{
	struct hub *h = a->hub;
	if (!h)
		return;
	list_del(&a->in_hub);
	a->hub = NULL;
	if (!list_empty(&h->avgs))
		return;
	for (size_t i = 0; i < HANDLERS; i++)
		net_on(h->net, handlers[i].kind, NULL, NULL);
	free(h);
}

json_t *hub_json(const struct avg *a)
{
	return json_pack("{s:s}", "run", a->hex);
}

void hub_event(struct avg *a, enum log_level level, const char *code, const struct id *peer, const char *fmt, ...)
{
	char text[256];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	if (a->cb.event)
		a->cb.event(a->arg, level, code, peer, text);
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

json_t *json_endpoint(const struct endpoint *at)
{
	uint8_t v[22];
	memcpy(v, at->ip, 16);
	for (int i = 0; i < 3; i++) {
		v[16 + 2 * i] = (uint8_t)(at->port[i] >> 8);
		v[17 + 2 * i] = (uint8_t)at->port[i];
	}
	return json_hex(v, sizeof v);
}

bool endpoint_of(const json_t *o, const char *key, struct endpoint *ret)
{
	uint8_t v[22];
	if (json_get_hex(o, key, v, sizeof v, NULL))
		return false;
	memcpy(ret->ip, v, 16);
	for (int i = 0; i < 3; i++)
		ret->port[i] = (uint16_t)(v[16 + 2 * i] << 8 | v[17 + 2 * i]);
	return true;
}

bool id_of_json(const json_t *o, const char *key, struct id *ret)
{
	return !json_get_hex(o, key, ret->b, 32, NULL);
}

/* ---- measured times ---- */

#define SHORT_MAX 5                             /* a third and half of that again */
#define MEASURED 5                              /* times; fewer say nothing */

void times_add(struct times *t, uint64_t us)
{
	t->v[t->n++ % TIMES] = us;
	if (t->n >= MEASURED)
		t->least_us = 0;
}

void times_short(struct times *t, uint64_t times, uint64_t us, uint64_t unmeasured_us)
{
	uint64_t least = us * (times < 2 ? 2 : times > SHORT_MAX ? SHORT_MAX : times);
	least = least < 16 * unmeasured_us ? least : 16 * unmeasured_us;
	t->least_us = least > t->least_us ? least : t->least_us;
}

uint64_t times_deadline(const struct times *t, uint64_t floor_us, uint64_t unmeasured_us)
{
	uint64_t worst = 0, least = t->least_us > floor_us ? t->least_us : floor_us;
	unsigned n = t->n < TIMES ? t->n : TIMES;
	for (unsigned i = 0; i < n; i++)
		if (t->v[i] > worst)
			worst = t->v[i];
	if (n < MEASURED)
		return unmeasured_us > least ? unmeasured_us : least;
	return worst * 3 > least ? worst * 3 : least;
}
