/* Life of a state: it goes when nobody wants it and no job touches it any more. */
#include "state/int.h"
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"

static void shards_free(struct state *st)
{
	for (uint32_t k = 0; k < st->n; k++)
		shard_free(&st->s[k]);
	free(st->s);
}

struct state *state_new(struct env *env, struct layout *l, const struct shard_part *part, uint32_t n,
	const struct state_cb *cb, void *arg, struct err *e)
{
	struct state *st = xcalloc(1, sizeof(*st));

	*st = (struct state){ .env = env, .l = *l, .s = xcalloc(n, sizeof(*st->s)), .cb = *cb, .arg = arg };
	*l = (struct layout){ 0 };
	list_init(&st->copies);
	while (st->n < n && shard_new(&st->s[st->n], &st->l, part[st->n].param, part[st->n].stat, e) == 0)
		st->n++;
	if (st->n == n)
		return st;
	shards_free(st);
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

	shards_free(st);
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

struct shard *state_shard(struct state *st) { return st->s; }

struct shard *state_shards(struct state *st, uint32_t *ret_n)
{
	*ret_n = st->n;
	return st->s;
}

size_t state_bytes(const struct state *st)
{
	size_t bytes = 0;

	for (uint32_t k = 0; k < st->n; k++)
		bytes += st->s[k].bytes;
	return bytes;
}

bool state_busy(const struct state *st) { return st->running || st->filling; }
