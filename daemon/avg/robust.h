/* Inside of reduce.c: blocks of a part that may be encoded, and the means that few members cannot move. */
#ifndef AVG_ROBUST_H
#define AVG_ROBUST_H
#include "avg/reduce.h"

/* Elements [at, at + len) of a part; byte: where they begin in an encoded term. */
struct blocks { const struct coding *c; uint64_t off, at, len, byte; size_t n; struct coding_piece piece;
	struct par par; };
void blocks_begin(struct blocks *b, const struct coding *c, uint64_t off, size_t n);
bool blocks_next(struct blocks *b);
/* The block of a term, decoded to room (CODEC_BLOCK_MAX floats) if need be; marks the term when it is not finite. */
const float *blocks_of(const struct blocks *b, struct reduce_term *t, float *room);

int robust_part(const struct coding *c, uint64_t off, size_t n, struct reduce_term *t, size_t terms, uint64_t total,
	enum robust robust, float *out);

#endif
