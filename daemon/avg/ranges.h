/* Sets of sample positions: sorted, disjoint, non-touching half-open intervals [lo, hi). */
#ifndef AVG_RANGES_H
#define AVG_RANGES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <jansson.h>
#include "common/err.h"

struct range { uint64_t lo, hi; };
struct ranges { struct range *v; size_t n, cap; };      /* {0} is empty */
#define RANGES_END (1ull << 62)                 /* positions are below */
#define RANGES_MAX 4096                                 /* intervals in a set that came from the wire */

void ranges_free(struct ranges *r);
void ranges_clear(struct ranges *r);
void ranges_copy(struct ranges *to, const struct ranges *from);
void ranges_add(struct ranges *r, uint64_t lo, uint64_t hi);            /* union */
void ranges_add_all(struct ranges *r, const struct ranges *s);
void ranges_sub(struct ranges *r, uint64_t lo, uint64_t hi);            /* difference */
void ranges_sub_all(struct ranges *r, const struct ranges *s);
bool ranges_has(const struct ranges *r, uint64_t x);
bool ranges_overlap(const struct ranges *a, const struct ranges *b);
bool ranges_inside(const struct ranges *a, const struct ranges *b);     /* a is a subset of b */
uint64_t ranges_count(const struct ranges *r);                          /* positions */
/* Takes the n lowest positions out of r into ret (fewer when there are fewer). */
void ranges_take(struct ranges *r, uint64_t n, struct ranges *ret);
json_t *ranges_json(const struct ranges *r);                            /* [[lo,hi],...] */
int ranges_parse(struct ranges *ret, const json_t *j, struct err *e);

#endif
