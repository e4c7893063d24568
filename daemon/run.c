/* One run, from its specification to its last checkpoint. Read the two tables first: they are the life of a run.
 *
 *   OPEN     the data set is opened and checked on the data lane; the author's run gets its id then
 *   RESTORE  the newest whole checkpoint, if there is one
 *   ENTER    the averager looks for the swarm; alone is fine
 *   SYNC     the others are ahead: state is downloaded, commits that come meanwhile are replayed
 *   TRAIN    micro-batches and rounds
 *   FINISH   the goal is reached: last validation, last checkpoint
 *   LEAVE    out of the round, ranges handed back, goodbye                                                            */
#include "run_int.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/text.h"

static void enter_open(struct run *r);
static void enter_finish(struct run *r);
static void enter_leave(struct run *r);
static void enter_over(struct run *r);
static void enter_train(struct run *r);

static const struct { const char *name; void (*enter)(struct run *); bool over, resume; } statetab[RUN_STATES] = {
	[RUN_OPEN] = { "open", enter_open, false, true },
	[RUN_RESTORE] = { "restore", ckpt_restore, false, true },
	[RUN_ENTER] = { "join", run_enter, false, true },
	[RUN_SYNC] = { "sync", NULL, false, true },
	[RUN_TRAIN] = { "train", enter_train, false, true },
	[RUN_FINISH] = { "finish", enter_finish, false, true },
	[RUN_LEAVE] = { "leave", enter_leave, false, true },
	[RUN_DONE] = { "done", enter_over, true, false },
	[RUN_LEFT] = { "left", enter_over, true, false },
	[RUN_STOPPED] = { "stopped", enter_over, true, false },
	[RUN_FAILED] = { "failed", enter_over, true, false },
};

static const struct { enum run_event ev; enum run_state from, to; } nexttab[] = {
	{ EV_OPENED, RUN_OPEN, RUN_RESTORE },
	{ EV_RESTORED, RUN_RESTORE, RUN_ENTER },
	{ EV_GRANTED, RUN_ENTER, RUN_TRAIN },
	{ EV_BEHIND, RUN_ENTER, RUN_SYNC },
	{ EV_BEHIND, RUN_TRAIN, RUN_SYNC },
	{ EV_SYNCED, RUN_SYNC, RUN_TRAIN },
	{ EV_REACHED, RUN_TRAIN, RUN_FINISH },
	{ EV_REACHED, RUN_ENTER, RUN_FINISH },
	{ EV_REACHED, RUN_SYNC, RUN_FINISH },
	{ EV_FINISHED, RUN_FINISH, RUN_LEAVE },
	{ EV_LEAVE, RUN_OPEN, RUN_LEFT },
	{ EV_LEAVE, RUN_RESTORE, RUN_LEFT },
	{ EV_LEAVE, RUN_ENTER, RUN_LEAVE },
	{ EV_LEAVE, RUN_SYNC, RUN_LEAVE },
	{ EV_LEAVE, RUN_TRAIN, RUN_LEAVE },
	{ EV_LEAVE, RUN_FINISH, RUN_LEAVE },
};

const char *run_state_name(const struct run *r)
{
	if (r->state == RUN_TRAIN && r->paused)
		return "paused";
	if (r->state == RUN_TRAIN && r->held)
		return "held";
	return statetab[r->state].name;
}

bool run_over(const struct run *r)
{
	return statetab[r->state].over;
}

void run_log(struct run *r, enum log_level level, const char *kind, const char *fmt, ...)
{
	char text[400];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	log_write(r->rs->ctx.env->log, level, r->name, "%s", text);
	if (r->rs->ctx.store)
		store_event(r->rs->ctx.store, level, kind, r->hex, NULL, NULL, "%s", text);
	if (r->rs->ctx.news && level >= LOG_WARN_) {
		json_t *j = json_pack("{s:s,s:s,s:s,s:s}", "kind", kind, "run", r->hex, "level", log_level_name(level), "text", text);
		r->rs->ctx.news(r->rs->ctx.news_arg, "event", kind, j);
		json_decref(j);
	}
}

void run_record(struct run *r)
{
	struct store *s = r->rs->ctx.store;
	if (!s || id_zero(&r->id))
		return;
	char *spec = json_dumps(r->spec->shared, JSON_COMPACT);
	json_t *local = spec_local_json(r->spec);
	char *ltext = json_dumps(local, JSON_COMPACT);
	store_run_put(s, &(struct store_run){ .run = r->hex, .name = r->name, .author = r->author_hex, .state = run_state_name(r),
		.spec = spec, .local = ltext, .error = r->error.code ? r->error.text : NULL, .epoch = r->point.epoch,
		.samples = r->point.samples, .params_version = r->point.params_version, .created_ms = r->created_ms,
		.resume = statetab[r->state].resume || (r->state == RUN_LEFT && r->drain) });
	json_decref(local);
	free(spec);
	free(ltext);
}

