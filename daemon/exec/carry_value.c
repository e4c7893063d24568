/* One value to or from one peer: two transfers, its head (version of the weights, bytes) and the value itself. What has
 * no bytes is a head alone. Names are made of what both ends know. SEND, RECV of one peer, REPLY; and what is on offer
 * to RECV of any: a receiver does not know whose values come next, so it asks everybody of its group (PLAN_DATA: run,
 * generation, label), and is told the oldest value for it that is newer than the last one that it was told; when there
 * is none, the question is held until there is, or for a while: one question of a peer for each label, so many of a
 * peer, so many in all. */
#include "exec/carry_int.h"
#include <stdlib.h>
#include <string.h>
#include "common/buf.h"
#include "common/jrpc.h"
#include "common/mem.h"
#include "common/planted.h"

#define TRIES 1
#define AGAIN_US 100000ull
#define LOOK_US 400000ull                       /* who looks dead that often in a row is gone */
#define LOOKS 2
#define HELD_US 30000000ull                     /* longer than who asks waits */
#define HELD_PEER_MAX 128                       /* labels times generations of one peer */
#define HELD_MAX 4096

void value_cancel(struct value *v)
{
	struct carry *c = v->h->c;

	for (int k = 0; k < 2; k++) {
		if (v->x[k])
			xfer_cancel(v->x[k]);
		v->x[k] = NULL;
	}
	env_timer(c->c.env, &v->again, 0);
	if (v->serial)
		list_del(&v->link);
	v->serial = 0;
	if (v->cared)
		net_care(c->c.net, v->peer, -1);
	v->cared = false;
}

void values_cancel(struct haul *h)
{
	for (uint32_t k = 0; k < h->nvalues; k++)
		if (h->value[k].h)
			value_cancel(&h->value[k]);
}

void value_end(struct value *v, const struct err *e)
{
	struct err why;
	char who[9];

	if (e) {
		why = *e;
		(void)err_wrap(&why, "%s of %s (index %lld) with peer %s", plan_kind_name(v->h->n.instr->kind), v->h->n.tag,
			(long long)v->index, id_short(v->peer, who));
	}
	value_cancel(v);
	v->done = !e;
	v->over(v, e ? &why : NULL);
}

static void moved(void *arg, struct xfer *x, const struct err *e);

static void move(struct value *v, int which, void *p, size_t len)
{
	struct chunks *k = v->h->c->c.chunks;
	const struct id *self = net_self(v->h->c->c.net);
	struct tag_of t = { .what = which ? 'd' : 'v', .kind = v->grouped ? PLAN_ALLTOALL : PLAN_SEND,
		.group = v->grouped ? v->h->n.group->name : "", .stream = v->stream, .index = v->index,
		.from = v->send ? self : v->peer, .to = v->send ? v->peer : self };
	uint64_t limit = v->h->deadline_us;
	struct id tag;

	carry_tag(v->h, &t, &tag);
	v->x[which] = v->send ? xfer_send(k, v->peer, &tag, p, len, carry_class(v->h), limit, moved, v) :
		xfer_recv(k, v->peer, &tag, p, len, limit, moved, v);
}

/* The head says how long it is. */
static int headed(struct value *v, struct err *e)
{
	uint64_t bytes = v->head.bytes;

	if (v->known)
		return bytes == v->bytes ? 0 : err_set(e, ERR_MISMATCH, "it has %llu bytes, the receiver expects %llu",
			(unsigned long long)bytes, (unsigned long long)v->bytes);
	if (bytes > v->room)
		return err_set(e, ERR_LIMIT, "it has %llu bytes, and there is room for %llu", (unsigned long long)bytes,
			(unsigned long long)v->room);
	v->bytes = bytes;
	if (v->place && !v->place(v, e))
		return -1;
	if (bytes)
		move(v, 1, v->p, bytes);
	return 0;
}

