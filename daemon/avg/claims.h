/* Which of the samples that members say they bring may count, and how finely positions may be cut (claims.c). */
#ifndef AVG_CLAIMS_H
#define AVG_CLAIMS_H
#include "avg/int.h"

#define CLAIMS_PIECES 64                        /* intervals that one is given at most */
/* done: committed, and claimed by those that were taken; last: the COMMIT of this point, once it is needed */
struct claims { const struct round *r; struct ranges done, claimed; size_t room; uint64_t end; struct body last; };
void claims_begin(struct claims *c, const struct round *r);
/* false: it does not count, and an event says so */
bool claims_take(struct claims *c, size_t member, const struct ready *ready);
void claims_end(struct claims *c);
size_t claims_pieces(const struct round *r, size_t members);    /* of what each is given */
/* Can the committed positions be written down with this COMMIT? */
int claims_check(const struct avg *a, const struct body *c, struct err *e);
uint64_t claims_end_of(const struct avg *a);    /* no honest claim reaches beyond */

/* grant.c: what this peer has that its leader did not give it, NULL: nothing; and what a member says it has so */
json_t *grant_held(const struct avg *a);
void grant_told(struct avg *a, struct mate *m, const json_t *held);

#endif
