/* What runs in lanes: FWD and BWD on pieces of the model, VEC functions (MOVE and SAVE: move.c). A job sees its op
 * only: pointers, sizes, and copies of what the owner lets VEC functions know. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/planted.h"
#include "exec/batch.h"
#include "exec/int.h"

int op_worked(struct op *o, struct err *e)
{
	bool moves = plan_moves(o->i->kind);

	if (moves && o->x->c.model)
		move_done(o);
	if (o->rc >= 0)
		return 0;
	if (!moves)
		return err_set(e, ERR_INTERNAL, "%s %s: %s", plan_kind_name(o->i->kind), o->i->fn, o->kerr.text);
	*e = o->io;
	return -1;
}

static void run_nothing(struct job *j)
{
}

/* --- operands */

static const struct plan_buf *buf_of(const struct op *o, const struct plan_ref *r)
{
	return &o->prog->plan.buf[r->buf];
}

/* Memory of a flat vector as if all of it were there: a buffer may hold the elements from its first extent on only. */
static real *flat(const struct plan_buf *b, struct block *k)
{
	uint64_t lo = b->nextents && b->extent[0].kind == PLAN_FLAT ? b->extent[0].lo : 0;

	return k && k->p ? (real *)((uintptr_t)k->p - lo * sizeof(real)) : NULL;
}

/* The operand of a class; what FWD keeps for BWD is told from other activations by its role. */
static struct block *input(const struct op *o, bool saved, enum plan_class class, const struct plan_buf **ret_buf)
{
	for (uint32_t k = 0; k < o->i->nin; k++)
		if ((o->i->in[k].role == PLAN_AS_SAVED) == saved && (saved || buf_of(o, &o->i->in[k])->class == class)) {
			*ret_buf = buf_of(o, &o->i->in[k]);
			return o->in[k];
		}
	return NULL;
}

/* The second operand of a class, where a vector is cut in two: how many elements it begins with, and where. */
static real *head_of(const struct op *o, const struct plan_ref *v, uint32_t n, struct block *const *at,
	enum plan_class class, size_t *ret_n)
{
	uint32_t seen = 0;

	*ret_n = 0;
	for (uint32_t k = 0; k < n; k++) {
		const struct plan_buf *b = buf_of(o, &v[k]);

		if (b->class != class || !seen++)
			continue;
		*ret_n = b->nextents ? (size_t)b->extent[0].hi : 0;
		return flat(b, at[k]);
	}
	return NULL;
}

static struct block *output(const struct op *o, bool saved, enum plan_class class, uint32_t *ret_k)
{
	for (uint32_t k = 0; k < o->i->nout; k++)
		if ((o->i->out[k].role == PLAN_AS_SAVED) == saved && (saved || buf_of(o, &o->i->out[k])->class == class)) {
			*ret_k = k;
			return o->out[k];
		}
	return NULL;
}

/* --- FWD, BWD */

static bool evaluates(const struct op *o)
{
	return o->x->c.eval || !strcmp(o->i->variant, "eval");
}

struct pass {                           /* resolved operands, on the stack of the job */
	int a, b;
	struct model_call call;
	const real *x, *dy;
	real *y, *dx, *grad;
	void *keep;
};

static int piece_of(const struct op *o, int *ret_a, int *ret_b)
{
	const struct plan_instr *i = o->i;

	if (!i->npiece)
		return -1;
	*ret_a = (int)i->piece[0].a;
	*ret_b = (int)i->piece[0].b + 1;
	for (uint32_t k = 1; k < i->npiece; k++) {
		if ((int)i->piece[k].a != *ret_b)
			return -1;
		*ret_b = (int)i->piece[k].b + 1;
	}
	return *ret_b > o->model->nops ? -1 : 0;
}

/* Running statistics behind the weights of a part, as if those of the whole model were there: what a FWD that evaluates
 * reads, whatever micro-batches have moved meanwhile. */
static real *buffers_of(const struct op *o)
{
	const struct plan_buf *b = NULL;
	struct block *w = input(o, false, PLAN_WEIGHT, &b);
	const struct plan_extent *x = w && b->nextents > 1 ? b->extent : NULL;

	if (!o->eval || o->x->c.eval || !x || x[0].kind != PLAN_FLAT || x[1].kind != PLAN_FLAT || !w->p)
		return o->x->c.buffers;
	return (real *)((uintptr_t)w->p + (x[0].hi - x[0].lo) * sizeof(real) -
		(x[1].lo - o->model->nparam) * sizeof(real));
}

