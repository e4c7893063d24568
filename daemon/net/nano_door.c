/* The real transport (3/4): the door (C18). Raw REP names the connection in the message's header, so an answer, or a
 * message unasked, can go to exactly one client. Raw REP silently drops what comes while a pipe is busy: messages to
 * one client are spaced, and whoever sends through a door keeps one unanswered message per client. */
#include <errno.h>
#include <nanomsg/nn.h>
#include <nanomsg/reqrep.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "net/nano_int.h"

#define GAP_US 250                      /* between two messages to one client, and 1 ns a byte more */
#define HAND_OVER_US 40                 /* enough when the client has spoken since: it waits for this answer */
#define REQUEST_ID 0x80000001u          /* the high bit ends the header (SP's rule) */
#define MESSAGES_AT_ONCE 64

#define SWEPT_US 60000000               /* a connection that has had bulk is remembered so long */

struct door_last { uint64_t sent_at, free_at; bool swept; };

static void put_u32(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 24);
	p[1] = (uint8_t)(v >> 16);
	p[2] = (uint8_t)(v >> 8);
	p[3] = (uint8_t)v;
}

static uint32_t get_u32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Sends body (nn_allocmsg) behind the SP header head[0..len); takes body when it succeeds. */
static int send_with_header(int s, void **body, const uint8_t *head, size_t len)
{
	_Alignas(size_t) uint8_t control[NN_CMSG_SPACE(sizeof(size_t) + 8)] = {0};
	struct nn_cmsghdr *c = (void *)control;
	struct nn_iovec iov = { .iov_base = body, .iov_len = NN_MSG };
	struct nn_msghdr h = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
		.msg_controllen = NN_CMSG_SPACE(sizeof(size_t) + len) };

	c->cmsg_len = NN_CMSG_LEN(sizeof(size_t) + len);
	c->cmsg_level = PROTO_SP;
	c->cmsg_type = SP_HDR;
	memcpy(NN_CMSG_DATA(c), &len, sizeof(len));
	memcpy(NN_CMSG_DATA(c) + sizeof(len), head, len);
	return nn_sendmsg(s, &h, NN_DONTWAIT);
}

/* Body and SP header of the next message; the length, or -1. *ret_body is nn_freemsg's. */
static int recv_with_header(int s, void **ret_body, uint8_t head[8], size_t *ret_len)
{
	void *control = NULL;
	struct nn_iovec iov = { .iov_base = ret_body, .iov_len = NN_MSG };
	struct nn_msghdr h = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = NN_MSG };
	int len = nn_recvmsg(s, &h, NN_DONTWAIT);

	*ret_len = 0;
	if (len < 0)
		return -1;
	h.msg_control = control;        /* nanomsg's macros walk a plain buffer */
	for (struct nn_cmsghdr *c = control; c; c = NULL) {
		size_t n;
		if (c->cmsg_level != PROTO_SP || c->cmsg_type != SP_HDR)
			break;
		memcpy(&n, NN_CMSG_DATA(c), sizeof(n));
		if (n <= 8) {
			memcpy(head, NN_CMSG_DATA(c) + sizeof(n), n);
			*ret_len = n;
		}
	}
	if (control)
		nn_freemsg(control);
	return len;
}

/* ---- receiving ---- */
static void spoke(struct nano *n, uint64_t token)
{
	struct door_last *last = map_get(n->door_last, &token, sizeof(token));
	if (last && last->free_at > last->sent_at + HAND_OVER_US)
		last->free_at = last->sent_at + HAND_OVER_US;
}

void door_ready(struct watch *w, int what)
{
	struct box *b = container_of(w, struct box, in);

	for (int i = 0; i < MESSAGES_AT_ONCE; i++) {
		void *msg;
		uint8_t head[8];
		size_t hlen;
		int len = recv_with_header(b->s, &msg, head, &hlen);

		if (len < 0)
			return;
		if (i)
			loop_lap(b->n->loop, w->name);
		if (hlen == 8) {                /* longer: it came through a device, which we do not speak to */
			uint64_t token = (uint64_t)(get_u32(head) & 0x7fffffff) << 32 | get_u32(head + 4);
			spoke(b->n, token);
			nano_got(b->n, (struct via){ CHAN_DOOR, token }, msg, (size_t)len);
		}
		nn_freemsg(msg);
	}
}

