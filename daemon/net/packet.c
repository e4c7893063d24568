/* What leaves, as it is made, waits and ends (out.c: which way it goes): a message is what is said, shared by re-sends,
 * a packet one attempt to say it. A packet waits for a session, or at this daemon's own door, where there is a bound
 * for each client and for all; or it is a plain one, of HELLO, which needs no session and leaves at once. */
#include <stdlib.h>
#include <string.h>
#include "common/jrpc.h"
#include "common/mem.h"
#include "net/inner.h"

/* ---- messages ---- */

struct msg *msg_new(enum kind k, enum net_class cls, json_t *json, struct blob blob)
{
	struct msg *m;
	char *text = NULL;
	size_t len = 0;

	if (json && json_object_size(json))
		text = json_line(json, &len);
	json_decref(json);
	m = xcalloc(1, sizeof *m);
	m->refs = 1;
	m->dead = len > json_max(k) || blob.len > blob_max(k);
	m->kind = k;
	m->cls = cls;
	m->json = text;
	m->json_len = len;
	m->blob = blob;
	return m;
}

struct msg *msg_ref(struct msg *m)
{
	m->refs++;
	return m;
}

static void give_back(struct msg *m)
{
	struct blob b = m->blob;

	m->blob.release = NULL;
	m->blob.data = NULL;
	if (b.release)
		b.release(b.arg);
}

void msg_unref(struct msg *m)
{
	if (!m || --m->refs)
		return;
	give_back(m);
	free(m->json);
	free(m);
}

