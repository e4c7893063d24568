/* The layout of a round in a grid: which lines of an attempt matter to this peer, what it waits for in them, and who
 * keeps it from going on. Lines of an earlier attempt stay until no job reads what lies there. */
#include <stdlib.h>
#include <string.h>
#include "avg/grid_int.h"

size_t grid_index_of(const uint16_t *v, size_t n, size_t x)
{
	size_t i = 0;
	while (i < n && v[i] != x)
		i++;
	return i;
}

/* ---- life ---- */

static void stop(struct pass *p)
{
	if (p->x)
		xfer_cancel(p->x);
	p->x = NULL;
}

static void piece_stop(struct piece *c, bool results_too)
{
	stop(&c->up);
	stop(&c->down);
	for (size_t i = 0; c->in && i < c->l->is.players; i++)
		stop(&c->in[i]);
	for (size_t i = 0; results_too && c->out && i < c->l->is.natives; i++)
		stop(&c->out[i]);
}

static void piece_free(struct piece *c)
{
	struct avg *a = c->r->a;
	piece_stop(c, true);
	for (size_t i = 0; c->raw && i < c->l->is.players; i++)
		spare_put(a, c->raw[i], bytes_of(c));
	spare_put(a, c->mean, bytes_of(c));
	free(c->raw);
	free(c->in);
	free(c->out);
}

static void lines_free(struct grid_flow *f, size_t parts)
{
	for (size_t i = 0; i < f->lines; i++) {
		for (size_t p = 0; p < parts; p++)
			piece_free(&f->line[i].piece[p]);
		free(f->line[i].piece);
	}
	free(f->line);
	f->line = NULL;
	f->lines = 0;
}

/* The lines of this attempt are over. */
void grid_retire(struct round *r)
{
	struct grid_flow *f = r->flow;
	for (size_t i = 0; i < f->lines; i++)
		for (size_t p = 0; p < r->b.parts; p++)
			piece_stop(&f->line[i].piece[p], true);
	if (r->jobs) {
		struct grid_flow *old = xcalloc(1, sizeof *old);
		*old = (struct grid_flow){ .line = f->line, .lines = f->lines, .old = f->old };
		f->old = old;
		f->line = NULL;
		f->lines = 0;
	}
	lines_free(f, r->b.parts);
	if (f->planned)
		grid_plan_free(&f->plan);
	f->planned = false;
}

void grid_flow_new(struct round *r)
{
	r->flow = xcalloc(1, sizeof *r->flow);
	grid_copy(&r->flow->grid, &r->b.grid);
	r->flow->val = xcalloc((r->flow->grid.dims + 1) * r->b.parts + 1, sizeof *r->flow->val);
	r->flow->left = SIZE_MAX;
}

void grid_flow_free(struct round *r)
{
	struct grid_flow *f = r->flow;
	if (!f)
		return;
	grid_retire(r);
	while (f->old) {
		struct grid_flow *old = f->old;
		f->old = old->old;
		lines_free(old, r->b.parts);
		free(old);
	}
	grid_free(&f->grid);
	free(f->val);
	free(f);
	r->flow = NULL;
}

void grid_flow_stop(struct round *r, bool results_too)
{
	struct grid_flow *f = r->flow;
	for (size_t i = 0; i < f->lines; i++)
		for (size_t p = 0; p < r->b.parts; p++)
			piece_stop(&f->line[i].piece[p], results_too || f->line[i].is.k < last_phase(r));
}

bool grid_flow_idle(const struct round *r)
{
	const struct grid_flow *f = r->flow;
	for (size_t i = 0; i < f->lines; i++)
		for (size_t p = 0; p < r->b.parts; p++)
			for (size_t k = 0; f->line[i].piece[p].out && k < f->line[i].is.natives; k++)
				if (f->line[i].piece[p].out[k].x)
					return false;
	return r->jobs == 0;
}

int grid_flow_stand(struct round *r, const uint8_t *stand, const uint64_t *w, struct err *e)
{
	struct grid *g = &r->flow->grid;
	uint8_t *was = xmemdup(g->stand, g->n);
	memcpy(g->stand, stand, g->n);
	int rc = grid_check(g, w, e);
	if (rc)
		memcpy(g->stand, was, g->n);
	free(was);
	return rc;
}

bool grid_flow_complete(const struct round *r)
{
	return r->attempted && !r->flow->left;
}

/* ---- who keeps it from going on ---- */

static bool blocked(const struct round *r, size_t who, unsigned deadlines)
{
	return !flow_lives(r, who) || r->lateness >= deadlines;
}

/* One deadline for pieces of the first phase, two for its means, three for what goes into the second, and so on:
 * whoever is nearest to the one who is late says so first. */
void grid_flow_culprits(const struct round *r, bool *bad)
{
	for (size_t i = 0; i < r->flow->lines; i++) {
		const struct line *l = &r->flow->line[i];
		for (size_t p = 0; p < r->b.parts; p++) {
			const struct piece *c = &l->piece[p];
			if (c->down.c && !c->down.done && blocked(r, c->owner, 2 * l->is.k + 2))
				bad[c->owner] = true;
			for (size_t k = 0; c->in && !c->summed && !c->summing && k < l->is.players; k++)
				if (c->in[k].c && !c->in[k].done && blocked(r, l->is.player[k], 2 * l->is.k + 1))
					bad[l->is.player[k]] = true;
		}
	}
}

bool grid_flow_touches(const struct round *r, size_t i)
{
	for (size_t k = 0; k < r->flow->lines; k++) {
		const struct grid_line *l = &r->flow->line[k].is;
		if (grid_index_of(l->player, l->players, i) < l->players ||
				grid_index_of(l->native, l->natives, i) < l->natives ||
				grid_index_of(l->owner, l->owners, i) < l->owners)
			return true;
	}
	return false;
}

bool grid_flow_agrees(const struct round *r, const struct body *commit)
{
	uint8_t own[TREE256];
	const struct grid *g = &r->flow->grid;
	if (!commit->line_hash || (size_t)r->me >= g->n)
		return false;
	grid_hash_own(r, own);
	return !memcmp(own, commit->line_hash + TREE256 * grid_last_line(g, (size_t)r->me), TREE256);
}
