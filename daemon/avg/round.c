/* What a round has in memory: vectors of which only some elements are here, the weights of an attempt; and its end. */
#include <stdlib.h>
#include <string.h>
#include "avg/grid_flow.h"
#include "avg/lead.h"
#include "avg/sent.h"

/* Where element 0 of a vector would be whose elements from lo on are at p. */
float *round_base(const void *p, uint64_t lo)
{
	return p ? (float *)((uintptr_t)p - lo * sizeof(float)) : NULL;
}

static void own_back(struct lease *l)
{
	big_free(l->p, l->bytes);
	free(l);
}

/* The owner's, or else one of this room's own, which may be kept for longer than this room lives. */
struct lease *round_room(struct avg *a, size_t bytes)
{
	struct lease *l = a->cb.room ? a->cb.room(a->arg, bytes) : NULL;
	void *p = l ? l->p : big_alloc(bytes);
	if (l || !p)
		return l;
	l = xcalloc(1, sizeof *l);
	*l = (struct lease){ .p = p, .bytes = bytes, .refs = 1, .back = own_back };
	return l;
}

void round_weights(struct round *r, const uint64_t *samples)
{
	body_weights(&r->b, r->b.n, samples, r->w);
	r->total = 0;
	for (size_t i = 0; i < r->b.n; i++)
		r->total += samples[i];
}

/* What has been carried since it was counted last: results go on when a round is over. */
void round_count(struct round *r)
{
	r->a->bytes_in += r->bytes_in - r->counted_in;
	r->a->bytes_out += r->bytes_out - r->counted_out;
	r->counted_in = r->bytes_in;
	r->counted_out = r->bytes_out;
}

void round_reap(struct avg *a, bool force)
{
	list_each_safe(it, &a->tails) {
		struct round *r = list_entry(it, struct round, link);
		if (force)
			flow_stop(r, true);
		if (!flow_idle(r))
			continue;
		list_del(&r->link);
		if (r->applied)
			round_count(r);
		lead_free(r);
		flow_free(r);
		sents_free(r);
		lease_put(r->mean_in);
		body_free(&r->b);
		buf_free(&r->bytes);
		if (r->commit) {
			body_free(r->commit);
			free(r->commit);
		}
		buf_free(&r->commit_bytes);
		told_free(r);
		free(r->fail);
		ranges_free(&r->claimed);
		ranges_free(&r->there);
		free(r->w);
		free(r->bad);
		free(r->broken);
		tree_free(&r->tree);
		free(r->odd);
		coding_free(&r->coding);
		free(r->cared);
		free(r->part);
		free(r);
	}
}
