/* One piece of what every owner has summed is summed again by another member (audit.c). */
#ifndef AVG_AUDIT_H
#define AVG_AUDIT_H
#include "avg/int.h"

void audit_committed(struct round *r);          /* its COMMIT is the point; what it has summed is still here */
void audit_on(struct avg *a, struct request *req);
void wrong_on(struct avg *a, struct request *req);
bool audit_owns(const struct avg *a, const struct mate *m);     /* may it be given parts to sum? */
uint64_t audits_done(const struct avg *a, bool right);  /* for tests: how many said so */
void audits_free(struct avg *a);

#endif
