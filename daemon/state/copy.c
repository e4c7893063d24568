/* Copies of a state: asked for at any time, made together at the next boundary, each by a job of the train lane. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "state/int.h"

struct copying {
	struct list link;
	struct job job;
	struct state *st;
	struct snapshot *s;                     /* what is being made; NULL: into `to` */
	bool weights;
	void *to; size_t bytes;
	uint64_t epoch;
	snapshot_fn *done; void (*copied)(void *arg, uint64_t epoch); void *arg;
	uint64_t elements; uint32_t unit;       /* of which there is to be a digest; 0: none */
};

void snapshot_unref(struct snapshot *s)
{
	if (!s || --s->refs)
		return;
	big_free(s->data, s->bytes);
	free(s->tensor);
	free(s);
}

static struct snapshot *snapshot_new(const struct state *st, uint64_t epoch, bool weights, struct err *e)
{
	const struct shard *h = &st->s;
	size_t bytes = weights ? h->w_bytes + 1 : h->bytes;
	struct snapshot *s = xcalloc(1, sizeof(*s));

	s->data = big_alloc(bytes);
	if (!s->data) {
		(void)err_set(e, ERR_NOMEM, "no memory for a copy of the %s (%zu bytes)", weights ? "parameters" : "state",
			bytes);
		free(s);
		return NULL;
	}
	s->refs = 1;
	s->bytes = bytes;
	s->epoch = epoch;
	if (weights)
		return s;
	s->ntensors = h->ntensors;
	s->tensor = xmemdup(h->tensor, h->ntensors * sizeof(*h->tensor));
	for (size_t i = 0; i < s->ntensors; i++)
		s->tensor[i].data = (char *)s->data + ((char *)h->tensor[i].data - (char *)h->block);
	return s;
}

static void copy_run(struct job *j)
{
	struct copying *c = container_of(j, struct copying, job);

	memcpy(c->to, c->st->s.block, c->bytes);
	if (c->elements)
		digest_of(c->to, c->elements, c->unit, c->s->digest);
}

/* The state was closed. Whoever wanted a checkpoint goes with it; whoever wanted weights is told. */
static void copy_lost(struct copying *c)
{
	struct err e;

	snapshot_unref(c->s);
	(void)err_set(&e, ERR_CANCELLED, "the run has ended");
	if (c->weights)
		c->done(c->arg, NULL, &e);
}

static void copy_done(struct job *j)
{
	struct copying *c = container_of(j, struct copying, job);
	struct state *st = c->st;

	st->running--;
	if (st->closed)
		copy_lost(c);
	else if (c->s)
		c->done(c->arg, c->s, NULL);
	else
		c->copied(c->arg, c->epoch);
	free(c);
	state_job_over(st);
}

static void launch(struct state *st, struct copying *c, uint64_t epoch)
{
	const struct shard *h = &st->s;
	struct err e;

	c->epoch = epoch;
	c->bytes = c->weights || c->copied ? h->w_bytes : h->bytes;
	if (c->done) {
		c->s = snapshot_new(st, epoch, c->weights, &e);
		if (!c->s) {
			c->done(c->arg, NULL, &e);
			free(c);
			return;
		}
		c->to = c->s->data;
		if (!c->weights && shard_is_whole(h))
			c->elements = layout_elements(h->l);
		c->unit = h->l->unit;
	}
	c->job = (struct job){ .name = "copy", .lane = env_lane(st->env, "train"), .run = copy_run, .done = copy_done };
	st->running++;
	env_work(st->env, &c->job);
}

bool state_copies(struct state *st, uint64_t epoch)
{
	if (state_busy(st))
		return true;
	while (!list_empty(&st->copies))
		launch(st, list_entry(list_pop(&st->copies), struct copying, link), epoch);
	return state_busy(st);
}

bool state_wants(const struct state *st) { return !list_empty(&st->copies); }

static void want(struct state *st, const struct copying *how)
{
	struct copying *c = xmemdup(how, sizeof(*how));

	c->st = st;
	list_init(&c->link);
	list_push(&st->copies, &c->link);
	st->cb.wanted(st->arg);
}

void state_snapshot(struct state *st, snapshot_fn *done, void *arg)
{
	want(st, &(struct copying){ .done = done, .arg = arg });
}

void state_weights(struct state *st, snapshot_fn *done, void *arg)
{
	want(st, &(struct copying){ .done = done, .arg = arg, .weights = true });
}

void state_copy(struct state *st, void *to, void (*done)(void *arg, uint64_t epoch), void *arg)
{
	want(st, &(struct copying){ .copied = done, .arg = arg, .to = to });
}

void copies_drop(struct state *st)
{
	struct err e;

	(void)err_set(&e, ERR_CANCELLED, "the run has ended");
	while (!list_empty(&st->copies)) {
		struct copying *c = list_entry(list_pop(&st->copies), struct copying, link);

		if (c->done)
			c->done(c->arg, NULL, &e);
		free(c);
	}
}