static void moved(void *arg, struct xfer *x, const struct err *e)
{
	struct value *v = arg;
	int which = x == v->x[0] ? 0 : 1;
	struct err why;

	v->x[which] = NULL;
	if (e) {
		why = *e;
		value_end(v, &why);
		return;
	}
	v->moved[which] = true;
	if (!which && !v->send && headed(v, &why) < 0)
		value_end(v, &why);
	else if ((v->moved[0] || v->told) && (v->moved[1] || !v->bytes))
		value_end(v, NULL);
}

/* A transfer to who is known to be dead would go on to its deadline. */
static void look(struct timer *t)
{
	struct value *v = container_of(t, struct value, again);
	struct net *net = v->h->c->c.net;
	struct peer_info p;
	struct err e;

	v->looks = net_peer(net, v->peer, &p) && p.maybe_dead ? v->looks + 1 : 0;
	if (v->looks < LOOKS) {
		env_after(v->h->c->c.env, &v->again, LOOK_US);
		return;
	}
	v->tries = TRIES;
	(void)err_set(&e, ERR_UNREACHABLE, "the peer looks dead");
	value_end(v, &e);
}

static void offer(struct value *v);

/* What has not been moved yet. */
static void go(struct value *v)
{
	v->cared = true;
	net_care(v->h->c->c.net, v->peer, 1);
	if (!v->moved[0] && !v->told)
		move(v, 0, &v->head, sizeof(v->head));
	if (!v->moved[1] && v->bytes && (v->send || v->known))
		move(v, 1, v->p, v->bytes);
	if (v->send && !v->grouped)
		offer(v);
	v->looks = 0;
	v->again = (struct timer){ .fire = look, .name = "carry look" };
	if (v->may_die)
		env_after(v->h->c->c.env, &v->again, LOOK_US);
}

void value_begin(struct value *v)
{
	v->done = v->moved[0] = v->moved[1] = false;
	if (v->send)
		v->head = (struct value_head){ v->h->version, v->bytes };
	go(v);
}

static void again(struct timer *t)
{
	go(container_of(t, struct value, again));
}

bool value_again(struct value *v, const struct err *e)
{
	if (!e || e->code != ERR_UNREACHABLE || v->tries == TRIES)
		return false;
	v->tries++;
	v->again = (struct timer){ .fire = again, .name = "carry again" };
	env_after(v->h->c->c.env, &v->again, AGAIN_US);
	return true;
}

/* --- on offer */

struct question { uint64_t generation, boot, beyond; char label[PLAN_NAME]; };
struct held { struct list link; struct request *req; struct id from; uint64_t until_us; struct question q; };

static void held_free(struct carry *c, struct held *w)
{
	list_del(&w->link);
	c->nheld--;
	free(w);
}

/* Nothing: ask again. */
static void held_drop(struct carry *c, struct held *w)
{
	net_reply(w->req, json_object(), NO_BLOB);
	held_free(c, w);
}

static void sweep(struct timer *t)
{
	struct carry *c = container_of(t, struct carry, sweep);
	uint64_t now = env_now(c->c.env);

	list_each_safe(it, &c->held) {
		struct held *w = list_entry(it, struct held, link);

		if (w->until_us > now) {        /* oldest first */
			env_timer(c->c.env, &c->sweep, w->until_us);
			return;
		}
		held_drop(c, w);
	}
}

static bool meant(const struct value *v, const struct id *from, const struct question *q)
{
	return (id_eq(v->peer, from) || PLANTED(CARRY_TOLD_TO_ANYBODY)) &&
		v->h->n.generation == q->generation && !strcmp(v->h->n.tag, q->label);
}

static json_t *told(const struct carry *c, struct value *v)
{
	v->told = true;
	return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I}", "b", (json_int_t)c->boot, "s", (json_int_t)v->serial, "i",
		(json_int_t)v->index, "m", (json_int_t)v->stream, "v", (json_int_t)v->head.version, "n",
		(json_int_t)v->bytes);
}

