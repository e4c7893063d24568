/* Inside of transfers along a round's tree: what flow.c moves, and parts.c knows of it. */
#ifndef AVG_PARTS_H
#define AVG_PARTS_H
#include "avg/int.h"

static inline const struct id *who(const struct round *r, size_t i) { return &r->b.m[i].id; }
/* When what is sent is of use to nobody any more. */
static inline uint64_t give_up_at(const struct round *r)
{
	return now_of(r->a) + 8 * r->b.data_us + r->b.ready_us + 2 * SECOND;
}
/* The name of a transfer. */
void part_tag(const struct round *r, char what, uint32_t attempt, size_t part, const struct id *from,
	const struct id *to, struct id *ret);
bool part_mine(const struct round *r, size_t part);     /* this peer brings a piece of it */
/* What member i sends this peer of it: nothing (0), its piece ('x'), or its row's sum, of this attempt ('p'). */
char part_brings(const struct round *r, size_t part, size_t i);
void part_close(struct round *r, size_t part);  /* nothing more of it is received, and what was is given back */
void flow_cancel(struct flow *f);
#endif
