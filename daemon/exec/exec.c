/* The executor's spine.
 *
 * 1. exec_wake arms a timer; kick() asks the owner's plan() for a program and makes tokens for it (next_program).
 * 2. pump() takes every instruction that tokens_start gives out and launches it: a job for a lane, a question to the
 *    owner, or nothing but a mark (COMMIT, DROP).
 * 3. Whatever ends comes to ended(): tokens_end (end.c), then pump() again. When all has ended: 1.
 * 4. exec_interrupt abandons: instructions end for the tokens at once, their jobs run on unheard, their memory stays
 *    until they are done, and new instructions that need it are parked (launch). */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "exec/int.h"

static void pump(struct exec *x);
static void maybe_quiet(struct exec *x);

static void close_run(struct job *j)
{
	struct exec *x = container_of(j, struct exec, close);

	spill_close(x->spill, spill_fd(x->spill));
}

static void close_done(struct job *j)
{
	struct exec *x = container_of(j, struct exec, close);

	spill_opened(x->spill, -1);
	maybe_quiet(x);
}

/* The file of values goes before the executor does; true: it is still there. */
static bool closes(struct exec *x)
{
	if (!x->spill || spill_fd(x->spill) < 0)
		return false;
	if (x->close.run)
		return true;
	x->close = (struct job){ .name = "close values", .lane = env_lane(x->c.env, "disk"), .run = close_run,
		.done = close_done };
	env_work(x->c.env, &x->close);  /* x may be gone now */
	return true;
}

static void maybe_quiet(struct exec *x)
{
	void (*fn)(void *arg) = x->quiet, (*gone)(void *arg) = x->gone, *arg = x->gone_arg;

	if (!exec_quiet(x) || (x->dying && x->lent))
		return;
	if (fn) {
		x->quiet = NULL;
		fn(x->quiet_arg);
	}
	if (!x->dying || closes(x))
		return;
	env_timer(x->c.env, &x->kick, 0);
	program_unref(x, x->prog);
	exec_mem_done(x);
	exec_unbind(x);
	free(x);
	if (gone)
		gone(arg);
}

/* --- programs */

static void next_program(struct exec *x)
{
	struct plan_results results = { x->nresults, x->result };
	struct program *before = x->prog;
	struct plan plan;
	struct err e;
	uint64_t first = before ? (uint64_t)tokens_next_index(before->tokens) : 0;

	x->interrupted = false;
	if (x->cb.plan(x->arg, &results, first, &plan, &e) < 0) {
		exec_break(x, &e);
		return;
	}
	x->idle = !plan.ninstrs;
	if (x->idle) {                  /* the program before stays for what it tells (values, indices); x->over holds it */
		plan_free(&plan);
		return;
	}
	if (!plan_runnable(x, &plan, before, &e)) {
		plan_free(&plan);
		exec_break(x, &e);
		return;
	}
	x->over = program_new(x, &plan, before, &e) < 0;
	if (x->over) {
		exec_break(x, &e);
		return;
	}
	x->v.programs++;
	log_program(x, x->prog);
}

static bool program_over(const struct exec *x)
{
	return !x->prog || (list_empty(&x->ops) && list_empty(&x->parked) &&
		(x->over || tokens_finished(x->prog->tokens)));
}

/* --- abandoning */

static void op_abandon(struct op *o)
{
	struct exec *x = o->x;

	list_del(&o->link);
	x->v.abandoned++;
	work_count(o, false);
	tokens_abandon(x->prog->tokens, o->run, true);
	o->run = NULL;
	if (!o->is_job && !o->failed)
		x->c.ops->cancel(x->c.ops_arg, &o->wait);
	if (!o->is_job && (o->failed || !(x->c.ops->busy && x->c.ops->busy(x->c.ops_arg, &o->wait)))) {
		op_free(o);
		return;
	}
	op_uses(o, 1);
	o->prog->refs++;
	list_push(&x->abandoned, &o->link);
}

/* Given out and not begun. */
static void op_unstart(struct op *o)
{
	list_del(&o->link);
	work_count(o, false);
	tokens_abandon(o->prog->tokens, o->run, false);
	op_free(o);
}

/* They have not begun: they leave at once. True when one of them would have written what counts. */
static bool ops_unpark(struct exec *x)
{
	bool bound = false;

	list_each_safe(it, &x->parked) {
		struct op *o = list_entry(it, struct op, link);

		bound = bound || op_counts(o);
		op_unstart(o);
	}
	return bound;
}

