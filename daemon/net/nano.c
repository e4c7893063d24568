/* The real transport: binding the three ports, receiving, and the face towards the loop. */
#include <errno.h>
#include <nanomsg/nn.h>
#include <nanomsg/pipeline.h>
#include <nanomsg/reqrep.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "net/nano_int.h"



/* ---- sockets ---- */

static void mailbox_ready(struct watch *w, int what)
{
	struct box *b = container_of(w, struct box, in);
	size_t bytes = 0;

	for (int i = 0; i < MESSAGES_AT_ONCE && bytes < BYTES_AT_ONCE; i++) {
		void *msg;
		int len;

		if (b->chan == CHAN_BULK && !rate_may(b->n, &b->n->down)) {
			loop_watch_fd(b->n->loop, &b->in, 0);
			return;
		}
		len = nn_recv(b->s, &msg, NN_MSG, NN_DONTWAIT);
		if (len < 0)
			return;
		bytes += (size_t)len;
		if (i)
			loop_lap(b->n->loop, w->name);
		nano_got(b->n, (struct via){ .chan = b->chan }, msg, (size_t)len);
		nn_freemsg(msg);
	}
}

static const char *const names[] = { "control frames", "bulk frames", "door" };

static int bind_at(struct nano *n, enum chan chan, const uint8_t ip[16], uint16_t port, struct err *e)
{
	struct endpoint at = n->at;
	char text[ENDPOINT_TEXT], url[ENDPOINT_TEXT + 8];

	memcpy(at.ip, ip, 16);
	at.port[chan] = port;
	snprintf(url, sizeof(url), "tcp://%s", endpoint_text(&at, chan, text));
	if (nn_bind(n->box[chan].s, url) >= 0)
		return 0;
	return nn_errno() == EADDRINUSE ?
		err_set(e, ERR_EXISTS, "listen on %s for %s: another program has the port: choose one with listen = "
			"ADDRESS:PORT, or ADDRESS:auto", text, names[chan]) :
		err_set(e, ERR_IO, "listen on %s for %s: %s", text, names[chan], nn_strerror(nn_errno()));
}

static int bind_one(struct nano *n, enum chan chan, uint16_t port, struct err *e)
{
	struct box *b = &n->box[chan];
	struct endpoint at = n->at;
	size_t size = sizeof(b->in.fd);

	for (unsigned i = 0; i < n->conf.nalso; i++)    /* one address of version 6, and the socket must take both */
		if (!ip_is_v4(n->conf.also[i]))
			memcpy(at.ip, n->conf.also[i], 16);
	b->s = chan == CHAN_DOOR ? nn_socket(AF_SP_RAW, NN_REP) : nn_socket(AF_SP, NN_PULL);
	if (b->s < 0 || nano_options(b->s, &at, chan, &n->conf))
		return err_set(e, ERR_IO, "socket for %s: %s", names[chan], nn_strerror(nn_errno()));
	if (bind_at(n, chan, n->at.ip, port, e))
		return -1;
	for (unsigned i = 0; i < n->conf.nalso; i++)
		if (bind_at(n, chan, n->conf.also[i], port, e))
			return -1;
	if (nn_getsockopt(b->s, NN_SOL_SOCKET, NN_RCVFD, &b->in.fd, &size))
		return err_set(e, ERR_IO, "socket for %s: %s", names[chan], nn_strerror(nn_errno()));
	n->at.port[chan] = port;
	b->n = n;
	b->chan = chan;
	b->in.name = names[chan];
	b->in.ready = chan == CHAN_DOOR ? door_ready : mailbox_ready;
	return 0;
}

static void unbind(struct nano *n)
{
	for (int c = 0; c < CHANS; c++) {
		loop_unwatch(&n->box[c].in);
		if (n->box[c].s >= 0)
			nn_close(n->box[c].s);
		n->box[c].s = -1;
		n->at.port[c] = 0;
	}
}

