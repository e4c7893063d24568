/* Inside the byte-pair encoder: bpe.c (encoding), bpe_read.c (the file), bpe_split.c (words). */
#ifndef TRAIN_DATA_BPE_INT_H
#define TRAIN_DATA_BPE_INT_H
#include "train/data/bpe.h"

struct merge { int32_t left, right, id; uint32_t rank; };       /* left -1: the slot is free */
struct added { char *text; size_t n; int32_t id; bool lstrip, rstrip, second, special; };

struct bpe {
	size_t size;
	uint32_t *at;                           /* size + 1: where the bytes of each id begin */
	char *bytes;
	int32_t byte_id[256];                   /* of single bytes */
	struct merge *merge; size_t mask;       /* a table of mask + 1 slots */
	struct added *added; size_t nadded;
	bool starts[256];                       /* does an added token begin with this byte? */
	bool prefix_space, whole;               /* whole: the text is one word */
};

struct merge *bpe_merge(const struct bpe *b, int32_t left, int32_t right);      /* its slot, free or not */

#endif
