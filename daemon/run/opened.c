/* The data of a run has been looked at, off the loop: the trainer and the averager are built, and what the author
 * started gets its id. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "run/open.h"
#include "train/strategy.h"

/* A member may be at a long layer; one that has died is known sooner by others. */
#define PATIENCE_US 600000000ull

static int build(struct run *r, struct err *e)
{
	struct runs_ctx *c = &r->rs->ctx;
	const struct par *par = c->compute.par(c->compute.arg, (int)r->spec->local.threads, e);
	if (par && par->n > TRAINER_THREADS_MAX && strategy_find(r->spec->strategy)->crew)
		par = c->compute.par(c->compute.arg, TRAINER_THREADS_MAX, e);
	if (!par)
		return -1;
	if (r->point.params && spec_mode_take(r->spec, r->point.params, e))
		return -1;
	r->rest = c->compute.rest ? c->compute.rest(c->compute.arg) : NULL;
	r->carry = carry_new(&(struct carry_conf){ .env = c->env, .net = c->net, .chunks = c->chunks, .run = r->id,
		.patience_us = PATIENCE_US });
	struct trainer_conf tc = { .env = c->env, .spec = r->spec, .data = r->data, .par = par, .self = *net_self(c->net),
		.ops = &carry_ops, .ops_arg = r->carry,
		.host = r->rest ? &r->rest->host : NULL, .macs_per_us = run_macs_per_us(&c->compute) };
	struct trainer_cb cb = run_trainer_cb;
	trace_open(r);
	if (r->trace)
		cb.log = trace_line;
	r->trainer = trainer_new(&tc, &cb, r, e);
	if (!r->trainer || run_admit(r->rs, r->trainer, r->name, e))
		return -1;
	return run_swarm_open(r, e);
}

/* The run went while its data was being opened. */
static void orphaned(struct opening *o)
{
	data_free(o->data);
	data_source_close(o->other);
	origin_free(o->weights);
	spec_free(o->spec);
	free(o);
}

/* What it is called by its own spec, once its data and weights are known. -1 and e: it is here already. */
static int find_name(struct run *r, struct err *e)
{
	if (!id_zero(&r->id))
		return 0;
	spec_set_data_digest(r->spec, data_digest(r->data), data_count(r->data, DATA_TRAIN));
	if (r->weights && !r->spec->has_weights_digest)
		spec_set_weights_digest(r->spec, origin_digest(r->weights));
	spec_run_id(r->spec, &r->author, &r->id);
	id_hex(&r->id, r->hex);
	struct run *same = runs_by_id(r->rs, &r->id);
	if (!same || same == r || run_over(same))
		return 0;
	memset(&r->id, 0, sizeof r->id);
	r->hex[0] = 0;
	return err_set(e, ERR_EXISTS, "run %s is here already (%s): the same author, name and spec", r->name,
		run_state_name(same));
}

void run_opened(struct job *j)
{
	struct opening *o = container_of(j, struct opening, job);
	struct run *r = o->r;
	struct err e = o->e;
	if (!r) {
		orphaned(o);
		return;
	}
	r->data = o->data;
	r->weights = o->weights;
	r->opening = NULL;
	int rc = o->rc;
	bool data_bad = o->data_bad;
	if (o->why.code)
		run_log(r, LOG_WARN_, "run.weights", "%s", o->why.text);
	char path[4096];
	snprintf(path, sizeof path, "%s", o->path);
	struct data_source *other = o->other;
	free(o);
	if (r->state != RUN_OPEN) {
		data_source_close(other);
		return;
	}
	if (other && !id_zero(&r->id) && r->rs->ctx.dht) {
		differ_start(r, other, path, &e);
		return;
	}
	data_source_close(other);
	if (rc) {
		if (data_bad)
			err_wrap(&e, "data %s", path);
		run_fail(r, &e);
		return;
	}
	if (find_name(r, &e)) {
		run_fail(r, &e);
		return;
	}
	if (build(r, &e)) {
		if (run_again_undo(r, &e))
			run_event(r, EV_AGAIN);
		else
			run_fail(r, &e);
		return;
	}
	r->batch_was = 0;
	run_supersede(r);                       /* the author knows its id only now */
	run_record(r);
	ctl_expect(r);
	run_log(r, LOG_INFO_, "run.open", "%s: %s, %llu training samples, %zu parameters", r->spec->strategy,
		data_is_absent(r->data) ? "no data here, only help" : *path ? path : r->spec->data_kind,
		(unsigned long long)data_count(r->data, DATA_TRAIN), trainer_model(r->trainer)->nparam);
	run_answer_start(r);
	run_event(r, EV_OPENED);
}
