/* The simulated world's core: virtual time, nodes with one loop each, the order of events, the trace hash.
 * A node's loop takes the earliest of its inbox and its timers, one at a time, and is busy for the modelled cost. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include "sim_int.h"

#define START_US 1000000
#define WALL_MS 1700000000000
#define STALL_US_MAX 5000
#define SAME_TIME_MAX 2000000           /* events without the clock moving: somebody spins */

/* ---- what a node calls ---- */
static uint64_t env_now_us(struct env *e) { return snode_of(e)->sim->now; }

static uint64_t env_wall_ms(struct env *e)
{
	struct snode *n = snode_of(e);
	return (uint64_t)((int64_t)(WALL_MS + n->sim->now / 1000) + n->wall_ms);
}

static void env_arm(struct env *e, struct timer *t, uint64_t at_us)
{
	struct snode *n = snode_of(e);
	heap_set(&n->timers, t, at_us);
	sim_wake(n);
}

static uint64_t env_random(struct env *e) { return rng_u64(&snode_of(e)->rng); }

static void env_secure(struct env *e, void *out, size_t size)
{
	struct snode *n = snode_of(e);
	uint8_t *p = out;
	while (size) {
		uint64_t v = rng_u64(&n->secret);
		size_t k = size < 8 ? size : 8;
		memcpy(p, &v, k);
		p += k;
		size -= k;
	}
}

void sim_doom(struct snode *n)
{
	n->dying = true;
	heap_set(&n->sim->heap, &n->doom, n->sim->now);
}

static int env_fail(struct env *e, const char *point)
{
	struct snode *n = snode_of(e);
	if (n->dying)
		return -1;
	list_each(i, &n->sim->failpoints) {
		struct failpoint *f = list_entry(i, struct failpoint, link);
		if (f->left <= 0 || (f->node >= 0 && f->node != n->index) || strcmp(f->name, point) ||
				(f->who && !f->who(f->arg, n->index)) || --f->left > 0)
			continue;
		f->hit = n->struck = true;
		n->sim->stats.fail_points++;
		sim_mark(n->sim, "fail", (uint64_t)n->index, (uint64_t)f->fate);
		if (f->fate == SIM_PAUSE) {
			n->paused = true;
			return 0;
		}
		if (f->fate == SIM_KILL)
			sim_doom(n);
		return -1;
	}
	return 0;
}

static void env_detach(struct env *e)
{
	struct snode *n = snode_of(e);
	if (n->detached)
		return;
	n->detached = true;
	simwork_drain(n);
	simnet_give_back(n);
}

static const struct env_ops ops = {
	.now = env_now_us, .wall = env_wall_ms, .timer = env_arm, .send = simnet_send, .close_link = simnet_close_link,
	.linkinfo = simnet_linkinfo, .work = simwork_put, .lane = simwork_lane, .rand = env_random, .secure = env_secure,
	.resolve = simwork_resolve, .fail = env_fail, .detach = env_detach,
};

/* ---- a node's loop ---- */
void sim_wake(struct snode *n)
{
	uint64_t at = UINT64_MAX;
	struct timer *t = heap_peek(&n->timers);

	if (!n->alive || n->paused || n->dying || n->running) {
		heap_set(&n->sim->heap, &n->wake, 0);
		return;
	}
	if (!list_empty(&n->inbox))
		at = list_entry(n->inbox.next, struct item, link)->at;
	if (t && t->at_us < at)
		at = t->at_us;
	if (at == UINT64_MAX) {
		heap_set(&n->sim->heap, &n->wake, 0);
		return;
	}
	if (at < n->busy_until)
		at = n->busy_until;
	if (at < n->sim->now)
		at = n->sim->now;
	if (n->wake.at_us != at)
		heap_set(&n->sim->heap, &n->wake, at);
}

void sim_item(struct snode *n, struct item *i, enum item_kind kind)
{
	if (i->queued)
		return;
	i->queued = true;
	i->kind = kind;
	i->at = n->sim->now;
	list_push(&n->inbox, &i->link);
	sim_wake(n);
}

void sim_unitem(struct item *i)
{
	if (i->queued)
		list_del(&i->link);
	i->queued = false;
}

