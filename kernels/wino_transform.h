/* The transforms of Winograd's tiles; two dimensions are rows and then columns. wino_tile.c includes this for each
 * instruction set. Wanted: NAME(x), TARGET, WIDTH, which is how many of the sixteen lanes of a value are one vector.
 * What one tile needs stays in registers as far as there are enough.
 *
 * Points: F2 0, 1, -1, infinity; F4 with 2 and -2 as well. A stride of two takes the input apart into its even
 * elements, for which the outer two weights are a filter F(4, 2) with the points 0, 1, -1, 2 and infinity, and its odd
 * ones, for which the middle weight is one product each: nine products where the sum needs twelve. */

#define V NAME(lanes)
#define BODY static inline __attribute__((always_inline)) TARGET void

typedef real V __attribute__((vector_size(WIDTH * sizeof(real)), aligned(sizeof(real)), may_alias));

/* Five elements ds apart to the five of F(4, 2). */
BODY NAME(in_half)(const V *d, size_t ds, V *o, size_t os)
{
	V d0 = d[0], d1 = d[ds], d2 = d[2 * ds], d3 = d[3 * ds], d4 = d[4 * ds];
	V a = d3 - d1, b = 2 * d1 - d2;

	o[0] = 2 * (d0 - d2) + a;
	o[os] = d3 - d2 - 2 * d1;
	o[2 * os] = b + d3 - 2 * d2;
	o[3 * os] = a;
	o[4 * os] = b + d4 - 2 * d3;
}

/* Five products to four sums. */
BODY NAME(out_half)(const V *x, size_t xs, V *o, size_t os)
{
	V x1 = x[xs], x2 = x[2 * xs], x3 = x[3 * xs], a = x1 + x2, b = x1 - x2;

	o[0] = x[0] + a + x3;
	o[os] = b + 2 * x3;
	o[2 * os] = a + 4 * x3;
	o[3 * os] = b + 8 * x3 + x[4 * xs];
}

BODY NAME(copinto1d)(int n, const V *d, size_t ds, V *o, size_t os)
{
	for (int i = 0; i < n; i++)
		o[i * os] = d[i * ds];
}

BODY NAME(in_1d)(int kind, const V *d, size_t ds, V *o, size_t os)
{
	if (kind == WINO_STRIDED) {
		NAME(in_half)(d, 2 * ds, o, os);
		NAME(copinto1d)(4, d + ds, 2 * ds, o + 5 * os, os);
		return;
	}
	if (kind == WINO_SPREAD) {
		NAME(in_half)(d, ds, o, os);
		NAME(copinto1d)(4, d, ds, o + 5 * os, os);
		return;
	}
	if (kind == WINO_F2) {
		V d0 = d[0], d1 = d[ds], d2 = d[2 * ds], d3 = d[3 * ds];

		o[0] = d0 - d2;
		o[os] = d1 + d2;
		o[2 * os] = d2 - d1;
		o[3 * os] = d1 - d3;
		return;
	}
	V d0 = d[0], d1 = d[ds], d2 = d[2 * ds], d3 = d[3 * ds];
	V d4 = d[4 * ds], d5 = d[5 * ds];
	V even = d4 - 4 * d2, odd = d3 - 4 * d1, far = d4 - d2, side = 2 * (d3 - d1);

	o[0] = 4 * d0 - 5 * d2 + d4;
	o[os] = even + odd;
	o[2 * os] = even - odd;
	o[3 * os] = far + side;
	o[4 * os] = far - side;
	o[5 * os] = 4 * d1 - 5 * d3 + d5;
}

