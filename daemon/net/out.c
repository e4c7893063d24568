/* What leaves: a message (what is said, shared by re-sends), a packet per attempt, and the route it takes. A packet is
 * sealed only when the socket takes it, with the session it was given when it was handed over; if that session has died
 * in between, the packet comes back and is sent again with the next one. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "common/jrpc.h"
#include "common/mem.h"
#include "net/inner.h"

static_assert(HEADER_BYTES + M3_BYTES + NET_JSON_MAX + NET_BLOB_MAX + AEAD_TAG <= WIRE_MAX,
	"a frame fits the transport");

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
	m->dead = len > json_max(k) || blob.len > NET_BLOB_MAX;
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

/* ---- packets ---- */

static int seal_plain(struct packet *p, uint32_t connection, uint8_t *out)
{
	struct out *o = container_of(p, struct out, p);

	memcpy(out, o->plain, p->wire_len);
	return 0;
}

static int seal_frame(struct packet *p, uint32_t connection, uint8_t *out)
{
	struct out *o = container_of(p, struct out, p);
	struct msg *m = o->m;
	struct session *s = o->s;
	struct piece pieces[3];
	struct header h = {0};

	if (!o->net || m->dead || s->dead || s->tx_counter[p->chan == CHAN_BULK] >= 2 * o->net->conf.rekey_frames)
		return -1;
	pieces[0] = (struct piece){ s->m3, o->m3 ? M3_BYTES : 0 };
	pieces[1] = (struct piece){ m->json, m->json_len };
	pieces[2] = (struct piece){ m->blob.data, m->blob.len };
	h.pre = (struct prelude){ .version = s->version, .kind = (uint16_t)m->kind, .oldest = o->net->version_min,
		.flags = (o->flags & (uint16_t)~OUT_ACK) | (o->m3 ? FLAG_M3 : 0) | door_flags(o),
		.length = (uint32_t)p->wire_len };
	h.request = m->request;
	h.boot = o->net->conf.boot_id;
	h.json_len = (uint32_t)m->json_len;
	h.blob_len = (uint32_t)m->blob.len;
	h.span = m->span;
	h.chan = (uint8_t)p->chan;
	h.cls = (uint8_t)m->cls;
	h.sender = o->net->self.id;
	session_seal(s, &h, connection, pieces, 3, out);
	o->net->count.frames_out++;
	return 0;
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

static void submit(struct out *o, struct session *s);
static void wait_for_session(struct out *o);

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

static void packet_gone(struct packet *p, bool sent)
{
	struct out *o = container_of(p, struct out, p);
	struct peer *peer = o->peer;

	o->submitted = false;
	if (!o->net) {                          /* net has been freed meanwhile */
		session_unref(o->s);
		free(o->plain);
		free(o);
		return;
	}
	if (sent)
		weigh(o);
	if (!sent && o->at_door)
		door_lost(o);
	if (!sent && o->s && o->s->dead && !o->m->dead && !o->net->freeing && o->tries++ < 3) {
		struct session *s = peer_session(peer);

		session_unref(o->s);
		o->s = NULL;
		o->at_door = false;
		o->lane = 0;
		if (s)
			submit(o, s);
		else
			wait_for_session(o);
		return;
	}
	out_finish(o, sent);
}

static struct out *out_new(struct net *n, void (*gone)(void *arg, bool sent), void *arg)
{
	struct out *o = xcalloc(1, sizeof *o);

	o->net = n;
	o->gone = gone;
	o->arg = arg;
	list_init(&o->wait);
	list_init(&o->answer);
	list_push(&n->outs, &o->all);
	o->p.gone = packet_gone;
	return o;
}

void out_plain(struct net *n, const struct endpoint *to, enum chan c, uint64_t token, const void *p, size_t len,
	bool asked)
{
	struct out *o = out_new(n, NULL, NULL);

	o->plain = xmemdup(p, len);
	o->p.seal = seal_plain;
	o->p.wire_len = len;
	o->p.asked = asked;
	o->submitted = true;
	n->env->ops->send(n->env, to, c, token, &o->p);
}

/* ---- routes ---- */

/* C19: mailboxes for partners, the door for those who are asked once. */
bool peer_partner(const struct peer *p)
{
	return p->frames_out > DOOR_FRAMES || p->care > 0 || p->mailbox || p->waiting_bulk;
}

bool peer_by_door(const struct peer *p)
{
	return !p->net->conf.client && p->at.port[CHAN_CTRL] && (p->client || p->as_client);
}

/* By a connection of the peer's to this daemon's door (token), or else by dialling: its door, or its mailboxes. */
static bool by_token(struct peer *p, const struct out *o)
{
	return p->door_token && (p->client || (!p->mailbox && !p->net->conf.client && !p->as_client));
}

static bool by_their_door(struct peer *p, const struct msg *m)
{
	if (!p->at.port[CHAN_DOOR])
		return false;
	if (!p->at.port[CHAN_CTRL])
		return true;
	if (p->net->conf.client || p->as_client)
		return !msg_bulk(m);
	return !p->mailbox;
}

/* Is there, or may there be, a better way for this message than the door? */
static bool wants_mailbox(struct peer *p, const struct msg *m)
{
	return !p->mailbox && !p->client && !p->as_client && !p->net->conf.client && p->at.port[CHAN_CTRL] &&
		(msg_bulk(m) || peer_partner(p));
}

static void submit(struct out *o, struct session *s)
{
	struct peer *p = o->peer;
	struct net *n = o->net;
	enum chan c;

	o->s = session_ref(s);
	o->m3 = s->initiator && !s->confirmed;
	o->p.seal = seal_frame;
	o->p.wire_len = frame_bytes(o->m->json_len, o->m->blob.len, o->m3);
	p->frames_out++;
	p->used_us = env_now(n->env);
	if ((o->flags & FLAG_LANE) && o->token) {       /* a sign goes back by the connection that waits for it */
		o->submitted = true;
		n->env->ops->send(n->env, &p->at, CHAN_DOOR, o->token, &o->p);
		return;
	}
	if (wants_mailbox(p, o->m) || (peer_by_door(p) && peer_partner(p)))
		hello_prove(p);
	/* The sign goes back by the connection that waits for it; pushed through a door it would ask for one itself. */
	if (by_token(p, o) && !((o->flags & OUT_ACK) && p->at.port[CHAN_DOOR])) {
		door_push(o);
		return;
	}
	c = by_their_door(p, o->m) ? CHAN_DOOR : msg_bulk(o->m) ? CHAN_BULK : CHAN_CTRL;
	p->owes_ack = p->owes_ack && c != CHAN_DOOR;
	o->p.asked = p->at_level == AT_CLAIMED;
	o->submitted = true;
	n->env->ops->send(n->env, &p->at, c, 0, &o->p);
}

/* Bulk does not go through a door that a mailbox may replace in a round trip. */
static bool ready(struct peer *p, const struct msg *m, const struct session *s)
{
	return s && !(msg_bulk(m) && wants_mailbox(p, m) && hello_prove(p));
}

static void wait_for_session(struct out *o)
{
	struct peer *p = o->peer;

	list_push(&p->waiting, &o->wait);
	peer_tend(p);
	p->waiting_n++;
	p->waiting_bulk += msg_bulk(o->m);
	p->waiting_bytes += o->m->json_len + o->m->blob.len;
	if (!peer_session(p))
		hello_start(p);
}

static void stop_waiting(struct out *o)
{
	list_del(&o->wait);
	o->peer->waiting_n--;
	o->peer->waiting_bulk -= msg_bulk(o->m);
	o->peer->waiting_bytes -= o->m->json_len + o->m->blob.len;
}

struct out *out_send(struct peer *p, struct msg *m, uint16_t flags, uint64_t token, uint64_t expire_us,
	void (*gone)(void *arg, bool sent), void *arg)
{
	struct session *s = peer_session(p);
	struct net *n = p->net;
	bool early = false;
	struct out *o;

	if (p->banned_until_us || n->freeing || p->waiting_n >= WAITING_MAX || p->waiting_bytes > WAITING_BYTES_MAX)
		return NULL;
	if (!s && p->at_level == AT_NONE)
		return NULL;                    /* nobody knows where it is */
	o = out_new(n, gone, arg);
	o->peer = p;
	p->pins++;
	o->m = msg_ref(m);
	o->flags = flags;
	o->token = token;
	o->expire_us = expire_us;
	o->early = &early;                      /* a detached env gives packets back before send returns */
	if (ready(p, m, s))
		submit(o, s);
	else
		wait_for_session(o);
	if (early)
		return NULL;
	o->early = NULL;
	return o;
}

void out_forget(struct out *o)
{
	o->gone = NULL;
	if (o->submitted)
		return;
	if (!o->at_door)
		stop_waiting(o);
	out_free(o);
}

void out_flush(struct peer *p)
{
	struct session *s = peer_session(p);

	if (!s)
		return;
	list_each_safe(it, &p->waiting) {
		struct out *o = list_entry(it, struct out, wait);

		if (!ready(p, o->m, s))
			continue;
		stop_waiting(o);
		submit(o, s);
	}
}

void out_drop_waiting(struct peer *p, uint64_t now)
{
	list_each_safe(it, &p->waiting) {
		struct out *o = list_entry(it, struct out, wait);

		if (now != UINT64_MAX && (!o->expire_us || o->expire_us > now))
			continue;
		stop_waiting(o);
		out_finish(o, false);
	}
	if (now == UINT64_MAX)
		door_give_up(p);
}

/* What the transport still holds will come back through packet_gone, which then only frees. */
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
