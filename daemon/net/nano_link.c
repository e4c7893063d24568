/* The real transport: links, which this daemon has dialled. One socket per endpoint and channel, made by need, closed
 * least-recently-used. A packet is sealed when nanomsg can take it, never earlier, under the number of the connection
 * that carries it. */
#include <errno.h>
#include <nanomsg/nn.h>
#include <nanomsg/pipeline.h>
#include <nanomsg/reqrep.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "net/nano_int.h"

#define PACKETS_AT_ONCE 32
#define MESSAGES_AT_ONCE 64
#define ASKED_MAX 64                    /* links on somebody's word, of 400: M3 comes within two round trips; */
#define ASKED_ADDRESS_MAX 32            /* and to one address, where many daemons may live */

static size_t address_key(const struct endpoint *to, enum chan chan, unsigned lane, uint8_t out[24])
{
	memcpy(out, to->ip, 16);
	memcpy(out + 16, to->port, 6);
	out[22] = (uint8_t)chan;
	out[23] = (uint8_t)lane;
	return 24;
}

struct nlink *nlink_find(struct nano *n, const struct endpoint *to, enum chan chan, unsigned lane)
{
	uint8_t key[24];
	size_t len = address_key(to, chan, lane, key);
	return map_get(n->by_address, key, len);
}

void nlink_look(struct nlink *l)
{
	uint64_t established = nn_get_statistic(l->s, NN_STAT_ESTABLISHED_CONNECTIONS);
	uint64_t broken = nn_get_statistic(l->s, NN_STAT_BROKEN_CONNECTIONS);

	l->current = nn_get_statistic(l->s, NN_STAT_CURRENT_CONNECTIONS);
	if (established != l->established) {
		l->number = ++l->n->next_number;        /* C11: order holds within one TCP connection only */
		if (l->chan == CHAN_BULK && l->current) /* its window, before the first bytes have filled a queue */
			sweep_soon(l->n);
	}
	if (broken != l->broken) {
		l->broke_at = env_now(l->n->env);
		l->n->stats.breaks += broken - l->broken;
		if (l->chan == CHAN_BULK)       /* nanomsg dials again */
			pace_dial(l->n, l->s, l->to.ip);
	}
	l->established = established;
	l->broken = broken;
}

void nlink_used(struct nlink *l)
{
	l->used_at = env_now(l->n->env);
	list_del(&l->link);
	list_push(&l->n->links, &l->link);
}

/* Frees one socket that nothing waits for and nobody has used for a while. */
static bool make_room(struct nano *n)
{
	uint64_t now = env_now(n->env);

	list_each(i, &n->links) {
		struct nlink *l = list_entry(i, struct nlink, link);
		if (now - l->used_at < n->conf.idle_us)
			return false;                   /* in order of use: the rest is younger */
		if (!l->held && list_empty(&l->queue)) {
			n->stats.lru_closed++;
			nlink_free(l);
			return true;
		}
	}
	return false;
}

static struct nlink *oldest_asked(struct nano *n, const uint8_t group[16], uint32_t *ret_same)
{
	struct nlink *oldest = NULL;
	uint8_t ip[16];

	*ret_same = 0;
	list_each(i, &n->links) {
		struct nlink *l = list_entry(i, struct nlink, link);

		if (!l->asked)
			continue;
		ip_group(l->to.ip, ip);
		if (group && memcmp(ip, group, 16))
			continue;
		oldest = oldest ? oldest : l;
		++*ret_same;
	}
	return oldest;
}

/* One more on the word of who has proved nothing? It takes the place of another such that has had its time, never of a
 * peer's that only rests. */
static bool may_be_asked(struct nano *n, const struct endpoint *to)
{
	uint8_t group[16];
	uint32_t here, all = 0;
	struct nlink *old;

	ip_group(to->ip, group);
	old = oldest_asked(n, group, &here);
	if (here < ASKED_ADDRESS_MAX)
		old = oldest_asked(n, NULL, &all);
	if (here < ASKED_ADDRESS_MAX && all < ASKED_MAX && n->sockets < n->conf.sockets_max)
		return true;
	if (old && env_now(n->env) - old->used_at >= n->conf.idle_us) {
		nlink_free(old);
		return true;
	}
	n->stats.asked_refused++;
	return false;
}

static void out_ready(struct watch *w, int what) { nlink_flush(container_of(w, struct nlink, out)); }

