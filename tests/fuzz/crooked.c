/* See crooked.h. It stands where handlers and those who wait for answers do, so that sessions and seals are real. */
#include "crooked.h"
#include <stdlib.h>
#include <string.h>
#include "common/jrpc.h"
#include "common/mem.h"
#include "net/inner.h"

enum edit { BLOB_OVER, BLOB_CUT, BLOB_IN, BLOB_OUT, BLOB_ALL, JSON_VALUE, JSON_DROP, JSON_ALL, EDITS };
struct handler { net_handler_fn *fn; void *arg; };
struct waiter { struct list link; struct crooked *c; net_done_fn *done; void *arg; };
struct crooked {
	struct net *(*net_of)(void *arg); void *arg;
	enum kind first, last;
	struct handler handler[256];
	struct list waiters;
	struct rd in;
	unsigned pass;                          /* frames before the next edit */
	bool over;
};
struct edited { struct buf blob; json_t *json; };

static void next(struct crooked *c)
{
	c->over = !rd_left(&c->in);
	c->pass = rd_u8(&c->in);
}

/* ---- the editor ---- */

static void splice(struct buf *b, size_t at, size_t out, const uint8_t *p, size_t n)
{
	struct buf r = { 0 };

	at = at < b->len ? at : b->len;
	out = out < b->len - at ? out : b->len - at;
	buf_put(&r, b->p, at);
	buf_put(&r, p, n);
	buf_put(&r, b->p + at + out, b->len - at - out);
	buf_free(b);
	*b = r;
}

/* The value of the at-th key, or of one that the kind has not; text that is no JSON is put there as a text. */
static void set_value(json_t *o, size_t at, const uint8_t *p, size_t n)
{
	json_t *v = json_any((const char *)p, n, JSON_WIRE, NULL);
	size_t k = json_object_size(o) ? at % json_object_size(o) : 0;
	const char *key = json_object_iter_key(json_object_iter(o));

	for (void *i = json_object_iter(o); i && k; k--) {
		i = json_object_iter_next(o, i);
		key = json_object_iter_key(i);
	}
	char *copy = xstrdup(key ? key : "term");
	json_object_set_new(o, copy, v ? v : json_stringn_nocheck("x", 1));
	free(copy);
}

static void drop_value(json_t *o, size_t at)
{
	size_t k = json_object_size(o) ? at % json_object_size(o) : 0;
	void *i = json_object_iter(o);

	while (i && k--)
		i = json_object_iter_next(o, i);
	if (i) {
		char *copy = xstrdup(json_object_iter_key(i));
		json_object_del(o, copy);
		free(copy);
	}
}

/* Does the next edit to x; f then is what it has become. */
static void edit(struct crooked *c, struct frame *f, struct edited *x)
{
	unsigned what = rd_u8(&c->in) % EDITS;
	size_t at = rd_u16(&c->in), n = rd_u8(&c->in);
	n = n < rd_left(&c->in) ? n : rd_left(&c->in);
	const uint8_t *p = rd_bytes(&c->in, n);
	json_t *all;

	next(c);
	if (!p)
		return;
	buf_put(&x->blob, f->blob, f->blob_len);
	x->json = json_deep_copy(f->json);
	if (what == BLOB_OVER)
		splice(&x->blob, at, n, p, n);
	else if (what == BLOB_CUT)
		splice(&x->blob, at, x->blob.len, p, 0);
	else if (what == BLOB_IN)
		splice(&x->blob, at, 0, p, n);
	else if (what == BLOB_OUT)
		splice(&x->blob, at, n + 1, p, 0);
	else if (what == BLOB_ALL)
		splice(&x->blob, 0, x->blob.len, p, n);
	else if (what == JSON_VALUE)
		set_value(x->json, at, p, n);
	else if (what == JSON_DROP)
		drop_value(x->json, at);
	else if ((all = json_read((const char *)p, n, JSON_WIRE, NULL))) {
		json_decref(x->json);
		x->json = all;
	}
	/* Of the exact size, so that a read past the end is seen. */
	x->blob.p = xrealloc(x->blob.p, x->blob.len ? x->blob.len : 1);
	x->blob.cap = x->blob.len;
	f->json = x->json;
	f->blob = x->blob.len ? x->blob.p : NULL;
	f->blob_len = x->blob.len;
}

static bool due(struct crooked *c)
{
	return !c->over && !c->pass--;
}

static void edited_done(struct edited *x)
{
	buf_free(&x->blob);
	json_decref(x->json);
}

/* ---- in between ---- */

static void asked(void *arg, struct request *req)
{
	struct crooked *c = arg;
	struct handler h = c->handler[req->f.kind];
	struct edited x = { { 0 }, NULL };

	if (due(c))
		edit(c, &req->f, &x);
	h.fn(h.arg, req);
	edited_done(&x);
}

static void answered(void *arg, const struct frame *f, const struct err *e)
{
	struct waiter *w = arg;
	struct edited x = { { 0 }, NULL };
	struct frame mine;

	if (f && due(w->c)) {
		mine = *f;
		edit(w->c, &mine, &x);
		f = &mine;
	}
	list_del(&w->link);
	net_done_fn *done = w->done;
	void *to = w->arg;
	free(w);
	done(to, f, e);
	edited_done(&x);
}

static int after(struct sim *s, void *arg, struct err *e)
{
	struct crooked *c = arg;
	struct net *n = c->net_of(c->arg);

	if (!n)
		return 0;
	for (unsigned k = c->first; k <= c->last; k++)
		if (n->handlers[k].fn && n->handlers[k].fn != asked) {
			c->handler[k] = (struct handler){ n->handlers[k].fn, n->handlers[k].arg };
			n->handlers[k].fn = asked;
			n->handlers[k].arg = c;
		}
	struct call *call;
	for (size_t i = 0; (call = map_next(n->calls, &i, NULL, NULL));) {
		if (!call->done || call->done == answered || call->m->kind < c->first || call->m->kind > c->last)
			continue;
		struct waiter *w = xcalloc(1, sizeof *w);
		*w = (struct waiter){ .c = c, .done = call->done, .arg = call->arg };
		list_push(&c->waiters, &w->link);
		call->done = answered;
		call->arg = w;
	}
	return 0;
}

bool crooked_over(const struct crooked *c)
{
	return c->over;
}

struct crooked *crooked_new(struct sim *s, struct net *(*net_of)(void *arg), void *arg, enum kind first, enum kind last,
	const uint8_t *in, size_t n)
{
	struct crooked *c = xcalloc(1, sizeof *c);

	*c = (struct crooked){ .net_of = net_of, .arg = arg, .first = first, .last = last, .in = rd_of(in, n) };
	list_init(&c->waiters);
	next(c);
	sim_after_event(s, after, c);
	return c;
}

void crooked_free(struct crooked *c)
{
	list_each_safe(it, &c->waiters)         /* of calls that were cancelled */
		free(list_entry(it, struct waiter, link));
	free(c);
}