/* Three neighbouring ports: the one asked for, or the first free three of the range. */
static int bind_all(struct nano *n, struct err *e)
{
	uint32_t first = n->conf.port ? n->conf.port : n->conf.auto_first;
	uint32_t last = n->conf.port ? n->conf.port : n->conf.auto_last;

	for (uint32_t p = first; p <= last; p += CHANS) {
		int rc = 0;
		for (int c = 0; c < CHANS && !rc; c++)
			rc = bind_one(n, (enum chan)c, (uint16_t)(p + (uint32_t)c), e);
		if (!rc)
			break;
		unbind(n);
		if (p + CHANS > last)
			return n->conf.port || (e && e->code != ERR_EXISTS) ? -1 : err_set(e, ERR_EXISTS,
				"listen: no three free ports from %u to %u", first, last);
		if (e && e->code != ERR_EXISTS)
			return -1;
	}
	for (int c = 0; c < CHANS; c++)
		loop_watch_fd(n->loop, &n->box[c].in, WATCH_READ);
	return 0;
}

/* ---- the face towards the loop ---- */
static struct nano *of(struct transport *t) { return container_of(t, struct nano, transport); }

static void flush_all(struct deferred *d)
{
	struct nano *n = container_of(d, struct nano, flush);
	struct list *i;

	while ((i = list_pop(&n->dirty))) {
		struct nlink *l = list_entry(i, struct nlink, dirty_link);
		l->dirty = false;
		nlink_flush(l);
	}
	door_flush(n);
	while ((i = list_pop(&n->returned))) {
		struct packet *p = list_entry(i, struct packet, link);
		p->gone(p, false);
	}
}

static void nano_send(struct transport *t, const struct endpoint *to, enum chan chan, uint64_t token, struct packet *p)
{
	static const struct endpoint nowhere;
	struct nano *n = of(t);
	uint64_t serial = token & ~DIALLED;
	struct nlink *l = NULL;
	size_t max = chan == CHAN_CTRL ? n->conf.ctrl_queue_max : n->conf.bulk_queue_max;

	p->to = to ? *to : nowhere;
	p->chan = chan;
	p->door_token = token;
	if (chan == CHAN_DOOR && token && !(token & DIALLED) && !door_lane(token)) {
		if (n->box[CHAN_DOOR].s < 0 || p->wire_len > wire_max(chan) || !door_answer(n, p))
			nano_return(n, p);
		return;
	}
	if (chan == CHAN_DOOR && (token & DIALLED))
		l = map_get(n->by_serial, &serial, sizeof(serial));
	else if (to && to->port[chan])
		l = nlink_get(n, to, chan, chan == CHAN_DOOR ? door_lane(token) : 0, p->asked);
	if (!l || p->wire_len > wire_max(chan) || l->queued + p->wire_len > max)
		nano_return(n, p);
	else
		nlink_put(l, p);
}

static void nano_close_link(struct transport *t, const struct endpoint *to, bool waiting)
{
	struct nano *n = of(t);

	if (!waiting)
		pace_drop(n, to->ip, to->port[CHAN_BULK]);
	list_each_safe(i, &n->links) {
		struct nlink *l = list_entry(i, struct nlink, link);
		if (memcmp(l->to.ip, to->ip, 16) || memcmp(l->to.port, to->port, sizeof(to->port)))
			continue;
		if (waiting)
			nlink_look(l);
		if (!waiting || !l->current)
			nlink_free(l);
	}
}

static bool nano_linkinfo(struct transport *t, const struct endpoint *to, struct linkinfo *ret)
{
	struct nano *n = of(t);
	bool any = false;

	for (int c = 0; c < CHANS; c++) {
		struct nlink *l = nlink_find(n, to, (enum chan)c, 0);
		uint64_t since;

		if (!l)
			continue;
		nlink_look(l);
		any = true;
		ret->queued_bytes += l->queued;
		ret->connected |= l->current > 0;
		since = l->waiting_since > l->broke_at ? l->waiting_since : l->broke_at;
		if (l->queued && !l->current && env_now(n->env) - since > ret->waits_us)
			ret->waits_us = env_now(n->env) - since;
		ret->failed += nn_get_statistic(l->s, NN_STAT_CONNECT_ERRORS);
		/* a connection that broke stays suspicious for a moment, even if another has taken its place */
		ret->maybe_dead |= (l->established && !l->current) || (l->broke_at && env_now(n->env) - l->broke_at < 100000);
		if (l->rtt_us && (!ret->rtt_us || l->rtt_us < ret->rtt_us))
			ret->rtt_us = l->rtt_us;
	}
	return any;
}

static void nano_detach(struct transport *t)
{
	struct nano *n = of(t);

	for (int c = 0; c < CHANS; c++)
		loop_unwatch(&n->box[c].in);
	env_timer(n->env, &n->sweep, 0);
	env_timer(n->env, &n->pace, 0);
	rate_stop(n);
	while (!list_empty(&n->links))
		nlink_free(list_entry(n->links.next, struct nlink, link));
	door_give_back(n);
	flush_all(&n->flush);
	loop_undefer(&n->flush);
}