void door_dialled_ready(struct watch *w, int what)
{
	struct nlink *l = container_of(w, struct nlink, in);
	struct nano *n = l->n;
	uint64_t serial = l->serial;

	for (int i = 0; i < MESSAGES_AT_ONCE; i++) {
		void *msg;
		uint8_t head[8];
		size_t hlen;
		int len = recv_with_header(l->s, &msg, head, &hlen);

		if (len < 0)
			return;
		if (i)
			loop_lap(n->loop, "door dialled");
		nlink_used(l);
		nano_got(n, (struct via){ CHAN_DOOR, serial | DIALLED }, msg, (size_t)len);
		nn_freemsg(msg);
		if (map_get(n->by_serial, &serial, sizeof(serial)) != l)
			return;                 /* the receiver has closed this link */
		if (rate_waits(CHAN_DOOR, (size_t)len) && !rate_may(n, &n->down)) {
			loop_watch_fd(n->loop, &l->in, 0);
			return;
		}
	}
}

/* ---- sending ---- */
int door_send_dialled(struct nlink *l, void **body)
{
	uint8_t head[4];
	put_u32(head, REQUEST_ID);
	return send_with_header(l->s, body, head, sizeof(head));
}

void door_answer(struct nano *n, struct packet *p)
{
	list_push(&n->door_queue, &p->link);
	n->door_queued += p->wire_len;
	nano_mark(n);
}

static void door_send(struct nano *n, struct packet *p)
{
	uint8_t head[8];
	void *msg = nn_allocmsg(p->wire_len, 0);
	bool sent = false;

	if (msg && p->seal(p, (uint32_t)(p->door_token >> 32), msg) == 0) {
		put_u32(head, (uint32_t)(p->door_token >> 32));
		put_u32(head + 4, (uint32_t)p->door_token);
		sent = send_with_header(n->box[CHAN_DOOR].s, &msg, head, sizeof(head)) >= 0;
	}
	if (sent) {
		rate_spend(&n->up, p->wire_len);
		if (rate_waits(CHAN_DOOR, p->wire_len))
			pace_wake(n);           /* small answers leave nothing to pace, and looking at all costs more */
		n->stats.out[CHAN_DOOR]++;
		n->stats.bytes_out[CHAN_DOOR] += p->wire_len;
	} else if (msg) {
		nn_freemsg(msg);
	}
	p->gone(p, sent);
}

/* Before the first bulk goes through a connection the sweep gives it a window (nano_pace.c): what is in the kernel's
 * buffer by then goes out all the same. */
static bool needs_sweep(struct nano *n, const struct packet *p, struct door_last *last, uint64_t now)
{
	if (last->swept || !rate_waits(CHAN_DOOR, p->wire_len))
		return false;
	last->swept = true;
	last->sent_at = now;
	last->free_at = now + 2 * SOON_US;
	sweep_soon(n);
	return true;
}

static void door_fire(struct timer *t) { door_flush(container_of(t, struct nano, door_timer)); }

void door_flush(struct nano *n)
{
	uint64_t now = env_now(n->env), next = 0;
	struct list go = LIST_INIT(go);
	struct list *i;

	list_each_safe(k, &n->door_queue) {
		struct packet *p = list_entry(k, struct packet, link);
		struct door_last *last = map_get(n->door_last, &p->door_token, sizeof(p->door_token));

		if (!last) {
			last = xcalloc(1, sizeof(*last));
			map_put(n->door_last, &p->door_token, sizeof(p->door_token), last);
		}
		if (last->free_at > now || needs_sweep(n, p, last, now)) {
			next = next && next < last->free_at ? next : last->free_at;
			continue;
		}
		last->sent_at = now;
		last->free_at = now + GAP_US + p->wire_len / 1000;
		list_del(k);
		n->door_queued -= p->wire_len;
		list_push(&go, k);
	}
	if (next) {
		n->door_timer.fire = door_fire;
		env_timer(n->env, &n->door_timer, next);
	}
	while ((i = list_pop(&go)))
		door_send(n, list_entry(i, struct packet, link));
}

void door_prune(struct nano *n)
{
	const void *key;
	size_t klen, it = 0;
	struct door_last *last;

	while ((last = map_next(n->door_last, &it, &key, &klen)))
		if (last->free_at + (last->swept ? SWEPT_US : 0) < env_now(n->env)) {
			map_del(n->door_last, key, klen);
			free(last);
		}
}

void door_give_back(struct nano *n)
{
	const void *key;
	size_t klen, it = 0;
	struct door_last *last;
	struct list *i;

	while ((i = list_pop(&n->door_queue))) {
		struct packet *p = list_entry(i, struct packet, link);
		n->door_queued -= p->wire_len;
		p->gone(p, false);
	}
	while ((last = map_next(n->door_last, &it, &key, &klen))) {
		map_del(n->door_last, key, klen);
		free(last);
	}
}
