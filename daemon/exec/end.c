/* How instructions end: well (op_finish), passed over because something that they read has not come, or failed; then
 * the plan or the owner says what becomes of it. Nothing is started here: whoever calls does that (exec.c). */
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

void op_stood_in(struct op *o)
{
	copied(o);
	if (!o->run)
		unheard(o);
	else if (o->rc < 0)
		not_copied(o);
	else
		leave(o, o->how);
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

/* As op_pass_over. */
static bool without(struct op *o, const char *how)
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
		return false;
	}
	list_del(&o->link);
	list_push(&x->ops, &o->link);
	o->how = how;
	o->is_job = true;
	o->job = (struct job){ .name = "stand-in", .lane = env_lane(x->c.env, file ? "disk" : "reduce"),
		.run = copy_run, .cost_us = bytes / 2000 };
	return true;
}

/* --- failing */

/* As op_pass_over. */
static bool fail(struct op *o, const struct err *e)
{
	struct exec *x = o->x;
	enum exec_outcome said = outcome(o, e);

	if (said == EXEC_LATER) {
		wait_for_interrupt(o);
		return false;
	}
	if (said == EXEC_WITHOUT)
		return without(o, "without");
	leave(o, "failed");
	if (said == EXEC_BREAK)
		exec_break(x, e);
	else if (said == EXEC_REPLAN)
		x->interrupted = true;
	return false;
}

/* Others wait for what it says, and it has nothing to say: that fails, unless the plan does without. */
bool op_pass_over(struct op *o)
{
	const struct plan_instr *i = o->i;
	const char *what = "";
	struct err e;

	if (!plan_leaves(i->kind) || i->on_missing != PLAN_FAIL) {
		o->x->v.passed++;
		return without(o, "passed");
	}
	for (uint32_t k = 0; k < i->nin; k++)
		if (o->run->in[k].missing)
			what = o->prog->plan.buf[i->in[k].buf].name;
	(void)err_set(&e, ERR_NOT_FOUND, "plan %s: %s of index %lld has to send %s, which has not come",
		o->prog->plan.strategy, plan_kind_name(i->kind), (long long)o->index, what);
	return fail(o, &e);
}

bool op_ended(struct op *o, const struct token_news *news, const struct err *e)
{
	op_took(o);
	if (!o->run)
		unheard(o);
	else if (e)
		return fail(o, e);
	else
		op_finish(o, news);
	return false;
}
