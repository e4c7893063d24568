/* What a signature of the averager covers: a label, so that none passes for one of something else, the run, so that
 * none passes in another one, and fields, which the caller puts behind them. */
#ifndef AVG_SIGNED_H
#define AVG_SIGNED_H
#include "common/buf.h"
#include "net/net.h"

struct buf signed_head(const char *label, const struct id *run);
/* Both free the bytes. */
void signed_make(struct buf *b, const struct net *n, uint8_t ret[SIG_BYTES]);
bool signed_by(struct buf *b, const struct id *who, const uint8_t sig[SIG_BYTES]);

#endif