static void pass_of(const struct op *o, struct pass *p)
{
	const struct plan_buf *b = NULL;
	struct block *batch = input(o, false, PLAN_BATCH, &b), *x = input(o, false, PLAN_ACTIVATION, &b);
	struct block *w, *saved;
	uint32_t k;
	size_t n;

	*p = (struct pass){ .call = { .batch = o->batch, .train = !o->eval,
		.replay = o->i->replay && !PLANTED(REPLAY_AFRESH), .work = o->work, .buffer = o->buffers, .key = o->key } };
	if (o->i->replay && PLANTED(REPLAY_CHANCE))
		p->call.key++;
	(void)piece_of(o, &p->a, &p->b);
	p->x = x ? x->p : batch && batch->batch ? batch->batch->x : NULL;
	w = input(o, false, PLAN_WEIGHT, &b);
	p->call.param = w ? flat(b, w) : NULL;
	p->call.apart = w && b->nextents;
	p->call.head.param = head_of(o, o->i->in, o->i->nin, o->in, PLAN_WEIGHT, &p->call.head.n);
	if (o->i->kind == PLAN_FWD) {
		struct block *y = output(o, false, PLAN_ACTIVATION, &k);

		p->y = y ? y->p : NULL;
		saved = output(o, true, PLAN_ACTIVATION, &k);
		p->call.saved = saved && o->i->keep == PLAN_KEEP_ALL ? saved->p : NULL;
		p->keep = saved && o->i->keep == PLAN_KEEP_INPUT ? saved->p : NULL;
		return;
	}
	saved = input(o, true, PLAN_ACTIVATION, &b);
	p->call.saved = saved ? saved->p : NULL;
	w = input(o, false, PLAN_ACTIVATION_GRAD, &b);
	p->dy = w ? w->p : NULL;
	w = output(o, false, PLAN_ACTIVATION_GRAD, &k);
	p->dx = w ? w->p : NULL;
	w = output(o, false, PLAN_WEIGHT_GRAD, &k);
	p->grad = w ? flat(buf_of(o, &o->i->out[k]), w) : NULL;
	p->call.head.grad = head_of(o, o->i->out, o->i->nout, o->out, PLAN_WEIGHT_GRAD, &n);
}

static void run_fwd(struct op *o)
{
	struct pass p;

	pass_of(o, &p);
	p.call.count = &o->cost;
	p.call.ns = o->ns;
	if (p.keep)
		memcpy(p.keep, p.x, o->x_bytes);
	model_forward(&o->par, o->model, p.a, p.b, &p.call, p.x, p.y);
}

static bool starts_blank(const struct op *o, uint32_t k)
{
	return !PLANTED(STALE_GRADIENT) && (!o->i->out[k].add || o->args[k].blank);
}

/* Has an op of the piece before op i the same parameters? */
static bool used_before(const struct model *m, const struct pass *p, int i)
{
	for (int j = p->a; m->node[i].owner != i && j < i; j++)
		if (m->node[j].owner == m->node[i].owner)
			return true;
	return false;
}

/* Where others have other parts of the parameters: does no op of the piece have anything for some elements of a part of
 * the gradient? */
static bool leaves_some(const struct model *m, const struct pass *p, const struct plan_buf *b)
{
	const struct plan_extent *x = p->call.apart && b->nextents ? b->extent : NULL;
	uint64_t made = 0;

	for (int i = p->a; x && i < p->b; i++)
		if (m->node[i].param >= x->lo && m->node[i].param < x->hi && !used_before(m, p, i))
			made += m->op[i].nparam;
	return x && made < x->hi - x->lo;
}

