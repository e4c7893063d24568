/* Transfers, the part of both directions that knows chunks: how long they are, and what they hash to. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "net/chunk_int.h"

void xfer_cut(struct xfer *x, size_t step)
{
	x->step = step;
	x->nchunks = x->len ? (x->len + step - 1) / step : 1;
	free(x->have);
	x->have = xcalloc((x->nchunks + 7) / 8, 1);
}

/* A frame costs the same whatever is in it: where the path is short half as many do. */
size_t xfer_step(const struct xfer *x)
{
	return x->len > CHUNK_BYTES && net_moves(x->c->net, &x->key.peer) & MOVES_LARGE ? NET_CHUNK_MAX : CHUNK_BYTES;
}

void xfer_hash_prefix(struct xfer *x, const uint8_t *data)
{
	if (!x->hash) {                         /* many that are awaited never begin */
		x->hash = XXH3_createState();
		XXH3_128bits_reset(x->hash);
	}
	XXH3_128bits_update(x->hash, data ? data + x->hashed * x->step : NULL, chunk_len(x, x->hashed));
	x->hashed++;
}

void xfer_digest(const struct xfer *x, uint8_t ret[16])
{
	XXH128_canonical_t canonical;

	XXH128_canonicalFromHash(&canonical, x->hash ? XXH3_128bits_digest(x->hash) : XXH3_128bits(NULL, 0));
	memcpy(ret, canonical.digest, 16);
}