BODY NAME(out_1d)(int kind, const V *x, size_t xs, V *o, size_t os)
{
	if (kind == WINO_STRIDED) {
		NAME(out_half)(x, xs, o, os);
		for (int i = 0; i < 4; i++)
			o[i * os] += x[(i + 5) * xs];
		return;
	}
	if (kind == WINO_SPREAD) {
		NAME(copinto1d)(4, x + 5 * xs, xs, o, 2 * os);
		NAME(out_half)(x, xs, o + os, 2 * os);
		return;
	}
	if (kind == WINO_F2) {
		V x0 = x[0], x1 = x[xs], x2 = x[2 * xs], x3 = x[3 * xs];

		o[0] = x0 + x1 + x2;
		o[os] = x1 - x2 - x3;
		return;
	}
	V x1 = x[xs], x2 = x[2 * xs], x3 = x[3 * xs], x4 = x[4 * xs];
	V a = x1 + x2, b = x1 - x2, c = x3 + x4, d = x3 - x4;

	o[0] = x[0] + a + c;
	o[os] = b + 2 * d;
	o[2 * os] = a + 4 * c;
	o[3 * os] = b + 8 * d + x[5 * xs];
}

/* The transpose of out_1d. */
BODY NAME(grad_1d)(int kind, const V *y, size_t ys, V *o, size_t os)
{
	if (kind == WINO_STRIDED) {
		V y0 = y[0], y1 = y[ys], y2 = y[2 * ys], y3 = y[3 * ys];
		V a = y0 + y2, b = y1 + y3;

		o[0] = y0;
		o[os] = a + b;
		o[2 * os] = a - b;
		o[3 * os] = y0 + 2 * y1 + 4 * y2 + 8 * y3;
		o[4 * os] = y3;
		NAME(copinto1d)(4, y, ys, o + 5 * os, os);
		return;
	}
	if (kind == WINO_F2) {
		V y0 = y[0], y1 = y[ys];

		o[0] = y0;
		o[os] = y0 + y1;
		o[2 * os] = y0 - y1;
		o[3 * os] = -y1;
		return;
	}
	V y0 = y[0], y1 = y[ys], y2 = y[2 * ys], y3 = y[3 * ys];
	V a = y0 + y2, b = y1 + y3, c = y0 + 4 * y2, d = 2 * y1 + 8 * y3;

	o[0] = y0;
	o[os] = a + b;
	o[2 * os] = a - b;
	o[3 * os] = c + d;
	o[4 * os] = c - d;
	o[5 * os] = y3;
}

BODY NAME(weight_1d)(int kind, const V *w, size_t ws, V *o, size_t os)
{
	if (kind == WINO_STRIDED || kind == WINO_SPREAD) {
		V w0 = w[0], w2 = w[2 * ws];
		V a = w0 * (real)(1.0 / 6), b = w2 * (real)(1.0 / 6);

		o[0] = (real)0.5 * w0;
		o[os] = (real)-0.5 * (w0 + w2);
		o[2 * os] = b - a;
		o[3 * os] = a + 2 * b;
		o[4 * os] = w2;
		o[5 * os] = w[ws];
		return;
	}
	if (kind == WINO_F2) {
		V w0 = w[0], w1 = w[ws], w2 = w[2 * ws];
		V a = (real)0.5 * (w0 + w2), b = (real)0.5 * w1;

		o[0] = w0;
		o[os] = a + b;
		o[2 * os] = a - b;
		o[3 * os] = w2;
		return;
	}
	V w0 = w[0], w1 = w[ws], w2 = w[2 * ws];
	V a = (w0 + w2) * (real)(-1.0 / 6), b = w1 * (real)(-1.0 / 6);
	V c = w0 * (real)(1.0 / 24) + w2 * (real)(1.0 / 6), d = w1 * (real)(1.0 / 12);

	o[0] = w0 * (real)0.25;
	o[os] = a + b;
	o[2 * os] = a - b;
	o[3 * os] = c + d;
	o[4 * os] = c - d;
	o[5 * os] = w2;
}

