/* One IDX file (http://yann.lecun.com/exdb/mnist/: two zero bytes, a type byte, the number of dimensions, each as a
 * big-endian u32, then the data), plain or compressed with gzip, read strictly. */
#ifndef TRAIN_DATA_IDX_H
#define TRAIN_DATA_IDX_H
#include <stddef.h>
#include <stdint.h>
#include "common/err.h"

#define IDX_DIMS 8
enum idx_type { IDX_U8 = 0x08, IDX_I8 = 0x09, IDX_I16 = 0x0b, IDX_I32 = 0x0c, IDX_F32 = 0x0d, IDX_F64 = 0x0e };
struct idx_head { enum idx_type type; unsigned ndim, elem; uint64_t dim[IDX_DIMS], count, bytes, data_at; };

/* What is at the start of a file; n: bytes that are there (at most 4 + 4 * IDX_DIMS are needed). count: product of all
 * dimensions, bytes: of the data. Errors: ERR_CORRUPT. */
int idx_head_parse(struct idx_head *ret, const void *p, size_t n, struct err *e);

/* A plain file of n bytes has just what its header promises. */
int idx_length_check(const struct idx_head *h, uint64_t n, struct err *e);

/* A whole file in memory, decompressed if it was; *ret_data belongs to the caller (big_free, data_at + bytes). */
int idx_parse(struct idx_head *ret, uint8_t **ret_data, const void *file, size_t n, struct err *e);

#endif
