/* Prefetching: cuts granted positions into batches, lowest first, and prepares up to `depth` of them ahead in jobs
 * of the data lane. Batches are handed out in the order in which they were cut, whichever job ends first, so what
 * training sees does not depend on the number of workers. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "train/data/data.h"

/* Batches prepared ahead when the spec does not say: a step is hardly ever shorter than a fourth of what one takes to
 * prepare, and large ones (images of 224 pixels: 19 MB for 32) are slow to be consumed. */
#define AHEAD 4u
#define AHEAD_BYTES ((size_t)32 << 20)

enum slot_state { SLOT_FREE, SLOT_WAITING, SLOT_RUNNING, SLOT_READY, SLOT_OUT };
struct slot {
	struct batch b;                         /* first: a batch is its slot; link is in loader.order unless free or out */
	struct job job;
	struct loader *owner;
	struct data *data;
	enum slot_state state;
	bool dropped;                           /* the grant moved on while its job ran */
	int rc;
	struct err error;
	size_t bytes;
};
struct loader {
	struct env *env;
	struct data *data;
	uint32_t batch, depth, workers, running;
	uint64_t wait_us, wait_from_us;         /* from: 0 when nobody waits for what is being prepared */
	struct slot *slot;
	struct list order;                      /* cut and not handed out, in order */
	struct ranges todo;                     /* granted, not cut */
	loader_ready_fn *ready; void *arg;
	bool asked;                             /* somebody waits for `ready` */
	bool dying; void (*gone)(void *arg); void *gone_arg;
	int lane;
	struct job make; bool making;           /* prepared data, a few samples at a time */
};

static size_t aligned(size_t n)
{
	return (n + 63) / 64 * 64;
}

static size_t slot_of(size_t x_bytes, size_t y_bytes, uint32_t batch)
{
	return aligned(batch * x_bytes) + aligned(batch * y_bytes) + aligned(batch * sizeof(uint64_t));
}

static size_t slot_bytes(struct data *d, uint32_t batch)
{
	return slot_of(data_x_bytes(d), data_y_bytes(d), batch);
}

size_t loader_bytes(struct data *d, uint32_t batch, uint32_t depth)
{
	return depth * slot_bytes(d, batch);
}

static uint32_t depth_of(size_t slot, uint32_t prefetch, uint32_t workers)
{
	size_t fit = AHEAD_BYTES / slot;

	if (!prefetch) {
		prefetch = fit < AHEAD ? (uint32_t)fit : AHEAD;
		if (prefetch < workers)
			prefetch = workers;
	}
	return prefetch + 1;
}

uint32_t loader_depth(struct data *d, uint32_t batch, uint32_t prefetch, uint32_t workers)
{
	return depth_of(slot_bytes(d, batch), prefetch, workers);
}

size_t loader_ahead(size_t x_bytes, size_t y_bytes, uint32_t batch, uint32_t prefetch, uint32_t workers)
{
	size_t slot = slot_of(x_bytes, y_bytes, batch);

	return depth_of(slot, prefetch, workers) * slot;
}

static void release(struct loader *l)
{
	void (*gone)(void *arg) = l->gone;
	void *arg = l->gone_arg;

	for (uint32_t i = 0; i < l->depth; i++)
		big_free(l->slot[i].b.x, l->slot[i].bytes);
	ranges_free(&l->todo);
	free(l->slot);
	free(l);
	if (gone)
		gone(arg);
}

struct loader *loader_new(struct env *env, struct data *d, uint32_t batch, uint32_t depth, uint32_t workers,
	loader_ready_fn *ready, void *arg, struct err *e)
{
	struct loader *l = xcalloc(1, sizeof(*l));

	assert(batch && depth && workers);
	l->env = env;
	l->data = d;
	l->batch = batch;
	l->depth = depth;
	l->workers = workers;
	l->ready = ready;
	l->arg = arg;
	l->lane = env_lane(env, "data");
	l->slot = xcalloc(depth, sizeof(*l->slot));
	list_init(&l->order);
	for (uint32_t i = 0; i < depth; i++) {
		struct slot *s = &l->slot[i];
		char *p = big_alloc(s->bytes = slot_bytes(d, batch));

		list_init(&s->b.link);
		s->owner = l;
		s->data = d;
		if (!p) {
			l->depth = i;
			(void)err_set(e, ERR_NOMEM, "no memory for %u batches of %u samples (%zu bytes each); make local.batch "
				"or local.prefetch smaller", depth, batch, s->bytes);
			release(l);
			return NULL;
		}
		s->b.x = (real *)p;
		s->b.y = p + aligned(batch * data_x_bytes(d));
		s->b.position = (uint64_t *)((char *)s->b.y + aligned(batch * data_y_bytes(d)));
	}
	return l;
}

void loader_free(struct loader *l, void (*gone)(void *arg), void *arg)
{
	l->dying = true;
	l->gone = gone;
	l->gone_arg = arg;
	if (!l->running && !l->making)
		release(l);
}

static void make_run(struct job *j)
{
	data_cache_make(container_of(j, struct loader, make)->data);
}

static void make_some(struct loader *l);

static void make_done(struct job *j)
{
	struct loader *l = container_of(j, struct loader, make);

	l->making = false;
	if (l->dying && !l->running)
		release(l);
	else
		make_some(l);
}

