/* The sockets of the simulated nodes, behaving like net/nano.c over nanomsg: one sending socket per endpoint and
 * channel, made by need; a bounded queue before it; reconnecting with back-off; numbers that grow with each connection;
 * a door that both sides can send through. */
#include <stdlib.h>
#include "sim_int.h"

#define DOOR_GAP_US 250                 /* net/nano_door.c */
#define DOOR_HAND_OVER_US 40
#define RECONNECT_US 20000
#define RECONNECT_US_MAX 1000000
#define DEAD_FRESH_US 100000            /* a break shows in linkinfo this long even when it has connected again */
#define BACKLOG_US_MAX 10000000         /* nano.c gives back what waits longer for a connection */

/* ---- packets that come back ---- */
void simnet_return(struct snode *n, struct packet *p)
{
	n->sim->stats.refused++;
	if (n->detached) {
		p->gone(p, false);
		return;
	}
	list_push(&n->returned, &p->link);
	sim_item(n, &n->returns, ITEM_RETURN);
}

static void give_back(struct slink *l)
{
	struct list *i;
	while ((i = list_pop(&l->queue))) {
		struct packet *p = list_entry(i, struct packet, link);
		l->queued -= p->wire_len;
		simnet_return(l->node, p);
	}
}

void simnet_give_back(struct snode *n)
{
	struct list *i;
	list_each_safe(k, &n->links)
		give_back(list_entry(k, struct slink, link));
	sim_unitem(&n->returns);
	while ((i = list_pop(&n->returned))) {
		struct packet *p = list_entry(i, struct packet, link);
		p->gone(p, false);
	}
}

/* ---- sockets ---- */
static struct snode *dialled_node(struct sim *s, const struct slink *l)
{
	uint8_t key[18];
	memcpy(key, l->to.ip, 16);
	memcpy(key + 16, &l->to.port[l->chan], 2);
	return map_get(s->ports, key, sizeof(key));
}

static void up(struct slink *l, struct snode *to)
{
	struct sim *s = l->node->sim;
	struct pipe *p = simpipe_new(s, l->node->index, to->index, l->chan);

	l->state = LINK_UP;
	l->ever_up = true;
	l->tries = 0;
	l->number = ++s->next_number;
	l->pipe = p;
	p->owner = l;
	p->dialler_serial = l->serial;
	if (l->chan == CHAN_DOOR) {
		struct pipe *r = simpipe_new(s, to->index, l->node->index, CHAN_DOOR);
		r->backward = true;
		r->dialler_serial = l->serial;
		r->rev = p;
		p->rev = r;
		map_put(s->doors, &p->id, sizeof(p->id), p);
	}
	sim_item(l->node, &l->flush, ITEM_FLUSH);
}

static void connect_fire(struct timer *t)
{
	struct slink *l = container_of(t, struct slink, connect);
	struct sim *s = l->node->sim;
	struct snode *to = dialled_node(s, l);
	int a = l->node->index;
	uint64_t wait = RECONNECT_US << (l->tries < 6 ? l->tries : 6);

	if (l->chan == CHAN_DOOR && !l->to.port[CHAN_DOOR]) {   /* the queue of answers: the next one's turn */
		sim_item(l->node, &l->flush, ITEM_FLUSH);
		return;
	}
	if (to && to->alive && !to->paused && !sim_is_cut(s, a, to->index) && !sim_is_cut(s, to->index, a)) {
		up(l, to);
		return;
	}
	if (wait > RECONNECT_US_MAX)
		wait = RECONNECT_US_MAX;
	if (!to || sim_is_cut(s, a, to->index) || sim_is_cut(s, to->index, a))
		wait = (uint64_t)1000000 << (l->tries < 5 ? l->tries : 5);      /* the SYN's own retransmission */
	l->tries++;
	if (s->now - l->waiting_since > BACKLOG_US_MAX)
		give_back(l);
	heap_set(&s->heap, &l->connect, s->now + wait);
}

