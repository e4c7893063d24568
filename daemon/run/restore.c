/* A run is taken up again: the newest whole checkpoint is read, looked through by the trainer, and is what the run goes
 * on with; one that is of no use is set aside, and the next older one is tried. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/text.h"
#include "run/int.h"

struct restoring { struct runs *rs; struct id id; struct ckpt_tensor *v; };

enum run_event restore_begin(struct run *r, uint64_t before, ckpt_done_fn *loaded)
{
	const struct ckpt_tensor *t;
	char dir[4096];
	struct restoring *l = xcalloc(1, sizeof *l);
	size_t n = trainer_tensors(r->trainer, &t);
	l->rs = r->rs;
	l->id = r->id;
	l->v = xmemdup(t, n * sizeof *l->v);
	run_dir(r, dir, sizeof dir);
	if (r->rs->ctx.state_dir) {
		ckpt_load(r->rs->ctx.env, dir, l->v, n, before, loaded, l);
		return EV_NONE;
	}
	free(l->v);
	free(l);
	return EV_RESTORED;
}

/* Without it (another peer's checkpoint, copied here) the order begins anew. */
static void take_walked(struct run *r, const json_t *meta)
{
	const char *text = json_string_value(json_object_get(meta, "walked"));
	json_t *j = text && r->spec->independent ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
	struct err e;
	if (j && ranges_parse(&r->walked, j, &e))
		run_log(r, LOG_WARN_, "ckpt.failed", "where this peer's own order stood cannot be read (%s): it begins anew",
			e.text);
	json_decref(j);
}

static int take_point(struct run *r, const char *text, struct err *e)
{
	json_t *j = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	struct avg_point p;
	avg_point_init(&p);
	int rc = avg_point_parse(&p, j, e);
	json_decref(j);
	if (rc) {
		e->code = ERR_CORRUPT;
		return err_wrap(e, "point");
	}
	avg_point_done(&r->point);
	r->point = p;
	return 0;
}

static int take(struct run *r, const struct ckpt_result *res, struct err *e)
{
	const char *text = json_string_value(json_object_get(res->meta, "point"));
	const char *run = json_string_value(json_object_get(res->meta, "run"));
	if (!text || !run || strcmp(run, r->hex))
		return err_set(e, ERR_MISMATCH, "%s belongs to another run", res->path);
	if (take_point(r, text, e))
		return -1;
	const char *members = json_string_value(json_object_get(res->meta, "members"));
	uint64_t n = 0;
	r->was_members = members && !text_u64(members, &n, NULL) && n <= UINT32_MAX ? (uint32_t)n : 0;
	take_walked(r, res->meta);
	return 0;
}

static void forget_point(struct run *r)         /* as if there had been none */
{
	avg_point_done(&r->point);
	avg_point_init(&r->point);
}

/* Perhaps a good one: nothing begins without it that could end up in its place. */
static enum run_event unreadable(struct run *r, const struct err *e)
{
	struct err why;
	if (e->code == ERR_MISMATCH)
		return run_broken(r, e);
	err_set(&why, e->code, "%.170s; the run does not begin without it: mend that and start the daemon again, or say "
		"run join; to go on from an older one, move this one away", e->text);
	r->resumes = true;
	return run_broken(r, &why);
}

static enum run_event restored(struct run *r, const char *path)
{
	if (path) {
		r->saved_epoch = r->point.epoch;
		run_log(r, LOG_INFO_, "ckpt.restored", "epoch %llu from %s", (unsigned long long)r->point.epoch, path);
	} else {
		forget_point(r);
	}
	enum run_event ev = run_again_check(r);
	return ev == EV_NONE ? EV_RESTORED : ev;
}

/* Whole, but of no use: set aside, and the next older one is tried. */
static enum run_event reject(struct run *r, uint64_t epoch, const char *path, const struct err *e,
	ckpt_done_fn *loaded)
{
	run_log(r, LOG_ERROR_, "ckpt.corrupt", "%s: %s; it is set aside, an older one is tried", path, e->text);
	forget_point(r);
	return restore_begin(r, epoch, loaded);
}

enum run_event restore_looked(struct run *r, const struct err *e, ckpt_done_fn *loaded)
{
	char *path = r->restored_from;
	enum run_event ev = EV_NONE;
	r->restored_from = NULL;
	if (r->state == RUN_RESTORE && !e)
		ev = restored(r, path);
	else if (r->state == RUN_RESTORE && e->code == ERR_NONFINITE)
		ev = reject(r, r->point.epoch, path, e, loaded);
	else if (r->state == RUN_RESTORE)
		ev = unreadable(r, e);
	free(path);
	return ev;
}

struct run *restore_whose(struct restoring *l)
{
	struct run *r = runs_by_id(l->rs, &l->id);
	free(l->v);
	free(l);
	return r && r->state == RUN_RESTORE ? r : NULL;
}

enum run_event restore_loaded(struct run *r, const struct ckpt_result *res, ckpt_done_fn *loaded,
	void (*looked)(void *run, const struct err *e))
{
	struct err e = res->error;
	if (res->skipped)
		run_log(r, LOG_ERROR_, "ckpt.corrupt", "%s: %s; %s", res->skip_path, res->skip_error.text,
			!e.code ? "an older one is used" : e.code == ERR_NOT_FOUND ? "no older one is whole: starting anew" :
			"the next one cannot be read");
	if (e.code == ERR_NOT_FOUND)
		return restored(r, NULL);
	if (e.code || take(r, res, &e))
		return !res->error.code && e.code == ERR_CORRUPT ? reject(r, res->epoch, res->path, &e, loaded) :
			unreadable(r, &e);
	free(r->restored_from);
	r->restored_from = xstrdup(res->path);
	trainer_fill(r->trainer, &(struct trainer_fill){ .epoch = r->point.epoch, .live = r->point.params }, looked, r);
	return EV_NONE;
}
