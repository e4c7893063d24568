/* What BLAKE2s and BLAKE3 have in common: the initial values and the round (RFC 7693, 3.1 and 3.2). Of v[16] and m[16],
 * which are words or vectors of words; ROTATE(x, n), to the right, is the includer's. */
#ifndef COMMON_BLAKE_ROUND_H
#define COMMON_BLAKE_ROUND_H
#include <stdint.h>

static const uint32_t iv[8] = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab,
	0x5be0cd19 };

#define G(a, b, c, d, x, y) do { \
	a += b + (x); d = ROTATE(d ^ a, 16); c += d; b = ROTATE(b ^ c, 12); \
	a += b + (y); d = ROTATE(d ^ a, 8); c += d; b = ROTATE(b ^ c, 7); \
} while (0)
#define ROUND(s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, sa, sb, sc, sd, se, sf) do { \
	G(v[0], v[4], v[8], v[12], m[s0], m[s1]); G(v[1], v[5], v[9], v[13], m[s2], m[s3]); \
	G(v[2], v[6], v[10], v[14], m[s4], m[s5]); G(v[3], v[7], v[11], v[15], m[s6], m[s7]); \
	G(v[0], v[5], v[10], v[15], m[s8], m[s9]); G(v[1], v[6], v[11], v[12], m[sa], m[sb]); \
	G(v[2], v[7], v[8], v[13], m[sc], m[sd]); G(v[3], v[4], v[9], v[14], m[se], m[sf]); \
} while (0)

#endif
