/* BLAKE3's compression function in LANES lanes, for blake3.c, which includes this once for each width. V() names what
 * belongs to a width; V(turn) is the transposition that suits it. */

INLINE V(lanes) V(all)(uint32_t x) { return (V(lanes)){ 0 } + x; }

/* Where each lane's bytes are, and its counter. */
struct V(rows) { const uint8_t *p[LANES]; V(lanes) t, t_high; };

/* n of them, `stride` bytes apart; further lanes repeat the last one. The counter rises by `step` a lane. */
INLINE void V(rows_at)(struct V(rows) *r, const uint8_t *p, size_t stride, size_t n, uint64_t t, uint64_t step)
{
	V(lanes) low = V(all)(0), high = low;
	for (size_t l = 0; l < LANES; l++) {
		r->p[l] = p + stride * (l < n ? l : n - 1);
		low[l] = (uint32_t)(t + l * step);
		high[l] = (uint32_t)((t + l * step) >> 32);
	}
	r->t = low;
	r->t_high = high;
}

/* Rotations by whole bytes are one shuffle where there is no instruction for them. */
INLINE V(lanes) V(ror)(V(lanes) x, int n, bool rotates)
{
	V(bytes) by;
	if (rotates || n % 8)
		return x >> n | x << (32 - n);
	for (int i = 0; i < 4 * LANES; i++)
		by[i] = (uint8_t)(i / 4 * 4 + (i + n / 8) % 4);
	return (V(lanes))__builtin_shuffle((V(bytes))x, by);
}

#define ROTATE(x, n) V(ror)(x, n, rotates)
INLINE void V(compress)(V(lanes) h[8], const struct V(rows) *r, size_t at, uint32_t flags, bool rotates)
{
	V(lanes) m[16], v[16];

	V(turn)(r->p, at, m);
	for (int i = 0; i < 8; i++)
		v[i] = h[i];
	for (int i = 0; i < 4; i++)
		v[i + 8] = V(all)(iv[i]);
	v[12] = r->t;
	v[13] = r->t_high;
	v[14] = V(all)(BLOCK);
	v[15] = V(all)(flags);
	SEVEN_ROUNDS;
	for (int i = 0; i < 8; i++)
		h[i] = v[i] ^ v[i + 8];
}
#undef ROTATE

INLINE void V(begin)(V(lanes) h[8])
{
	for (int i = 0; i < 8; i++)
		h[i] = V(all)(iv[i]);
}

INLINE void V(end)(const V(lanes) h[8], size_t n, uint8_t *out)
{
	for (size_t l = 0; l < n; l++)
		for (size_t i = 0; i < 8; i++)
			store(out + l * 32 + 4 * i, h[i][l]);
}

/* Chaining values of n chunks, or of n pairs of them, each of 32 bytes. */
INLINE void V(chunks)(const uint8_t *p, size_t n, uint64_t t, bool rotates, uint8_t *out)
{
	for (size_t i = 0; i < n; i += LANES) {
		size_t here = n - i < LANES ? n - i : LANES;
		struct V(rows) r;
		V(lanes) h[8];

		V(rows_at)(&r, p + i * CHUNK, CHUNK, here, t + i, 1);
		V(begin)(h);
		for (size_t at = 0; at < CHUNK; at += BLOCK) {
			for (int l = 0; l < LANES; l++) /* the next group: more streams than the CPU foresees by itself */
				__builtin_prefetch((const void *)((uintptr_t)r.p[l] + at + LANES * CHUNK));
			V(compress)(h, &r, at, (at ? 0 : CHUNK_START) | (at + BLOCK < CHUNK ? 0 : CHUNK_END), rotates);
		}
		V(end)(h, here, out + i * 32);
	}
}

INLINE void V(parents)(const uint8_t *p, size_t n, bool rotates, uint8_t *out)
{
	for (size_t i = 0; i < n; i += LANES) {
		size_t here = n - i < LANES ? n - i : LANES;
		struct V(rows) r;
		V(lanes) h[8];

		V(rows_at)(&r, p + i * BLOCK, BLOCK, here, 0, 0);
		V(begin)(h);
		V(compress)(h, &r, 0, PARENT, rotates);
		V(end)(h, here, out + i * 32);          /* behind what is still to be read, as out may be p */
	}
}
