/* Memory of values. A slot of a ring gets its block when something is first written there and loses it when the
 * tokens say so; jobs that were abandoned keep theirs. What is handed out is counted to the byte as the plan states
 * it (instrument T5), so that it can be held against the predictor. Without a model nothing is allocated but
 * scalars, and all is counted. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "train/exec_int.h"

static size_t bytes_of(const struct plan_buf *b)
{
	return b->journal ? 2 * b->bytes : b->bytes;
}

static void count(struct exec *x, const struct plan_buf *b, bool taken)
{
	if (b->tier)
		return;
	x->used = taken ? x->used + bytes_of(b) : x->used - bytes_of(b);
	if (x->used > x->peak)
		x->peak = x->used;
}

void block_unref(struct exec *x, struct block *b)
{
	if (!b || --b->refs)
		return;
	if (b->batch)
		x->c.ops->unload(x->c.ops_arg, b->batch);
	if (!b->bound)
		big_free(b->p, b->bytes);
	free(b);
}

static struct block **cell(struct program *p, uint32_t stream, uint32_t buf, uint32_t slot)
{
	const struct plan_buf *b = &p->plan.buf[buf];

	return &p->block[p->base[buf] + (b->shared ? 0 : stream) * plan_depth(b) + slot];
}

struct block *block_at(struct program *p, const struct token_bind *b)
{
	return b->slot == PLAN_NONE ? NULL : *cell(p, b->stream, b->buf, b->slot);
}

/* The tokens' hook: bytes are counted when they say so; memory comes later, with the first writer. */
static void memory(void *arg, uint32_t stream, uint32_t buf, uint32_t slot, bool taken)
{
	struct exec *x = arg;
	struct program *p = x->prog;
	struct block **at;

	at = cell(p, stream, buf, slot);
	count(x, &p->plan.buf[buf], taken);
	if (taken || !*at || (*at)->bound)
		return;
	block_unref(x, *at);
	*at = NULL;
}

/* The owner's hooks, behind ours. */
static void miss(void *arg, struct tokens *t, struct token_run *waits, uint32_t input)
{
	const struct token_hooks *h = ((struct exec *)arg)->c.hooks;

	h->miss(h->arg, t, waits, input);
}

static void pressure(void *arg, struct tokens *t, struct token_run *waits, uint32_t tier, uint64_t bytes)
{
	const struct token_hooks *h = ((struct exec *)arg)->c.hooks;

	h->pressure(h->arg, t, waits, tier, bytes);
}

static void lost(void *arg, struct tokens *t, uint32_t rank)
{
	const struct token_hooks *h = ((struct exec *)arg)->c.hooks;

	h->lost(h->arg, t, rank);
}

static const struct bound *bound_find(const struct exec *x, const char *name)
{
	list_each(it, &x->bounds) {
		const struct bound *b = list_entry(it, struct bound, link);

		if (!strcmp(b->name, name))
			return b;
	}
	return NULL;
}

void exec_bind(struct exec *x, const char *buffer, void *p, size_t bytes)
{
	struct bound *b = xcalloc(1, sizeof(*b));

	assert(!x->prog && strlen(buffer) < sizeof(b->name) && !bound_find(x, buffer));
	memcpy(b->name, buffer, strlen(buffer) + 1);
	b->p = p;
	b->bytes = bytes;
	list_push(&x->bounds, &b->link);
}

void exec_lend(struct exec *x, const char *buffer, void **p, size_t bytes)
{
	struct bound *b;

	exec_bind(x, buffer, *p, bytes);
	b = list_entry(x->bounds.prev, struct bound, link);
	b->lent = p;
}

/* Every operand that has the same memory sees the same block, so that exchanging pointers exchanges the values. */
static const struct bound *lent(const struct exec *x, const struct op *o)
{
	const struct bound *own = bound_find(x, o->prog->plan.buf[o->i->out[0].buf].name);

	return own && own->lent && o->out[0]->bound && o->out[0]->p == own->p ? own : NULL;
}

bool block_may_trade(const struct op *o)
{
	const struct plan *p = &o->prog->plan;
	const struct plan_instr *i = o->i;
	uint32_t readers = 0;

	if (!i->nin || !i->nout || o->own || !o->in[0] || !o->out[0] || o->in[0] == o->out[0] || o->in[0]->bound ||
	    !o->in[0]->p || o->in[0]->bytes != o->out[0]->bytes || o->in[0]->reading || o->in[0]->writing ||
	    o->out[0]->reading || o->out[0]->writing || !lent(o->x, o))
		return false;
	for (uint32_t k = 0; k < p->ninstrs; k++)
		for (uint32_t j = 0; j < p->instr[k].nin; j++)
			readers += p->instr[k].in[j].buf == i->in[0].buf;
	return readers == 1 && !p->buf[i->in[0].buf].journal && !p->buf[i->out[0].buf].journal;
}

