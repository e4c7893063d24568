/* A checkpoint of a run is made: a copy of the state between two micro-batches, then the disk lane writes it, with the
 * point (epoch, digest, ledger, hyperparameters) in the file's metadata; who waits for it is answered. restore.c takes
 * one up again. */
#include <stdlib.h>
#include "common/mem.h"
#include "common/text.h"
#include "run/mover.h"
#include "run/saved.h"

struct ckpt_waiter { struct list link; struct reply *reply; };
struct saving {
	struct id id;
	struct runs *rs;
	struct snapshot *snap;
	uint64_t lost_from;
};

void ckpt_waiter_end(struct list *it, const struct err *e)
{
	struct ckpt_waiter *w = list_entry(it, struct ckpt_waiter, link);
	struct err gone;
	if (!e || !e->code) {
		err_set(&gone, ERR_STATE, "the run ended before the checkpoint was written");
		e = &gone;
	}
	reply_fail(w->reply, e);
	free(w);
}

bool ckpt_due(struct run *r, uint64_t epoch)
{
	const struct conf *c = r->rs->ctx.conf;
	uint64_t every = r->spec->local.checkpoint_every ? r->spec->local.checkpoint_every : (uint64_t)conf_int(c,
		"checkpoint", "every_epochs");
	uint64_t us = (uint64_t)conf_int(c, "checkpoint", "every"), now = env_now(r->rs->ctx.env);
	if (r->crew)
		return run_crew_due(r, epoch, every);
	if (!r->saved_us)
		r->saved_us = now;
	if (!(every && epoch % every == 0) && !(us && now - r->saved_us >= us))
		return false;
	r->saved_us = now;
	return true;
}

void ckpt_begin(struct run *r, struct reply *reply, snapshot_fn *copied)
{
	struct err e;
	if (!r->rs->ctx.state_dir || !r->trainer) {
		err_set(&e, ERR_STATE, "run %s is %s: there is nothing to save", r->name, run_state_name(r));
		if (reply)
			reply_fail(reply, &e);
		return;
	}
	if (reply) {
		struct ckpt_waiter *w = xcalloc(1, sizeof *w);
		w->reply = reply;
		list_push(&r->ckpt_waiters, &w->link);
	}
	if (r->saving)
		return;
	r->saving = true;
	r->save_began_us = env_now(r->rs->ctx.env);
	struct saving *s = xcalloc(1, sizeof *s);
	s->rs = r->rs;
	s->id = r->id;
	run_crew_snapshot(r, copied, s);
}

static void answer(struct run *r, json_t *result, const struct err *e)
{
	struct list *it;
	while ((it = list_pop(&r->ckpt_waiters))) {
		struct ckpt_waiter *w = list_entry(it, struct ckpt_waiter, link);
		if (result)
			reply_ok(w->reply, json_deep_copy(result));
		else
			reply_fail(w->reply, e);
		free(w);
	}
	json_decref(result);
}

static void answer_saved(struct run *r, uint64_t epoch, const char *path, uint64_t bytes)
{
	answer(r, json_pack("{s:[{s:s,s:I,s:s,s:I}]}", "checkpoints", "run", r->hex, "epoch", (json_int_t)epoch,
		"path", path, "bytes", (json_int_t)bytes), NULL);
}

static void finished(struct run *r)
{
	uint64_t took = env_now(r->rs->ctx.env) - r->save_began_us, was = r->save_took_us / 4 * 3;
	r->saving = false;
	r->save_took_us = took > was ? took : was;
}

struct run *ckpt_written(struct saving *s, const struct ckpt_result *res)
{
	struct run *r = runs_by_id(s->rs, &s->id);      /* it may have gone while this was written */
	uint64_t lost_from = s->lost_from;
	snapshot_unref(s->snap);
	free(s);
	if (!r)
		return NULL;
	if (res->error.code) {
		run_log(r, LOG_ERROR_, "ckpt.failed", "checkpoint: %s", res->error.text);
		answer(r, NULL, &res->error);
	} else {
		char size[32];
		log_write(r->rs->ctx.env->log, LOG_DEBUG_, r->name, "checkpoint %s (%s)", res->path,
			text_print_size(res->bytes, size, sizeof size));
		if (r->rs->ctx.store)
			store_ckpt_put(r->rs->ctx.store, &(struct store_ckpt){ .run = r->hex, .path = res->path,
			.epoch = res->epoch, .bytes = res->bytes, .state = "whole" });
		r->saved_epoch = res->epoch;
		run_crew_saved(r);
		if (r->lost_from == lost_from)
			r->lost_from = 0;
		if (res->aside)
			run_log(r, LOG_WARN_, "ckpt.aside", "%u checkpoints that are not of this history are kept beside %s, as "
				".aside; they are yours to remove", res->aside, res->path);
		answer_saved(r, res->epoch, res->path, res->bytes);
	}
	finished(r);
	return r;
}