/* Between two batches: one job of the lane after the other. */
static void make_some(struct loader *l)
{
	if (l->making || l->dying || !data_cache_wanted(l->data))
		return;
	l->making = true;
	l->make = (struct job){ .name = "load.cache", .lane = l->lane, .run = make_run, .done = make_done,
		.cost_us = 1000 };
	env_work(l->env, &l->make);
}

static void slot_run(struct job *j)
{
	struct slot *s = container_of(j, struct slot, job);

	s->rc = data_read(s->data, DATA_TRAIN, s->b.position, s->b.n, s->b.x, s->b.y, &s->error);
}

/* Cuts the lowest positions; false when there are none. */
static bool cut(struct loader *l, struct slot *s)
{
	s->b.n = 0;
	while (l->todo.n && s->b.n < l->batch) {
		struct range r = l->todo.v[0];
		uint64_t n = r.hi - r.lo < l->batch - s->b.n ? r.hi - r.lo : l->batch - s->b.n;

		for (uint64_t i = 0; i < n; i++)
			s->b.position[s->b.n++] = r.lo + i;
		ranges_sub(&l->todo, r.lo, r.lo + n);
	}
	return s->b.n > 0;
}

static void fill(struct loader *l);

static void waited(struct loader *l)
{
	if (l->wait_from_us)
		l->wait_us += env_now(l->env) - l->wait_from_us;
	l->wait_from_us = 0;
}

static void slot_done(struct job *j)
{
	struct slot *s = container_of(j, struct slot, job);
	struct loader *l = s->owner;

	l->running--;
	s->b.took_us = env_now(l->env) - s->b.took_us;
	s->state = s->dropped ? SLOT_FREE : SLOT_READY;
	s->dropped = false;
	if (l->dying) {
		if (!l->running && !l->making)
			release(l);
		return;
	}
	make_some(l);
	fill(l);
	if (l->asked && !list_empty(&l->order) && ((struct slot *)l->order.next)->state == SLOT_READY) {
		l->asked = false;
		waited(l);
		l->ready(l->arg);
	}
}

static void launch(struct loader *l, struct slot *s)
{
	s->state = SLOT_RUNNING;
	s->job = (struct job){ .name = "load", .lane = l->lane, .run = slot_run, .done = slot_done };
	s->b.took_us = env_now(l->env);
	l->running++;
	env_work(l->env, &s->job);
}

/* Cuts and launches while there are free slots and idle workers. */
static void fill(struct loader *l)
{
	for (uint32_t i = 0; i < l->depth && l->todo.n; i++) {
		struct slot *s = &l->slot[i];

		if (s->state != SLOT_FREE || !cut(l, s))
			continue;
		s->state = SLOT_WAITING;
		list_push(&l->order, &s->b.link);
	}
	list_each_safe(it, &l->order) {
		struct slot *s = (struct slot *)list_entry(it, struct batch, link);

		if (l->running >= l->workers)
			break;
		if (s->state == SLOT_WAITING)
			launch(l, s);
	}
}

static bool inside(const struct ranges *r, const struct batch *b)
{
	for (uint32_t i = 0; i < b->n; i++)
		if (!ranges_has(r, b->position[i]))
			return false;
	return true;
}

void loader_grant(struct loader *l, const struct ranges *grant)
{
	ranges_copy(&l->todo, grant);
	list_each_safe(it, &l->order) {
		struct slot *s = (struct slot *)list_entry(it, struct batch, link);

		if (inside(grant, &s->b)) {
			for (uint32_t i = 0; i < s->b.n; i++)
				ranges_sub(&l->todo, s->b.position[i], s->b.position[i] + 1);
			continue;
		}
		list_del(&s->b.link);
		if (s->state == SLOT_RUNNING)
			s->dropped = true;
		else
			s->state = SLOT_FREE;
	}
	fill(l);
}

struct batch *loader_next(struct loader *l, struct err *e)
{
	struct slot *s;

	e->code = ERR_NONE;
	s = list_empty(&l->order) ? NULL : (struct slot *)list_entry(l->order.next, struct batch, link);
	if (!s || s->state != SLOT_READY) {
		l->asked = true;
		if (s && !l->wait_from_us)
			l->wait_from_us = env_now(l->env);
		return NULL;
	}
	if (s->rc < 0) {
		*e = s->error;
		return NULL;
	}
	waited(l);
	list_del(&s->b.link);
	s->state = SLOT_OUT;
	return &s->b;
}

void loader_done(struct loader *l, struct batch *b)
{
	struct slot *s = (struct slot *)b;

	assert(s->state == SLOT_OUT);
	s->state = SLOT_FREE;
	fill(l);
}

void loader_back(struct loader *l, struct batch *b)
{
	struct slot *s = (struct slot *)b;

	assert(s->state == SLOT_OUT);
	s->state = SLOT_READY;
	list_push_front(&l->order, &b->link);
}

uint64_t loader_left(const struct loader *l)
{
	uint64_t n = ranges_count(&l->todo);

	list_each(it, &l->order)
		n += list_entry(it, struct batch, link)->n;
	return n;
}

void loader_retry(struct loader *l)
{
	list_each(it, &l->order) {
		struct slot *s = (struct slot *)list_entry(it, struct batch, link);

		if (s->state == SLOT_READY && s->rc < 0)
			s->state = SLOT_WAITING;
	}
	fill(l);
}

uint64_t loader_wait_us(const struct loader *l)
{
	return l->wait_us + (l->wait_from_us ? env_now(l->env) - l->wait_from_us : 0);
}