static void dial(struct slink *l, uint64_t after_us)
{
	struct sim *s = l->node->sim;
	struct snode *to = dialled_node(s, l);
	uint64_t trip = 1000;

	if (to)
		trip = simpipe_delay(s, l->node->index, to->index) + simpipe_delay(s, to->index, l->node->index);
	l->waiting_since = s->now;
	l->state = LINK_CONNECTING;
	heap_set(&s->heap, &l->connect, s->now + after_us + 2 * trip);
}

static size_t link_key(const struct endpoint *to, enum chan chan, unsigned lane, uint8_t out[24])
{
	memcpy(out, to->ip, 16);
	memcpy(out + 16, to->port, 6);
	out[22] = (uint8_t)chan;
	out[23] = (uint8_t)lane;
	return 24;
}

static struct slink *link_find(struct snode *n, const struct endpoint *to, enum chan chan, unsigned lane)
{
	uint8_t key[24];
	size_t len = link_key(to, chan, lane, key);
	return map_get(n->link_map, key, len);
}

static struct slink *link_get(struct snode *n, const struct endpoint *to, enum chan chan, unsigned lane)
{
	struct slink *l = link_find(n, to, chan, lane);
	uint8_t key[24];
	size_t len = link_key(to, chan, lane, key);

	if (l)
		return l;
	l = xcalloc(1, sizeof(*l));
	l->node = n;
	l->to = *to;
	l->chan = chan;
	l->lane = lane;
	l->serial = ++n->sim->next_id;
	l->connect.fire = connect_fire;
	list_init(&l->queue);
	list_push(&n->links, &l->link);
	map_put(n->link_map, key, len, l);
	map_put(n->serial_map, &l->serial, sizeof(l->serial), l);
	return l;
}

static void link_free(struct slink *l)
{
	struct snode *n = l->node;
	uint8_t key[24];
	size_t len = link_key(&l->to, l->chan, l->lane, key);

	give_back(l);
	if (l->pipe) {
		struct pipe *p = l->pipe, *r = p->rev;
		l->pipe = NULL;
		p->owner = NULL;
		simpipe_lose(p, rng_below(&n->sim->world, p->bytes + 1));
		if (r) {
			r->rev = p->rev = NULL;
			simpipe_lose(r, 0);
			simpipe_maybe_free(r);
		}
		simpipe_maybe_free(p);
	}
	sim_unitem(&l->flush);
	heap_set(&n->sim->heap, &l->connect, 0);
	map_del(n->link_map, key, len);
	map_del(n->serial_map, &l->serial, sizeof(l->serial));
	list_del(&l->link);
	free(l);
}

void simnet_drop_links(struct snode *n)
{
	list_each_safe(i, &n->links)
		link_free(list_entry(i, struct slink, link));
}

/* ---- sending ---- */
static struct wire *sealed(struct packet *p, uint32_t number)
{
	struct wire *w = simpipe_room(p->wire_len);
	if (!p->seal(p, number, w->bytes))
		return w;
	free(w);
	return NULL;
}

/* An answer through a door to whoever dialled it. nano.c spaces the messages to one client; raw REP drops what still
 * finds the pipe busy (full buffers, or a worker that was late), and what nobody holds any more vanishes. */
static void door_answer(struct snode *n, struct packet *p)
{
	struct sim *s = n->sim;
	struct pipe *fwd = map_get(s->doors, &p->door_token, sizeof(p->door_token)), *r;
	struct wire *w;

	if (!fwd || !fwd->rev || fwd->to != n->index || fwd->to_life != n->life) {
		s->stats.lost++;
		p->gone(p, true);
		return;
	}
	r = fwd->rev;
	r->last_sent = s->now;
	r->free_at = s->now + DOOR_GAP_US + p->wire_len / 1000;
	w = sealed(p, (uint32_t)p->door_token);
	if (w && (r->bytes >= simpipe_cap(r) || (s->costs.door_drop && rng_below(&s->world, s->costs.door_drop) == 0))) {
		s->stats.door_drops++;
		free(w);
	} else if (w) {
		rate_spend(&n->up, w->len);
		simpipe_put(r, w);
	}
	p->gone(p, w != NULL);
}

