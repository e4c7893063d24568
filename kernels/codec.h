/* Encodings of vectors for the wire: fewer bytes per element, at a stated loss. Bit-exact on every CPU and for every
 * par->n (rules of vec.h): only + - x / of float and double in the written order, and integers. To add one: a file
 * codec/NAME.c and a line in codec/list.h.
 *
 * A vector is cut into blocks of ops->block elements from its beginning; a block's bytes depend on that block alone and
 * its size on its length alone, so that encoding from any multiple of `block` on is encoding the whole. Numbers are
 * little-endian. A block that holds a NaN or an infinity decodes to NaN where a common scale cannot say it better:
 * nothing that is not finite becomes finite. Decoding takes any bytes (they come from other machines) and cannot
 * fail; what they mean may be NaN or infinite. */
#ifndef KERNELS_CODEC_H
#define KERNELS_CODEC_H
#include "kernels/par.h"

#define CODEC_BLOCK_MAX 16384           /* every block divides it */

struct codec_ops {
	const char *name, *help;
	size_t block;                           /* elements that are encoded together */
	int lossy;                              /* decoding does not give the same bits */
	size_t (*bytes)(size_t n);              /* of n elements; additive over multiples of block */
	void (*encode)(const struct par *, size_t n, const real *x, uint8_t *out);      /* out: bytes(n) */
	void (*decode)(const struct par *, size_t n, const uint8_t *in, real *x);       /* in: bytes(n) */
};

const struct codec_ops *codec_find(const char *name);           /* NULL: unknown */
const struct codec_ops *codec_at(int i);                        /* i-th of the list; NULL past the end */
const char *codec_names(char *out, size_t cap);                 /* "none fp16 ..." for error texts */

#endif
