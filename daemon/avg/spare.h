/* Memory that goes from round to round (spare.c). */
#ifndef AVG_SPARE_H
#define AVG_SPARE_H
#include "avg/avg.h"

struct round;
struct rpart;
void *spare_get(struct avg *a, size_t bytes);
/* Where a piece goes that has begun to come, had or a spare; NULL: no memory, and that is told once a round. Before it
 * comes, a member costs nothing: a BEGIN may name a thousand who are nobody. */
void *piece_room(struct round *r, void *had, size_t bytes);
void spare_put(struct avg *a, void *p, size_t bytes);
float *round_base(const void *p, uint64_t lo);
struct lease *round_room(struct avg *a, size_t bytes);         /* for a mean; NULL: there is no memory */
/* What encoding left out: of this peer's pieces for another, of the sums of its row, or of its means. */
enum residue { OF_PIECE, OF_ROW, OF_MEAN };
struct residual { uint64_t off, len; enum residue of; float *v; };
enum residue residual_role(const struct round *r, const struct rpart *rp);
/* Of the last round, and for this one; NULL: without memory there is no feedback. */
void residual_begin(struct round *r, struct rpart *rp, enum residue of, float **ret_was, float **ret_now);
void sum_settle(struct round *r, bool committed);
void sum_free(struct round *r, size_t part);
void residuals_clear(struct avg *a);
#endif
