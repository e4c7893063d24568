/* Validation by a seat: held-out data go through all members' parts of the model, in programs between those of the
 * step, with the parameters of an epoch as they were committed. The owner asks for it on every member of a unit at the
 * same epoch, so that all begin the same programs; a COMMIT, or the end of the generation, drops what is not over. What
 * it comes to is known to all members, and counts when it is of all samples, or not at all. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/planted.h"
#include "exec/batch.h"
#include "train/trainer_int.h"

#define HELD_MOST 64                            /* micro-batches of a program: some six instructions for each */
#define INDEX_FROM (UINT32_MAX / 2)             /* micro-batches of training have lower indices */

uint32_t eval_most(const struct trainer *t)
{
	uint64_t n = t->strategy->crew ? batches_of(t, data_count(t->c.data, DATA_VALIDATION)) : 0;

	return n < HELD_MOST ? (uint32_t)n : HELD_MOST;
}

uint64_t eval_bytes(const struct trainer *t)
{
	struct view v = { .profile = &t->profile, .held = eval_most(t) };

	return !t->strategy->crew ? 0 : t->v.slot[0] ? valid_room_bytes(t) : t->seat.is && !t->seat.reads ? 0 :
		planner_held_bytes(&v);
}

void eval_begin(struct trainer *t)
{
	struct evaluation *h = &t->v.eval;
	uint32_t n = t->seat.v.nmembers;

	h->told = xrealloc(h->told, n * sizeof(*h->told));
	h->ntold = n;
	h->runs = h->last = false;
	t->v.count = data_count(t->c.data, DATA_VALIDATION);
	t->v.batch = t->profile.batch;
	t->v.wanted = t->v.running = t->v.lost = false;
}

/* It is over without a result: the owner hears so from the loop. */
void eval_drop(struct trainer *t)
{
	if (!t->strategy->crew || !t->v.wanted)
		return;
	if (t->v.running && PLANTED(EVAL_HALF)) {
		valid_told(t);
		return;
	}
	if (t->v.running)
		trainer_event(t, LOG_INFO_, "validation.dropped", "epoch %llu: it has not come to its end here",
			(unsigned long long)t->v.epoch);
	t->v.wanted = t->v.running = false;
	t->v.lost = true;
	trainer_later(t);
}

/* Every epoch of the generation has its own, so that they are the same on all members, whoever has begun which. */
static uint64_t index_of(const struct trainer *t, uint64_t epoch)
{
	return INDEX_FROM + (epoch - t->seat.v.epoch) * batches_of(t, t->v.count);
}

bool eval_exhausted(const struct trainer *t)
{
	return t->v.count && index_of(t, t->epoch + 1) >= UINT32_MAX;
}

static void want(struct trainer *t, bool though_paused)
{
	struct valid *v = &t->v;

	v->wanted = true;
	v->running = v->lost = false;
	v->though_paused = though_paused;
	v->epoch = t->epoch;
	v->next = 0;
	v->loss = v->correct = 0;
	v->eval.index = index_of(t, t->epoch);
	if (!t->seat.is || t->seat.over || !v->count)
		eval_drop(t);
	else
		exec_wake(t->x);
}

void trainer_validate(struct trainer *t, bool though_paused)
{
	if (t->strategy->crew)
		want(t, though_paused);
	else
		valid_begin(t);
}

/* A program that was cut short counts for nothing. */
static bool whole(const struct trainer *t)
{
	struct exec_view x;

	exec_view(t->x, &x);
	return x.cut_short == t->v.eval.cut;
}

static uint64_t samples_from(const struct trainer *t, uint64_t n)
{
	uint64_t left = t->v.count - t->v.next, all = n * t->v.batch;

	return all < left ? all : left;
}