void simnet_door_spoke(struct pipe *fwd)
{
	struct pipe *r = fwd->rev;
	if (r && !fwd->backward && r->free_at > r->last_sent + DOOR_HAND_OVER_US)
		r->free_at = r->last_sent + DOOR_HAND_OVER_US;
}

static void door_flush(struct slink *l)
{
	struct sim *s = l->node->sim;
	uint64_t next = 0;
	struct list go = LIST_INIT(go), *i;

	list_each_safe(k, &l->queue) {
		struct packet *p = list_entry(k, struct packet, link);
		struct pipe *fwd = map_get(s->doors, &p->door_token, sizeof(p->door_token));
		struct pipe *r = fwd ? fwd->rev : NULL;

		if (r && r->free_at > s->now) {
			next = next && next < r->free_at ? next : r->free_at;
			continue;
		}
		if (r)
			r->free_at = s->now + DOOR_GAP_US;      /* one each */
		list_del(k);
		l->queued -= p->wire_len;
		list_push(&go, k);
	}
	heap_set(&s->heap, &l->connect, next);
	while ((i = list_pop(&go)))
		door_answer(l->node, list_entry(i, struct packet, link));
}

void simnet_flush(struct slink *l)
{
	if (l->chan == CHAN_DOOR && !l->to.port[CHAN_DOOR]) {
		door_flush(l);
		return;
	}
	while (!list_empty(&l->queue)) {
		struct packet *p = list_entry(l->queue.next, struct packet, link);
		struct wire *w;

		if (l->state == LINK_IDLE)
			dial(l, 0);
		if (l->state != LINK_UP || (l->pipe->bytes >= simpipe_cap(l->pipe) && !l->pipe->dead))
			return;
		if (!simrate_up(l->node, l->chan, p->wire_len))
			return;
		list_del(&p->link);
		l->queued -= p->wire_len;
		w = sealed(p, l->number);
		if (w) {
			rate_spend(&l->node->up, w->len);
			simpipe_put(l->pipe, w);
		}
		p->gone(p, w != NULL);
	}
}

void simnet_send(struct env *e, const struct endpoint *to, enum chan chan, uint64_t token, struct packet *p)
{
	struct snode *n = snode_of(e);
	struct slink *l;
	static const struct endpoint nowhere;

	p->to = to ? *to : nowhere;
	p->chan = chan;
	p->door_token = token;
	if (p->wire_len > wire_max(p->chan) || n->detached || n->dying) {
		simnet_return(n, p);
		return;
	}
	if (chan == CHAN_DOOR && token && !(token & DIALLED) && !door_lane(token)) {
		l = link_get(n, &nowhere, CHAN_DOOR, 0);        /* one queue for all answers, as in nano.c */
	} else if (chan == CHAN_DOOR && (token & DIALLED)) {
		uint64_t serial = token & ~DIALLED;
		l = map_get(n->serial_map, &serial, sizeof(serial));
	} else {
		l = to && to->port[chan] ? link_get(n, to, chan, chan == CHAN_DOOR ? door_lane(token) : 0) : NULL;
	}
	if (!l || l->queued + p->wire_len > n->sim->costs.queue_max) {
		simnet_return(n, p);
		return;
	}
	list_push(&l->queue, &p->link);
	l->queued += p->wire_len;
	if (l->queued == p->wire_len)
		l->waiting_since = n->sim->now;
	sim_item(n, &l->flush, ITEM_FLUSH);
}

void simnet_handled(struct wire *w)
{
	struct pipe *p = w->pipe;

	p->refs--;
	if (sim_is_cut(p->sim, p->to, p->from)) {
		p->held += w->len;
	} else {
		p->bytes -= w->len + p->held;
		p->held = 0;
		if (p->owner && !list_empty(&p->owner->queue))
			sim_item(p->owner->node, &p->owner->flush, ITEM_FLUSH);
	}
	free(w);
	simpipe_maybe_free(p);
}

