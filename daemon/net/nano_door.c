/* The real transport: the door. Raw REP names the connection in the message's header, so an answer, or a
 * message unasked, can go to exactly one client. Raw REP silently drops what comes while a pipe is busy: messages to
 * one client are spaced, and whoever sends through a door keeps one unanswered message per client. */
#include <nanomsg/nn.h>
#include <stdlib.h>
#include "common/mem.h"
#include "net/nano_int.h"

#define GAP_US 250                      /* between two messages to one client, and 1 ns a byte more */
#define HAND_OVER_US 40                 /* enough when the client has spoken since: it waits for this answer */

#define REMEMBER_US 60000000            /* a peer's connection whose descriptor was not found is remembered so long, */
#define STRANGER_US 10000000            /* another one so long */
#define CONNECTIONS_MAX 4096            /* four times what the sweep leaves: they come and go */
#define CONNECTION_BYTES (4 * WIRE_MAX) /* waiting for one: whoever sends through a door keeps one on its way */
#define STRANGERS_SHARE 16              /* of all that may wait: a sixteenth for who is no peer */
#define FRAMING 12                      /* bytes around a message: its length, and the SP header */
#define SP_HEADER 8                     /* and in front of the first one */
#define MANY (64 * 1024)                /* so many bytes are no two connections' by chance, */
#define ON_THE_WAY (2 * WIRE_MAX)       /* even when the last of them have not been read */

/* ---- connections ---- */

static struct door_last *find(struct nano *n, uint64_t token)
{
	uint64_t key = token >> 32;

	return map_get(n->door_last, &key, sizeof(key));
}

static void forget(struct nano *n, struct door_last *last)
{
	struct list *i;

	list_del(&last->ready);                 /* first: what follows may end in a flush */
	while ((i = list_pop(&last->queue)))
		nano_return(n, list_entry(i, struct packet, link));
	n->door_queued[last->good] -= last->queued;
	env_timer(n->env, &last->timer, 0);
	map_del(n->door_last, &last->key, sizeof(last->key));
	list_del(&last->link);
	free(last);
}

/* In the order of the last word. */
static void heard(struct nano *n, struct door_last *last)
{
	list_del(&last->link);
	list_push(last->good ? &n->door_peers : &n->door_strangers, &last->link);
}

static void free_again(struct timer *t);

/* When there are too many, who is no peer and was heard of longest ago makes room. */
static struct door_last *make(struct nano *n, uint64_t token)
{
	struct door_last *last = find(n, token);

	if (last)
		return last;
	if (map_len(n->door_last) >= CONNECTIONS_MAX) {
		struct list *from = list_empty(&n->door_strangers) ? &n->door_peers : &n->door_strangers;

		forget(n, list_entry(from->next, struct door_last, link));
	}
	last = xcalloc(1, sizeof(*last));
	last->n = n;
	last->key = token >> 32;
	last->received = SP_HEADER;
	last->request = REQUEST_ID;
	last->heard_at = env_now(n->env);
	last->timer = (struct timer){ .fire = free_again, .name = "door" };
	list_init(&last->queue);
	list_init(&last->ready);
	list_init(&last->link);
	heard(n, last);
	map_put(n->door_last, &last->key, sizeof(last->key), last);
	return last;
}

static void is(struct inbound *c, struct door_last *last)
{
	c->token = last->key << 32 | REQUEST_ID;
	last->seen = true;
}

/* What the sweep saw waiting is being read: as much as TCP had received of one of them has now come by this one. */
static void place(struct nano *n, struct door_last *last)
{
	for (size_t i = 0; i < n->ninbound && last->good && !last->seen; i++) {
		struct inbound *c = &n->inbound[i];

		if (c->chan != CHAN_DOOR || c->token || c->received != last->received)
			continue;
		is(c, last);
		sweep_know(n, c->ip);
	}
}

void door_good(struct nano *n, uint64_t token)
{
	struct door_last *last = find(n, token);

	if (!last || last->good)
		return;
	last->good = true;
	n->door_queued[false] -= last->queued;
	n->door_queued[true] += last->queued;
	heard(n, last);
	place(n, last);
}

/* Two count the same connection, we and TCP: so one whose bytes are a peer's is that peer's. Who has seen what a peer
 * has sent could send as much; all that it wins is to be left alone. */
static bool may_be(const struct inbound *c, const struct door_last *last)
{
	return c->received >= last->received &&
		c->received - last->received <= (last->received >= MANY ? ON_THE_WAY : 0);
}

static struct door_last *owner(struct nano *n, const struct inbound *c)
{
	return c->token ? find(n, c->token) : NULL;
}

/* While messages are alike, counts are; what has been read of a peer and has not come by its descriptor tells that it
 * is another's. That one is no stranger yet. */
static void part(struct nano *n)
{
	for (size_t i = 0; i < n->ninbound; i++) {
		struct inbound *c = &n->inbound[i];
		struct door_last *last = owner(n, c);

		if (last && last->received <= c->received) {
			last->seen = true;
		} else if (last) {
			c->token = 0;
			c->since = env_now(n->env);
			c->late_us = n->late_us;
		}
	}
}

/* Finds the descriptor of last. One whose bytes are exactly its is taken from a peer that has fewer: that one is
 * returned, and its own is to be found. */
static struct door_last *settle(struct nano *n, struct door_last *last)
{
	struct door_last *other;

	for (size_t i = 0; i < n->ninbound; i++)
		if (n->inbound[i].chan == CHAN_DOOR && !n->inbound[i].token && may_be(&n->inbound[i], last)) {
			is(&n->inbound[i], last);
			return NULL;
		}
	for (size_t i = 0; i < n->ninbound; i++) {
		struct inbound *c = &n->inbound[i];

		other = c->received == last->received && c->received < MANY ? owner(n, c) : NULL;
		if (other && other->received < c->received) {
			is(c, last);
			other->seen = false;
			return other;
		}
	}
	return NULL;
}

