/* How instructions end: well (op_finish), passed over because something that they read has not come, abandoned with
 * their program, or failed; then the plan or the owner says what becomes of it. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "exec/int.h"

#define FEW 65536                               /* bytes that the loop copies at once */

void exec_break(struct exec *x, const struct err *e)
{
	if (x->broken || x->dying)
		return;
	x->broken = true;
	x->cb.broken(x->arg, e);
}

static void remember(struct exec *x, const char *name, double value)
{
	uint32_t k = 0;

	while (k < x->nresults && strcmp(x->result[k].name, name))
		k++;
	if (k == EXEC_RESULTS_MAX)
		return;
	if (k == x->nresults)
		x->nresults++;
	memcpy(x->result[k].name, name, strlen(name) + 1);
	x->result[k].value = value;
}

/* Scalars that a VEC has made or another peer has sent, a COMMIT's batch. */
static void tell(struct exec *x, struct op *o)
{
	const struct plan_instr *i = o->i;
	bool news = i->kind == PLAN_VEC || i->kind == PLAN_RECV;

	for (uint32_t k = 0; k < i->nout && news && o->out; k++) {
		const struct plan_buf *b = &o->prog->plan.buf[i->out[k].buf];

		if (b->class != PLAN_SCALAR || !o->out[k])
			continue;
		if (b->bytes == sizeof(double))
			remember(x, b->name, *(const double *)o->out[k]->p);
		if (x->cb.scalar)
			x->cb.scalar(x->arg, b->name, o->index, o->out[k]->p, b->bytes);
	}
	if (i->kind == PLAN_COMMIT && x->cb.commit)
		x->cb.commit(x->arg, i, o->index, o->in && i->nin && o->in[0] ? o->in[0]->batch : NULL);
}

void op_finish(struct op *o, const struct token_news *news)
{
	struct exec *x = o->x;

	list_del(&o->link);
	x->v.flops += cost_flops(&o->cost);
	o->news = news;
	log_op(x, o, "end");
	tell(x, o);
	work_count(o, false);
	tokens_end(x->prog->tokens, o->run, news);
	x->v.instructions++;
	op_free(o);
}

/* Abandoned, it still reads and writes until its job or its provider has ended. */
static void op_uses(struct op *o, int by)
{
	for (uint32_t k = 0; k < o->i->nin; k++)
		if (o->in && o->in[k])
			o->in[k]->reading += (uint32_t)by;
	for (uint32_t k = 0; k < o->i->nout; k++) {
		if (o->out && o->out[k])
			o->out[k]->writing += (uint32_t)by;
		if (o->from && o->from[k])
			o->from[k]->reading += (uint32_t)by;
	}
}

/* --- without what it was to bring or make */

/* Nobody is told of what it makes. */
static void leave(struct op *o, const char *how)
{
	static const struct token_news nothing = { .version = -1, .missing = true };
	struct exec *x = o->x;

	list_del(&o->link);
	log_op(x, o, how);
	work_count(o, false);
	tokens_end(x->prog->tokens, o->run, &nothing);
	op_free(o);
}

/* An abandoned one: its memory is free now. */
static void unheard(struct op *o)
{
	struct exec *x = o->x;
	struct program *prog = o->prog;

	op_uses(o, -1);
	list_del(&o->link);
	op_free(o);
	program_unref(x, prog);
}

static void copy_run(struct job *j)
{
	struct op *o = container_of(j, struct op, job);

	for (uint32_t k = 0; k < o->i->nout && !o->rc; k++)
		if (o->from[k])
			o->rc = block_copy(o, o->out[k], o->from[k], o->prog->plan.buf[o->i->out[k].buf].bytes, &o->io);
}

static void copied(struct op *o)
{
	for (uint32_t k = 0; k < o->i->nout && !o->rc; k++)
		if (o->from[k])
			block_copied(o->out[k], o->from[k]);
}

static enum exec_outcome outcome(struct op *o, const struct err *e)
{
	struct exec *x = o->x;
	bool without = plan_leaves(o->i->kind) && o->i->on_missing != PLAN_FAIL;
	enum exec_outcome meant = without ? EXEC_WITHOUT : EXEC_REPLAN, said = without ? EXEC_WITHOUT : EXEC_BREAK;

	x->v.failed++;
	if (x->cb.failed && !x->dying)
		said = x->cb.failed(x->arg, &o->prog->plan, o->i, meant, e);
	return said == EXEC_WITHOUT ? meant : said;
}

/* Nothing more comes of it; wherever it was, it is among those that the interrupt abandons. */
static void wait_for_interrupt(struct op *o)
{
	list_del(&o->link);
	list_push(&o->x->ops, &o->link);
	o->failed = true;
	o->is_job = false;
	log_op(o->x, o, "failed");
}

