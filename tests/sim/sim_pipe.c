/* One direction of one TCP connection between two nodes: order, latency, bandwidth, full socket buffers, the silence
 * of a cut link, what is lost and what still trickles in when the connection has broken. */
#include <stdlib.h>
#include "sim_int.h"

#define USER_TIMEOUT_US 30000000        /* TCP_USER_TIMEOUT of nano.c */
#define CALL_BYTES 16384                /* longer frames through a door are bulk */
#define LATE_US_MAX 50000               /* how late leftovers of a broken connection arrive */

/* TCP's retransmissions after data went unanswered, from the first sending. */
static const uint64_t resend_us[] = { 200000, 600000, 1400000, 3000000, 6200000, 12600000, 25400000, 51000000 };

struct pair *simpipe_pair(struct sim *s, int from, int to)
{
	struct pair **p = &s->pair[from * SIM_NODES_MAX + to];

	if (*p)
		return *p;
	*p = xcalloc(1, sizeof(**p));
	(*p)->l = (struct sim_link){ .latency_us = 100, .jitter_us = 20 };
	list_each(i, &s->rules) {
		struct rule *r = list_entry(i, struct rule, link);
		if ((r->from < 0 || r->from == from) && (r->to < 0 || r->to == to))
			(*p)->l = r->l;
	}
	return *p;
}

uint64_t simpipe_delay(struct sim *s, int from, int to)
{
	struct sim_link *l = &simpipe_pair(s, from, to)->l;
	return l->latency_us + (l->jitter_us ? rng_below(&s->world, l->jitter_us + 1) : 0);
}

size_t simpipe_cap(const struct pipe *p)
{
	return 2 * (size_t)(p->chan == CHAN_CTRL ? p->sim->costs.ctrl_buf : p->sim->costs.bulk_buf);
}

struct wire *simpipe_room(size_t len)
{
	struct wire *w = xcalloc(1, sizeof(*w) + len);
	w->len = len;
	return w;
}

static bool receiver_there(const struct pipe *p)
{
	const struct snode *n = p->sim->node[p->to];
	return n->alive && n->life == p->to_life;
}

static void arm(struct pipe *p)
{
	uint64_t at = 0;
	if (!list_empty(&p->flight)) {
		at = list_entry(p->flight.next, struct wire, link)->at;
		if (at < p->sim->now)
			at = p->sim->now;
	}
	heap_set(&p->sim->heap, &p->pump, at);
}

/* The link is silent: the next try is TCP's. */
static void blocked(struct pipe *p)
{
	struct sim *s = p->sim;

	if (!p->blocked_at) {
		p->blocked_at = s->now;
		p->tries = 0;
	}
	while (p->tries < 8 && p->blocked_at + resend_us[p->tries] <= s->now)
		p->tries++;
	if (s->now - p->blocked_at >= USER_TIMEOUT_US || p->tries == 8) {
		if (p->owner || p->rev) {
			simnet_break(s, p);
		} else {
			simpipe_lose(p, 0);
			simpipe_maybe_free(p);
		}
	}
	else
		heap_set(&s->heap, &p->pump, p->blocked_at + resend_us[p->tries]);
}

static void pump_fire(struct timer *t)
{
	struct pipe *p = container_of(t, struct pipe, pump);
	struct sim *s = p->sim;
	bool served = false;

	if (sim_is_cut(s, p->from, p->to)) {
		blocked(p);
		return;
	}
	p->blocked_at = 0;
	if (!receiver_there(p)) {       /* answered by a reset */
		simpipe_lose(p, 0);
		p->dead = true;
		if (p->owner)
			simnet_break(s, p);
		else
			simpipe_maybe_free(p);
		return;
	}
	while (!list_empty(&p->flight)) {
		struct wire *w = list_entry(p->flight.next, struct wire, link);
		uint64_t later;
		if (w->at > s->now)
			break;
		later = simrate_down(p, w->len);
		if (later) {
			/* whoever waits for the same moment and was not served is next: PULL takes from all in turn */
			heap_set(&s->heap, &p->pump, later + served);
			return;
		}
		served = true;
		rate_spend(&s->node[p->to]->down, w->len);
		s->stats.bytes_read += w->len;
		list_del(&w->link);
		p->refs++;
		sim_item(s->node[p->to], &w->item, ITEM_RECV);
	}
	arm(p);
	simpipe_maybe_free(p);
}

static void notice_fire(struct timer *t)
{
	struct pipe *p = container_of(t, struct pipe, notice);
	if (sim_is_cut(p->sim, p->to, p->from))
		return;                         /* the news cannot come through; a sending after the heal finds out */
	simnet_break(p->sim, p);
}