static void handle_recv(struct snode *n, struct wire *w)
{
	struct sim *s = n->sim;
	struct pipe *p = w->pipe;
	struct via via = { .chan = p->chan };
	uint8_t head[16] = {0};

	if (p->chan == CHAN_DOOR)
		simnet_door_spoke(p);
	if (p->chan == CHAN_DOOR)
		via.door_token = p->backward ? p->dialler_serial | DIALLED : p->id;
	memcpy(head, w->bytes, w->len < sizeof(head) ? w->len : sizeof(head));
	sim_mark(s, "recv", (uint64_t)p->from << 32 | (uint32_t)p->to, (uint64_t)p->chan << 32 | w->len);
	sim_trace(s, head, sizeof(head));
	s->stats.delivered++;
	if (n->env.recv && !n->detached)
		n->env.recv(n->env.recv_arg, via, w->bytes, w->len);
	simnet_handled(w);
}

static void handle_item(struct snode *n, struct item *i)
{
	switch (i->kind) {
	case ITEM_RECV: handle_recv(n, container_of(i, struct wire, item)); break;
	case ITEM_FLUSH: simnet_flush(container_of(i, struct slink, flush)); break;
	case ITEM_DONE: simwork_done(container_of(i, struct simjob, item)); break;
	case ITEM_RESOLVED: simwork_resolved(container_of(i, struct answer, item)); break;
	case ITEM_RETURN: {
		struct list *l;
		struct list all = LIST_INIT(all);
		while ((l = list_pop(&n->returned)))
			list_push(&all, l);
		while ((l = list_pop(&all))) {
			struct packet *p = list_entry(l, struct packet, link);
			p->gone(p, false);
		}
		break;
	}
	}
}

static struct pipe *pipe_of(struct item *i) { return container_of(i, struct wire, item)->pipe; }

/* After a stall: the first message of any connection may be next, as epoll happens to list them. */
static struct item *next_item(struct snode *n)
{
	struct item *pick = NULL;
	uint64_t choices = 0;

	if (list_empty(&n->inbox))
		return NULL;
	pick = list_entry(n->inbox.next, struct item, link);
	if (pick->kind != ITEM_RECV || pick->at >= n->stalled_until)
		return pick;
	list_each(i, &n->inbox) {
		struct item *x = list_entry(i, struct item, link);
		bool first = x->kind == ITEM_RECV && x->at < n->stalled_until;
		if (!first || choices == 8)
			break;
		for (struct list *k = n->inbox.next; k != i && first; k = k->next)
			first = pipe_of(list_entry(k, struct item, link)) != pipe_of(x);
		if (first && rng_below(&n->sim->world, ++choices) == 0)
			pick = x;
	}
	return pick;
}

void sim_touch(struct snode *n)
{
	struct sim *s = n->sim;
	s->touched = s->touched == SIM_NOBODY || s->touched == n->index ? n->index : SIM_ANYBODY;
}

int sim_touched(const struct sim *s) { return s->touched; }

static void wake_fire(struct timer *t)
{
	struct snode *n = container_of(t, struct snode, wake);
	struct sim *s = n->sim;
	struct timer *due = heap_peek(&n->timers);
	struct item *i = next_item(n);
	uint64_t cost = s->costs.callback_us, since;

	sim_touch(n);
	n->running = true;
	s->on = n;
	n->burn = 0;
	if (i && (!due || i->at <= due->at_us)) {
		since = i->at;
		if (i->kind == ITEM_RECV)
			cost = s->costs.recv_us;
		else if (i->kind == ITEM_FLUSH || i->kind == ITEM_RETURN)
			cost = 0;
		sim_unitem(i);
		handle_item(n, i);
	} else if (due && due->at_us <= s->now) {
		since = due->at_us;
		heap_pop(&n->timers);
		due->fire(due);
	} else {
		since = s->now;
		cost = 0;
	}
	if (s->now - since > s->stats.lag_us_max)
		s->stats.lag_us_max = s->now - since;
	if (cost + n->burn > s->costs.slow_us)
		s->stats.loop_alarms++;
	n->busy_until = s->now + cost + n->burn;
	if (s->costs.stall_every && rng_below(&s->world, s->costs.stall_every) == 0)
		n->stalled_until = n->busy_until += rng_below(&s->world, STALL_US_MAX);
	n->running = false;
	s->on = NULL;
	sim_wake(n);
}

static void doom_fire(struct timer *t)
{
	struct snode *n = container_of(t, struct snode, doom);
	sim_stop(n, n->quiet);
}

