/* Passes as they stand in a plan: buffers, and FWD and BWD of each piece. */
#include <stdio.h>
#include <stdlib.h>
#include "common/planted.h"
#include "train/memory/passes_int.h"


/* The value before op i, or its gradient. */
static const char *value(const struct passes *s, uint32_t i, bool gradient, char out[PLAN_NAME])
{
	if (i == s->a)
		return "batch";
	if (i > s->b)
		return gradient ? "dy" : "y";
	(void)snprintf(out, PLAN_NAME, "%c%u", gradient ? 'd' : 'x', i);
	return out;
}

static const char *saved(const struct passes *s, const struct pass *x, char out[PLAN_NAME])
{
	if (x->a == s->a && x->b == s->b)
		return "saved";
	(void)snprintf(out, PLAN_NAME, "saved%u", x->a);
	return out;
}

static void buffer(struct plan *p, const char *name, enum plan_class class, uint64_t bytes)
{
	uint32_t k = plan_find(p, name);

	if (k != PLAN_NONE && p->buf[k].bytes < ALIGN(bytes))
		p->buf[k].bytes = ALIGN(bytes);
	if (k == PLAN_NONE)
		plan_buf(p, &(struct plan_buf){ .class = class, .dtype = PLAN_F32, .bytes = ALIGN(bytes), .depth = 1,
			.per = 1 }, "%s", name);
}

void passes_buffers(struct plan *p, const struct passes *s)
{
	char name[PLAN_NAME];

	for (uint32_t k = 0; k < s->n; k++) {
		const struct pass *x = &s->v[k];
		bool back = x->kind == PLAN_BWD;

		if (x->a > s->a)
			buffer(p, value(s, x->a, false, name), PLAN_ACTIVATION, x->need.x);
		if (x->a > s->a && back)
			buffer(p, value(s, x->a, true, name), PLAN_ACTIVATION_GRAD, x->need.x);
		buffer(p, value(s, x->b + 1, back, name), back ? PLAN_ACTIVATION_GRAD : PLAN_ACTIVATION, x->need.y);
		if (back || x->keep == PLAN_KEEP_ALL)
			buffer(p, saved(s, x, name), PLAN_ACTIVATION, x->need.saved);
	}
}

static void forward(struct plan *p, const struct passes *s, const struct pass *x, bool dead, const char *w)
{
	char from[PLAN_NAME], to[PLAN_NAME], kept[PLAN_NAME];
	const char *out = value(s, x->b + 1, false, to);
	bool all = x->keep == PLAN_KEEP_ALL;
	struct plan_instr *i = plan_piece(plan_do(p, PLAN_FWD, 0, "%s%s %s -> %s%s%s", value(s, x->a, false, from),
		passes_forgets(s, x) ? "!" : "", w, out, all ? " save:" : "", all ? saved(s, x, kept) : ""), x->a, x->b);

	i->keep = x->keep;
	i->replay = x->replay;
	i->work_bytes = passes_work(x);
	if (dead)
		plan_do(p, PLAN_DROP, 0, "%s", out);
}

/* Each writes the gradients of its own ops' parameters. */
static void backward(struct plan *p, const struct passes *s, const struct pass *x, const char *w,
	const struct passes_parts *parts)
{
	char from[PLAN_NAME], dy[PLAN_NAME], dx[PLAN_NAME], kept[PLAN_NAME];
	const char *g = parts ? parts->of(parts->arg, x) : "g";
	struct plan_instr *i = plan_piece(plan_do(p, PLAN_BWD, 0, "save:%s%s %s! %s%s %s -> %s%s%s", saved(s, x, kept),
		PLANTED(REPLAY_KEPT) ? "" : "!", value(s, x->b + 1, true, dy), value(s, x->a, false, from),
		passes_forgets(s, x) ? "!" : "", w,
		x->a > s->a ? value(s, x->a, true, dx) : "", x->a > s->a ? " " : "", g), x->a, x->b);

	i->work_bytes = passes_work(x);
	if (parts)
		parts->made(parts->arg, p, x);
}

static void emit(struct plan *p, const struct passes *s, uint32_t from, uint32_t upto, const char *w,
	const struct passes_parts *parts)
{
	bool *dead = passes_dead(s);

	for (uint32_t k = from; k < upto; k++)
		if (s->v[k].kind == PLAN_FWD)
			forward(p, s, &s->v[k], dead[k], w);
		else
			backward(p, s, &s->v[k], w, parts);
	free(dead);
}

void passes_forward(struct plan *p, const struct passes *s, const char *w)
{
	emit(p, s, 0, passes_turn(s), w, NULL);
}

void passes_backward(struct plan *p, const struct passes *s, const char *w)
{
	emit(p, s, passes_turn(s), s->n, w, NULL);
}

void passes_backward_parts(struct plan *p, const struct passes *s, const char *w, const struct passes_parts *parts)
{
	emit(p, s, passes_turn(s), s->n, w, parts);
}
