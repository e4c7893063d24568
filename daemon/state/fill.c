/* A state from where it comes to where it can be used, without holding the loop: making, filling and looking through
 * hundreds of millions of numbers is a job of the train lane. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "state/int.h"

struct filling {
	struct job job;
	struct state *st;
	struct state_fill how;
	void (*done)(void *arg, const struct err *e); void *arg;
	int rc; struct err e;
};

static int fresh(struct state *st, struct err *e)
{
	int rc = 0;

	for (struct shard *s = st->s; s < st->s + st->n && rc == 0; s++) {
		memset(s->block, 0, s->bytes);
		shard_clock_reset(s);
		rc = st->cb.init(st->arg, s, e);
	}
	return rc;
}

static void begin(struct state *st)
{
	for (uint32_t k = 0; k < st->n; k++)
		shard_begin(&st->s[k]);
}

int state_init(struct state *st, struct err *e)
{
	if (fresh(st, e) < 0)
		return -1;
	begin(st);
	return 0;
}

int state_look(struct state *st, struct err *e)
{
	int rc = 0;

	for (uint32_t k = 0; k < st->n && rc == 0; k++)
		rc = shard_look(&st->s[k], st->cb.bad, st->arg, NULL, NULL, e);
	return rc;
}

static void fill_run(struct job *j)
{
	struct filling *f = container_of(j, struct filling, job);
	struct state *st = f->st;

	if (f->rc)
		return;
	if (f->how.at)
		f->rc = shard_look(st->s, st->cb.bad, st->arg, f->how.at, f->how.arg, &f->e);
	if (!f->rc && f->how.fresh)
		f->rc = fresh(st, &f->e);
	if (f->rc)
		return;
	for (uint32_t k = 0; f->how.fill && k < st->n && !f->rc; k++)
		f->rc = f->how.fill(f->how.arg, &st->s[k], &f->e);
	if (f->how.fresh)
		begin(st);
	if (!f->rc && !f->how.at)
		f->rc = state_look(st, &f->e);
	if (!f->rc && f->how.digest)
		digest_of(st->s->block, st->s->bytes / st->l.unit, st->l.unit, f->how.digest);
}

static void fill_done(struct job *j)
{
	struct filling *f = container_of(j, struct filling, job);
	struct state *st = f->st;

	if (f->how.drop)
		f->how.drop(f->how.arg);
	st->filling = false;
	if (st->closed)
		f->rc = err_set(&f->e, ERR_CANCELLED, "the run has ended");
	f->done(f->arg, f->rc ? &f->e : NULL);
	free(f);
	state_job_over(st);
}

void state_fill(struct state *st, const struct state_fill *how, void (*done)(void *arg, const struct err *e),
	void *arg)
{
	struct filling *f = xcalloc(1, sizeof(*f));

	assert(!how->at || st->n == 1);
	*f = (struct filling){ .st = st, .how = *how, .done = done, .arg = arg };
	if (how->refused) {
		f->rc = -1;
		f->e = *how->refused;
	}
	f->how.refused = NULL;
	f->job = (struct job){ .name = "fill", .lane = env_lane(st->env, "train"), .run = fill_run, .done = fill_done };
	st->filling = true;
	env_work(st->env, &f->job);
}