/* All of a file's metadata are strings. */
static void put_number(json_t *meta, const char *key, uint64_t n)
{
	json_object_set_new(meta, key, json_sprintf("%llu", (unsigned long long)n));
}

static void put_json(json_t *meta, const char *key, json_t *value /* taken */)
{
	char *text = json_dumps(value, JSON_COMPACT);
	json_object_set_new(meta, key, json_string(text));
	json_decref(value);
	free(text);
}

static json_t *meta_of(struct run *r, const struct avg_point *p, const struct snapshot *snap)
{
	json_t *meta = json_object();
	char *text = run_point_text(r, p, SIZE_MAX);
	json_object_set_new(meta, "format", json_string("hivemindd-1"));
	json_object_set_new(meta, "run", json_string(r->hex));
	json_object_set_new(meta, "name", json_string(r->name));
	json_object_set_new(meta, "point", json_string(text));
	put_number(meta, "samples", p->samples);
	if (r->spec->independent)               /* where this peer's own order stands */
		put_json(meta, "walked", ranges_json(&r->walked));
	if (r->avg) {
		struct avg_view v;
		avg_view(r->avg, &v);
		put_number(meta, "members", v.last_members ? v.last_members : r->was_members);
	}
	if (r->crew) {                          /* as whom it holds this part */
		put_number(meta, "crew_life", run_crew_life(r));
		put_json(meta, "crew_parts", mover_parts_json(snap->part, snap->nparts));
	}
	free(text);
	return meta;
}

/* What it holds now may be less than what is on the disk: that stays. */
static void saved_before(struct run *r, uint64_t epoch, const char *dir, uint64_t bytes)
{
	char path[512];
	ckpt_path(dir, epoch, path, sizeof path);
	r->saved_epoch = epoch;
	answer_saved(r, epoch, path, bytes);
	finished(r);
}

struct run *ckpt_copied(struct saving *s, struct snapshot *snap, const struct err *e, ckpt_done_fn *written)
{
	struct run *r = runs_by_id(s->rs, &s->id);
	struct err mine;
	const struct avg_point *p = r && snap ? run_point_at(r, snap->epoch) : NULL;
	if (r && snap && !p)
		err_set(&mine, ERR_STATE, "epoch %llu has passed", (unsigned long long)snap->epoch);
	else if (!snap)
		mine = *e;
	if (!p) {
		snapshot_unref(snap);
		free(s);
		if (!r)
			return NULL;
		run_log(r, LOG_WARN_, "ckpt.failed", "snapshot: %s", mine.text);
		answer(r, NULL, &mine);
		finished(r);
		return r;
	}
	trace_now(r);                           /* a life that begins with it, after a kill, is replayed from this copy */
	char dir[4096];
	uint64_t bytes;
	run_dir(r, dir, sizeof dir);
	if (run_crew_has_saved(r, p, snap, &bytes)) {
		snapshot_unref(snap);
		free(s);
		saved_before(r, p->epoch, dir, bytes);
		return r;
	}
	s->snap = snap;
	s->lost_from = r->lost_from;
	ckpt_save(r->rs->ctx.env, &(struct ckpt_save){ .dir = dir, .epoch = p->epoch, .v = snap->tensor,
		.n = snap->ntensors,
		.lost_from = r->lost_from, .hold = run_crew_keeps(r),
		.lent = lends_epoch(r->rs->lends, &r->id),
		.meta = meta_of(r, p, snap),
		.keep = r->spec->local.checkpoint_keep ? r->spec->local.checkpoint_keep : (unsigned)conf_int(r->rs->ctx.conf,
		"checkpoint", "keep"), .free_min_bytes = (uint64_t)conf_int(r->rs->ctx.conf, "checkpoint", "free_min") },
		written, s);
	return NULL;
}