void op_settle(struct op *o)
{
	struct bound *own;
	void *p;

	o->x->v.flops += cost_flops(&o->cost);
	if (o->i->kind != PLAN_VEC || !o->call.trade)
		return;
	own = (struct bound *)lent(o->x, o);
	p = o->in[0]->p;
	assert(own && block_may_trade(o));
	o->in[0]->p = o->out[0]->p;
	o->out[0]->p = own->p = *own->lent = p;
}

static struct block *block_new(void *p, size_t bytes, bool bound)
{
	struct block *b = xcalloc(1, sizeof(*b));

	*b = (struct block){ .refs = 1, .p = p, .bytes = bytes, .bound = bound };
	return b;
}

static bool dry(const struct exec *x, const struct plan_buf *b)
{
	return !x->c.model && b->class != PLAN_SCALAR;
}

static struct block *block_make(struct exec *x, const struct plan_buf *b, struct err *e)
{
	size_t bytes = bytes_of(b);
	void *p = NULL;

	if (b->class != PLAN_BATCH && !dry(x, b)) {
		p = big_alloc(bytes ? bytes : 1);
		if (!p) {
			(void)err_set(e, ERR_NOMEM, "no memory for %zu bytes of %s", bytes, b->name);
			return NULL;
		}
	}
	return block_new(p, p ? (bytes ? bytes : 1) : 0, false);
}

/* Blocks of the program before whose buffers live on. The others go. */
static void carry(struct exec *x, struct program *p, struct program *before)
{
	for (uint32_t i = 0; before && i < before->plan.nbufs; i++) {
		const struct plan_buf *o = &before->plan.buf[i];
		uint32_t n = plan_find(&p->plan, o->name);
		const struct plan_buf *b = n == PLAN_NONE ? NULL : &p->plan.buf[n];
		bool same = b && b->bytes == o->bytes && plan_depth(b) == plan_depth(o) && b->shared == o->shared;

		for (uint32_t s = 0; s < (before->plan.streams && !o->shared ? before->plan.streams : 1); s++)
			for (uint32_t k = 0; k < plan_depth(o); k++) {
				struct block **from = cell(before, s, i, k);

				if (!*from)
					continue;
				if (same && (s == 0 || s < p->plan.streams) && tokens_slot(p->tokens, s, n, k)->bytes &&
				    !*cell(p, s, n, k)) {
					*cell(p, s, n, k) = *from;
				} else {
					block_unref(x, *from);
				}
				*from = NULL;
			}
	}
}

static void bind_all(struct exec *x, struct program *p)
{
	struct err e;

	for (uint32_t i = 0; i < p->plan.nbufs; i++) {
		const struct plan_buf *b = &p->plan.buf[i];
		const struct bound *own = bound_find(x, b->name);
		struct block **at = cell(p, 0, i, 0);

		if (own) {
			assert(plan_depth(b) == 1 && own->bytes >= b->bytes);
			if (!*at)
				*at = block_new(own->p, own->bytes, true);
		} else if (b->initial && !*at) {
			*at = block_make(x, b, &e);
		}
	}
}

struct program *program_new(struct exec *x, struct plan *stolen, struct program *before)
{
	struct program *p = xcalloc(1, sizeof(*p));
	const struct token_hooks hooks = { .arg = x, .miss = x->c.hooks && x->c.hooks->miss ? miss : NULL,
		.pressure = x->c.hooks && x->c.hooks->pressure ? pressure : NULL,
		.lost = x->c.hooks && x->c.hooks->lost ? lost : NULL, .memory = memory };
	uint32_t n = 0;

	p->refs = 1;
	p->plan = *stolen;
	p->number = ++x->programs;
	p->base = xcalloc(p->plan.nbufs + 1, sizeof(*p->base));
	for (uint32_t i = 0; i < p->plan.nbufs; i++) {
		p->base[i] = n;
		n += plan_depth(&p->plan.buf[i]) * (p->plan.streams && !p->plan.buf[i].shared ? p->plan.streams : 1);
	}
	p->nblocks = n;
	p->block = xcalloc(n + 1, sizeof(*p->block));
	x->prog = p;
	x->used = 0;                    /* the new tokens count what lives on */
	p->tokens = tokens_new(&p->plan, &hooks, before ? before->tokens : NULL);
	carry(x, p, before);
	bind_all(x, p);
	if (before)
		program_unref(x, before);
	return p;
}

void program_unref(struct exec *x, struct program *p)
{
	if (!p || --p->refs)
		return;
	for (uint32_t i = 0; i < p->nblocks; i++)
		block_unref(x, p->block[i]);
	tokens_free(p->tokens);
	plan_free(&p->plan);
	free(p->block);
	free(p->base);
	free(p);
}

