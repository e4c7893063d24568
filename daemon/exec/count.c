/* Bytes that are handed out, by place, as plans state them (instrument T5): what the predictor counts; and what kernels
 * need for a piece. */
#include "exec/int.h"

size_t block_bytes(const struct plan_buf *b)
{
	return b->journal ? 2 * b->bytes : b->bytes;
}

static void peak(struct exec *x, enum plan_place at)
{
	if (x->used[at] > x->peak[at])
		x->peak[at] = x->used[at];
}

void block_count(struct exec *x, const struct plan *p, const struct plan_buf *b, bool taken)
{
	enum plan_place at = plan_place(p, b);

	x->used[at] = taken ? x->used[at] + block_bytes(b) : x->used[at] - block_bytes(b);
	peak(x, at);
}

void work_count(struct op *o, bool taken)
{
	struct exec *x = o->x;
	size_t bytes = o->i->work_bytes;

	x->used[PLAN_ARENA] = taken ? x->used[PLAN_ARENA] + bytes : x->used[PLAN_ARENA] - bytes;
	x->working = taken ? x->working + bytes : x->working - bytes;
	peak(x, PLAN_ARENA);
}

int budgets_hold(const struct exec *x, struct err *e)
{
	static const char *const name[] = { "arena", "host", "file" };
	const size_t budget[] = { x->c.budget_bytes, x->c.host_bytes, x->c.file_bytes };

	if (budget[0] && x->used[0] > budget[0])
		return err_set(e, ERR_LIMIT, "memory: the step needs %zu bytes and local.memory leaves %zu for it; make "
			"local.batch smaller or local.memory larger", x->used[0], budget[0]);
	for (int k = PLAN_HOST; k <= PLAN_FILE; k++)
		if (budget[k] && x->used[k] > budget[k])
			return err_set(e, ERR_LIMIT, "tier %s: the step needs %zu bytes of it, and has %zu", name[k], x->used[k],
				budget[k]);
	return 0;
}

void exec_view(const struct exec *x, struct exec_view *ret)
{
	*ret = x->v;
	ret->arena_bytes = x->used[PLAN_ARENA];
	ret->arena_peak_bytes = x->peak[PLAN_ARENA];
	ret->tokens_peak_bytes = x->prog ? tokens_peak(x->prog->tokens, 0) : 0;
	for (int k = 0; k <= PLAN_FILE; k++) {
		ret->tier[k].bytes = x->used[k];
		ret->tier[k].peak_bytes = x->peak[k];
	}
}

const struct model_need *exec_need(struct exec *x, const struct model *m, int a, int b, uint32_t batch, int parts)
{
	struct exec_need *n;

	for (uint32_t k = 0; k < x->nneeds && k < EXEC_NEEDS; k++) {
		n = &x->need[k];
		if (n->a == a && n->b == b && n->batch == batch && n->parts == parts)
			return &n->is;
	}
	n = &x->need[x->nneeds++ % EXEC_NEEDS];
	*n = (struct exec_need){ .a = a, .b = b, .parts = parts, .batch = batch };
	model_need(m, a, b, batch, parts, &n->is);
	return &n->is;
}