/* The transpose of weight_1d. */
BODY NAME(dweight_1d)(int kind, const V *u, size_t us, V *o, size_t os)
{
	if (kind == WINO_STRIDED) {
		V u1 = (real)0.5 * u[us], u2 = u[2 * us] * (real)(1.0 / 6);
		V u3 = u[3 * us] * (real)(1.0 / 6);

		o[0] = (real)0.5 * u[0] - u1 - u2 + u3;
		o[os] = u[5 * us];
		o[2 * os] = u2 - u1 + 2 * u3 + u[4 * us];
		return;
	}
	if (kind == WINO_F2) {
		V u1 = u[us], u2 = u[2 * us], a = (real)0.5 * (u1 + u2);

		o[0] = u[0] + a;
		o[os] = (real)0.5 * (u1 - u2);
		o[2 * os] = a + u[3 * us];
		return;
	}
	V u1 = u[us], u2 = u[2 * us], u3 = u[3 * us], u4 = u[4 * us];
	V a = (u1 + u2) * (real)(-1.0 / 6), b = (u1 - u2) * (real)(-1.0 / 6), c = u3 + u4, d = u3 - u4;

	o[0] = u[0] * (real)0.25 + a + c * (real)(1.0 / 24);
	o[os] = b + d * (real)(1.0 / 12);
	o[2 * os] = a + c * (real)(1.0 / 6) + u[5 * us];
}

/* --- both dimensions: columns of src[n][n] into tmp[to][n], then its rows into dst[to][to] */

#define TWO_D(one, kind, n, to, src, ss, dst, ds) do { \
		const V *from = (const V *)((src) + h); \
		V tmp[WINO_E], *into = (V *)((dst) + h); \
		size_t xs = (size_t)(ss) / WIDTH, ys = (size_t)(ds) / WIDTH;    /* steps are whole values */ \
		_Pragma("GCC unroll 9") \
		for (size_t i = 0; i < (size_t)(n); i++) \
			NAME(one)(kind, from + i * xs, (size_t)(n) * xs, tmp + i, (size_t)(n)); \
		_Pragma("GCC unroll 9") \
		for (size_t i = 0; i < (size_t)(to); i++) \
			NAME(one)(kind, tmp + i * (size_t)(n), 1, into + i * (size_t)(to) * ys, ys); \
	} while (0)

/* The kind is a constant in each case, so that loops over tiles unroll. Gradients of what is spread have no use. */
#define EACH(call, spread) do { \
		for (int h = 0; h < L; h += WIDTH) \
			switch (kind) { \
			case WINO_F2: call(WINO_F2); break; \
			case WINO_F4: call(WINO_F4); break; \
			case WINO_STRIDED: call(WINO_STRIDED); break; \
			case WINO_SPREAD: spread(WINO_SPREAD); break; \
			} \
	} while (0)

#define NONE(k) assert(!"no gradient of this kind")
#define IN(k) TWO_D(in_1d, k, wino_shape[k].in, wino_shape[k].side, d[0], L, ret, step)
#define OUT(k) TWO_D(out_1d, k, wino_shape[k].side, wino_shape[k].out, x, L, ret[0], L)
#define GRAD(k) TWO_D(grad_1d, k, wino_shape[k].out, wino_shape[k].side, y[0], L, ret, step)
#define WEIGHT(k) TWO_D(weight_1d, k, 3, wino_shape[k].weights, w[0], L, ret, step)
#define DWEIGHT(k) TWO_D(dweight_1d, k, wino_shape[k].weights, 3, u, step, ret[0], L)

TARGET static void NAME(in)(enum wino_kind kind, real (*d)[L], real *ret, size_t step) { EACH(IN, IN); }
TARGET static void NAME(out)(enum wino_kind kind, const real *x, real (*ret)[L]) { EACH(OUT, OUT); }
TARGET static void NAME(grad)(enum wino_kind kind, real (*y)[L], real *ret, size_t step) { EACH(GRAD, NONE); }
TARGET static void NAME(weight)(enum wino_kind kind, real (*w)[L], real *ret, size_t step) { EACH(WEIGHT, WEIGHT); }
TARGET static void NAME(dweight)(enum wino_kind kind, const real *u, size_t step, real (*ret)[L])
{
	EACH(DWEIGHT, NONE);
}

#undef V
#undef BODY
#undef TWO_D
#undef EACH
#undef NONE
#undef IN
#undef OUT
#undef GRAD
#undef WEIGHT
#undef DWEIGHT
#undef NAME
#undef TARGET
#undef WIDTH
