/* Inside of epochs: what progress.c goes by. */
#ifndef AVG_SHARE_H
#define AVG_SHARE_H
#include "avg/int.h"

bool share_brings(const struct mate *m);        /* samples, to the epoch at hand */
uint64_t share_quota(const struct avg *a, const struct mate *m);        /* conf.each, in samples */
uint64_t share_due(const struct avg *a, const struct mate *m);  /* a head, or conf.each: what is waited for */
bool share_made(const struct avg *a, const struct mate *m);     /* of a head that has reported: it is all there */
bool share_each(const struct avg *a);           /* everybody has an amount of its own to bring */
uint64_t share_patience(const struct avg *a);   /* with a leader that answers, and does not begin */

#endif
