/* Who answers whom: every transfer has two ends, every collective all its members, index by index. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "plan/check_int.h"

/* One end of a transfer, or one member's call of a collective. */
struct tag { const char *label, *group; uint32_t from, to, kind, need; int64_t index; bool sends; };
struct tags { size_t n, cap; struct tag *v; };

static void add(struct tags *t, const struct tag *x)
{
	if (t->n == t->cap) {
		t->cap = t->cap > 0 ? 2 * t->cap : 64;
		t->v = xrealloc(t->v, t->cap * sizeof *t->v);
	}
	t->v[t->n++] = *x;
}

static int order(const void *a, const void *b)
{
	const struct tag *x = a, *y = b;
	int c = strcmp(x->group, y->group);
	if (c == 0)
		c = strcmp(x->label, y->label);
	if (c == 0)
		c = x->kind != y->kind ? (x->kind < y->kind ? -1 : 1) : 0;
	if (c == 0)
		c = x->from != y->from ? (x->from < y->from ? -1 : 1) : 0;
	if (c == 0)
		c = x->to != y->to ? (x->to < y->to ? -1 : 1) : 0;
	if (c == 0)
		c = x->index != y->index ? (x->index < y->index ? -1 : 1) : 0;
	return c;
}

static const struct plan *plan_of(const struct plan *const *v, uint32_t n, uint32_t rank)
{
	for (uint32_t k = 0; k < n; k++)
		if (v[k]->me == rank)
			return v[k];
	return NULL;
}

/* Does p take this label from anybody (a server), or answer with it? Then indexes are not its own to state. */
static bool any_index(const struct plan *p, const char *label, enum plan_with with)
{
	for (uint32_t k = 0; p && k < p->ninstrs; k++)
		if (p->instr[k].with == with && strcmp(plan_label(p, &p->instr[k]), label) == 0)
			return true;
	return false;
}

static int lonely(const struct plan *p, const struct plan_instr *i, const char *what, struct err *e)
{
	struct buf b = {0};
	plan_print_instr(p, i, &b);
	err_set(e, ERR_MISMATCH, "peer %u: %.150s: %s", p->me, (const char *)b.p, what);
	buf_free(&b);
	return -1;
}

/* 1: tags by index have to match; 0: matched by label, or nobody's business; -1: nobody answers. */
static int transfer(const struct plan *const *v, uint32_t n, const struct plan *p, const struct plan_instr *i,
	struct err *e)
{
	const char *label = plan_label(p, i);
	if (i->with == PLAN_PEER) {
		const struct plan *q = plan_of(v, n, i->peer);
		if (!q)
			return n == 1 ? 0 : lonely(p, i, "that peer has no plan", e);
		return !any_index(q, label, i->kind == PLAN_SEND ? PLAN_ANY : PLAN_REPLY);
	}
	if (i->with != PLAN_ANY || n == 1)
		return 0;
	const struct plan_group *g = &p->group[i->group];
	for (uint32_t m = 0; m < g->n; m++) {
		const struct plan *q = plan_of(v, n, g->member[m].peer);
		for (uint32_t k = 0; q && k < q->ninstrs; k++) {
			const struct plan_instr *x = &q->instr[k];
			if (((x->kind == PLAN_SEND && x->with == PLAN_PEER && x->peer == p->me) || x->kind == PLAN_ALLTOALL) &&
				strcmp(plan_label(q, x), label) == 0)
				return 0;
		}
	}
	return lonely(p, i, "nobody of the group sends it", e);
}

static bool in_group(const struct plan_group *g, uint32_t rank)
{
	for (uint32_t m = 0; m < g->n; m++)
		if (g->member[m].peer == rank)
			return true;
	return false;
}

static uint32_t ranks_of(const struct plan_group *g)
{
	uint32_t n = 0;
	for (uint32_t m = 0; m < g->n; m++) {
		uint32_t j = 0;
		while (j < m && g->member[j].peer != g->member[m].peer)
			j++;
		n += j == m;
	}
	return n;
}

/* Collectives among all; a one-sided ALLTOALL talks to servers, which answer by label. */
static int collective(const struct plan *p, const struct plan_instr *i, struct tag *t, struct err *e)
{
	const struct plan_group *g = &p->group[i->group];
	bool routes = i->kind == PLAN_ALLTOALL && (i->nout == 0 || i->in[0].role == PLAN_AS_ROUTE);
	if (g->elastic || routes)
		return 0;
	if (!in_group(g, p->me))
		return lonely(p, i, "this peer is not a member of the group", e);
	t->group = g->name;
	t->need = ranks_of(g);
	return 1;
}

static int collect(const struct plan *const *v, uint32_t n, uint32_t k, uint64_t iterations, struct tags *t,
	struct err *e)
{
	const struct plan *p = v[k];
	struct plan copy = *p;
	if (iterations > 0)
		copy.iterations = iterations;
	for (uint32_t x = 0; x < p->ninstrs; x++) {
		const struct plan_instr *i = &p->instr[x];
		struct tag tag = { .group = "", .label = "", .kind = i->kind, .from = 0, .to = 0 };
		int exact = 0;
		if (i->kind == PLAN_SEND || i->kind == PLAN_RECV) {
			exact = transfer(v, n, p, i, e);
			tag.sends = i->kind == PLAN_SEND;
			tag.from = tag.sends ? p->me : i->peer;
			tag.to = tag.sends ? i->peer : p->me;
			tag.kind = PLAN_SEND;
			tag.need = 2;
		} else if (plan_leaves(i->kind) && n > 1) {
			exact = collective(p, i, &tag, e);
		}
		if (exact < 0)
			return -1;
		if (exact > 0)
			tag.label = plan_label(p, i);
		uint64_t times = i->section == PLAN_BODY ? copy.iterations : 1;
		for (uint64_t it = 0; exact > 0 && it < times; it++) {
			tag.index = plan_index(&copy, i, it);
			if (plan_due(i, tag.index))
				add(t, &tag);
		}
	}
	return 0;
}

/* Equal tags stand together: a transfer is one sending and one receiving end, a collective as many calls as members. */
static int compare(const struct tags *t, struct err *e)
{
	for (size_t a = 0, b; a < t->n; a = b) {
		const struct tag *x = &t->v[a];
		uint32_t sends = 0;
		for (b = a; b < t->n && order(x, &t->v[b]) == 0; b++)
			sends += t->v[b].sends;
		if (b - a == x->need && (x->kind != PLAN_SEND || sends == 1))
			continue;
		if (x->kind == PLAN_SEND)
			return err_set(e, ERR_MISMATCH,
				"%s of index %lld from peer %u to peer %u: %u SEND and %u RECV, one of each is right",
				x->label, (long long)x->index, x->from, x->to, sends, (unsigned)(b - a) - sends);
		return err_set(e, ERR_MISMATCH,
			"%s of %s of index %lld in group %s is called %u times, %u members would be right",
			plan_kind_name((enum plan_kind)x->kind), x->label, (long long)x->index, x->group, (unsigned)(b - a),
				x->need);
	}
	return 0;
}

int check_match(const struct plan *const *v, uint32_t n, uint64_t iterations, struct err *e)
{
	struct tags t = {0};
	int rc = 0;
	for (uint32_t k = 0; k < n && rc == 0; k++)
		rc = collect(v, n, k, iterations, &t, e);
	if (rc == 0 && t.n > 0) {
		qsort(t.v, t.n, sizeof *t.v, order);
		rc = compare(&t, e);
	}
	free(t.v);
	return rc;
}
