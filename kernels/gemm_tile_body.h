/* One instruction set's tiles; gemm_tile.c includes this for each. Wanted: NAME(x), TARGET, VEC, LANES, ROWS, ZERO,
 * LOAD, STORE, SPREAD (one value to all lanes), FMA, ADD, MUL. A tile is ROWS x (2 LANES). */

#define COLS (2 * LANES)
#define INLINE static inline __attribute__((always_inline)) TARGET

/* s[i] = sum over l of a[i][l] b[l][0..COLS). Rows are addressed three to a pointer. */
INLINE void NAME(sum)(int rows, const struct strip *s, const real *a, VEC *s0, VEC *s1)
{
	const real *b = s->b, *p[(ROWS + 2) / 3];
	size_t ra = s->ra, ka = s->ka, kb = s->kb;

#pragma GCC unroll 14
	for (int i = 0; i < rows; i++) {
		s0[i] = s1[i] = ZERO();
		if (i % 3 == 0)
			p[i / 3] = a + (size_t)i * ra;
	}
#pragma GCC unroll 4
	for (size_t l = 0; l < s->k; l++) {
		VEC b0 = LOAD(b), b1 = LOAD(b + LANES);

#pragma GCC unroll 14
		for (int i = 0; i < rows; i++) {
			VEC v = SPREAD(p[i / 3] + (size_t)(i % 3) * ra);

			s0[i] = FMA(v, b0, s0[i]);
			s1[i] = FMA(v, b1, s1[i]);
		}
		b += kb;
#pragma GCC unroll 5
		for (int i = 0; i < (rows + 2) / 3; i++)
			p[i] += ka;
	}
}

INLINE void NAME(keep)(const struct strip *s, size_t i, const real *bias, VEC v0, VEC v1)
{
	real *c = s->c + i * s->ldc;

	v0 = MUL(v0, SPREAD(&s->alpha));
	v1 = MUL(v1, SPREAD(&s->alpha));
	if (bias) {
		v0 = ADD(v0, LOAD(bias));
		v1 = ADD(v1, LOAD(bias + LANES));
	}
	if (s->add) {
		v0 = ADD(LOAD(c), v0);
		v1 = ADD(LOAD(c + LANES), v1);
	}
	STORE(c, v0);
	STORE(c + LANES, v1);
}

INLINE void NAME(tile)(int rows, const struct strip *s, const real *a, size_t i0)
{
	VEC s0[ROWS], s1[ROWS];
	real t[ROWS * COLS];

	for (int i = 0; i < rows && !s->turned; i++) {
		__builtin_prefetch(s->c + (i0 + (size_t)i) * s->ldc, 1);
		__builtin_prefetch(s->c + (i0 + (size_t)i) * s->ldc + COLS - 1, 1);
	}
	NAME(sum)(rows, s, a, s0, s1);
	if (s->n == COLS && !s->turned) {
#pragma GCC unroll 14
		for (int i = 0; i < rows; i++)
			NAME(keep)(s, i0 + (size_t)i, s->bias, s0[i], s1[i]);
		return;
	}
#pragma GCC unroll 14
	for (int i = 0; i < rows; i++) {
		STORE(t + i * COLS, s0[i]);
		STORE(t + i * COLS + LANES, s1[i]);
	}
	strip_rest(s, i0, (size_t)rows, t, COLS);
}

TARGET static void NAME(strip)(const struct strip *s)
{
	size_t i = 0, lines = s->ahead ? s->k * COLS * sizeof(real) / 64 : 0, each = lines * ROWS / s->m + 1;
	const char *ahead = (const char *)s->ahead;
	const real *a = s->a;

	for (; i + ROWS <= s->m; i += ROWS, a += s->step) {
		for (size_t l = 0; l < each && lines; l++, lines--, ahead += 64)
			__builtin_prefetch(ahead, 0, 2);
		NAME(tile)(ROWS, s, a, i);
	}
	switch (s->m - i) {
#define REST(r) case r: if (r < ROWS) NAME(tile)(r < ROWS ? r : 1, s, a, i); break;
	REST(1) REST(2) REST(3) REST(4) REST(5) REST(6) REST(7) REST(8) REST(9) REST(10) REST(11) REST(12) REST(13)
#undef REST
	}
}

#undef COLS
#undef INLINE
