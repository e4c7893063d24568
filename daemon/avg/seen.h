/* The book of members in a point of the history (struct avg_seen in avg.h). */
#ifndef AVG_SEEN_H
#define AVG_SEEN_H
#include "avg/wire.h"

#define SEEN_MAX 256                            /* of more members this many stand for all */
#define SEEN_LATELY 16                          /* epochs for which one may be away, and is here all the same */

/* NULL: never was a member, or long ago */
const struct avg_seen *seen_find(const struct avg_point *p, const struct id *id);
/* Had it stood at that point, or lately before it? The same at all who hold that point, however they went on then. */
bool seen_lately(const struct avg_seen *s, uint64_t epoch);
void seen_commit(struct avg_point *p, const struct body *c);    /* COMMIT c makes the point from the one before */
void seen_copy(struct avg_point *to, const struct avg_point *from);
json_t *seen_json(const struct avg_point *p);
int seen_parse(struct avg_point *p /* its epoch is set */, const json_t *j, struct err *e);
void seen_put(struct buf *b, const struct avg_point *p);
int seen_get(struct rd *r, struct avg_point *p /* its epoch is set */, struct err *e);

#endif
