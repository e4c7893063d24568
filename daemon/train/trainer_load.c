/* Between the loader and the executor: which positions may be processed, which batch comes next, and what happens to
 * one that was not counted. */
#include <stdlib.h>
#include <string.h>
#include "train/trainer_int.h"

/* Samples that could not be read are skipped, but not silently. */
static void tell_broken(struct trainer *t)
{
	struct err e = { .code = ERR_NONE };
	char line[900];
	uint64_t n = data_broken(t->c.data, &e);

	if (n > t->broken_told)
		trainer_event(t, LOG_WARN_, "data.broken", "%llu samples cannot be read, others stand in for them; one of "
			"them: %s", (unsigned long long)n, e.text);
	t->broken_told = n;
	if (data_cache_news(t->c.data, line, sizeof(line)))
		trainer_event(t, strstr(line, "goes on from the source") ? LOG_WARN_ : LOG_INFO_, "data.cache", "%s", line);
}

void load_halt_fire(struct timer *tm)
{
	struct trainer *t = container_of(tm, struct trainer, halt);

	if ((t->halted || t->sick) && t->cb.halted)
		t->cb.halted(t->arg, &t->halt_error);
}

void load_resume(struct trainer *t)
{
	if (!t->halted)
		return;
	t->halted = false;
	data_forgive(t->c.data);
	loader_retry(t->loader);
}

static void ready(void *arg)
{
	struct trainer *t = arg;
	struct exec_wait *w = t->load_wait;
	struct batch *b;
	struct err e;

	if (!w || t->dying)
		return;
	b = loader_next(t->loader, &e);
	tell_broken(t);
	if (!b && e.code == ERR_NONE)
		return;
	if (!b && e.code == ERR_LIMIT && t->cb.halted) {
		if (!t->halted)
			env_after(t->env, &t->halt, 0);
		t->halted = true;
		t->halt_error = e;
		return;
	}
	t->load_wait = NULL;
	if (!b) {
		exec_loaded(w, NULL, &e);
		return;
	}
	b->counted = false;
	ranges_clear(&t->last);
	for (uint32_t i = 0; i < b->n; i++) {
		ranges_add(&t->out, b->position[i], b->position[i] + 1);
		ranges_add(&t->last, b->position[i], b->position[i] + 1);
	}
	exec_loaded(w, b, NULL);
}

uint32_t load_depth(const struct trainer *t, uint32_t batch)
{
	return loader_depth(t->c.data, batch, t->s->local.prefetch, t->s->local.workers);
}

int load_new(struct trainer *t, struct err *e)
{
	const struct spec_local *l = &t->s->local;

	t->loader = loader_new(t->env, t->c.data, l->batch, load_depth(t, l->batch), l->workers, ready, t, e);
	return t->loader ? 0 : -1;
}

/* What is granted, less what this peer has counted or has in hand. */
void load_regrant(struct trainer *t)
{
	struct ranges r = { 0 };

	ranges_copy(&r, &t->grant);
	ranges_sub_all(&r, &t->claimed);
	ranges_sub_all(&r, &t->out);
	if (round_carries(t))
		ranges_sub_all(&r, &t->flight.claimed);
	list_each(it, &t->commits)
		ranges_sub_all(&r, &list_entry(it, struct commit, link)->claimed);
	if (t->applying)
		ranges_sub_all(&r, &t->applying->claimed);
	loader_grant(t->loader, &r);
	ranges_free(&r);
}

void trainer_grant(struct trainer *t, const struct ranges *grant)
{
	ranges_copy(&t->grant, grant);
	load_regrant(t);
	t->idle_told = false;
	if (loader_left(t->loader))
		exec_wake(t->x);
}

void load_told_idle(struct trainer *t)
{
	if (t->idle_told || !t->cb.idle)
		return;
	t->idle_told = true;
	t->cb.idle(t->arg);
}

void load_op(void *arg, struct exec_wait *w, const struct plan_instr *i, int64_t index)
{
	struct trainer *t = arg;

	t->load_wait = w;
	ready(t);
	if (t->load_wait && !loader_left(t->loader)) {
		load_told_idle(t);
		if (t->s->mode.overlap)
			trainer_later(t);
	}
	if (t->load_wait && t->winding && !t->stepping)
		exec_interrupt(t->x);
	else if (t->load_wait && t->winding)
		t->break_later = true;
}

/* Nobody reads it any more. What was not counted comes again. */
void load_back(void *arg, struct batch *b)
{
	struct trainer *t = arg;

	for (uint32_t i = 0; i < b->n; i++)
		ranges_sub(&t->out, b->position[i], b->position[i] + 1);
	if (b->counted)
		loader_done(t->loader, b);
	else
		loader_back(t->loader, b);
}
