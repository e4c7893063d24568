/* BLAKE2sp (Aumasson, Neves, Wilcox-O'Hearn, Winnerlein, "BLAKE2: simpler, smaller, fast as MD5", ACNS 2013, section
 * 2.8; the compression function as in RFC 7693): block i of 64 bytes belongs to leaf i mod 8, and a root hashes the
 * eight leaves' digests. The leaves are the eight lanes of one vector: the compiler cuts it as the instruction set
 * wants it. */
#include <endian.h>
#include <stdbool.h>
#include <string.h>
#include "common/blake2sp.h"
#include "common/blake_round.h"

#define LEAVES 8
#define BLOCK 64
#define STRIPE (LEAVES * BLOCK)                 /* a block of each leaf */
#define ROUNDS 10

typedef uint32_t lanes __attribute__((vector_size(4 * LEAVES)));
typedef int32_t mask __attribute__((vector_size(4 * LEAVES)));     /* of a lane all bits or none */

struct state { lanes h[8]; };
/* A block of every lane, and what it is: bytes of the lane up to its end; flags of the lane's last block. */
struct stripe { const uint8_t *p; lanes t, last, last_node; };

#define INLINE static inline __attribute__((always_inline))

INLINE lanes all(uint32_t x) { return (lanes){ x, x, x, x, x, x, x, x }; }
INLINE lanes ror(lanes x, int n) { return x >> n | x << (32 - n); }

