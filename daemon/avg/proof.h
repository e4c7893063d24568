/* Two COMMITs of one epoch by one leader: found, proved, told on. */
#ifndef AVG_PROOF_H
#define AVG_PROOF_H
#include "avg/int.h"

void proof_look(struct avg *a, const struct body_head *h);      /* of a COMMIT that came, verified */
/* A COMMIT that this peer takes; c may be moved afterwards. */
void proof_keep(struct avg *a, const struct body *c, const void *bytes, size_t n);
void proof_on(struct avg *a, struct request *req);
void proofs_put(const struct avg *a, json_t *j);                /* into a JOIN, or its answer */
void proofs_take(struct avg *a, const json_t *j, const struct id *from);
void proofs_tell(struct avg *a, const struct mate *m);          /* it has been taken in */
/* A leader that has been found out since the last call; the others have been told. false: none. */
bool proofs_next(struct avg *a, struct id *ret_by);
void proofs_act(struct avg *a);                                 /* gone.c: bans; from the kick */
void proofs_free(struct avg *a);
void proof_show(const struct avg *a, uint64_t epoch, json_t *j);
void proof_ask(struct avg *a, const struct id *who, uint64_t epoch);

#endif
