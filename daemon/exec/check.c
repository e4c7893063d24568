/* What this executor cannot run is said before anything starts. And every program passes plan/check.h before it runs:
 * what would hang, overflow its memory or lose the model is an error with a name, not a daemon that stands still. A
 * check rehearses the program, so each shape of program is checked once: two programs have one shape when their tables
 * are equal but for where they start (first, generation), and the programs before them left values in the same
 * buffers. */
#include <stdlib.h>
#include <string.h>
#include "common/hash.h"
#include "common/mem.h"
#include "plan/check.h"
#include "exec/int.h"

static void put_name(struct buf *b, const char *name)
{
	buf_put(b, name, strlen(name) + 1);
}

static void put_refs(struct buf *b, const struct plan_ref *r, uint32_t n)
{
	buf_u32(b, n);
	for (uint32_t k = 0; k < n; k++) {
		buf_u32(b, r[k].buf);
		buf_u32(b, (uint32_t)r[k].k);
		buf_u8(b, (uint8_t)r[k].role);
		buf_u8(b, (uint8_t)r[k].age);
		buf_u8(b, (uint8_t)(r[k].drop + 2 * r[k].add));
	}
}

static void put_instr(struct buf *b, const struct plan_instr *i)
{
	const uint32_t n[] = { i->kind, i->section, i->npiece, i->keep, i->replay, i->lane, i->with, i->peer, i->group,
		i->quorum, i->most, i->unique, i->every, i->at, i->stream_lo, i->stream_hi, (uint32_t)i->priority,
		i->on_missing, i->scope };

	put_name(b, i->fn);
	for (size_t k = 0; k < sizeof(n) / sizeof(*n); k++)
		buf_u32(b, n[k]);
	buf_u64(b, (uint64_t)i->mb);
	buf_u64(b, i->work_bytes);
	put_refs(b, i->in, i->nin);
	put_refs(b, i->out, i->nout);
	for (uint32_t k = 0; k < i->npiece; k++) {
		buf_u32(b, i->piece[k].a);
		buf_u32(b, i->piece[k].b);
	}
}

static void put_buf(struct buf *b, const struct plan_buf *p)
{
	const uint32_t n[] = { p->class, p->tier, p->slot, p->depth, p->per, p->initial, p->shared, p->journal,
		p->nholders };

	put_name(b, p->name);
	buf_u64(b, p->bytes);
	for (size_t k = 0; k < sizeof(n) / sizeof(*n); k++)
		buf_u32(b, n[k]);
	for (uint32_t k = 0; k < p->nholders; k++)
		buf_u32(b, p->holder[k]);
}

static void put_tables(struct buf *b, const struct plan *p)
{
	const uint32_t n[] = { p->nmembers, p->me, p->redundancy, p->streams, p->step, p->nlanes, p->ntiers, p->nbufs,
		p->ngroups, p->ninstrs };

	put_name(b, p->strategy);
	buf_u64(b, p->iterations);
	for (size_t k = 0; k < sizeof(n) / sizeof(*n); k++)
		buf_u32(b, n[k]);
	for (uint32_t k = 0; k < p->nlanes; k++) {
		put_name(b, p->lane[k].name);
		buf_u32(b, p->lane[k].width);
		buf_u32(b, p->lane[k].window);
	}
	for (uint32_t k = 0; k < p->ntiers; k++) {
		put_name(b, p->tier[k].name);
		buf_u64(b, p->tier[k].budget);
	}
	for (uint32_t k = 0; k < p->ngroups; k++) {
		const struct plan_group *g = &p->group[k];

		buf_u32(b, g->n);
		buf_u32(b, (uint32_t)(g->elastic + 2 * g->strict + 4 * (int)g->op));
		for (uint32_t m = 0; m < g->n; m++)
			buf_u64(b, (uint64_t)g->member[m].peer << 32 | g->member[m].slot);
	}
}

/* What the program before left, as far as the list could tell. */
static void put_before(struct buf *b, const struct program *before)
{
	for (uint32_t k = 0; before && k < before->plan.nbufs; k++) {
		if (tokens_newest(before->tokens, 0, k) == PLAN_NONE)
			continue;
		put_name(b, before->plan.buf[k].name);
		buf_u64(b, before->plan.buf[k].bytes);
	}
}