struct pipe *simpipe_new(struct sim *s, int from, int to, enum chan chan)
{
	struct pipe *p = xcalloc(1, sizeof(*p));

	p->sim = s;
	p->from = from;
	p->to = to;
	p->to_life = s->node[to]->life;
	p->chan = chan;
	p->id = ++s->next_id;
	p->pump.fire = pump_fire;
	p->notice.fire = notice_fire;
	list_init(&p->flight);
	list_push(&s->pipes, &p->all);
	list_push(&s->node[to]->pipes, &p->into);
	return p;
}

/* When what comes to a queue of that rate at `at` is through it. */
static uint64_t through(const struct pipe *p, uint64_t *free_at, uint64_t bytes_per_s, uint64_t at, size_t len)
{
	uint64_t us = (uint64_t)((double)len * 1e6 / (double)bytes_per_s), queue = *free_at > at ? *free_at - at : 0;

	*free_at = at + queue + us;
	if (p->sim->costs.call_queue_us && p->chan != CHAN_BULK && len <= CALL_BYTES && queue > p->sim->costs.call_queue_us)
		queue = p->sim->costs.call_queue_us;
	return at + queue + us;
}

static uint64_t along_lines(const struct pipe *p, uint64_t at, size_t len)
{
	struct sim *s = p->sim;
	int line[2] = { s->node[p->from]->line, s->node[p->to]->line };

	for (int k = 0; k < 2 && line[0] != line[1]; k++) {
		struct line *l = line[k] ? &s->lines[line[k] - 1] : NULL;
		if (l)
			at = through(p, &l->free_at[k], l->bytes_per_s, at, len) + l->latency_us;
	}
	return at;
}

void simpipe_put(struct pipe *p, struct wire *w)
{
	struct sim *s = p->sim;
	struct pair *pair = simpipe_pair(s, p->from, p->to);
	uint64_t at = s->now;

	s->stats.sent++;
	s->stats.bytes_sent += w->len;
	if (s->tap)
		s->tap(s->tap_arg, p->from, p->to, p->chan, w->bytes, w->len);
	if (p->dead) {                          /* the kernel still says yes */
		s->stats.lost++;
		free(w);
		if (!p->notice.at_us)           /* a reset, or nothing at all */
			heap_set(&s->heap, &p->notice, s->now + (!p->mute && (s->node[p->to]->alive || !s->node[p->to]->quiet) ?
				2 * simpipe_delay(s, p->from, p->to) : USER_TIMEOUT_US));
		return;
	}
	if (pair->l.bytes_per_s)
		at = through(p, &pair->free_at, pair->l.bytes_per_s, at, w->len);
	at = along_lines(p, at, w->len);
	at += simpipe_delay(s, p->from, p->to);
	if (at < p->last_at)
		at = p->last_at;
	p->last_at = w->at = at;
	w->pipe = p;
	p->bytes += w->len;
	list_push(&p->flight, &w->link);
	if (!p->pump.at_us)
		arm(p);
	if (pair->l.break_every && rng_below(&s->world, pair->l.break_every) == 0)
		simnet_break(s, p);
}

void simpipe_lose(struct pipe *p, size_t keep_bytes)
{
	struct sim *s = p->sim;
	size_t kept = 0;

	list_each_safe(i, &p->flight) {
		struct wire *w = list_entry(i, struct wire, link);
		kept += w->len;
		if (kept <= keep_bytes)
			continue;
		kept = SIZE_MAX / 2;            /* one contiguous run to the end */
		list_del(i);
		p->bytes -= w->len;
		s->stats.lost++;
		free(w);
	}
	/* What stays comes late: the next connection's messages overtake it. */
	uint64_t at = s->now;
	list_each(i, &p->flight) {
		struct wire *w = list_entry(i, struct wire, link);
		at += rng_below(&s->world, LATE_US_MAX / 4 + 1);
		if (w->at < at)
			w->at = at;
		else
			at = w->at;
	}
	arm(p);
}

void simpipe_maybe_free(struct pipe *p)
{
	if (!p->owner && !p->refs && list_empty(&p->flight) && (!p->backward || !p->rev))
		simpipe_free(p);
}

void simpipe_free(struct pipe *p)
{
	struct sim *s = p->sim;

	simpipe_lose(p, 0);
	heap_set(&s->heap, &p->pump, 0);
	heap_set(&s->heap, &p->notice, 0);
	list_del(&p->all);
	list_del(&p->into);
	if (p->chan == CHAN_DOOR && !p->backward)
		map_del(s->doors, &p->id, sizeof(p->id));
	if (p->rev) {
		struct pipe *r = p->rev;
		r->rev = NULL;
		p->rev = NULL;
		simpipe_maybe_free(r);
	}
	free(p);
}
