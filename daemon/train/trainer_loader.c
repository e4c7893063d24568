/* Between the loader and the executor: which positions may be processed, and which batch comes next. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
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

/* The next LOAD comes to the front. */
static struct exec_wait *shift(struct trainer *t)
{
	struct exec_wait *w = t->load_wait;

	t->load_wait = t->nmore ? t->load_more[0] : NULL;
	if (t->nmore)
		memmove(t->load_more, t->load_more + 1, --t->nmore * sizeof(*t->load_more));
	return w;
}

bool load_cancel(struct trainer *t, struct exec_wait *w)
{
	if (w == t->load_wait) {
		(void)shift(t);
		return true;
	}
	for (uint32_t k = 0; k < t->nmore; k++)
		if (t->load_more[k] == w) {
			memmove(t->load_more + k, t->load_more + k + 1, (--t->nmore - k) * sizeof(*t->load_more));
			return true;
		}
	return false;
}

static void hand_out(struct trainer *t)
{
	struct exec_wait *w = t->load_wait;
	const struct ranges *next;
	struct batch *b;
	struct err e;

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
	(void)shift(t);
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
	next = t->strategy->crew ? seat_loaded(t) : NULL;
	if (next)
		loader_grant(t->loader, next);
	exec_loaded(w, b, NULL);
}

void load_next(void *arg)
{
	struct trainer *t = arg;
	struct exec_wait *w;

	do {
		w = t->load_wait;
		if (w && !t->dying)
			hand_out(t);
	} while (t->load_wait && t->load_wait != w && !t->dying);
}

uint32_t load_depth(const struct trainer *t, uint32_t batch)
{
	return loader_depth(t->c.data, batch, t->s->local.prefetch, t->s->local.workers);
}

int load_new(struct trainer *t, struct err *e)
{
	const struct spec_local *l = &t->s->local;

	t->loader = loader_new(t->env, t->c.data, l->batch, load_depth(t, l->batch), l->workers, load_next, t, e);
	return t->loader ? 0 : -1;
}

static void gone(void *arg)
{
	struct trainer *t = arg;

	t->loaders--;
	if (t->dying)
		trainer_part_gone(t);
}

int load_deep(struct trainer *t, uint32_t ring, struct err *e)
{
	const struct spec_local *l = &t->s->local;
	uint32_t depth = load_depth(t, l->batch) - 1 + ring;

	if (t->loader && t->loader_depth >= depth)
		return 0;
	if (t->loader) {
		t->loaders++;
		loader_free(t->loader, gone, t);
	}
	t->loader = loader_new(t->env, t->c.data, l->batch, depth, l->workers, load_next, t, e);
	t->loader_depth = depth;
	return t->loader ? 0 : -1;
}

uint64_t load_left(const struct trainer *t)
{
	return t->strategy->crew ? ranges_count(&t->grant) - t->samples : loader_left(t->loader);
}

/* What is granted, less what this peer has counted or has in hand. */
void load_regrant(struct trainer *t)
{
	struct ranges r = { 0 };

	if (t->strategy->crew)                  /* each program says what it loads */
		return;
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
	late_grant(t);
	load_regrant(t);
	t->idle_told = false;
	if (load_left(t))
		exec_wake(t->x);
}

void load_told_idle(struct trainer *t)
{
	if (t->idle_told || !t->cb.idle)
		return;
	t->idle_told = true;
	t->cb.idle(t->arg);
}
