/* Who holds which elements of the vector (avg.h, units.h): what can be, and what a body says of its parts. Pure. */
#ifndef AVG_HOLDING_H
#define AVG_HOLDING_H
#include "avg/wire.h"

/* Of n members those of each unit, 0 to units - 1, lie end to end from element 0 to len; whoever is in none brings
 * nothing; everybody keeps at least what it brings. ERR_PROTOCOL says which does not. */
int holdings_check(const struct holding *h, size_t n, size_t units, uint64_t len, struct err *e);
/* No part crosses the end of an extent, and each is owned by one that keeps it. The holdings are checked. */
int body_holders_check(const struct body *b, struct err *e);

#endif