static int question(const struct json_t *j, struct question *ret, struct err *e)
{
	const char *label;

	if (json_get_u64(j, "g", &ret->generation, e) || json_get_str(j, "l", &label, e) ||
	    json_get_u64(j, "b", &ret->boot, e) || json_get_u64(j, "a", &ret->beyond, e))
		return -1;
	if (strlen(label) >= PLAN_NAME)
		return err_set(e, ERR_LIMIT, "the name of a buffer has at most %d characters", PLAN_NAME - 1);
	memcpy(ret->label, label, strlen(label) + 1);
	return 0;
}

/* It wants none of the last one: it has had its like ("d"), or cannot take it ("w" says why). */
static void not_wanted(struct carry *c, const struct request *req, const struct question *q)
{
	const char *why;
	uint64_t serial;
	struct err e;

	if (json_get_u64(req->f.json, "d", &serial, NULL) || !serial || q->boot != c->boot)
		return;
	list_each(it, &c->outbox) {
		struct value *v = list_entry(it, struct value, link);

		if (v->serial != serial || !meant(v, &req->f.from, q))
			continue;
		if (json_get_str(req->f.json, "w", &why, NULL)) {
			value_end(v, NULL);
			return;
		}
		(void)err_set(&e, ERR_MISMATCH, "it refuses the value: %.200s", why);
		value_end(v, &e);
		return;
	}
}

static int hold(struct carry *c, struct request *req, const struct question *q, struct err *e)
{
	struct held *w;
	size_t his = 0;

	list_each_safe(it, &c->held) {
		w = list_entry(it, struct held, link);
		if (!id_eq(&w->from, &req->f.from))
			continue;
		if (w->q.generation == q->generation && !strcmp(w->q.label, q->label))
			held_drop(c, w);        /* it asks again: it has forgotten that */
		else
			his++;
	}
	if ((his >= HELD_PEER_MAX || c->nheld >= HELD_MAX) && !PLANTED(CARRY_UNBOUNDED))
		return err_set(e, ERR_FULL, "%zu questions of this peer wait already", his);
	w = xcalloc(1, sizeof(*w));
	*w = (struct held){ .from = req->f.from, .until_us = env_now(c->c.env) + HELD_US, .q = *q };
	w->req = net_keep(req);
	if (list_empty(&c->held))
		env_timer(c->c.env, &c->sweep, w->until_us);
	list_push(&c->held, &w->link);
	c->nheld++;
	return 0;
}

static void hand(void *owner, struct request *req)
{
	struct carry *c = owner;
	struct question q;
	struct err e;

	if (!req->wants_reply)
		return;
	if (question(req->f.json, &q, &e) < 0) {
		net_refuse(req, &e);
		return;
	}
	not_wanted(c, req, &q);
	list_each(it, &c->outbox) {
		struct value *v = list_entry(it, struct value, link);

		if (meant(v, &req->f.from, &q) && (q.boot != c->boot || v->serial > q.beyond)) {
			net_reply(req, told(c, v), NO_BLOB);
			return;
		}
	}
	if (json_is_true(json_object_get(req->f.json, "q")))
		net_reply(req, json_object(), NO_BLOB);
	else if (hold(c, req, &q, &e) < 0)
		net_refuse(req, &e);
}

static void enter(struct carry *c)
{
	static const enum kind kinds[] = { KIND_PLAN_DATA };
	struct err e;

	if (!c->hub.hub)                        /* the run's last carry may still be ending: then later */
		(void)by_run_enter(&c->hub, c->c.net, kinds, 1, &c->c.run, hand, c, &e);
}

static void offer(struct value *v)
{
	struct carry *c = v->h->c;

	enter(c);
	v->serial = ++c->serial;
	list_push(&c->outbox, &v->link);
	list_each(it, &c->held) {
		struct held *w = list_entry(it, struct held, link);

		if (!meant(v, &w->from, &w->q))
			continue;
		net_reply(w->req, told(c, v), NO_BLOB);
		held_free(c, w);
		return;
	}
}