/* ---- life and death ---- */
int sim_start(struct snode *n)
{
	struct sim *s = n->sim;

	n->life++;
	n->alive = true;
	n->paused = n->dying = n->detached = n->quiet = n->struck = false;
	n->busy_until = s->now;
	heap_init(&n->timers);
	simwork_init(n);
	rng_seed(&n->rng, rng_mix(rng_mix(s->seed, 0x726e67), (uint64_t)n->index << 32 | n->life));
	rng_seed(&n->secret, rng_mix(rng_mix(s->seed, 0x736563), (uint64_t)n->index << 32 | n->life));
	n->env.recv = NULL;
	sim_mark(s, "start", (uint64_t)n->index, n->life);
	struct snode *by = s->on;               /* one callback may start another node */
	sim_touch(n);
	n->running = true;
	s->on = n;
	n->self = n->app.start(&n->env, n->index, n->app.arg);
	n->running = false;
	s->on = by;
	if (!n->self && !n->struck)
		sim_fail(s, "node %d did not start", n->index);
	if (!n->self)
		sim_stop(n, false);
	sim_wake(n);
	return n->self ? 0 : -1;
}

void sim_stop(struct snode *n, bool quiet)
{
	struct sim *s = n->sim;
	struct list *l;

	if (!n->alive)
		return;
	if (n->running) {       /* inside its own callback: when that has returned */
		n->dying = true;
		n->quiet = quiet;
		heap_set(&s->heap, &n->doom, s->now);
		return;
	}
	n->quiet = quiet;
	sim_touch(n);
	sim_mark(s, "stop", (uint64_t)n->index, quiet);
	heap_set(&s->heap, &n->doom, 0);
	n->dying = true;
	n->env.recv = NULL;
	env_detach(&n->env);
	if (n->self)
		n->app.stop(n->self);
	n->self = NULL;
	simnet_give_back(n);
	while ((l = list_pop(&n->inbox))) {     /* only messages are left */
		struct item *i = list_entry(l, struct item, link);
		i->queued = false;
		if (i->kind == ITEM_RECV)
			simnet_handled(container_of(i, struct wire, item));
	}
	n->alive = false;
	simnet_died(n, quiet);
	simnet_drop_links(n);
	heap_done(&n->timers);
	heap_set(&s->heap, &n->wake, 0);
	simdisk_crash(n);
}

static void default_endpoint(struct endpoint *at, int node)
{
	memset(at, 0, sizeof(*at));
	at->ip[10] = at->ip[11] = 0xff;
	at->ip[12] = 10;
	at->ip[14] = (uint8_t)(node >> 8);
	at->ip[15] = (uint8_t)node;
	for (int c = 0; c < CHANS; c++)
		at->port[c] = (uint16_t)(4237 + c);
}

static uint64_t log_clock(void *arg) { return env_wall_ms(arg); }

static void log_line(void *arg, const struct log_line *l)
{
	struct snode *n = arg;
	fprintf(stderr, "%10.6f %3d %s %s\n", (double)n->sim->now / 1e6, n->index, log_level_name(l->level), l->text);
}

int sim_node_add(struct sim *s, const struct endpoint *at, const struct sim_app *app)
{
	struct snode *n = xcalloc(1, sizeof(*n));

	if (s->nodes == SIM_NODES_MAX) {
		fprintf(stderr, "sim: more than %d nodes\n", SIM_NODES_MAX);
		abort();
	}
	n->sim = s;
	n->index = s->nodes;
	n->app = *app;
	if (at)
		n->at = *at;
	else
		default_endpoint(&n->at, n->index);
	n->env.ops = &ops;
	n->wake.fire = wake_fire;
	n->doom.fire = doom_fire;
	list_init(&n->inbox);
	list_init(&n->links);
	list_init(&n->pipes);
	list_init(&n->returned);
	list_init(&n->jobs);
	list_init(&n->answers);
	n->link_map = map_new(1);
	n->serial_map = map_new(2);
	simdisk_init(n);
	simshelf_init(n);
	n->env.files = &n->files;
	n->env.shelf = &n->shelf;
	n->env.log = log_new(64, LOG_DEBUG_, log_clock, &n->env);
	if (getenv("SIM_LOG"))
		log_sink(n->env.log, log_line, n);
	s->node[s->nodes++] = n;
	for (int c = 0; c < CHANS; c++) {
		uint8_t key[18];
		memcpy(key, n->at.ip, 16);
		memcpy(key + 16, &n->at.port[c], 2);
		if (n->at.port[c])
			map_put(s->ports, key, sizeof(key), n);
	}
	sim_start(n);
	return n->index;
}

