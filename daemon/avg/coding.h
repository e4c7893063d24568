/* Which element of the averaged vector travels in which encoding (kernels/codec.h), from "averaging.codec":
 *
 *     "fp16"                                                     everything
 *     {"default": "blockwise8", "vector": "none", "small": "none", "small_below": 4096}
 *
 * Roles: "matrix" (two dimensions and more), "vector" (one: biases, norms), "state" (the optimizer's). "small": tensors
 * of less than small_below elements (1024), whatever their role. What is not named is "default", and that "none". */
#ifndef AVG_CODING_H
#define AVG_CODING_H
#include <jansson.h>
#include <stdbool.h>
#include "common/err.h"
#include "kernels/codec.h"

enum avg_role { AVG_MATRIX, AVG_VECTOR, AVG_STATE, AVG_ROLES, AVG_EXACT = AVG_ROLES /* never encoded: a variance */ };
struct avg_tensor { uint64_t len; enum avg_role role; };        /* elements */

/* Runs of elements [lo, hi) in order, without gaps; neighbours have different codecs. */
struct coding_run { uint64_t lo, hi; const struct codec_ops *codec; };
struct coding { struct coding_run *run; size_t n; };

/* NULL or JSON null: none. An error names the key and what would be right. */
int coding_check(const json_t *spec, struct err *e);
/* tensors: together at most len elements; what is behind them is a matrix. spec as checked: errors as above. */
int coding_make(struct coding *ret, const json_t *spec, const struct avg_tensor *t, size_t tensors, uint64_t len,
	struct err *e);
void coding_free(struct coding *c);
bool coding_plain(const struct coding *c, uint64_t off, uint64_t len);  /* the bytes are the floats' own */
size_t coding_bytes(const struct coding *c, uint64_t off, uint64_t len);
/* x: the floats of [off, off + len) alone; out, in: coding_bytes of it. */
void coding_encode(const struct coding *c, uint64_t off, uint64_t len, const float *x, uint8_t *out);
void coding_decode(const struct coding *c, uint64_t off, uint64_t len, const uint8_t *in, float *x);

/* The pieces that can be decoded one by one: start with {0}, false at the end. */
struct coding_piece { const struct codec_ops *codec; uint64_t at, len, byte; /* from off on */ size_t run; };
bool coding_next(const struct coding *c, uint64_t off, uint64_t len, struct coding_piece *p);

#endif