static uint64_t shape_of(const struct plan *p, const struct program *before)
{
	struct buf b = { 0 };
	uint8_t digest[16];
	uint64_t shape;

	put_tables(&b, p);
	for (uint32_t k = 0; k < p->nbufs; k++)
		put_buf(&b, &p->buf[k]);
	for (uint32_t k = 0; k < p->ninstrs; k++)
		put_instr(&b, &p->instr[k]);
	put_before(&b, before);
	xxh128_of(b.p, b.len, digest);
	memcpy(&shape, digest, sizeof(shape));
	buf_free(&b);
	return shape ? shape : 1;
}

static bool checked(struct exec *x, const struct plan *p, const struct program *before, struct err *e)
{
	uint64_t shape = shape_of(p, before);
	const struct tokens *left = before ? before->tokens : NULL;
	struct check_conf conf = { .predict = { .before = &left } };

	for (int k = 0; k < EXEC_SHAPES; k++)
		if (x->shape[k] == shape)
			return true;
	if (plan_check(&p, 1, &conf, NULL, e) < 0) {
		(void)err_wrap(e, "strategy %s", p->strategy);
		return false;
	}
	x->shape[x->v.checks++ % EXEC_SHAPES] = shape;
	return true;
}

/* --- what this executor can do */

static int move_fits(const struct exec *x, const struct plan *p, uint32_t n, struct err *e)
{
	const struct plan_instr *i = &p->instr[n];

	if (i->kind == PLAN_SAVE && !x->spill)
		return err_set(e, ERR_INVALID, "plan %s: SAVE %s (instruction %u), and there is no folder for it", p->strategy,
			i->fn, n);
	for (uint32_t k = 0; k < i->nin; k++)
		if (p->buf[i->in[k].buf].class == PLAN_BATCH || (k < i->nout && p->buf[i->out[k].buf].class == PLAN_BATCH))
			return err_set(e, ERR_INVALID, "plan %s: %s (instruction %u) of a batch, which is its owner's and no bytes",
				p->strategy, plan_kind_name(i->kind), n);
	return 0;
}

/* Tiers, and what is moved between them. */
static bool places_fit(const struct exec *x, const struct plan *p, struct err *e)
{
	for (uint32_t n = 0; n < p->nbufs && x->c.model; n++) {
		enum plan_place at = plan_place(p, &p->buf[n]);

		if (at == PLAN_ELSEWHERE || (at == PLAN_FILE && !x->spill)) {
			(void)err_set(e, ERR_INVALID, "plan %s: buffer %s lies in tier %s, %s", p->strategy, p->buf[n].name,
				p->tier[p->buf[n].tier].name, at == PLAN_FILE ? "and there is no folder for it" : "which is not there");
			return false;
		}
	}
	for (uint32_t n = 0; n < p->ninstrs; n++) {
		const struct plan_instr *i = &p->instr[n];
		const char *wrong = x->c.check ? NULL : plan_place_wrong(p, i);         /* else plan/check.h says it */

		if (wrong) {
			(void)err_set(e, ERR_INVALID, "plan %s: %s (instruction %u): %s", p->strategy, plan_kind_name(i->kind), n,
				wrong);
			return false;
		}
		if (plan_moves(i->kind) && x->c.model && move_fits(x, p, n, e) < 0)
			return false;
	}
	return true;
}

bool plan_runnable(struct exec *x, const struct plan *p, const struct program *before, struct err *e)
{
	for (uint32_t n = 0; n < p->ninstrs; n++) {
		const struct plan_instr *i = &p->instr[n];

		if (plan_leaves(i->kind) && (!x->c.ops || !x->c.ops->net)) {
			(void)err_set(e, ERR_INVALID, "plan %s: %s (instruction %u) leaves this peer, and nobody carries it",
				p->strategy, plan_kind_name(i->kind), n);
			return false;
		}
		if (i->kind == PLAN_VEC && x->c.model && !vec_find(i->fn)) {
			(void)err_set(e, ERR_INVALID, "plan %s: unknown function of VEC \"%s\" (instruction %u)", p->strategy,
				i->fn, n);
			return false;
		}
		if (i->kind == PLAN_VEC && i->on_missing == PLAN_WITHOUT && x->c.model && !vec_find(i->fn)->without) {
			(void)err_set(e, ERR_INVALID, "plan %s: VEC %s (instruction %u) can do without none of its inputs",
				p->strategy, i->fn, n);
			return false;
		}
	}
	return places_fit(x, p, e) && binds_fit(x, p, e) && (!x->c.check || checked(x, p, before, e));
}