static void run_bwd(struct op *o)
{
	const struct model *m = o->model;
	struct pass p;

	pass_of(o, &p);
	p.call.count = &o->cost;
	p.call.ns = o->ns;
	for (uint32_t k = 0; k < o->i->nout && p.grad; k++) {
		if (buf_of(o, &o->i->out[k])->class != PLAN_WEIGHT_GRAD || !starts_blank(o, k))
			continue;
		if (o->i->out[k].add || leaves_some(m, &p, buf_of(o, &o->i->out[k])))   /* others add theirs beside it */
			memset(o->out[k]->p, 0, buf_of(o, &o->i->out[k])->bytes);
		p.call.fresh = true;
	}
	model_backward(&o->par, m, p.a, p.b, &p.call, p.x, p.dy, p.dx, p.grad);
}

/* Do elements lo to hi - 1 of the flat vector lie in an operand of a class? Of one that says no extent all do. A head
 * begins with the first element. */
static bool lies_in(const struct op *o, const struct plan_ref *v, uint32_t n, enum plan_class class, size_t lo,
	size_t hi)
{
	uint32_t seen = 0;

	for (uint32_t k = 0; k < n; k++) {
		const struct plan_buf *b = buf_of(o, &v[k]);
		uint64_t from = b->nextents && b->extent[0].kind == PLAN_FLAT ? b->extent[0].lo : 0;
		uint64_t to = b->nextents && b->extent[0].kind == PLAN_FLAT ? b->extent[0].hi : o->model->nparam;

		if (b->class != class || (seen++ && from))
			continue;
		if (lo >= from && hi <= to && (hi - from) * sizeof(real) <= b->bytes)
			return true;
	}
	return false;
}

/* Parameters that the ops of a piece use, whoever holds them, and their gradients. */
static bool has_all(const struct op *o, const struct pass *p)
{
	for (int i = p->a; i < p->b; i++) {
		size_t lo = o->model->node[i].param, hi = lo + o->model->op[i].nparam;

		if (hi > lo && (!lies_in(o, o->i->in, o->i->nin, PLAN_WEIGHT, lo, hi) ||
		    (p->grad && !lies_in(o, o->i->out, o->i->nout, PLAN_WEIGHT_GRAD, lo, hi))))
			return false;
	}
	return true;
}

static bool uses_weights(const struct model *m, const struct pass *p)
{
	for (int i = p->a; i < p->b; i++)
		if (m->op[i].nparam)
			return true;
	return false;
}

/* Every size is compared with what the kernels need: a planner's mistake must not become a write past the end. */
static int check_pass(struct op *o, struct err *e)
{
	const struct plan_instr *i = o->i;
	const struct model *m = o->model;
	bool fwd = i->kind == PLAN_FWD;
	struct pass p;
	size_t work;
	uint32_t k;

	pass_of(o, &p);
	if (piece_of(o, &p.a, &p.b) < 0)
		return err_set(e, ERR_INVALID, "plan %s: %s has no piece of this model (%d ops)", o->prog->plan.strategy,
			plan_kind_name(i->kind), m->nops);
	const struct model_need need = *exec_need(o->x, m, p.a, p.b, o->batch, o->par.n);
	o->x_bytes = need.x;
	work = !fwd ? need.work_bwd : p.call.saved ? need.work_fwd : need.work_eval;
	if (!p.x || (fwd ? !p.y : !p.dy) || (uses_weights(m, &p) && !p.call.param))
		return err_set(e, ERR_INVALID, "plan %s: %s %d..%d lacks an operand (input, weights, %s)",
		o->prog->plan.strategy,
			plan_kind_name(i->kind), p.a, p.b - 1, fwd ? "output" : "gradient of the output");
	if (!has_all(o, &p))
		return err_set(e, ERR_INVALID, "plan %s: %s %d..%d %s", o->prog->plan.strategy, plan_kind_name(i->kind), p.a,
			p.b - 1, model_closed(m, p.a, p.b) ? "uses parameters that lie in none of its operands" :
			"shares parameters with ops outside of it");
	if (i->work_bytes < work)
		return err_set(e, ERR_INVALID, "plan %s: %s %d..%d has %llu bytes of scratch and needs %zu",
			o->prog->plan.strategy, plan_kind_name(i->kind), p.a, p.b - 1, (unsigned long long)i->work_bytes, work);
	for (k = 0; k < i->nout; k++) {
		const struct plan_buf *b = buf_of(o, &i->out[k]);
		size_t want = i->out[k].role == PLAN_AS_SAVED ? (i->keep == PLAN_KEEP_ALL ? need.saved : need.x) :
			b->class == PLAN_ACTIVATION ? need.y : b->class == PLAN_ACTIVATION_GRAD ? need.x : 0;

		if (b->bytes < want)
			return err_set(e, ERR_INVALID, "plan %s: %s has %llu bytes and needs %zu", o->prog->plan.strategy, b->name,
				(unsigned long long)b->bytes, want);
	}
	return 0;
}

