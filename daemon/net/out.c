/* What leaves under a session, and the route that it takes (packet.c: how it waits). A packet is sealed only when the
 * socket takes it, with the session it was given when it was handed over; if that is not the peer's any more, the
 * packet comes back and is sent again with the next one. */
#include <assert.h>
#include "net/inner.h"

static_assert(HEADER_BYTES + M3_BYTES + NET_JSON_MAX + NET_BLOB_MAX + AEAD_TAG <= WIRE_MAX &&
	HEADER_BYTES + M3_BYTES + NET_JSON_MAX + NET_CHUNK_MAX + AEAD_TAG <= WIRE_LARGE, "a frame fits the transport");

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

static void submit(struct out *o, struct session *s);
static void wait_for_session(struct out *o);

static void packet_gone(struct packet *p, bool sent)
{
	struct out *o = container_of(p, struct out, p);
	struct peer *peer = o->peer;

	if (!out_back(o, sent))
		return;
	if (!sent && o->at_door)
		door_lost(o);
	struct session *s = sent ? NULL : peer_session(peer);
	bool again = !sent && o->s && (o->s->dead || (s && o->s != s)) && !o->m->dead && !o->net->freeing;

	if (again && o->tries++ < 3) {
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

/* ---- routes ---- */

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

	out_wait(o);
	if (!peer_session(p))
		hello_start(p);
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
	o = out_new(n, packet_gone, gone, arg);
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

void out_flush(struct peer *p)
{
	struct session *s = peer_session(p);

	if (!s)
		return;
	list_each_safe(it, &p->waiting) {
		struct out *o = list_entry(it, struct out, wait);

		if (!ready(p, o->m, s))
			continue;
		out_wait_over(o);
		submit(o, s);
	}
}