void simnet_release(struct sim *s)
{
	list_each(i, &s->pipes) {
		struct pipe *p = list_entry(i, struct pipe, all);
		if (!p->held || sim_is_cut(s, p->to, p->from))
			continue;
		p->bytes -= p->held;
		p->held = 0;
		if (p->owner && !list_empty(&p->owner->queue))
			sim_item(p->owner->node, &p->owner->flush, ITEM_FLUSH);
	}
}

/* ---- breaking ---- */
void simnet_break(struct sim *s, struct pipe *p)
{
	struct slink *l = p->owner;
	struct pipe *r = p->rev;

	if (p->backward && r) {                 /* it is the dialler's connection */
		simnet_break(s, r);
		return;
	}
	s->stats.breaks++;
	heap_set(&s->heap, &p->notice, 0);
	if (l) {
		l->pipe = NULL;
		l->state = LINK_IDLE;
		l->broke_at = s->now;
		p->owner = NULL;
		if (l->node->alive && !l->node->dying)
			dial(l, RECONNECT_US);
	}
	simpipe_lose(p, rng_below(&s->world, p->bytes + 1));
	if (r) {
		r->rev = p->rev = NULL;
		map_del(s->doors, &p->id, sizeof(p->id));
		simpipe_lose(r, rng_below(&s->world, r->bytes + 1));
		simpipe_maybe_free(r);
	}
	simpipe_maybe_free(p);
}

/* The kernel of a killed process resets its connections; a host without power says nothing. What it had sent and what
 * sits in its buffers: a random suffix is lost. */
void simnet_died(struct snode *n, bool quiet)
{
	struct sim *s = n->sim;

	if (s->ending)
		return;
	list_each_safe(i, &n->pipes) {
		struct pipe *p = list_entry(i, struct pipe, into);
		if (p->to_life == n->life) {
			bool cut = sim_is_cut(s, p->to, p->from);
			simpipe_lose(p, 0);
			p->dead = true;
			if (p->owner && !quiet && !cut)
				heap_set(&s->heap, &p->notice, s->now + simpipe_delay(s, p->to, p->from) + 700 +
					rng_below(&s->world, 2600));
			simpipe_maybe_free(p);
		}
	}
}

void simnet_close_link(struct env *e, const struct endpoint *to, bool waiting)
{
	struct snode *n = snode_of(e);

	list_each_safe(i, &n->links) {
		struct slink *l = list_entry(i, struct slink, link);

		if (waiting && l->state != LINK_CONNECTING)
			continue;
		if (!memcmp(l->to.ip, to->ip, 16) && !memcmp(l->to.port, to->port, sizeof(to->port)))
			link_free(l);
	}
}

bool simnet_linkinfo(struct env *e, const struct endpoint *to, struct linkinfo *ret)
{
	struct snode *n = snode_of(e);
	bool any = false;

	memset(ret, 0, sizeof(*ret));
	for (int c = 0; c < CHANS; c++) {
		struct slink *l = to->port[c] ? link_find(n, to, (enum chan)c, 0) : NULL;
		if (!l)
			continue;
		any = true;
		ret->queued_bytes += l->queued;
		if (l->queued && l->state != LINK_UP && n->sim->now - l->waiting_since > ret->waits_us)
			ret->waits_us = n->sim->now - l->waiting_since;
		if (l->state == LINK_UP) {
			struct pair *f = simpipe_pair(n->sim, n->index, l->pipe->to);
			struct pair *b = simpipe_pair(n->sim, l->pipe->to, n->index);
			ret->connected = true;
			ret->rtt_us = f->l.latency_us + b->l.latency_us + (f->l.jitter_us + b->l.jitter_us) / 2;
		}
		if (l->ever_up && (l->state != LINK_UP || (l->broke_at && n->sim->now - l->broke_at < DEAD_FRESH_US)))
			ret->maybe_dead = true;
	}
	return any;
}

void simnet_free(struct sim *s)
{
	while (!list_empty(&s->pipes)) {
		struct pipe *p = list_entry(s->pipes.next, struct pipe, all);
		p->owner = NULL;
		simpipe_free(p);
	}
}
