/* The first state of a run: its data set is found, opened and checked off the loop (then opened.c). */
#include <stdio.h>
#include <stdlib.h>
#include "common/hash.h"
#include "common/mem.h"
#include "run/open.h"

static void open_run(struct job *j)
{
	struct opening *o = container_of(j, struct opening, job);
	o->data = o->absent ? data_absent(o->spec, &o->e) : data_open_or(o->files, o->path, o->spec, &o->other,
		&o->e);
	o->data_bad = !o->data;
	o->rc = o->data ? origin_read(o->files, o->spec, &o->weights, &o->why, &o->e) : -1;
	if (!o->rc && o->compute.load)
		o->compute.load(o->compute.arg);
}

enum run_event run_open(struct run *r)
{
	struct opening *o = xcalloc(1, sizeof *o);
	struct err e;
	/* its author counts the samples, so it must have them */
	o->absent = r->spec->local.aux && !r->spec->local.data[0] && r->spec->has_data_digest;
	if (!o->absent && !run_data_path(r->rs, r->spec, o->path, sizeof o->path, &e)) {
		free(o);
		return run_broken(r, &e);
	}
	const char *cache = conf_str(r->rs->ctx.conf, "data", "cache"), *state = r->rs->ctx.state_dir;
	if (cache[0])
		snprintf(r->spec->cache_dir, sizeof r->spec->cache_dir, "%s", cache);
	else if (state)
		snprintf(r->spec->cache_dir, sizeof r->spec->cache_dir, "%s/cache", state);
	r->spec->cache_max = id_eq(&r->author, net_self(r->rs->ctx.net)) ? 0 :
		(uint64_t)conf_int(r->rs->ctx.conf, "data", "cache_max");
	r->spec->order_key = siphash(0, 0, net_self(r->rs->ctx.net)->b, sizeof(struct id));
	o->r = r;
	o->spec = r->spec;
	o->files = r->rs->ctx.env->files;
	o->compute = r->rs->ctx.compute;
	o->job = (struct job){ .name = "run.open", .lane = env_lane(r->rs->ctx.env, "data"), .run = open_run,
		.done = r->rs->calls->opened, .cost_us = 2000 };
	r->opening = o;
	env_work(r->rs->ctx.env, &o->job);
	return EV_NONE;
}

/* The run goes while its data is being opened: the job frees what it holds. */
void run_open_orphan(struct run *r)
{
	r->opening->r = NULL;
}