/* Abandons everything but what is writing what counts; true when nothing is left of the program. */
static bool ops_abandon(struct exec *x)
{
	struct token_run *r;
	bool unwritten = ops_unpark(x);

	list_each_safe(it, &x->ops) {
		struct op *o = list_entry(it, struct op, link);

		if (!o->is_job || !op_counts(o))
			op_abandon(o);
	}
	if (!list_empty(&x->ops))
		return false;
	if (unwritten)
		return true;
	/* Marks behind what has just ended still count: a sum without its COMMIT would lose its samples. */
	while ((r = tokens_start(x->prog->tokens))) {
		struct op *o = xcalloc(1, sizeof(*o));
		bool counts = r->instr->kind == PLAN_COMMIT && r->instr->nin && !r->passed;

		op_init(o, x, r);
		if (counts) {
			op_blocks(o);
			work_count(o, true);
			op_finish(o, NULL);
			continue;
		}
		tokens_abandon(x->prog->tokens, r, false);
		op_free(o);
		break;          /* the rest of the list would only follow from work that is not done */
	}
	return true;
}

/* --- ending */

static void work(struct op *o, void (*done)(struct job *j))
{
	struct exec *x = o->x;

	o->job.done = done;
	x->starting = o;
	env_work(x->c.env, &o->job);
	x->starting = NULL;
}

static void copy_done(struct job *j)
{
	struct op *o = container_of(j, struct op, job);
	struct exec *x = o->x;

	if (x->starting == o)
		x->dead = true;         /* the env is detached: what is started ends at once, and so nothing more is */
	op_stood_in(o);
	pump(x);
	maybe_quiet(x);
}

static void ended(struct op *o, const struct token_news *news, const struct err *e)
{
	struct exec *x = o->x;

	if (x->starting == o)
		x->dead = true;
	if (op_ended(o, news, e))
		work(o, copy_done);
	pump(x);
	maybe_quiet(x);
}

static void job_done(struct job *j)
{
	struct op *o = container_of(j, struct op, job);
	struct err e;
	bool failed = op_worked(o, &e) < 0;

	ended(o, NULL, failed ? &e : NULL);
}

static struct op *op_of(struct exec_wait *w)
{
	return container_of(w, struct op, wait);
}

void exec_loaded(struct exec_wait *w, struct batch *b, const struct err *e)
{
	op_loaded(op_of(w), b);
	ended(op_of(w), NULL, e);
}

void exec_done(struct exec_wait *w, const struct token_news *news, const struct err *e)
{
	ended(op_of(w), news, e);
}

/* A value of its own that was kept for the owner is not its owner's to give: the output is that block. */
void exec_done_with(struct exec_wait *w, void *p, struct lease *l)
{
	struct op *o = op_of(w);
	struct block *b = o->out[0];

	assert(b->lent && !b->p && p);
	b->p = p;
	list_each(it, &o->x->out) {
		const struct out *own = list_entry(it, struct out, link);

		if (&own->lease == l && own->block)
			b->of = own->block;
	}
	if (b->of)
		b->of->refs++;
	else
		b->lease = lease_take(l);
	ended(o, NULL, NULL);
}

/* --- launching */

/* 0: launched, 1: parked, -1: broken. */
static int launch(struct op *o)
{
	struct exec *x = o->x;
	struct err e;
	int rc = op_memory(o, &e);

	if (rc > 0)
		return 1;
	if (!rc && (o->run->passed || op_lacks(o))) {
		if (op_pass_over(o))
			work(o, copy_done);
		return 0;
	}
	if (rc < 0 || op_prepare(o, &e) < 0) {
		op_unstart(o);
		exec_break(x, &e);
		return -1;
	}
	list_del(&o->link);
	list_push(&x->ops, &o->link);
	o->begin_us = env_now(x->c.env);
	log_op(x, o, "start");
	if (o->i->kind == PLAN_COMMIT || o->i->kind == PLAN_DROP) {
		op_finish(o, NULL);
	} else if (o->is_job) {
		work(o, job_done);
	} else {
		op_ask(o);
	}
	return 0;
}

static void start(struct exec *x, struct token_run *r)
{
	struct op *o = xcalloc(1, sizeof(*o));

	op_init(o, x, r);
	op_blocks(o);
	work_count(o, true);
	list_push(&x->parked, &o->link);
	(void)launch(o);
}