/* What was to stand for its outputs could not be copied: as if the program had been abandoned here. */
static void not_copied(struct op *o)
{
	struct exec *x = o->x;
	struct err e = o->io;
	enum exec_outcome said = outcome(o, &e);

	if (said == EXEC_LATER) {
		wait_for_interrupt(o);
		return;
	}
	list_del(&o->link);
	log_op(x, o, "failed");
	work_count(o, false);
	tokens_abandon(x->prog->tokens, o->run, true);
	op_free(o);
	if (said == EXEC_BREAK)
		exec_break(x, &e);
	x->interrupted = true;
}

static void copy_done(struct job *j)
{
	struct op *o = container_of(j, struct op, job);
	struct exec *x = o->x;

	if (x->starting == o)
		x->dead = true;
	copied(o);
	if (!o->run)
		unheard(o);
	else if (o->rc < 0)
		not_copied(o);
	else
		leave(o, o->how);
	exec_pump(x);
	exec_maybe_quiet(x);
}

/* Bytes of what is to be copied to stand for its outputs; ret_file: from a file to a file. */
static size_t stand_ins(struct op *o, bool *ret_file)
{
	const struct token_bind *s = o->run->stands;
	size_t bytes = 0;

	for (uint32_t k = 0; s && k < o->i->nout; k++) {
		struct block *b = s[k].slot == PLAN_NONE ? NULL : block_at(o->prog, &s[k]);

		if (!b || (!b->p && !b->filed) || b == o->out[k])
			continue;
		*ret_file = *ret_file || b->filed;
		o->from[k] = b;
		b->refs++;
		bytes += o->prog->plan.buf[o->i->out[k].buf].bytes;
	}
	return bytes;
}

static void without(struct op *o, const char *how)
{
	struct exec *x = o->x;
	bool file = false;
	size_t bytes;

	if (!o->run->passed)
		(void)tokens_stand(x->prog->tokens, o->run);
	o->from = xcalloc(o->i->nout + 1, sizeof(*o->from));
	bytes = stand_ins(o, &file);
	o->spill = x->spill;
	o->fd = file ? spill_fd(x->spill) : -1;
	if (bytes <= FEW && !file) {
		o->job.run = copy_run;
		copy_run(&o->job);
		leave(o, how);
		return;
	}
	list_del(&o->link);
	list_push(&x->ops, &o->link);
	o->how = how;
	o->is_job = true;
	o->job = (struct job){ .name = "stand-in", .lane = env_lane(x->c.env, file ? "disk" : "reduce"),
		.run = copy_run,
		.done = copy_done, .cost_us = bytes / 2000 };
	x->starting = o;
	env_work(x->c.env, &o->job);
	x->starting = NULL;
}

/* --- failing */

static void fail(struct op *o, const struct err *e)
{
	struct exec *x = o->x;
	enum exec_outcome said = outcome(o, e);

	if (said == EXEC_LATER) {
		wait_for_interrupt(o);
		return;
	}
	if (said == EXEC_WITHOUT)
		without(o, "without");
	else
		leave(o, "failed");
	if (said == EXEC_BREAK)
		exec_break(x, e);
	else if (said == EXEC_REPLAN)
		x->interrupted = true;
}

/* Others wait for what it says, and it has nothing to say: that fails, unless the plan does without. */
void op_pass_over(struct op *o)
{
	const struct plan_instr *i = o->i;
	const char *what = "";
	struct err e;

	if (!plan_leaves(i->kind) || i->on_missing != PLAN_FAIL) {
		o->x->v.passed++;
		without(o, "passed");
		return;
	}
	for (uint32_t k = 0; k < i->nin; k++)
		if (o->run->in[k].missing)
			what = o->prog->plan.buf[i->in[k].buf].name;
	(void)err_set(&e, ERR_NOT_FOUND, "plan %s: %s of index %lld has to send %s, which has not come",
		o->prog->plan.strategy, plan_kind_name(i->kind), (long long)o->index, what);
	fail(o, &e);
}

void op_ended(struct op *o, const struct token_news *news, const struct err *e)
{
	struct exec *x = o->x;

	if (x->starting == o)
		x->dead = true;         /* the env is detached: what is started ends at once, and so nothing more is */
	op_took(o);
	if (!o->run)
		unheard(o);
	else if (e)
		fail(o, e);
	else
		op_finish(o, news);
	exec_pump(x);
	exec_maybe_quiet(x);
}

/* --- abandoning */

void op_abandon(struct op *o)
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

void op_unstart(struct op *o)
{
	list_del(&o->link);
	work_count(o, false);
	tokens_abandon(o->prog->tokens, o->run, false);
	op_free(o);
}

/* They have not begun: they leave at once. */
bool ops_unpark(struct exec *x)
{
	bool bound = false;

	list_each_safe(it, &x->parked) {
		struct op *o = list_entry(it, struct op, link);

		bound = bound || op_counts(o);
		op_unstart(o);
	}
	return bound;
}

bool ops_abandon(struct exec *x)
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