static void go(struct run *r, enum run_state to)
{
	if (r->state == to)
		return;
	r->state = to;
	log_write(r->rs->ctx.env->log, LOG_DEBUG_, r->name, "state %s", statetab[to].name);
	run_record(r);
	run_tell(r, true);
	if (statetab[to].enter)
		statetab[to].enter(r);
}

void run_event(struct run *r, enum run_event ev)
{
	for (size_t i = 0; i < sizeof nexttab / sizeof *nexttab; i++)
		if (nexttab[i].ev == ev && nexttab[i].from == r->state) {
			go(r, nexttab[i].to);
			return;
		}
	if (run_over(r))
		return;
	if (ev == EV_STOP)
		go(r, RUN_STOPPED);
	else if (ev == EV_BROKEN)
		go(r, RUN_FAILED);
	else if (ev == EV_GONE && r->state == RUN_LEAVE)
		go(r, r->reached ? RUN_DONE : RUN_LEFT);
}

void run_fail(struct run *r, const struct err *e)
{
	if (run_over(r))
		return;
	r->error = *e;
	run_log(r, LOG_ERROR_, "run.failed", "%s", e->text);
	if (r->start_reply) {
		reply_fail(r->start_reply, e);
		r->start_reply = NULL;
	}
	run_event(r, EV_BROKEN);
}

/* ---- OPEN ---- */

void run_dir(const struct run *r, char *out, size_t cap)
{
	snprintf(out, cap, "%s/runs/%s", r->rs->ctx.state_dir, r->hex);
}

/* Where this machine keeps the data that the spec names (amendments E1): the local part's path, else the [data] table,
 * else below data_dir. */
const char *run_data_path(const struct runs *rs, const struct spec *s, char *out, size_t cap, struct err *e)
{
	const struct conf *c = rs->ctx.conf;
	const char *name = s->local.data[0] ? s->local.data : s->data_name, *value = NULL, *key;
	size_t kind = strlen(s->data_kind);
	if (name[0] == '/') {
		snprintf(out, cap, "%s", name);
		return out;
	}
	for (size_t i = 0; (key = conf_each(c, "data", i, &value)); i++)
		if (!strcmp(key, name)) {
			bool prefixed = !strncmp(value, s->data_kind, kind) && value[kind] == ':';
			snprintf(out, cap, "%s", prefixed ? value + kind + 1 : value);
			return out;
		}
	const char *dir = conf_str(c, "data", "dir");
	if (strstr(name, "..") || !dir[0]) {
		err_set(e, ERR_NOT_FOUND, "data \"%s\" is not known on this machine: name it in [data] of the configuration (%s = %s:PATH), "
			"or give its absolute path: --local '{\"data\":\"/PATH\"}'", name, name, s->data_kind);
		return NULL;
	}
	snprintf(out, cap, "%s/%s", dir, name);
	return out;
}

/* What all runs hold and this one would add, against compute.memory_max. */
int run_admit(const struct runs *rs, struct trainer *t, const char *name, struct err *e)
{
	uint64_t most = (uint64_t)conf_int(rs->ctx.conf, "compute", "memory_max"), held = 0;
	struct trainer_view v;
	char need[32], have[32], max[32];
	list_each(it, &rs->list) {
		struct run *r = list_entry(it, struct run, link);
		if (!r->trainer || r->trainer == t)
			continue;
		trainer_view(r->trainer, &v);
		held += v.state_bytes + v.arena_bytes + v.loader_bytes;
	}
	trainer_view(t, &v);
	uint64_t wanted = v.state_bytes + v.arena_bytes + v.loader_bytes;
	if (!most || held + wanted <= most)
		return 0;
	return err_set(e, ERR_LIMIT, "run %s needs %s, other runs hold %s, compute.memory_max is %s: a smaller batch or a higher limit would do",
		name, text_print_size(wanted, need, sizeof need), text_print_size(held, have, sizeof have), text_print_size(most, max, sizeof max));
}

struct opening { struct job job; struct run *r; struct files *files; struct spec *spec; char path[4096]; struct data *data; struct err e; int rc; };

static void open_run(struct job *j)
{
	struct opening *o = container_of(j, struct opening, job);
	o->data = data_open(o->files, o->path, o->spec, &o->e);
	o->rc = o->data ? 0 : -1;
}

/* Multiply-adds per us that the matrix products were measured at; the predictor's yardstick for `run plan`. */
double run_macs_per_us(const struct compute *c)
{
	json_t *d = c->describe ? c->describe(c->arg) : NULL;
	double gflops = json_number_value(json_object_get(d, "gflops"));
	json_decref(d);
	return gflops * 1e3 / 2;
}

