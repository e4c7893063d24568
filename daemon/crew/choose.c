/* Who is to be in the next generation. First those of whole units of the one before, else all of it who live; whoever
 * else is there only when what they hold together is safer, or when a step gets a tenth faster and what must move is
 * paid for within a hundred steps. Whom a strategy gives nothing to do is not in it. Copies that members are too few
 * for are done without, and said so. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "crew/choose.h"

#define FASTER 1.1
#define STEPS 100

/* fewer: why not with as many copies as are wished, if so. */
struct way { bool ok, paced; struct offer o; struct plans p; struct pace pace; struct err why, fewer; };

static void way_free(struct way *w)
{
	offer_free(&w->o);
	plans_free(&w->p);
	*w = (struct way){ 0 };
}

/* Leaves out whose plan is empty; true: somebody was. */
static bool trim(const struct plans *p, const struct offer *o, bool *in, const struct offer *all)
{
	bool some = false;
	for (uint32_t r = 0; r < p->n; r++)
		if (!p->v[r].ninstrs) {
			in[offer_find(all, &o->m[r].id)] = false;
			some = true;
		}
	return some;
}

static bool anybody(const bool *in, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (in[i])
			return true;
	return false;
}

/* With that many copies. */
static bool way_once(const struct choice *c, const bool *set, uint32_t redundancy, struct way *w)
{
	bool *in = xmemdup(set, c->all.n * sizeof *in), again = true, ok = false;
	while (again && anybody(in, c->all.n)) {
		way_free(w);
		offer_some(&w->o, &c->all, in);
		w->o.redundancy = redundancy;
		ok = !plans_make(&w->p, c->strategy, &c->usual, &w->o, &w->why);
		again = ok && trim(&w->p, &w->o, in, &c->all);
	}
	if (again) {
		ok = false;
		err_set(&w->why, ERR_STATE, "strategy %s gives none of %u members anything to do", c->strategy->name, w->o.n);
	}
	free(in);
	return ok && !plans_check(&w->p, &c->usual, &w->o, &w->why);
}

static void way_try(const struct choice *c, const bool *set, struct way *w)
{
	struct err fewer = { 0 };
	for (uint32_t k = c->redundancy; k > 0 && !w->ok; k--) {
		w->ok = way_once(c, set, k, w);
		if (!w->ok && k == c->redundancy)
			fewer = w->why;
	}
	w->fewer = fewer;
}

static bool pace(const struct choice *c, struct way *w)
{
	if (!w->paced)
		w->paced = !plans_pace(&w->p, &c->usual, &w->o, &w->pace, &w->why);
	return w->paced;
}

/* The work of a step: of its target batch, where that is known. */
static double step_of(const struct choice *c, const struct way *w)
{
	const struct profile *m = c->usual.profile;
	double us = 0;
	for (uint32_t i = 0; i < m->nops; i++)
		us += (double)m->op[i].variant[0].fwd_us;
	if (!c->usual.target_batch || !m->batch || us <= 0)
		return w->pace.work;
	return us * (double)((c->usual.target_batch + m->batch - 1) / m->batch);
}

static bool better(const struct choice *c, struct way *a, struct way *b)
{
	if (!b->ok || a->o.redundancy != b->o.redundancy)
		return b->ok && b->o.redundancy > a->o.redundancy;
	if (!pace(c, a) || !pace(c, b))
		return false;
	double wa = a->pace.work > 0 ? a->pace.us / a->pace.work : a->pace.us;
	double wb = b->pace.work > 0 ? b->pace.us / b->pace.work : b->pace.us;
	double saved = (wa - wb) * (a->pace.work > 0 ? step_of(c, a) : 1);
	return wa >= wb * FASTER && plans_move_us(&a->p, &a->o, &b->p, &b->o) <= saved * STEPS;
}

/* a becomes b when that is better; b is gone. */
static bool take(const struct choice *c, struct way *a, struct way *b)
{
	bool yes = !a->ok || better(c, a, b);
	if (yes) {
		struct way was = *a;
		*a = *b;
		*b = was;
	}
	way_free(b);
	return yes;
}

/* Those who can go on as they are, else those who were there. */
static bool first_way(const struct choice *c, struct way *a, const bool **ret_set)
{
	*ret_set = c->whole;
	if (anybody(c->whole, c->all.n))
		way_try(c, c->whole, a);
	if (a->ok)
		return true;
	*ret_set = c->kept;
	if (anybody(c->kept, c->all.n))
		way_try(c, c->kept, a);
	return a->ok;
}

void crew_choose(struct choice *c)
{
	struct way a = { 0 }, b = { 0 };
	uint32_t others = 0, first = c->all.n, n = 0;
	const bool *set;
	bool *in = xcalloc(c->all.n + 1, sizeof *in), kept = first_way(c, &a, &set);
	for (uint32_t i = 0; i < c->all.n; i++) {
		n += c->kept[i];
		others += !set[i];
		first = !set[i] && first == c->all.n ? i : first;
		in[i] = true;
	}
	if (others) {
		way_try(c, in, &b);
		kept = !take(c, &a, &b) && kept;
	}
	if (kept && others > 1) {               /* not with all of the others: with the strongest of them? */
		memcpy(in, set, c->all.n * sizeof *in);
		in[first] = true;
		way_try(c, in, &b);
		kept = !take(c, &a, &b);
	}
	c->rc = a.ok ? 0 : -1;
	c->why = a.why;
	c->fewer = a.fewer;
	if (a.ok) {
		c->stays = kept && a.o.n == n && a.o.redundancy == c->running;
		plans_find(&a.p, c->strategy, &c->usual, &a.o, &c->found);
		c->best = a.o;
		a.o = (struct offer){ 0 };
	}
	way_free(&a);
	free(in);
}

void choice_free(struct choice *c)
{
	offer_free(&c->all);
	offer_free(&c->best);
	found_free(&c->found);
	free(c->kept);
	free(c->whole);
}