/* What all replicas of the last stage have said. */
static void add_up(struct trainer *t)
{
	struct evaluation *h = &t->v.eval;
	double sum[TALLY] = { 0 };

	for (uint32_t k = 0; k < h->ntold; k++)
		for (int i = 0; i < TALLY; i++)
			sum[i] += h->told[k][i];
	if (sum[2] != (double)samples_from(t, h->n)) {
		trainer_event(t, LOG_WARN_, "validation.dropped", "epoch %llu: what was told of the held-out data is of %.0f "
			"samples, not of %llu", (unsigned long long)t->v.epoch, sum[2],
			(unsigned long long)samples_from(t, h->n));
		eval_drop(t);
		return;
	}
	t->v.loss += sum[0];
	t->v.correct += sum[1];
	t->v.next += samples_from(t, h->n);
	if (t->v.next == t->v.count)
		valid_told(t);
}

bool eval_ended(struct trainer *t, uint64_t *first)
{
	struct evaluation *h = &t->v.eval;
	bool runs = h->runs;

	if (h->last)
		*first = h->resume;
	if (!runs)
		return true;
	h->runs = false;
	if (whole(t) && t->v.wanted) {
		add_up(t);
		return true;
	}
	eval_drop(t);
	return whole(t);
}

/* Of epochs that run on the micro-batches of one wait for it to be counted, and are with it at rest. */
bool eval_due(const struct trainer *t)
{
	const struct seat *s = &t->seat;
	struct exec_view x;

	exec_view(t->x, &x);
	return t->v.wanted && s->is && !s->over && list_empty(&t->commits) && !t->applying && !t->agreed &&
		!t->flight.out && (!s->flush || s->cut == x.cut_short) &&
		(t->started || t->v.though_paused) && (!t->paused || t->v.though_paused);
}

void eval_view(struct trainer *t, struct view *v)
{
	uint64_t left = batches_of(t, t->v.count - t->v.next);

	v->validates = left < HELD_MOST ? (uint32_t)left : HELD_MOST;
	v->begun = v->sent = v->agreed = v->gave = false;
	v->first = t->v.eval.index;
}

void eval_planned(struct trainer *t, const struct plan *p, uint64_t first)
{
	struct evaluation *h = &t->v.eval;
	struct exec_view x;

	exec_view(t->x, &x);
	if (!t->v.running)
		t->v.begun_us = env_now(t->env);
	t->v.running = h->runs = h->last = true;
	h->resume = first;
	h->cut = x.cut_short;
	h->first = p->first;
	h->n = p->step;
	h->index = p->first + p->step;
	memset(h->told, 0, h->ntold * sizeof(*h->told));
}

void eval_passed(struct trainer *t, const struct plan *p)
{
	if (p->ninstrs)
		t->v.eval.last = false;
}

/* A value that a plan has named told<k>. */
void eval_told(struct trainer *t, const char *name, const void *p, size_t bytes)
{
	struct evaluation *h = &t->v.eval;
	uint32_t k = (uint32_t)strtoul(name, NULL, 10);

	if (h->runs && k < h->ntold && bytes == sizeof(*h->told))
		memcpy(h->told[k], p, bytes);
}

/* Held-out samples of the micro-batch with this index. */
static uint64_t at_index(const struct trainer *t, int64_t index, uint32_t *ret_n)
{
	uint64_t from = t->v.next + ((uint64_t)index - t->v.eval.first) * t->v.batch, left;

	left = from < t->v.count ? t->v.count - from : 0;
	*ret_n = left < t->v.batch ? (uint32_t)left : t->v.batch;
	return from;
}

bool eval_load(struct trainer *t, struct exec_wait *w, int64_t index)
{
	uint32_t n;
	uint64_t from = at_index(t, index, &n);

	if (!t->v.eval.runs)
		return false;
	if (t->seat.reads) {
		valid_load(t, w, from, n);
		return true;
	}
	struct batch *b = xcalloc(1, sizeof(*b) + n * sizeof(uint64_t));

	list_init(&b->link);
	b->position = (uint64_t *)(b + 1);
	for (b->n = 0; b->n < n; b->n++)
		b->position[b->n] = from + b->n;
	exec_loaded(w, b, NULL);
	return true;
}