void work_count(struct op *o, bool taken)
{
	struct exec *x = o->x;

	x->used = taken ? x->used + o->i->work_bytes : x->used - o->i->work_bytes;
	if (x->used > x->peak)
		x->peak = x->used;
}

/* Batches that were loaded and not committed go back, as soon as no abandoned job reads them. */
void batches_back(struct exec *x)
{
	struct program *p = x->prog;

	for (uint32_t i = 0; i < p->plan.nbufs; i++)
		for (uint32_t k = p->base[i]; k < (i + 1 < p->plan.nbufs ? p->base[i + 1] : p->nblocks); k++)
			if (p->block[k] && p->block[k]->batch) {
				block_unref(x, p->block[k]);
				p->block[k] = NULL;
			}
}

void op_blocks(struct op *o)
{
	const struct plan_instr *i = o->i;

	o->scratch = -1;
	o->in = xcalloc(i->nin + 1, sizeof(*o->in));
	o->out = xcalloc(i->nout + 1, sizeof(*o->out));
	for (uint32_t k = 0; k < i->nin; k++)
		if ((o->in[k] = block_at(o->prog, &o->run->in[k])))
			o->in[k]->refs++;
	for (uint32_t k = 0; k < i->nout; k++)
		if ((o->out[k] = block_at(o->prog, &o->run->out[k])))
			o->out[k]->refs++;
}

static bool must_wait(const struct op *o)
{
	for (uint32_t k = 0; k < o->i->nin; k++)
		if (o->in[k] && o->in[k]->writing)
			return true;
	for (uint32_t k = 0; k < o->i->nout; k++)
		if (o->out[k] && (o->out[k]->writing || o->out[k]->reading))
			return true;
	return false;
}

static int take_scratch(struct op *o, struct err *e)
{
	struct exec *x = o->x;
	size_t bytes = o->i->work_bytes;
	int pick = -1;

	if (!bytes || !x->c.model || o->work)
		return 0;
	for (int k = 0; k < EXEC_SCRATCH; k++)
		if (!x->scratch[k].busy && (pick < 0 || x->scratch[k].bytes >= bytes))
			pick = k;
	if (pick >= 0 && x->scratch[pick].bytes < bytes) {
		big_free(x->scratch[pick].p, x->scratch[pick].bytes);
		x->scratch[pick].p = big_alloc(bytes);
		x->scratch[pick].bytes = x->scratch[pick].p ? bytes : 0;
	}
	o->work = pick >= 0 ? x->scratch[pick].p : big_alloc(bytes);
	if (!o->work)
		return err_set(e, ERR_NOMEM, "no memory for %zu bytes of scratch (%s)", bytes, plan_kind_name(o->i->kind));
	o->work_bytes = bytes;
	o->scratch = pick;
	if (pick >= 0)
		x->scratch[pick].busy = true;
	return 0;
}

int op_memory(struct op *o, struct err *e)
{
	struct exec *x = o->x;
	size_t budget = x->c.budget_bytes;

	if (must_wait(o))
		return 1;
	if (budget && x->used > budget)
		return err_set(e, ERR_LIMIT, "memory: the step needs %zu bytes and local.memory leaves %zu for it; make "
			"local.batch smaller or local.memory larger", x->used, budget);
	for (uint32_t k = 0; k < o->i->nout; k++) {
		const struct plan_buf *b = &o->prog->plan.buf[o->i->out[k].buf];
		struct block **at = cell(o->prog, o->run->out[k].stream, o->run->out[k].buf, o->run->out[k].slot);

		if (*at && b->class == PLAN_BATCH && (*at)->batch) {    /* the former batch is overwritten */
			block_unref(x, *at);
			*at = NULL;
			block_unref(x, o->out[k]);
			o->out[k] = NULL;
		}
		if (!*at && !(*at = block_make(x, b, e)))
			return -1;
		if (!o->out[k]) {
			o->out[k] = *at;
			o->out[k]->refs++;
		}
	}
	return take_scratch(o, e);
}

void op_free(struct op *o)
{
	struct exec *x = o->x;

	for (uint32_t k = 0; o->in && k < o->i->nin; k++)
		block_unref(x, o->in[k]);
	for (uint32_t k = 0; o->out && k < o->i->nout; k++)
		block_unref(x, o->out[k]);
	if (o->work && o->scratch >= 0)
		x->scratch[o->scratch].busy = false;
	else
		big_free(o->work, o->work_bytes);
	if (o->own) {
		free(o->own->piece);
		free(o->own->in);
		free(o->own->out);
		free(o->own);
	}
	free(o->in);
	free(o->out);
	free(o->args);
	free(o->ns);
	free(o);
}

void exec_mem_done(struct exec *x)
{
	free(x->layer);
	for (int k = 0; k < EXEC_SCRATCH; k++)
		big_free(x->scratch[k].p, x->scratch[k].bytes);
}
