/* BLAKE3, sections 2.1 to 2.6 of the paper: chunks of 1 KiB make chaining values, these in pairs the next level's, of
 * which an odd last one goes up as it is; what makes the last one is the root. Chunks, and then pairs, are the lanes of
 * vectors: eight, or sixteen where there is AVX-512. */
#include <endian.h>
#include <string.h>
#include "common/blake3.h"
#include "common/blake_round.h"

#define BLOCK 64
#define CHUNK 1024
#define SPAN 256                                /* chunks whose values are kept at once; a power of two */

enum { CHUNK_START = 1, CHUNK_END = 2, PARENT = 4, ROOT = 8 };

#define INLINE static inline __attribute__((always_inline))

INLINE uint32_t load(const uint8_t *p)
{
	uint32_t w;
	memcpy(&w, p, 4);
	return le32toh(w);
}

INLINE void store(uint8_t *p, uint32_t w)
{
	w = htole32(w);
	memcpy(p, &w, 4);
}

#define SEVEN_ROUNDS do { \
	ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15); \
	ROUND(2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8); \
	ROUND(3, 4, 10, 12, 13, 2, 7, 14, 6, 5, 9, 0, 11, 15, 8, 1); \
	ROUND(10, 7, 12, 9, 14, 3, 13, 15, 4, 0, 11, 2, 5, 8, 1, 6); \
	ROUND(12, 13, 9, 11, 15, 10, 14, 8, 7, 2, 5, 3, 0, 1, 6, 4); \
	ROUND(9, 14, 11, 5, 8, 12, 15, 1, 13, 3, 0, 10, 2, 6, 4, 7); \
	ROUND(11, 15, 5, 0, 1, 9, 8, 6, 14, 10, 2, 12, 3, 4, 7, 13); \
} while (0)

/* ---- one by itself ---- */

#define ROTATE(x, n) ((x) >> (n) | (x) << (32 - (n)))
static void compress(uint32_t h[8], const uint8_t block[BLOCK], uint64_t t, uint32_t len, uint32_t flags)
{
	uint32_t m[16], v[16];

	for (int i = 0; i < 16; i++)
		m[i] = load(block + 4 * i);
	memcpy(v, h, 32);
	memcpy(v + 8, iv, 16);
	v[12] = (uint32_t)t;
	v[13] = (uint32_t)(t >> 32);
	v[14] = len;
	v[15] = flags;
	SEVEN_ROUNDS;
	for (int i = 0; i < 8; i++)
		h[i] = v[i] ^ v[i + 8];
}
#undef ROTATE

static void value(const uint32_t h[8], uint8_t out[32])
{
	for (int i = 0; i < 8; i++)
		store(out + 4 * i, h[i]);
}

/* A chunk of n bytes, at most CHUNK. */
static void chunk(const uint8_t *p, size_t n, uint64_t t, uint32_t flags, uint8_t out[32])
{
	uint32_t h[8], start = CHUNK_START;
	uint8_t room[BLOCK] = { 0 };

	memcpy(h, iv, 32);
	for (; n > BLOCK; p += BLOCK, n -= BLOCK, start = 0)
		compress(h, p, t, BLOCK, start);
	if (n)
		memcpy(room, p, n);
	compress(h, room, t, (uint32_t)n, start | CHUNK_END | flags);
	value(h, out);
}

static void parent(const uint8_t pair[BLOCK], uint32_t flags, uint8_t out[32])
{
	uint32_t h[8];

	memcpy(h, iv, 32);
	compress(h, pair, 0, BLOCK, PARENT | flags);
	value(h, out);
}

/* ---- many side by side ---- */

typedef uint32_t lanes8 __attribute__((vector_size(32)));
typedef uint8_t bytes8 __attribute__((vector_size(32)));
typedef uint32_t lanes16 __attribute__((vector_size(64)));
typedef uint8_t bytes16 __attribute__((vector_size(64)));