static int build(struct run *r, struct err *e)
{
	struct runs_ctx *c = &r->rs->ctx;
	const struct par *par = c->compute.par(c->compute.arg, (int)r->spec->local.threads, e);
	if (!par)
		return -1;
	struct trainer_conf tc = { .env = c->env, .spec = r->spec, .data = r->data, .par = par, .self = *net_self(c->net),
		.macs_per_us = run_macs_per_us(&c->compute) };
	r->trainer = trainer_new(&tc, &run_trainer_cb, r, e);
	if (!r->trainer || run_admit(r->rs, r->trainer, r->name, e))
		return -1;
	return run_swarm_open(r, e);
}

static void opened(struct job *j)
{
	struct opening *o = container_of(j, struct opening, job);
	struct run *r = o->r;
	struct err e = o->e;
	if (!r) {                               /* the run went while its data was being opened */
		data_free(o->data);
		spec_free(o->spec);
		free(o);
		return;
	}
	r->data = o->data;
	r->opening = NULL;
	int rc = o->rc;
	char path[4096];
	snprintf(path, sizeof path, "%s", o->path);
	free(o);
	if (r->state != RUN_OPEN)
		return;
	if (rc) {
		err_wrap(&e, "data %s", path);
		run_fail(r, &e);
		return;
	}
	if (id_zero(&r->id)) {
		spec_set_data_digest(r->spec, data_digest(r->data));
		spec_run_id(r->spec, &r->author, &r->id);
		id_hex(&r->id, r->hex);
		struct run *same = runs_by_id(r->rs, &r->id);
		if (same && same != r && !run_over(same)) {
			err_set(&e, ERR_EXISTS, "run %s is here already (%s): the same author, name and spec", r->name, run_state_name(same));
			memset(&r->id, 0, sizeof r->id);
			r->hex[0] = 0;
			run_fail(r, &e);
			return;
		}
	}
	if (build(r, &e)) {
		run_fail(r, &e);
		return;
	}
	run_record(r);
	if (r->mine)
		ctl_publish(r);
	run_log(r, LOG_INFO_, "run.open", "%s: %s, %llu training samples, %zu parameters", r->spec->strategy, path,
		(unsigned long long)data_count(r->data, DATA_TRAIN), trainer_model(r->trainer)->nparam);
	if (r->start_reply)
		reply_ok(r->start_reply, run_json(r, false));
	r->start_reply = NULL;
	run_event(r, EV_OPENED);
}

static void enter_open(struct run *r)
{
	struct opening *o = xcalloc(1, sizeof *o);
	struct err e;
	if (!run_data_path(r->rs, r->spec, o->path, sizeof o->path, &e)) {
		free(o);
		run_fail(r, &e);
		return;
	}
	o->r = r;
	o->spec = r->spec;
	o->files = r->rs->ctx.env->files;
	o->job = (struct job){ .name = "run.open", .lane = env_lane(r->rs->ctx.env, "data"), .run = open_run, .done = opened, .cost_us = 2000 };
	r->opening = o;
	env_work(r->rs->ctx.env, &o->job);
}

struct run *run_new(struct runs *rs, struct spec *spec, const struct id *author, const struct id *id, struct reply *start_reply)
{
	struct run *r = xcalloc(1, sizeof *r);
	r->rs = rs;
	r->spec = spec;
	r->author = *author;
	r->mine = id_eq(author, net_self(rs->ctx.net));
	r->start_reply = start_reply;
	r->created_ms = env_wall(rs->ctx.env);
	r->loss = r->accuracy = r->epoch_loss = r->val_loss = r->val_accuracy = r->best_accuracy = NAN;
	r->started_us = env_now(rs->ctx.env);
	list_init(&r->ckpt_waiters);
	avg_point_init(&r->point);
	snprintf(r->name, sizeof r->name, "%s", spec->name);
	id_hex(author, r->author_hex);
	if (id) {
		r->id = *id;
		id_hex(id, r->hex);
	}
	r->tell.name = "run.tell";
	list_push(&rs->list, &r->link);
	enter_open(r);
	return r;
}

/* ---- TRAIN ---- */

void run_effective_pause(struct run *r)
{
	bool off = r->paused || r->held;
	if (r->avg)
		avg_hold(r->avg, off);
	if (r->state == RUN_TRAIN && r->trainer) {
		if (off)
			trainer_pause(r->trainer);
		else
			trainer_start(r->trainer);
	}
	run_record(r);
	run_tell(r, true);
}

static void enter_train(struct run *r)
{
	if (!r->train_us)
		r->train_us = env_now(r->rs->ctx.env);
	r->epoch_started_us = env_now(r->rs->ctx.env);
	run_effective_pause(r);
}

/* ---- remembering points, so that a snapshot of epoch e travels with the point of epoch e ---- */