/* The batch that it reads, else the one with this index that is still there; NULL. */
static const struct batch *batch_of(const struct op *o)
{
	const struct program *p = o->prog;

	for (uint32_t k = 0; k < o->i->nin; k++)
		if (o->in[k] && o->in[k]->batch)
			return o->in[k]->batch;
	for (uint32_t i = 0; i < p->plan.nbufs; i++) {
		uint32_t slot = p->plan.buf[i].class == PLAN_BATCH ? tokens_find(p->tokens, o->stream, i, o->index) : PLAN_NONE;
		struct block *b = slot == PLAN_NONE ? NULL :
			block_at(o->prog, &(struct token_bind){ .buf = i, .slot = slot, .stream = o->stream });

		if (b && b->batch)
			return b->batch;
	}
	return NULL;
}

static void run_timed(struct job *j)
{
	struct op *o = container_of(j, struct op, job);
	uint64_t from = o->par.now_ns ? o->par.now_ns() : 0;

	o->work_of(o);
	o->ran_ns = o->par.now_ns ? o->par.now_ns() - from : 0;
}

static int prepare_pass(struct op *o, struct err *e)
{
	const struct batch *b = batch_of(o);

	o->model = o->x->c.model;
	o->eval = evaluates(o);
	o->buffers = buffers_of(o);
	o->batch = b ? b->n : 0;
	o->key = b && b->n ? rand_key(o->x->c.seed, b->position[0]) : 0;
	o->args = xcalloc(o->i->nout + 1, sizeof(*o->args));
	for (uint32_t k = 0; k < o->i->nout; k++)
		o->args[k].blank = o->run->out[k].blank;
	if (!o->batch)
		return err_set(e, ERR_INVALID, "plan %s: %s has no batch", o->prog->plan.strategy,
			plan_kind_name(o->i->kind));
	o->work_of = o->i->kind == PLAN_FWD ? run_fwd : run_bwd;
	o->job.run = run_timed;
	if (check_pass(o, e) < 0)
		return -1;
	if (o->par.now_ns && !o->eval) {
		struct pass p;

		pass_of(o, &p);
		o->nns = p.b - p.a;
		o->ns = xcalloc((size_t)o->nns, sizeof(*o->ns));
	}
	return 0;
}

/* --- VEC */

static void run_vec(struct op *o)
{
	o->rc = vec_find(o->i->fn)->run(&o->call);
}

static struct vec_arg arg_of(const struct op *o, const struct plan_ref *r, const struct block *b)
{
	const struct plan_buf *buf = buf_of(o, r);
	const struct plan_extent *x = buf->nextents && buf->extent[0].kind == PLAN_FLAT ? &buf->extent[0] : NULL;

	return (struct vec_arg){ .p = b ? b->p : NULL, .bytes = buf->bytes, .class = buf->class, .add = r->add,
		.batch = b ? b->batch : NULL, .part = x != NULL, .lo = x ? x->lo : 0, .hi = x ? x->hi : 0,
		.lent = b && b->lent };
}

bool op_lacks(const struct op *o)
{
	const struct vec_ops *ops = o->i->kind == PLAN_VEC ? vec_find(o->i->fn) : NULL;

	for (uint32_t k = 0; k < o->i->nin && ops; k++)
		if (o->run->in[k].missing && (k >= 32 || !(ops->without >> k & 1)))
			return true;
	return false;
}

