/* A trainer that is made and thrown away before its first step: for run start --dry-run (data, memory, the plan and
 * what it costs), and for `memory` (memory.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "run/int.h"

struct dry { struct job job; struct runs *rs; struct list link; struct spec *spec; struct data *data;
	struct files *files;
	struct trainer *trainer; struct reply *reply; char path[4096]; struct err e;
	dry_describe *describe; };

static void open_data(struct job *j)
{
	struct dry *d = container_of(j, struct dry, job);
	d->data = data_open(d->files, d->path, d->spec, &d->e);
	if (d->data && d->rs->ctx.compute.load)
		d->rs->ctx.compute.load(d->rs->ctx.compute.arg);
}

static void buried(void *arg)
{
	struct dry *d = arg;
	data_free(d->data);
	spec_free(d->spec);
	free(d);
}

static const struct trainer_cb nobody;

static int make(struct dry *d, struct err *e)
{
	struct runs_ctx *c = &d->rs->ctx;
	const struct par *par = c->compute.par(c->compute.arg, (int)d->spec->local.threads, e);
	struct trainer_conf tc = { .env = c->env, .spec = d->spec, .data = d->data, .par = par, .self = *net_self(c->net),
		.macs_per_us = run_macs_per_us(&c->compute) };
	d->trainer = par ? trainer_new(&tc, &nobody, d, e) : NULL;
	return d->trainer ? 0 : -1;
}

static json_t *describe(struct runs *rs, const struct spec *s, const struct data *data, struct trainer *t,
	struct err *e)
{
	struct trainer_view v;
	if (run_admit(rs, t, s->name, e))
		return NULL;
	trainer_view(t, &v);
	json_t *plan = trainer_plan_json(t, false, e);
	if (!plan)
		return NULL;
	uint64_t per_epoch = trainer_needs_swarm(t) ? 2 * trainer_contribution_len(t) * sizeof(float) : 0;
	return json_pack("{s:s,s:b,s:I,s:I,s:I,s:I,s:I,s:I,s:o}", "name", s->name, "dry_run", 1, "training_samples",
		(json_int_t)data_count(data, DATA_TRAIN), "parameters", (json_int_t)trainer_model(t)->nparam,
		"state_bytes", (json_int_t)v.state_bytes, "arena_bytes", (json_int_t)v.arena_predicted_bytes, "loader_bytes",
		(json_int_t)v.loader_bytes, "network_bytes_per_epoch", (json_int_t)per_epoch, "plan", plan);
}

static void opened(struct job *j)
{
	struct dry *d = container_of(j, struct dry, job);
	json_t *out = d->data && !make(d, &d->e) ? d->describe(d->rs, d->spec, d->data, d->trainer, &d->e) : NULL;
	if (out)
		reply_ok(d->reply, out);
	else
		reply_fail(d->reply, &d->e);
	if (d->trainer)
		trainer_free(d->trainer, buried, d);
	else
		buried(d);
}

void runs_dry_run(struct runs *rs, struct spec *s, struct reply *reply)
{
	runs_dry(rs, s, describe, reply);
}

void runs_dry(struct runs *rs, struct spec *s, dry_describe *how, struct reply *reply)
{
	struct dry *d = xcalloc(1, sizeof *d);
	d->rs = rs;
	d->spec = s;
	d->reply = reply;
	d->describe = how;
	d->files = rs->ctx.env->files;
	if (!run_data_path(rs, s, d->path, sizeof d->path, &d->e)) {
		reply_fail(reply, &d->e);
		buried(d);
		return;
	}
	d->job = (struct job){ .name = "run.dry", .lane = env_lane(rs->ctx.env, "data"), .run = open_data, .done = opened,
		.cost_us = 2000 };
	env_work(rs->ctx.env, &d->job);
}
