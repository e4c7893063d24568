/* Signatures under a label, a run and fields (signed.h). */
#include <string.h>
#include "avg/signed.h"

struct buf signed_head(const char *label, const struct id *run)
{
	struct buf b = { 0 };
	buf_put(&b, label, strlen(label) + 1);
	buf_put(&b, run->b, 32);
	return b;
}

void signed_make(struct buf *b, const struct net *n, uint8_t ret[SIG_BYTES])
{
	net_sign(n, b->p, b->len, ret);
	buf_free(b);
}

bool signed_by(struct buf *b, const struct id *who, const uint8_t sig[SIG_BYTES])
{
	bool ok = net_verify(who, b->p, b->len, sig);
	buf_free(b);
	return ok;
}