void run_applied_point(struct run *r)
{
	struct avg_point *slot = &r->recent[r->point.epoch % RUN_POINTS];
	avg_point_done(slot);
	avg_point_init(slot);
	avg_point_copy(slot, &r->point);
	if (r->nrecent < RUN_POINTS)
		r->nrecent++;
}

const struct avg_point *run_point_at(const struct run *r, uint64_t epoch)
{
	const struct avg_point *p = &r->recent[epoch % RUN_POINTS];
	return r->nrecent && p->epoch == epoch && p->params ? p : NULL;
}

/* ---- FINISH, LEAVE, the end ---- */

static void enter_finish(struct run *r)
{
	if (r->validating || r->saving)
		return;                         /* their callbacks come back here */
	if (r->val_epoch != r->point.epoch && data_count(r->data, DATA_VALIDATION)) {
		r->val_epoch = r->point.epoch;
		r->validating = true;
		trainer_validate(r->trainer);
		return;
	}
	if (!r->final_saved && r->rs->ctx.state_dir) {
		r->final_saved = true;
		ckpt_now(r, NULL);
		return;
	}
	run_event(r, EV_FINISHED);
}

void run_finish_more(struct run *r)
{
	if (r->state == RUN_FINISH)
		enter_finish(r);
}

static void gone(void *arg)
{
	run_event(arg, EV_GONE);
}

static void gone_later(struct timer *t)
{
	gone(container_of(t, struct run, leave_timer));
}

static void enter_leave(struct run *r)
{
	sync_free(r->sync);
	r->sync = NULL;
	if (r->trainer)
		trainer_pause(r->trainer);
	if (r->avg) {
		avg_leave(r->avg, gone, r);
		return;
	}
	r->leave_timer = (struct timer){ .fire = gone_later, .name = "run.leave" };
	env_after(r->rs->ctx.env, &r->leave_timer, 1);
}

/* What a trainer's jobs may still touch goes with it. */
struct grave { struct list link; struct data *data; struct spec *spec; };

static void buried(void *arg)
{
	struct grave *g = arg;
	list_del(&g->link);
	data_free(g->data);
	spec_free(g->spec);
	free(g);
}

static void release(struct run *r, bool keep_spec)
{
	sync_free(r->sync);
	r->sync = NULL;
	env_timer(r->rs->ctx.env, &r->leave_timer, 0);
	if (r->avg)
		avg_free(r->avg);
	r->avg = NULL;
	struct grave *g = xcalloc(1, sizeof *g);
	g->data = r->data;
	g->spec = r->spec;
	r->data = NULL;
	r->spec = NULL;
	list_push(&r->rs->graves, &g->link);
	if (keep_spec)
		r->spec = spec_of(r->name, g->spec->shared, NULL, NULL);
	if (r->trainer)
		trainer_free(r->trainer, buried, g);
	else if (r->opening) {                  /* its job still reads the spec */
		r->opening->r = NULL;
		g->spec = NULL;
		buried(g);
	} else
		buried(g);
	r->trainer = NULL;
	r->opening = NULL;
}

static void release_later(struct timer *t)
{
	struct run *r = container_of(t, struct run, release_timer);
	release(r, true);
	runs_check_drained(r->rs);
}

/* The trainer may be the caller: its memory goes from the loop, later. */
static void enter_over(struct run *r)
{
	if (!r->drain || r->state != RUN_LEFT)
		run_log(r, r->state == RUN_FAILED ? LOG_ERROR_ : LOG_INFO_, "run.end", "%s at epoch %llu%s%s", statetab[r->state].name,
			(unsigned long long)r->point.epoch, r->error.code ? ": " : "", r->error.code ? r->error.text : "");
	if (r->state == RUN_STOPPED || r->state == RUN_DONE)
		ctl_unpublish(r);
	struct list *it;
	while ((it = list_pop(&r->ckpt_waiters)))
		ckpt_waiter_end(it, &r->error);
	r->release_timer = (struct timer){ .fire = release_later, .name = "run.release" };
	env_after(r->rs->ctx.env, &r->release_timer, 1);
	run_tell(r, true);
}

void run_free(struct run *r)
{
	struct env *env = r->rs->ctx.env;
	if (r->start_reply) {
		struct err e;
		err_set(&e, ERR_CANCELLED, "the daemon is stopping");
		reply_fail(r->start_reply, &e);
	}
	env_timer(env, &r->tell, 0);
	env_timer(env, &r->release_timer, 0);
	list_del(&r->link);
	struct list *it;
	while ((it = list_pop(&r->ckpt_waiters)))
		ckpt_waiter_end(it, &r->error);
	release(r, false);
	avg_point_done(&r->point);
	for (unsigned i = 0; i < RUN_POINTS; i++)
		avg_point_done(&r->recent[i]);
	free(r);
}
