/* Distances between members, from READY to the rows of the next round. */
#ifndef AVG_NEAR_H
#define AVG_NEAR_H
#include "avg/int.h"

/* One byte for each member: 0 not known, else 1 + 8 log2 of the us that it takes to hand over 64 KiB. */
void near_codes(const struct round *r, uint8_t *ret);
json_t *near_json(const struct round *r);       /* for READY: {"near": hex}, or NULL when the round has no rows */
void near_take(struct round *r, size_t member, const json_t *ready);    /* leader */
void near_rows(struct round *r, uint16_t *ret_next);    /* leader: the row of every member of the round next time */

#endif
