/* Units in the averager's scenarios: who holds what, and whose head is who. */
#include <stdlib.h>
#include <string.h>
#include "avg_world.h"
#include "common/mem.h"

const struct whold *world_hold_of(const struct apeer *p)
{
	return p->w->hold && p->w->hold[p->node].unit >= 0 ? &p->w->hold[p->node] : NULL;
}

bool world_is_other(const struct apeer *p)     /* of a unit, and not its head; or of none */
{
	const struct whold *h = world_hold_of(p);
	return p->w->hold && (!h || h->lo);
}

/* The head of p's unit, when it lives. */
struct apeer *world_head_of(const struct apeer *p)
{
	const struct whold *h = world_hold_of(p);
	for (int i = 0; h && i < sim_nodes(p->w->s); i++)
		if (p->w->hold[i].unit == h->unit && !p->w->hold[i].lo && sim_alive(p->w->s, i))
			return world_peer(p->w, i);
	return NULL;
}

void world_tell_units(struct apeer *p)
{
	struct world *w = p->w;
	struct avg_holder v[WORLD_MAX];
	size_t n = 0;
	struct err e;
	for (int i = 0; i < WORLD_MAX; i++) {
		if (w->hold[i].unit >= 0)
			v[n++] = (struct avg_holder){ w->hold[i].id, { (uint16_t)w->hold[i].unit, w->hold[i].lo,
				w->hold[i].hi, w->hold[i].keep_lo, w->hold[i].keep_hi } };
	}
	if (avg_units(p->avg, w->generation, v, n, &e))
		sim_fail(w->s, "node %d: %s", p->node, e.text);
	world_train(p);
}

void world_units(struct world *w, const struct whold *hold, int n)
{
	if (!w->hold)
		w->hold = xcalloc(WORLD_MAX, sizeof *w->hold);
	for (int i = 0; i < WORLD_MAX; i++)
		w->hold[i] = i < n ? hold[i] : (struct whold){ .unit = -1 };
	for (int i = 0; i < n; i++)             /* they must have lived once */
		if (world_peer(w, i))
			w->ids[i] = *net_self(world_peer(w, i)->net);
	for (int i = 0; i < n; i++)
		w->hold[i].id = w->ids[i];
	w->generation++;
	for (int i = 0; i < sim_nodes(w->s); i++)
		if (sim_alive(w->s, i))
			world_tell_units(world_peer(w, i));
}