void offer_open(struct carry *c)
{
	list_init(&c->outbox);
	list_init(&c->held);
	c->sweep = (struct timer){ .fire = sweep, .name = "carry questions" };
	c->c.env->ops->secure(c->c.env, &c->boot, sizeof(c->boot));
	c->boot >>= 2;                          /* JSON has no more */
	enter(c);
}

void offer_close(struct carry *c)
{
	while (!list_empty(&c->held))
		held_drop(c, list_entry(c->held.next, struct held, link));
	env_timer(c->c.env, &c->sweep, 0);
	by_run_leave(&c->hub);
}

/* --- SEND, RECV of one peer, REPLY */

/* Behind a value that is shorter than its buffer there are zeros. */
static void fill(struct job *j)
{
	struct haul *h = haul_of(j);

	memset((char *)h->out.p + h->value->bytes, 0, h->out.bytes - h->value->bytes);
}

static void value_over(struct value *v, const struct err *e)
{
	struct haul *h = v->h;

	if (e || v->send) {
		haul_settle(h, e);
		return;
	}
	h->version = v->head.version;
	h->from = xcalloc(1, sizeof(*h->from));
	*h->from = (struct token_from){ h->n.instr->peer, h->n.stream, h->n.index, v->bytes, v->room };
	h->nfrom = 1;
	HAUL_WORK(h, h->out.bytes - v->bytes, fill, haul_done);
}

void value_send_recv(struct haul *h)
{
	bool send = h->n.instr->kind == PLAN_SEND;
	struct exec_span *s = send ? &h->in : &h->out;

	h->value = xcalloc(1, sizeof(*h->value));
	h->nvalues = 1;
	*h->value = (struct value){ .h = h, .peer = h->n.peer, .rank = h->n.instr->peer, .stream = h->n.stream,
		.index = h->n.index, .send = send, .p = s->p, .room = s->bytes, .bytes = s->bytes, .over = value_over,
		.may_die = !send && h->n.instr->on_missing != PLAN_FAIL,
		.known = send || !h->n.plan->buf[h->n.instr->out[0].buf].bounded };
	value_begin(h->value);
}

/* Who has not taken its answer, for whatever reason, is left out: it may be dead, and the others go on. */
static void answered(struct value *v, const struct err *e)
{
	if (!value_again(v, e) && !--v->h->left)
		haul_settle(v->h, NULL);
}

/* As large a share of its part as what it answers had of its own. */
static uint64_t share(const struct token_from *to, uint64_t part)
{
	if (!to->room || to->bytes >= to->room)
		return part;
	return (uint64_t)((unsigned __int128)part * to->bytes / to->room);
}

int value_reply(struct haul *h, struct err *e)
{
	uint32_t parts = h->n.parts > 1 ? h->n.parts : 1;
	uint64_t part = h->in.bytes / parts;

	if (parts > 1 && h->n.nto > parts)
		return err_set(e, ERR_INVALID, "%u peers are to be answered with %u parts", h->n.nto, parts);
	h->value = xcalloc(h->n.nto + 1, sizeof(*h->value));
	h->left = 1;
	for (uint32_t k = 0; k < h->n.nto; k++) {
		const struct token_from *to = &h->n.to[k];

		if (to->peer >= h->n.plan->nmembers)
			return err_set(e, ERR_INVALID, "peer %u is to be answered, and the plan has %u", to->peer,
				h->n.plan->nmembers);
		h->value[h->nvalues] = (struct value){ .h = h, .peer = &h->n.plan->member[to->peer], .rank = to->peer,
			.stream = to->stream, .index = to->index, .send = true, .p = (char *)h->in.p + (parts > 1 ? k * part : 0),
			.bytes = share(to, part), .may_die = true, .over = answered };
		h->left++;
		value_begin(&h->value[h->nvalues++]);
	}
	if (!--h->left)
		haul_settle(h, NULL);
	return 0;
}
