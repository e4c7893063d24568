/* Bytes: a growing writer and a bounds-checked reader, little-endian. The only binary encoder and decoder. */
#ifndef COMMON_BUF_H
#define COMMON_BUF_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf { uint8_t *p; size_t len, cap; };            /* {0} is an empty one */
void buf_free(struct buf *b);
void buf_clear(struct buf *b);                          /* len = 0, keeps the memory */
void *buf_grow(struct buf *b, size_t n);                /* n more bytes, uninitialised; pointer to them */
void buf_put(struct buf *b, const void *p, size_t n);
void buf_u8(struct buf *b, uint8_t v);
void buf_u16(struct buf *b, uint16_t v);
void buf_u32(struct buf *b, uint32_t v);
void buf_u64(struct buf *b, uint64_t v);
void buf_f64(struct buf *b, double v);
void buf_str(struct buf *b, const char *s);             /* u16 length + bytes */
/* text, no NUL counted, NUL kept behind */
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_drop(struct buf *b, size_t n);                 /* removes n bytes from the front */

/* Reader: a read past the end returns zeros and sets bad; check once at the end. */
struct rd { const uint8_t *p; size_t len, at; bool bad; };
struct rd rd_of(const void *p, size_t n);
uint8_t rd_u8(struct rd *r);
uint16_t rd_u16(struct rd *r);
uint32_t rd_u32(struct rd *r);
uint64_t rd_u64(struct rd *r);
double rd_f64(struct rd *r);
const uint8_t *rd_bytes(struct rd *r, size_t n);        /* NULL and bad when too short */
bool rd_str(struct rd *r, char *out, size_t cap);       /* false and bad when too long or short */
size_t rd_left(const struct rd *r);

#endif
