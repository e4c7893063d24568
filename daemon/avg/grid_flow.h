/* Rounds in a grid: the member's transfers and sums (grid_flow.c, grid_lines.c), the leader's stands and hashes
 * (grid_lead.c). Where flow.h's functions of int.h ask for r->flow, these take their place. */
#ifndef AVG_GRID_FLOW_H
#define AVG_GRID_FLOW_H
#include "avg/int.h"

void grid_flow_new(struct round *r);            /* of r->b.grid, which has dims */
void grid_flow_free(struct round *r);           /* no job is under way */
void grid_flow_stop(struct round *r, bool results_too);
bool grid_flow_idle(const struct round *r);
void grid_flow_send(struct round *r);           /* the owner's vector may have come */
/* What holds in this attempt, of remote bytes, n as in r->b.grid; r's is unchanged when -1. */
int grid_flow_stand(struct round *r, const uint8_t *stand, const uint64_t *w, struct err *e);
void grid_flow_attempt(struct round *r);
bool grid_flow_complete(const struct round *r); /* the mean is here, and what others wait for has been sent off */
void grid_flow_culprits(const struct round *r, bool *bad /* by member; sets only */);
bool grid_flow_touches(const struct round *r, size_t i);
bool grid_flow_agrees(const struct round *r, const struct body *commit);        /* with those of its line */

/* Digests are compared within a line of the last phase: SHA-256 of the hashes of all parts. */
void grid_hash(const uint8_t *part_hashes, size_t parts, uint8_t ret[TREE256]);
void grid_hash_own(const struct round *r, uint8_t ret[TREE256]);
size_t grid_last_line(const struct grid *g, size_t member);

/* ---- the leader's ---- */
/* Stands for the next attempt; who is gone or late counts no more. false: nobody is left who contributed. */
bool grid_lead_reassign(struct round *r);
void grid_lead_commit(struct round *r, struct body *c); /* grid and the hash that most members of each line have */
/* May a round begin in a grid: the codec travels without loss, and this epoch does not agree anew. */
bool grid_lead_may(const struct avg *a, const struct body *b);
/* -1, and r->coding is free: a BEGIN or COMMIT in a grid that this run would not have. */
int grid_allowed(struct round *r, const struct body *b, struct err *e);
#endif