static void stuck(struct exec *x)
{
	struct buf b = { 0 };
	struct err e;

	tokens_why(x->prog->tokens, &b);
	buf_u8(&b, 0);
	(void)err_set(&e, ERR_STATE, "plan %s: nothing runs and nothing can start: %.200s", x->prog->plan.strategy,
		(const char *)b.p);
	buf_free(&b);
	exec_break(x, &e);
}

static void pump(struct exec *x)
{
	struct token_run *r;

	if (x->pumping || x->held)
		return;
	x->pumping = true;
	while (!x->broken && !x->dying && !x->dead) {
		if (x->interrupted && x->prog && !x->over) {
			if (!ops_abandon(x))
				break;
			batches_back(x);
			x->over = true;
			x->v.cut_short++;
		}
		if (program_over(x)) {
			if (x->stopped)
				break;
			next_program(x);
			if (x->idle || x->broken)
				break;
			continue;
		}
		list_each_safe(it, &x->parked)
			if (!x->broken && !x->dead)
				(void)launch(list_entry(it, struct op, link));
		while (!x->broken && !x->dead && !x->interrupted && (r = tokens_start(x->prog->tokens)))
			start(x, r);
		if (!x->interrupted && !program_over(x)) {
			if (list_empty(&x->ops) && list_empty(&x->parked) && !x->dead && !x->broken)
				stuck(x);
			break;
		}
	}
	x->pumping = false;
}

/* --- the face */

/* Waits are cancelled, jobs run out. */
static void end(struct exec *x)
{
	(void)ops_unpark(x);
	list_each_safe(it, &x->ops) {
		struct op *o = list_entry(it, struct op, link);

		if (!o->is_job)
			op_abandon(o);
	}
	maybe_quiet(x);
}

static void kick(struct timer *t)
{
	struct exec *x = container_of(t, struct exec, kick);

	pump(x);
	if (x->dying && !x->lent)
		end(x);
	else
		maybe_quiet(x);
}

struct exec *exec_new(const struct exec_conf *conf, const struct exec_cb *cb, void *arg)
{
	struct exec *x = xcalloc(1, sizeof(*x));

	x->c = *conf;
	x->cb = *cb;
	x->arg = arg;
	x->stopped = true;
	x->kick = (struct timer){ .fire = kick, .name = "exec" };
	list_init(&x->ops);
	list_init(&x->parked);
	list_init(&x->abandoned);
	list_init(&x->bounds);
	list_init(&x->out);
	if (conf->folder)
		x->spill = spill_new(conf->env->files, conf->folder);
	return x;
}

void exec_wake(struct exec *x)
{
	x->stopped = false;
	env_after(x->c.env, &x->kick, 0);
}

static bool under_way(const struct exec *x)
{
	return x->prog && !x->over && !tokens_finished(x->prog->tokens);
}

void exec_interrupt(struct exec *x)
{
	if (under_way(x))
		x->interrupted = true;
	exec_wake(x);
}

void exec_stop(struct exec *x)
{
	x->stopped = true;
	if (under_way(x))
		x->interrupted = true;
	env_after(x->c.env, &x->kick, 0);
}

void exec_wind_down(struct exec *x)
{
	if (under_way(x))
		tokens_stop(x->prog->tokens);
}

void exec_hold(struct exec *x, bool hold)
{
	x->held = hold;
	if (hold)
		return;
	pump(x);
	maybe_quiet(x);
}

void exec_reset(struct exec *x)
{
	assert(exec_quiet(x));
	program_unref(x, x->prog);
	x->prog = NULL;
	x->interrupted = x->over = false;
	x->idle = true;
	x->nresults = 0;
	memset(x->used, 0, sizeof(x->used));
}

bool exec_quiet(const struct exec *x)
{
	return list_empty(&x->ops) && list_empty(&x->parked) && list_empty(&x->abandoned);
}

void exec_on_quiet(struct exec *x, void (*quiet)(void *arg), void *arg)
{
	x->quiet = quiet;
	x->quiet_arg = arg;
	env_after(x->c.env, &x->kick, 0);
}

void exec_free(struct exec *x, void (*gone)(void *arg), void *arg)
{
	x->dying = true;
	x->gone = gone;
	x->gone_arg = arg;
	x->quiet = NULL;
	if (!x->lent)
		end(x);
}

void exec_lend(struct exec *x) { x->lent++; }

void exec_returned(struct exec *x)
{
	if (!--x->lent && x->dying)
		end(x);
}

void exec_lost(struct exec *x, uint32_t rank)
{
	if (x->prog)
		tokens_lost(x->prog->tokens, rank);
	exec_interrupt(x);
}