/* m[w], lane l: word w of block l. Eight rows of eight words are turned by pairs, by fours and by halves. */
INLINE void turn(const uint8_t *p, lanes *m)
{
	lanes a[LEAVES], b[LEAVES];

	for (int i = 0; i < LEAVES; i++)
		memcpy(&a[i], p + i * BLOCK, sizeof a[i]);
	for (int i = 0; i < LEAVES; i += 2) {
		b[i] = __builtin_shufflevector(a[i], a[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
		b[i + 1] = __builtin_shufflevector(a[i], a[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
	}
	for (int i = 0; i < LEAVES; i += 4)
		for (int k = 0; k < 2; k++) {
			a[i + 2 * k] = __builtin_shufflevector(b[i + k], b[i + k + 2], 0, 1, 8, 9, 4, 5, 12, 13);
			a[i + 2 * k + 1] = __builtin_shufflevector(b[i + k], b[i + k + 2], 2, 3, 10, 11, 6, 7, 14, 15);
		}
	for (int i = 0; i < 4; i++) {
		m[i] = __builtin_shufflevector(a[i], a[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
		m[i + 4] = __builtin_shufflevector(a[i], a[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
	}
}

INLINE void load(const uint8_t *p, lanes m[16])
{
	turn(p, m);
	turn(p + BLOCK / 2, m + 8);
#if __BYTE_ORDER == __BIG_ENDIAN
	for (int i = 0; i < 16; i++)
		for (int l = 0; l < LEAVES; l++)
			m[i][l] = le32toh(m[i][l]);
#endif
}

#define ROTATE(x, n) ror(x, n)
INLINE void compress(struct state *s, const struct stripe *b)
{
	lanes m[16], v[16];

	load(b->p, m);
	for (int i = 0; i < 8; i++) {
		v[i] = s->h[i];
		v[i + 8] = all(iv[i]);
	}
	v[12] ^= b->t;
	v[14] ^= b->last;
	v[15] ^= b->last_node;
	ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
	ROUND(14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3);
	ROUND(11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4);
	ROUND(7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8);
	ROUND(9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13);
	ROUND(2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9);
	ROUND(12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11);
	ROUND(13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10);
	ROUND(6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5);
	ROUND(10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0);
	for (int i = 0; i < 8; i++)
		s->h[i] ^= v[i] ^ v[i + 8];
}

/* The parameter block of section 2.5: 32 bytes of digest, fanout 8, depth 2, node's offset and depth, 32 inner bytes.
 * */
INLINE void begin(struct state *s, lanes offset, uint32_t depth)
{
	for (int i = 0; i < 8; i++)
		s->h[i] = all(iv[i]);
	s->h[0] ^= all(32 | LEAVES << 16 | 2 << 24);
	s->h[2] ^= offset;
	s->h[3] ^= all(depth << 16 | 32u << 24);
}

/* The stripe at `at` of which something is missing, or that is the last of some leaf: what a leaf does not have is not
 * compressed. */
INLINE void finish(struct state *s, const uint8_t *p, size_t n, size_t at)
{
	static const lanes is_last_node = { 0, 0, 0, 0, 0, 0, 0, ~0u };
	uint8_t room[STRIPE] = { 0 };
	struct state old = *s;
	struct stripe b = { .p = room };
	mask goes;

	if (at < n)
		memcpy(room, p + at, n - at < STRIPE ? n - at : STRIPE);
	for (size_t l = 0; l < LEAVES; l++) {
		size_t from = at + l * BLOCK, here = from >= n ? 0 : n - from < BLOCK ? n - from : BLOCK;
		size_t before = at / LEAVES;

		goes[l] = here || !at ? -1 : 0;
		b.t[l] = (uint32_t)(before + here);
		b.last[l] = from + STRIPE >= n ? ~0u : 0;
	}
	b.last_node = b.last & is_last_node;
	compress(s, &b);
	for (int i = 0; i < 8; i++)
		s->h[i] = (s->h[i] & (lanes)goes) | (old.h[i] & ~(lanes)goes);
}

/* Of the eight digests; only lane 0 is looked at. */
INLINE void root(const struct state *leaves, uint8_t out[32])
{
	uint8_t room[4][STRIPE] = { 0 };
	struct state s;

	for (size_t l = 0; l < LEAVES; l++)
		for (size_t i = 0; i < 8; i++) {
			uint32_t w = htole32(leaves->h[i][l]);
			memcpy(room[l / 2] + l % 2 * 32 + 4 * i, &w, 4);
		}
	begin(&s, all(0), 1);
	for (uint32_t i = 0; i < 4; i++) {
		uint32_t last = i == 3 ? ~0u : 0;
		struct stripe b = { .p = room[i], .t = all((i + 1) * BLOCK), .last = all(last), .last_node = all(last) };

		compress(&s, &b);
	}
	for (size_t i = 0; i < 8; i++) {
		uint32_t w = htole32(s.h[i][0]);
		memcpy(out + 4 * i, &w, 4);
	}
}

INLINE void digest(const uint8_t *p, size_t n, uint8_t out[32])
{
	struct stripe b = { 0 };
	struct state s;
	size_t at = 0;

	begin(&s, (lanes){ 0, 1, 2, 3, 4, 5, 6, 7 }, 0);
	for (; n >= 2 * STRIPE && at <= n - 2 * STRIPE; at += STRIPE) {    /* no leaf ends in it */
		b.p = p + at;
		b.t = all((uint32_t)(at / LEAVES + BLOCK));
		compress(&s, &b);
	}
	do {
		finish(&s, p, n, at);
		at += STRIPE;
	} while (at < n);
	root(&s, out);
}

static void plain(const uint8_t *p, size_t n, uint8_t out[32]) { digest(p, n, out); }

#ifdef __x86_64__
__attribute__((target("avx2"))) static void avx2(const uint8_t *p, size_t n, uint8_t out[32]) { digest(p, n, out); }
__attribute__((target("avx512f,avx512vl")))
static void avx512(const uint8_t *p, size_t n, uint8_t out[32]) { digest(p, n, out); }
#endif

bool blake2sp_by(enum blake2sp_isa isa, const void *p, size_t n, uint8_t out[32])
{
#ifdef __x86_64__
	if (isa == BLAKE2SP_AVX512 && __builtin_cpu_supports("avx512vl")) {
		avx512(p, n, out);
		return true;
	}
	if (isa == BLAKE2SP_AVX2 && __builtin_cpu_supports("avx2")) {
		avx2(p, n, out);
		return true;
	}
#endif
	if (isa == BLAKE2SP_PLAIN)
		plain(p, n, out);
	return isa == BLAKE2SP_PLAIN;
}

void blake2sp_of(const void *p, size_t n, uint8_t out[32])
{
	if (!blake2sp_by(BLAKE2SP_AVX512, p, n, out) && !blake2sp_by(BLAKE2SP_AVX2, p, n, out))
		(void)blake2sp_by(BLAKE2SP_PLAIN, p, n, out);
}