static void node_free(struct snode *n)
{
	sim_stop(n, true);
	simdisk_free(n);
	simshelf_free(n);
	map_free(n->link_map);
	map_free(n->serial_map);
	log_free(n->env.log);
	free(n);
}

/* ---- the world ---- */
struct sim *sim_new(uint64_t seed)
{
	struct sim *s = xcalloc(1, sizeof(*s));

	s->seed = seed;
	s->now = START_US;
	heap_init(&s->heap);
	rng_seed(&s->rng, rng_mix(seed, 1));
	rng_seed(&s->world, rng_mix(seed, 2));
	s->pair = calloc((size_t)SIM_NODES_MAX * SIM_NODES_MAX, sizeof(*s->pair));
	s->cut = calloc((size_t)SIM_NODES_MAX * SIM_NODES_MAX, 1);
	if (!s->pair || !s->cut)
		abort();
	list_init(&s->rules);
	list_init(&s->pipes);
	list_init(&s->scripts);
	list_init(&s->failpoints);
	list_init(&s->lasts);
	s->ports = map_new(3);
	s->doors = map_new(4);
	s->costs = (struct sim_costs){ .recv_us = 10, .callback_us = 1, .slow_us = 50000, .ctrl_buf = 256 * 1024,
		.bulk_buf = 2 * 1024 * 1024, .queue_max = 16 * 1024 * 1024, .door_drop = 500, .events_max = 30000000 };
	return s;
}

void sim_free(struct sim *s)
{
	struct list *l;

	if (!s)
		return;
	s->ending = true;
	if (s->starved)
		sim_memory_fail(s, s->starved->index, 0);
	for (int i = 0; i < s->nodes; i++)
		sim_stop(s->node[i], true);
	sim_lasts(s);
	simnet_free(s);
	heap_done(&s->heap);                    /* it still points into nodes and scripts */
	for (int i = 0; i < s->nodes; i++)
		node_free(s->node[i]);
	for (int f = 0; f < s->nodes; f++)
		for (int t = 0; t < s->nodes; t++)
			free(s->pair[f * SIM_NODES_MAX + t]);
	while ((l = list_pop(&s->rules)))
		free(list_entry(l, struct rule, link));
	while ((l = list_pop(&s->scripts)))
		free(list_entry(l, struct script, link));
	while ((l = list_pop(&s->failpoints)))
		free(list_entry(l, struct failpoint, link));
	map_free(s->ports);
	map_free(s->doors);
	free(s->pair);
	free(s->cut);
	free(s);
}

static bool step(struct sim *s, uint64_t until)
{
	struct timer *t = heap_peek(&s->heap);
	struct err e = {0};

	if (!t || t->at_us > until || s->failed[0])
		return false;
	if (t->at_us > s->now) {
		s->now = t->at_us;
		s->same_time = 0;
	} else if (++s->same_time > SAME_TIME_MAX) {
		sim_fail(s, "time stands still at %llu us", (unsigned long long)s->now);
		return false;
	}
	heap_pop(&s->heap);
	if (++s->stats.events == s->costs.events_max)
		sim_fail(s, "it does not end: %llu events", (unsigned long long)s->stats.events);
	s->touched = s->outside ? SIM_ANYBODY : SIM_NOBODY;
	s->outside = false;
	t->fire(t);
	for (int i = 0; i < s->nchecks; i++)
		if (s->checks[i].fn(s, s->checks[i].arg, &e))
			sim_fail(s, "%s", e.text);
	return true;
}

bool sim_run_until(struct sim *s, bool (*cond)(struct sim *s, void *arg), void *arg, uint64_t limit_us)
{
	uint64_t until = s->now + limit_us;

	s->outside = true;
	while (!s->failed[0]) {
		if (cond && cond(s, arg))
			return true;
		if (!step(s, until))
			break;
	}
	if (s->now < until && !s->failed[0])
		s->now = until;
	return cond && !s->failed[0] && cond(s, arg);
}

void sim_run_for(struct sim *s, uint64_t us) { sim_run_until(s, NULL, NULL, us); }
