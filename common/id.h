/* 256-bit ids: peers (Ed25519 public keys), DHT keys, runs. Compared and XORed big-endian. */
#ifndef COMMON_ID_H
#define COMMON_ID_H
#include <stdbool.h>
#include <stdint.h>
#include "common/err.h"

struct id { uint8_t b[32]; };
#define ID_HEX 65   /* 64 digits and NUL */

bool id_eq(const struct id *a, const struct id *b);
int id_cmp(const struct id *a, const struct id *b);                 /* memcmp order */
bool id_zero(const struct id *a);
void id_xor(const struct id *a, const struct id *b, struct id *ret);
int id_closer(const struct id *target, const struct id *a, const struct id *b); /* <0 when a is nearer to target */
int id_prefix_bits(const struct id *a, const struct id *b);         /* equal leading bits, 0..256 */
void id_hex(const struct id *a, char out[ID_HEX]);
const char *id_short(const struct id *a, char out[9]);              /* first 8 digits; returns out */
int id_parse(struct id *ret, const char *hex64, struct err *e);
void id_of(struct id *ret, const void *p, unsigned long n);         /* SHA-256 */

#endif