/* m[w], lane l: word w of block l. Eight rows of eight words are turned by pairs, by fours and by halves. */
INLINE void turn8x8(const uint8_t *const p[8], size_t at, lanes8 *m)
{
	lanes8 a[8], b[8];

#pragma GCC unroll 8
	for (size_t i = 0; i < 8; i++)
		memcpy(&a[i], p[i] + at, sizeof a[i]);
#pragma GCC unroll 4
	for (int i = 0; i < 8; i += 2) {
		b[i] = __builtin_shufflevector(a[i], a[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
		b[i + 1] = __builtin_shufflevector(a[i], a[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
	}
#pragma GCC unroll 2
	for (int i = 0; i < 8; i += 4)
#pragma GCC unroll 2
		for (int k = 0; k < 2; k++) {
			a[i + 2 * k] = __builtin_shufflevector(b[i + k], b[i + k + 2], 0, 1, 8, 9, 4, 5, 12, 13);
			a[i + 2 * k + 1] = __builtin_shufflevector(b[i + k], b[i + k + 2], 2, 3, 10, 11, 6, 7, 14, 15);
		}
#pragma GCC unroll 4
	for (int i = 0; i < 4; i++) {
		m[i] = __builtin_shufflevector(a[i], a[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
		m[i + 4] = __builtin_shufflevector(a[i], a[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
	}
}

INLINE void turn8(const uint8_t *const p[8], size_t at, lanes8 m[16])
{
	turn8x8(p, at, m);
	turn8x8(p, at + BLOCK / 2, m + 8);
#if __BYTE_ORDER == __BIG_ENDIAN
	for (int i = 0; i < 16; i++)
		for (int l = 0; l < 8; l++)
			m[i][l] = le32toh(m[i][l]);
#endif
}

/* Rows i and i + 8 are dealt like two halves of a pack of cards; four times, that is a transposition. x86 only. */
INLINE void deal(const lanes16 a[16], lanes16 b[16])
{
#pragma GCC unroll 8
	for (int i = 0; i < 8; i++) {
		b[2 * i] = __builtin_shufflevector(a[i], a[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
		b[2 * i + 1] = __builtin_shufflevector(a[i], a[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
			31);
	}
}

INLINE void turn16(const uint8_t *const p[16], size_t at, lanes16 m[16])
{
	lanes16 a[16];

#pragma GCC unroll 16
	for (size_t i = 0; i < 16; i++)
		memcpy(&m[i], p[i] + at, sizeof m[i]);
	deal(m, a);
	deal(a, m);
	deal(m, a);
	deal(a, m);
}

#define LANES 8
#define V(name) name##8
#include "common/blake3_lanes.h"
#undef LANES
#undef V
#define LANES 16
#define V(name) name##16
#include "common/blake3_lanes.h"
#undef LANES
#undef V

static void chunks_plain(const uint8_t *p, size_t n, uint64_t t, uint8_t *out) { chunks8(p, n, t, true, out); }
static void parents_plain(const uint8_t *p, size_t n, uint8_t *out) { parents8(p, n, true, out); }

#ifdef __x86_64__
#define AVX2 __attribute__((target("avx2")))
#define AVX512 __attribute__((target("avx512f,avx512vl,avx512bw")))
AVX2 static void chunks_avx2(const uint8_t *p, size_t n, uint64_t t, uint8_t *out) { chunks8(p, n, t, false, out); }
AVX2 static void parents_avx2(const uint8_t *p, size_t n, uint8_t *out) { parents8(p, n, false, out); }
AVX512 static void chunks_avx512(const uint8_t *p, size_t n, uint64_t t, uint8_t *out)
{
	if (n > 8)
		chunks16(p, n, t, true, out);
	else
		chunks8(p, n, t, true, out);
}
AVX512 static void parents_avx512(const uint8_t *p, size_t n, uint8_t *out)
{
	if (n > 8)
		parents16(p, n, true, out);
	else
		parents8(p, n, true, out);
}
#endif

static const struct kernel {
	void (*chunks)(const uint8_t *p, size_t n, uint64_t t, uint8_t *out);
	void (*parents)(const uint8_t *p, size_t n, uint8_t *out);
} kernels[] = {
	[BLAKE3_PLAIN] = { chunks_plain, parents_plain },
#ifdef __x86_64__
	[BLAKE3_AVX2] = { chunks_avx2, parents_avx2 },
	[BLAKE3_AVX512] = { chunks_avx512, parents_avx512 },
#endif
};

/* ---- the tree ---- */

/* The values of n bytes, more than none, that begin with chunk t, of at most SPAN chunks: how many. */
static size_t leaves(const struct kernel *k, const uint8_t *p, size_t n, uint64_t t, uint8_t *out)
{
	size_t whole = n / CHUNK;

	if (whole)
		k->chunks(p, whole, t, out);
	if (n % CHUNK)
		chunk(p + whole * CHUNK, n % CHUNK, t + whole, 0, out + whole * 32);
	return whole + (n % CHUNK != 0);
}

/* One level up, in place. */
static size_t level(const struct kernel *k, uint8_t *values, size_t n)
{
	k->parents(values, n / 2, values);
	if (n % 2)
		memmove(values + n / 2 * 32, values + (n - 1) * 32, 32);
	return n / 2 + n % 2;
}

/* The two values under the top of n bytes, more than a chunk. A subtree on the left has a power of two of chunks. */
static void top(const struct kernel *k, const uint8_t *p, size_t n, uint64_t t, uint8_t pair[BLOCK])
{
	uint8_t values[SPAN * 32], under[BLOCK];
	size_t left = CHUNK, m;

	if (n <= SPAN * CHUNK) {
		for (m = leaves(k, p, n, t, values); m > 2;)
			m = level(k, values, m);
		memcpy(pair, values, BLOCK);
		return;
	}
	while (left * 2 < n)
		left *= 2;
	top(k, p, left, t, under);
	parent(under, 0, pair);
	if (n - left <= CHUNK) {
		chunk(p + left, n - left, t + left / CHUNK, 0, pair + 32);
		return;
	}
	top(k, p + left, n - left, t + left / CHUNK, under);
	parent(under, 0, pair + 32);
}

bool blake3_by(enum blake3_isa isa, const void *p, size_t n, uint8_t out[32])
{
	uint8_t pair[BLOCK];

#ifdef __x86_64__
	if ((isa == BLAKE3_AVX2 && !__builtin_cpu_supports("avx2")) || (isa == BLAKE3_AVX512 &&
			(!__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512bw"))))
		return false;
#else
	if (isa != BLAKE3_PLAIN)
		return false;
#endif
	if (n <= CHUNK) {
		chunk(p, n, 0, ROOT, out);
		return true;
	}
	top(&kernels[isa], p, n, 0, pair);
	parent(pair, ROOT, out);
	return true;
}

void blake3_of(const void *p, size_t n, uint8_t out[32])
{
	if (!blake3_by(BLAKE3_AVX512, p, n, out) && !blake3_by(BLAKE3_AVX2, p, n, out))
		(void)blake3_by(BLAKE3_PLAIN, p, n, out);
}