void door_match(struct nano *n)
{
	list_each(i, &n->door_peers)
		list_entry(i, struct door_last, link)->seen = false;
	part(n);
	list_each(i, &n->door_peers) {
		struct door_last *last = list_entry(i, struct door_last, link);

		while (last && !last->seen)     /* each has fewer bytes than the one before */
			last = settle(n, last);
	}
	for (size_t i = 0; i < n->ninbound; i++)
		if (n->inbound[i].token)        /* true behind a NAT too, where what a HELLO says about itself is not */
			sweep_know(n, n->inbound[i].ip);
}

/* ---- when the next message may go ---- */

static void look_again(struct nano *n, struct door_last *last)
{
	if (list_empty(&last->queue) || !list_empty(&last->ready))
		return;
	list_push(&n->door_ready, &last->ready);
	nano_mark(n);
}

static void free_again(struct timer *t)
{
	struct door_last *last = container_of(t, struct door_last, timer);

	look_again(last->n, last);
}

/* ---- receiving ---- */
/* The token of the message's connection, whatever its request is called: the answer goes to the last one. */
static uint64_t spoke(struct nano *n, const uint8_t head[8], size_t len)
{
	uint64_t token = (uint64_t)(head_get(head) & 0x7fffffff) << 32 | REQUEST_ID;
	struct door_last *last = make(n, token);

	last->request = head_get(head + 4);
	last->received += FRAMING + len;
	last->heard_at = env_now(n->env);
	heard(n, last);
	place(n, last);
	if (last->free_at > last->sent_at + HAND_OVER_US) {
		last->free_at = last->sent_at + HAND_OVER_US;
		look_again(n, last);
	}
	return token;
}

void door_ready(struct watch *w, int what)
{
	struct box *b = container_of(w, struct box, in);
	size_t bytes = 0;

	for (int i = 0; i < MESSAGES_AT_ONCE && bytes < BYTES_AT_ONCE; i++) {
		void *msg;
		uint8_t head[8];
		size_t hlen;
		int len = raw_recv(b->s, &msg, head, &hlen);

		if (len < 0)
			return;
		bytes += (size_t)len;
		if (i)
			loop_lap(b->n->loop, w->name);
		if (hlen == 8) {                /* longer: it came through a device, which we do not speak to */
			uint64_t token = spoke(b->n, head, (size_t)len);
			nano_got(b->n, (struct via){ CHAN_DOOR, token }, msg, (size_t)len);
		}
		nn_freemsg(msg);
	}
}

/* ---- sending ---- */

/* One connection has its share of what may wait, and strangers theirs: however many HELLOs are refused, there is room
 * for the answers of peers. False: no room. */
bool door_answer(struct nano *n, struct packet *p)
{
	struct door_last *last = make(n, p->door_token);
	size_t all = n->door_queued[false] + n->door_queued[true] + p->wire_len;

	if (last->queued + p->wire_len > CONNECTION_BYTES || all > n->conf.bulk_queue_max ||
	    (!last->good && n->door_queued[false] + p->wire_len > n->conf.bulk_queue_max / STRANGERS_SHARE))
		return false;
	list_push(&last->queue, &p->link);
	last->queued += p->wire_len;
	n->door_queued[last->good] += p->wire_len;
	look_again(n, last);
	return true;
}

static void door_send(struct nano *n, struct packet *p)
{
	uint8_t head[8];
	void *msg = nn_allocmsg(p->wire_len, 0);
	const struct door_last *last = find(n, p->door_token);
	bool sent = false;

	if (msg && p->seal(p, (uint32_t)(p->door_token >> 32), msg) == 0) {
		head_put(head, (uint32_t)(p->door_token >> 32));
		head_put(head + 4, last ? last->request : REQUEST_ID);
		sent = raw_send(n->box[CHAN_DOOR].s, &msg, head, sizeof(head)) >= 0;
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

/* Only connections that have something new are looked at, or whose time has come; each gives one at a time. */
void door_flush(struct nano *n)
{
	uint64_t now = env_now(n->env);
	struct list *i;

	while ((i = list_pop(&n->door_ready))) {
		struct door_last *last = list_entry(i, struct door_last, ready);
		struct packet *p = list_entry(last->queue.next, struct packet, link);

		if (last->free_at > now || needs_sweep(n, p, last, now)) {
			env_timer(n->env, &last->timer, last->free_at);
			continue;
		}
		last->sent_at = now;
		last->free_at = now + GAP_US + p->wire_len / 1000;
		list_del(&p->link);
		last->queued -= p->wire_len;
		n->door_queued[last->good] -= p->wire_len;
		if (!list_empty(&last->queue))
			list_push(&n->door_ready, &last->ready);
		door_send(n, p);                /* last: its owner may send, and so make room among the connections */
	}
}

static void prune(struct nano *n, struct list *of, uint64_t age_us, uint64_t now)
{
	list_each_safe(i, of) {
		struct door_last *last = list_entry(i, struct door_last, link);

		if (!last->seen && list_empty(&last->queue) && last->heard_at + age_us < now)
			forget(n, last);
	}
}

void door_prune(struct nano *n, uint64_t now)
{
	prune(n, &n->door_peers, REMEMBER_US, now);
	prune(n, &n->door_strangers, STRANGER_US, now);
}

void door_give_back(struct nano *n)
{
	while (!list_empty(&n->door_peers))
		forget(n, list_entry(n->door_peers.next, struct door_last, link));
	while (!list_empty(&n->door_strangers))
		forget(n, list_entry(n->door_strangers.next, struct door_last, link));
}
