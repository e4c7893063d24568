/* Rounds whose members hold parts of the vector: a *unit* is what contributes as a whole, one peer or all stages and
 * ranks of one replica. Its members hold extents that lie end to end; the one that holds the first element, its head,
 * counts the unit's samples. A unit is in the round with all of its members or not at all: every part of the vector is
 * summed over the units in the round, of each by the one member that holds it, and goes back to those that keep it:
 * these, and neighbours that could take over. Who is in no whole unit brings nothing and gets what
 * it keeps. Peers that hold nothing lead and vote. */
#ifndef AVG_UNITS_H
#define AVG_UNITS_H
#include "avg/int.h"

/* What the owner has said (avg_units), by id. */
struct units { uint64_t generation; size_t n; struct avg_holder *v; uint32_t told /* avg.gen: no whole unit */; };

/* Into a BEGIN whose members are there: those of whole units. false: there is no whole one. Nothing when everybody
 * holds all. */
bool units_put(const struct avg *a, struct body *b);
/* One of those whom units lack, for people: buf, or a constant. */
const char *units_missing(const struct avg *a, char *buf, size_t n);
/* Is a body's as this peer has been told? */
int units_same(const struct avg *a, const struct body *b, struct err *e);
/* Who is a head and who is not: those bring no samples of their own (MATE_AUX). */
void units_roles(struct avg *a);
bool units_mine(const struct avg *a);           /* have all of its own unit been heard of late? without one: yes */
/* Does this peer bring nothing, and a whole unit not go on without it? */
bool units_needs(const struct avg *a, const struct id *id);
/* Do all members of this head's unit live? true without units, and when no unit is whole: somebody must say so. */
bool units_whole(const struct avg *a, const struct mate *head);
/* Is the share made of the unit that it works in? Without one, yes. The leader's. */
bool units_made(const struct avg *a, const struct id *id);
void units_free(struct avg *a);

/* Cuts of the vector at all ends of extents, and for each piece its topology over those that hold it. */
int units_shape(const struct avg *a, const struct body *b, const struct topo_view *v, struct topo_plan *ret);

/* The unit of member i has said what it brings: all of its members have, and the same. The leader's. */
bool unit_ready(const struct round *r, size_t i);
/* Whoever is not in the attempt any more takes its unit out; members of which the head alone has samples. */
void units_settle(struct round *r);

#endif