static void in_ready(struct watch *w, int what)
{
	struct nlink *l = container_of(w, struct nlink, in);
	struct nano *n = l->n;
	uint64_t serial = l->serial;

	for (int i = 0; i < MESSAGES_AT_ONCE; i++) {
		void *msg;
		uint8_t head[8];
		size_t hlen;
		int len = raw_recv(l->s, &msg, head, &hlen);

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

static int dial(struct nlink *l)
{
	struct nano *n = l->n;
	char text[ENDPOINT_TEXT], url[ENDPOINT_TEXT + 8];
	size_t size = sizeof(int);
	bool door = l->chan == CHAN_DOOR;

	snprintf(url, sizeof(url), "tcp://%s", endpoint_text(&l->to, l->chan, text));
	l->s = door ? nn_socket(AF_SP_RAW, NN_REQ) : nn_socket(AF_SP, NN_PUSH);
	if (l->s < 0)
		return -1;
	n->sockets++;
	if (nano_options(l->s, &l->to, l->chan, &n->conf))
		return -1;
	if (l->chan == CHAN_BULK)
		pace_dial(n, l->s, l->to.ip);
	if (nn_connect(l->s, url) < 0 ||
	    nn_getsockopt(l->s, NN_SOL_SOCKET, NN_SNDFD, &l->out.fd, &size) ||
	    (door && nn_getsockopt(l->s, NN_SOL_SOCKET, NN_RCVFD, &l->in.fd, &size)))
		return -1;
	l->out.name = "send";
	l->out.ready = out_ready;
	l->in.name = "door dialled";
	l->in.ready = in_ready;
	if (door)
		loop_watch_fd(n->loop, &l->in, WATCH_READ);
	return 0;
}

struct nlink *nlink_get(struct nano *n, const struct endpoint *to, enum chan chan, unsigned lane, bool asked)
{
	struct nlink *l = nlink_find(n, to, chan, lane);
	uint8_t key[24];
	size_t len = address_key(to, chan, lane, key);

	if (l) {
		l->asked = l->asked && asked;
		return l;
	}
	if (asked ? !may_be_asked(n, to) : n->sockets >= n->conf.sockets_max && !make_room(n))
		return NULL;
	l = xcalloc(1, sizeof(*l));
	l->n = n;
	l->to = *to;
	l->chan = chan;
	l->lane = lane;
	l->serial = ++n->next_serial;
	l->number = ++n->next_number;
	l->s = -1;
	l->asked = asked;
	l->used_at = l->waiting_since = env_now(n->env);
	list_init(&l->queue);
	list_init(&l->dirty_link);
	list_push(&n->links, &l->link);
	map_put(n->by_address, key, len, l);
	map_put(n->by_serial, &l->serial, sizeof(l->serial), l);
	if (dial(l)) {
		nlink_free(l);
		return NULL;
	}
	return l;
}

void nlink_free(struct nlink *l)
{
	struct nano *n = l->n;
	uint8_t key[24];
	size_t len = address_key(&l->to, l->chan, l->lane, key);
	struct list *i;

	if (l->held)
		nano_return(n, l->held);
	if (l->sealed)
		nn_freemsg(l->sealed);
	while ((i = list_pop(&l->queue)))
		nano_return(n, list_entry(i, struct packet, link));
	loop_unwatch(&l->out);
	loop_unwatch(&l->in);
	if (l->s >= 0) {
		nn_close(l->s);
		n->sockets--;
	}
	if (l->dirty)
		list_del(&l->dirty_link);
	map_del(n->by_address, key, len);
	map_del(n->by_serial, &l->serial, sizeof(l->serial));
	list_del(&l->link);
	free(l);
}

void nlink_put(struct nlink *l, struct packet *p)
{
	if (!l->queued)
		l->waiting_since = env_now(l->n->env);
	list_push(&l->queue, &p->link);
	l->queued += p->wire_len;
	nlink_used(l);
	if (l->dirty || l->out.ev)              /* it will be flushed anyway */
		return;
	l->dirty = true;
	list_push(&l->n->dirty, &l->dirty_link);
	nano_mark(l->n);
}

/* The next packet, sealed, in l->held and l->sealed. False: none that can go now. */
static bool next_sealed(struct nlink *l)
{
	while (!l->held && !list_empty(&l->queue)) {
		struct packet *p = list_entry(l->queue.next, struct packet, link);
		void *msg;

		nlink_look(l);
		if (!l->current)
			return false;
		if (rate_waits(l->chan, p->wire_len) && !rate_may(l->n, &l->n->up)) {
			l->parked = true;
			return false;
		}
		msg = nn_allocmsg(p->wire_len, 0);
		list_del(&p->link);
		if (!msg || p->seal(p, l->number, msg)) {
			if (msg)
				nn_freemsg(msg);
			l->queued -= p->wire_len;
			nano_return(l->n, p);
			continue;
		}
		l->held = p;
		l->sealed = msg;
	}
	return l->held != NULL;
}

/* nn_send's manners: -1 and errno, body is kept. */
static int send_by_door(struct nlink *l, void **body)
{
	uint8_t head[4];

	head_put(head, REQUEST_ID);
	return raw_send(l->s, body, head, sizeof(head));
}

void nlink_flush(struct nlink *l)
{
	struct nano *n = l->n;
	struct list sent = LIST_INIT(sent);
	struct list *k;

	l->parked = false;
	for (int i = 0; i < PACKETS_AT_ONCE && next_sealed(l); i++) {
		struct packet *p = l->held;
		int rc = l->chan == CHAN_DOOR ? send_by_door(l, &l->sealed) :
			nn_send(l->s, &l->sealed, NN_MSG, NN_DONTWAIT);

		if (rc < 0)
			break;
		l->held = NULL;
		l->sealed = NULL;
		l->queued -= p->wire_len;
		rate_spend(&n->up, p->wire_len);
		n->stats.out[l->chan]++;
		n->stats.bytes_out[l->chan] += p->wire_len;
		nlink_used(l);
		list_push(&sent, &p->link);
	}
	if (l->chan == CHAN_BULK)
		pace_wake(n);
	loop_watch_fd(n->loop, &l->out, !l->parked && (l->held || !list_empty(&l->queue)) ? WATCH_READ : 0);
	while ((k = list_pop(&sent))) {         /* last: an owner may close this link */
		struct packet *p = list_entry(k, struct packet, link);
		p->gone(p, true);
	}
}
