/* Life of a state: it goes when nobody wants it and no job touches it any more. */
#include "state/int.h"
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"

struct state *state_new(struct env *env, struct layout *l, struct extent param, struct extent stat,
	const struct state_cb *cb, void *arg, struct err *e)
{
	struct state *st = xcalloc(1, sizeof(*st));

	*st = (struct state){ .env = env, .l = *l, .cb = *cb, .arg = arg };
	*l = (struct layout){ 0 };
	list_init(&st->copies);
	if (shard_new(&st->s, &st->l, param, stat, e) == 0)
		return st;
	layout_free(&st->l);
	free(st);
	return NULL;
}

void state_close(struct state *st)
{
	st->closed = true;
	copies_drop(st);
}

static void end(struct state *st)
{
	void (*gone)(void *arg) = st->gone, *arg = st->gone_arg;

	shard_free(&st->s);
	layout_free(&st->l);
	free(st);
	if (gone)
		gone(arg);
}

void state_free(struct state *st, void (*gone)(void *arg), void *arg)
{
	if (!st) {
		if (gone)
			gone(arg);
		return;
	}
	state_close(st);
	st->freed = true;
	st->gone = gone;
	st->gone_arg = arg;
	if (!state_busy(st))
		end(st);
}

void state_job_over(struct state *st)
{
	if (state_busy(st))
		return;
	if (st->freed)
		end(st);
	else if (!st->closed)
		st->cb.free(st->arg);
}

struct shard *state_shard(struct state *st) { return &st->s; }
bool state_busy(const struct state *st) { return st->running || st->filling; }