static void nano_heard(struct transport *t, const uint8_t ip[16], uint64_t token)
{
	if (!token)
		sweep_know(of(t), ip);
	else if (!(token & DIALLED))
		door_good(of(t), token);
}

static void nano_ban(struct transport *t, const uint8_t ip[16], uint64_t until_us)
{
	sweep_note(of(t)->banned, ip, until_us);
	env_after(of(t)->env, &of(t)->sweep, 1);
}

/* ---- life ---- */
static void defaults(struct nano_conf *c)
{
	c->auto_first = c->auto_first ? c->auto_first : NANO_PORT_CTRL;
	c->auto_last = c->auto_last ? c->auto_last : (uint16_t)(c->auto_first + 3 * 255);
	c->sockets_max = c->sockets_max ? c->sockets_max : 400;
	c->ctrl_buf = c->ctrl_buf ? c->ctrl_buf : 256 * 1024;
	c->bulk_buf = c->bulk_buf ? c->bulk_buf : 2 * 1024 * 1024;
	c->ctrl_queue_max = c->ctrl_queue_max ? c->ctrl_queue_max : 1024 * 1024;
	c->bulk_queue_max = c->bulk_queue_max ? c->bulk_queue_max : 16 * 1024 * 1024;
	c->idle_us = c->idle_us ? c->idle_us : 1000000;
	c->stuck_us = c->stuck_us ? c->stuck_us : 10000000;
	c->sweep_us = c->sweep_us ? c->sweep_us : 1000000;
	c->stranger_us = c->stranger_us ? c->stranger_us : 10000000;
	c->per_address_max = c->per_address_max ? c->per_address_max : 16;
	c->inbound_max = c->inbound_max ? c->inbound_max : 1024;
}

struct nano *nano_new(struct loop *l, const struct nano_conf *conf, struct err *e)
{
	struct nano *n = xcalloc(1, sizeof(*n));
	uint64_t key;

	mem_keep();
	n->loop = l;
	n->env = loop_env(l);
	n->conf = *conf;
	defaults(&n->conf);
	memcpy(n->at.ip, conf->listen, 16);
	n->box[CHAN_CTRL].s = n->box[CHAN_BULK].s = n->box[CHAN_DOOR].s = -1;
	list_init(&n->links);
	list_init(&n->dirty);
	list_init(&n->returned);
	list_init(&n->door_ready);
	list_init(&n->door_peers);
	list_init(&n->door_strangers);
	key = env_rand(n->env);
	n->by_address = map_new(key);
	n->by_serial = map_new(key);
	n->door_last = map_new(key);
	n->known = map_new(key);
	n->banned = map_new(key);
	n->flush.name = "send";
	n->flush.fn = flush_all;
	n->sweep.name = "descriptor sweep";
	n->sweep.fire = sweep_fire;
	n->transport = (struct transport){ nano_send, nano_close_link, nano_linkinfo, nano_detach, nano_heard, nano_ban };
	rate_init(n);
	pace_init(n, key);
	if (!n->conf.client && bind_all(n, e)) {
		nano_free(n);
		return NULL;
	}
	loop_plug(l, &n->transport);
	n->plugged = true;
	env_after(n->env, &n->sweep, n->conf.sweep_us);
	return n;
}

void nano_free(struct nano *n)
{
	if (!n)
		return;
	if (n->plugged)
		n->env->ops->detach(n->env);
	nano_detach(&n->transport);
	unbind(n);
	sweep_free(n);
	pace_free(n);
	map_free(n->by_address);
	map_free(n->by_serial);
	map_free(n->door_last);
	map_free(n->known);
	map_free(n->banned);
	free(n);
}

const struct endpoint *nano_endpoint(const struct nano *n) { return &n->at; }

void nano_stats(const struct nano *n, struct nano_stats *ret)
{
	*ret = n->stats;
	ret->inbound = n->ninbound;
	ret->sockets = n->sockets;
	ret->links = (uint32_t)map_len(n->by_address);
	ret->queued = (uint32_t)(n->door_queued[false] + n->door_queued[true]);
	list_each(i, &n->links)
		ret->queued += (uint32_t)list_entry(i, struct nlink, link)->queued;
}
