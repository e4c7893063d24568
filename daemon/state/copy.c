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
	bool first;                             /* of the first shard, w */
	void *to;
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
	free(s->part);
	free(s);
}

/* Names of what lies in the copy, and what it is of. All shards have one clock: that of the first with parameters is
 * named. */
static void name_tensors(const struct state *st, struct snapshot *s)
{
	const struct shard *clock = st->s;
	char *at = s->data;
	size_t all = 0;

	for (const struct shard *h = st->s; h < st->s + st->n; at += h->bytes, h++) {
		s->tensor = xrealloc(s->tensor, (all += h->ntensors) * sizeof(*s->tensor));
		if (!extent_len(clock->param))
			clock = h;
		for (size_t i = 0; i < h->ntensors; i++) {
			struct ckpt_tensor t = h->tensor[i];

			t.data = at + ((char *)t.data - (char *)h->block);
			if (h->of[i])
				s->tensor[s->ntensors++] = t;
		}
	}
	s->part = xcalloc(st->n, sizeof(*s->part));
	for (; s->nparts < st->n; s->nparts++)
		s->part[s->nparts] = (struct shard_part){ st->s[s->nparts].param, st->s[s->nparts].stat };
	at = s->data;
	for (const struct shard *h = st->s; h < clock; h++)
		at += h->bytes;
	s->tensor[s->ntensors] = clock->tensor[clock->ntensors - 1];
	s->tensor[s->ntensors++].data = at + ((char *)shard_clock(clock) - (char *)clock->block);
}

static struct snapshot *snapshot_new(const struct state *st, uint64_t epoch, bool weights, struct err *e)
{
	size_t bytes = weights ? st->s->w_bytes + 1 : state_bytes(st);
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
	if (!weights)
		name_tensors(st, s);
	return s;
}

static void copy_run(struct job *j)
{
	struct copying *c = container_of(j, struct copying, job);
	const struct state *st = c->st;
	char *to = c->to;

	for (uint32_t k = 0; k < (c->first ? 1 : st->n); k++) {
		size_t n = c->first ? st->s->w_bytes : st->s[k].bytes;

		memcpy(to, st->s[k].block, n);
		to += n;
	}
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
	const struct shard *h = st->s;
	struct err e;

	c->epoch = epoch;
	c->first = c->weights || c->copied;
	if (c->done) {
		c->s = snapshot_new(st, epoch, c->weights, &e);
		if (!c->s) {
			c->done(c->arg, NULL, &e);
			free(c);
			return;
		}
		c->to = c->s->data;
		if (!c->weights && st->n == 1 && shard_is_whole(h))
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

void state_hand_over(struct state *st, struct state *to)
{
	if (list_empty(&st->copies))
		return;
	while (!list_empty(&st->copies)) {
		struct copying *c = list_entry(list_pop(&st->copies), struct copying, link);

		c->st = to;
		list_push(&to->copies, &c->link);
	}
	to->cb.wanted(to->arg);
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