void msg_kill(struct msg *m)
{
	m->dead = true;
	give_back(m);
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

/* ---- packets ---- */

struct out *out_new(struct net *n, void (*back)(struct packet *p, bool sent), void (*gone)(void *arg, bool sent),
	void *arg)
{
	struct out *o = xcalloc(1, sizeof *o);

	o->net = n;
	o->gone = gone;
	o->arg = arg;
	list_init(&o->wait);
	list_init(&o->answer);
	list_push(&n->outs, &o->all);
	o->p.gone = back;
	return o;
}

static void out_free(struct out *o)
{
	list_del(&o->all);
	list_del(&o->wait);
	door_unqueue(o);
	if (o->early)
		*o->early = true;
	if (o->peer)
		o->peer->pins--;
	session_unref(o->s);
	msg_unref(o->m);
	free(o->plain);
	free(o);
}

void out_finish(struct out *o, bool sent)
{
	void (*gone)(void *arg, bool sent) = o->gone;
	void *arg = o->arg;

	out_free(o);
	if (gone)
		gone(arg, sent);
}

/* A connection has taken it. */
static void weigh(const struct out *o)
{
	if (o->plain) {
		o->net->count.plain_out += o->p.wire_len;
	} else if (o->peer) {
		o->peer->bytes.out[o->m->cls] += o->p.wire_len;
		o->peer->bytes.link_out[o->p.chan] += o->p.wire_len;
	}
}

bool out_back(struct out *o, bool sent)
{
	o->submitted = false;
	if (!o->net) {
		session_unref(o->s);
		free(o->plain);
		free(o);
		return false;
	}
	if (sent)
		weigh(o);
	return true;
}

/* ---- for a session ---- */

void out_wait(struct out *o)
{
	struct peer *p = o->peer;

	list_push(&p->waiting, &o->wait);
	peer_tend(p);
	p->waiting_n++;
	p->waiting_bulk += msg_bulk(o->m);
	p->waiting_bytes += o->m->json_len + o->m->blob.len;
}

void out_wait_over(struct out *o)
{
	list_del(&o->wait);
	o->peer->waiting_n--;
	o->peer->waiting_bulk -= msg_bulk(o->m);
	o->peer->waiting_bytes -= o->m->json_len + o->m->blob.len;
}

void out_forget(struct out *o)
{
	o->gone = NULL;
	if (o->submitted)
		return;
	if (!o->at_door)
		out_wait_over(o);
	out_free(o);
}

/* ---- without a session ---- */

static int seal_plain(struct packet *p, uint32_t connection, uint8_t *out)
{
	struct out *o = container_of(p, struct out, p);

	memcpy(out, o->plain, p->wire_len);
	return 0;
}

static void plain_back(struct packet *p, bool sent)
{
	struct out *o = container_of(p, struct out, p);

	if (out_back(o, sent))
		out_finish(o, sent);
}

void out_plain(struct net *n, const struct endpoint *to, enum chan c, uint64_t token, const void *p, size_t len,
	bool asked)
{
	struct out *o = out_new(n, plain_back, NULL, NULL);

	o->plain = xmemdup(p, len);
	o->p.seal = seal_plain;
	o->p.wire_len = len;
	o->p.asked = asked;
	o->submitted = true;
	n->env->ops->send(n->env, to, c, token, &o->p);
}

/* ---- at our own door: bounded, and not for ever ---- */

static void drop(struct out *o)
{
	o->net->count.door_dropped++;
	out_finish(o, false);
}

void door_unqueue(struct out *o)
{
	if (!o->door_cost)
		return;
	o->peer->door_frames--;
	o->peer->door_bytes -= o->door_cost;
	o->net->door_bytes -= o->door_cost;
	o->door_cost = 0;
	list_del(&o->answer);
}

static bool has_room(const struct peer *p, size_t cost)
{
	size_t left = p->net->door_bytes < DOOR_ALL_BYTES ? DOOR_ALL_BYTES - p->net->door_bytes : 0;

	return p->door_frames < DOOR_WAIT_MAX && p->door_bytes + cost <= DOOR_WAIT_BYTES && p->door_bytes + cost <= left;
}

/* What the client has asked for is dropped first, the oldest: it can ask again. */
bool door_enqueue(struct list *queue, struct out *o)
{
	struct peer *p = o->peer;
	size_t cost = sizeof *o + sizeof *o->m + o->m->json_len + o->m->blob.len;

	if (!o->door_cost) {
		while (!has_room(p, cost) && !list_empty(&p->door_answers))
			drop(list_entry(p->door_answers.next, struct out, answer));
		if (!has_room(p, cost)) {
			drop(o);
			return false;
		}
		o->door_cost = cost;
		p->door_frames++;
		p->door_bytes += cost;
		o->net->door_bytes += cost;
		if (o->m->kind == KIND_REPLY || o->m->kind == KIND_REFUSE)
			list_push(&p->door_answers, &o->answer);
	}
	list_push(queue, &o->wait);
	peer_tend(p);
	return true;
}

struct out *door_take(struct peer *p, struct list *queue)
{
	uint64_t now = env_now(p->net->env);
	struct list *i;

	while ((i = list_pop(queue))) {
		struct out *o = list_entry(i, struct out, wait);

		door_unqueue(o);
		if (!o->expire_us || o->expire_us > now)
			return o;
		drop(o);
	}
	return NULL;
}

static void expire(struct list *queue, uint64_t now)
{
	list_each_safe(it, queue) {
		struct out *o = list_entry(it, struct out, wait);

		if (o->expire_us && o->expire_us <= now)
			drop(o);
	}
}

bool door_expire(struct peer *p, uint64_t now)
{
	if (!p->door_frames)
		return false;
	expire(&p->door_queue, now);
	expire(&p->door_bulk, now);
	if (p->lanes)
		expire(&p->lanes->queue, now);
	return p->door_frames;
}

static void give_up(struct list *queue)
{
	list_each_safe(it, queue)
		out_finish(list_entry(it, struct out, wait), false);
}

void door_give_up(struct peer *p)
{
	give_up(&p->door_queue);
	give_up(&p->door_bulk);
	if (p->lanes)
		give_up(&p->lanes->queue);
}

void door_done(struct peer *p)
{
	struct env *env = p->net->env;

	env_timer(env, &p->door_timer, 0);
	for (unsigned i = 0; p->lanes && i < LANES_MAX; i++)
		env_timer(env, &p->lanes->v[i].timer, 0);
	if (p->lanes)
		env_timer(env, &p->lanes->ask, 0);
	free(p->lanes);
	p->lanes = NULL;
}

/* ---- the end of all that waits ---- */

void out_drop_waiting(struct peer *p, uint64_t now)
{
	list_each_safe(it, &p->waiting) {
		struct out *o = list_entry(it, struct out, wait);

		if (now != UINT64_MAX && (!o->expire_us || o->expire_us > now))
			continue;
		out_wait_over(o);
		out_finish(o, false);
	}
	if (now == UINT64_MAX)
		door_give_up(p);
}

/* What the transport still holds will come back through out_back, which then only frees. */
void out_detach(struct net *n)
{
	list_each_safe(it, &n->outs) {
		struct out *o = list_entry(it, struct out, all);

		if (!o->submitted) {
			out_free(o);
			continue;
		}
		list_del(&o->all);
		if (o->m)
			msg_kill(o->m);
		msg_unref(o->m);
		o->m = NULL;
		o->net = NULL;
		if (o->peer)
			o->peer->pins--;
		o->peer = NULL;
	}
}