static int prepare_vec(struct op *o, struct err *e)
{
	const struct plan_instr *i = o->i;
	const struct vec_ops *ops = vec_find(i->fn);

	if (!ops)
		return err_set(e, ERR_INVALID, "plan %s: unknown function of VEC \"%s\"", o->prog->plan.strategy, i->fn);
	if (i->nin < ops->nin || i->nout < ops->nout)
		return err_set(e, ERR_INVALID, "plan %s: VEC %s has %u inputs and %u outputs, and needs %u and %u",
			o->prog->plan.strategy, i->fn, i->nin, i->nout, ops->nin, ops->nout);
	o->args = xcalloc(i->nin + i->nout + 1, sizeof(*o->args));
	for (uint32_t k = 0; k < i->nin; k++)
		o->args[k] = arg_of(o, &i->in[k], o->in[k]);
	for (uint32_t k = 0; k < i->nout; k++) {
		o->args[i->nin + k] = arg_of(o, &i->out[k], o->out[k]);
		o->args[i->nin + k].blank = o->run->out[k].blank;
	}
	o->call = (struct vec_call){ .par = &o->par, .scale = i->scale, .nin = i->nin, .nout = i->nout, .in = o->args,
		.out = o->args + i->nin, .e = &o->kerr };
	if (o->x->cb.env)
		o->x->cb.env(o->x->arg, &o->call.env);
	o->call.env.model = o->x->c.model;
	o->call.env.eval = evaluates(o);
	o->work_of = run_vec;
	o->job.run = run_timed;
	if (o->par.now_ns && op_is_brief(o)) {  /* to a lane and back takes longer */
		o->par.n = 1;                   /* the team is the lane's */
		o->par.run = NULL;
		o->job.here = true;
		o->x->v.brief++;
	}
	return 0;
}

/* As the predictor has it: functions by the bytes they make, or read when they make none. */
static uint64_t fn_us(const struct profile *m, const char *name, uint64_t bytes)
{
	for (uint32_t f = 0; f < m->nfns; f++)
		if (!strcmp(m->fn[f].name, name))
			return m->fn[f].us + (uint64_t)(m->fn[f].us_per_byte * (double)bytes);
	return 0;
}

static uint64_t cost(const struct op *o)
{
	const struct exec_conf *c = &o->x->c;
	const struct plan_instr *i = o->i;
	uint64_t us, bytes = 0;

	if (c->cost_us)
		return c->cost_us(o->x->arg, &o->prog->plan, o->run);
	if (!c->profile)
		return 0;
	for (uint32_t k = 0; k < (i->nout ? i->nout : i->nin); k++)
		bytes += buf_of(o, i->nout ? &i->out[k] : &i->in[k])->bytes;
	us = i->kind == PLAN_FWD ? profile_fwd_us(c->profile, i) : i->kind == PLAN_BWD ? profile_bwd_us(c->profile, i) :
		fn_us(c->profile, i->kind == PLAN_VEC ? i->fn : plan_kind_name(i->kind), bytes);
	return c->speed > 0 ? (uint64_t)((double)us / c->speed + 0.5) : us;
}

static int lane_of(struct exec *x, const char *name)
{
	int lane = env_lane(x->c.env, name);

	return lane < 0 && !strcmp(name, "copy") ? env_lane(x->c.env, "copy-in") : lane;
}

int op_prepare(struct op *o, struct err *e)
{
	struct exec *x = o->x;
	const struct plan_instr *i = o->i;
	const char *lane = o->prog->plan.lane[i->lane].name;
	bool moves = plan_moves(i->kind);

	if (i->kind != PLAN_FWD && i->kind != PLAN_BWD && i->kind != PLAN_VEC && !moves)
		return 0;
	o->is_job = true;
	o->job = (struct job){ .name = plan_kind_name(i->kind), .lane = lane_of(x, lane), .run = run_nothing,
		.cost_us = cost(o) };
	if (o->job.lane < 0)
		return err_set(e, ERR_INVALID, "plan %s: lane \"%s\" is not there", o->prog->plan.strategy, lane);
	o->trains = !strcmp(lane, "train");
	o->par = o->trains && x->c.par ? *x->c.par : par_serial(x->c.par ? x->c.par->cpu : CPU_PLAIN,
		x->c.par ? x->c.par->blas : NULL);
	o->par.now_ns = x->c.par ? x->c.par->now_ns : NULL;
	if (!x->c.model)
		return 0;
	if (i->kind == PLAN_VEC)
		return prepare_vec(o, e);
	if (moves) {
		move_prepare(o);
		return 0;
	}
	return prepare_pass(o, e);
}
