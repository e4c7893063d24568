/* What Winograd's tiles need of an instruction set, sixteen tiles (or channels) at a time, one per lane. A value of
 * sixteen lanes is real[16]. */
#ifndef KERNELS_WINO_TILE_H
#define KERNELS_WINO_TILE_H
#include <stdbool.h>
#include "kernels/par.h"

#define WINO_LANES 16
#define WINO_SIDE 9                             /* the largest side of a tile */
#define WINO_E (WINO_SIDE * WINO_SIDE)

/* F(2x2, 3x3), F(4x4, 3x3); 4x4 outputs of stride two, and what goes back from them to 8x8 inputs (border one). */
enum wino_kind { WINO_F2, WINO_F4, WINO_STRIDED, WINO_SPREAD };
/* Sides of a tile: what it reads, transformed, what it gives, transformed weights; and how far apart tiles lie. */
struct wino_shape { int in, side, out, weights, step; };
static const struct wino_shape wino_shape[] = {
	[WINO_F2] = { 4, 4, 2, 4, 2 }, [WINO_F4] = { 6, 6, 4, 6, 4 },
	[WINO_STRIDED] = { 9, 9, 4, 6, 8 }, [WINO_SPREAD] = { 5, 9, 8, 6, 4 },
};

/* c[i][q] (+)= sum over l < n of a[i * lda + l] * b[q][l * ldb + 0..16), for i < rows and q < panels; panels lie bn
 * apart in b and cn apart in c, rows of c ldc apart. Each sum runs over l in its order, whatever else is computed. */
struct wino_product {
	const real *a, *b; real *c;
	size_t lda, ldb, bn, n, ldc, cn;
	int rows, panels; bool add;
};

struct wino_tile {
	int rows, panels;                       /* of the product below that one call computes, at most */
	/* side x side elements of sixteen tiles, whose corners are src + off[lane] and rows ld apart: ret[side * side].
	 * Reads up to 9 elements of each row. */
	void (*gather)(int side, const real *src, size_t ld, const uint32_t *off, real (*ret)[WINO_LANES]);
	/* y[m * m] to tiles of side m whose corners are dst + off[lane]; rows and cols say how much of each is inside. */
	void (*scatter)(int m, real (*y)[WINO_LANES], real *dst, size_t ld, const size_t *off, const uint8_t *rows,
		const uint8_t *cols, int n);
	/* Transforms of all lanes; elements of ret are `step` apart. in: B^T d B; out: A^T x A (elements of x 16 apart);
	 * grad: A y A^T; weight: G w G^T; dweight: G^T u G (elements of u `step` apart). */
	void (*in)(enum wino_kind kind, real (*d)[WINO_LANES], real *ret, size_t step);
	void (*out)(enum wino_kind kind, const real *x, real (*ret)[WINO_LANES]);
	void (*grad)(enum wino_kind kind, real (*y)[WINO_LANES], real *ret, size_t step);
	void (*weight)(enum wino_kind kind, real (*w)[WINO_LANES], real *ret, size_t step);
	void (*dweight)(enum wino_kind kind, const real *u, size_t step, real (*ret)[WINO_LANES]);
	void (*product)(const struct wino_product *p);
	/* 16 x 16: ret[j * step + i] = x[i * from + j] */
	void (*turn)(const real *x, size_t from, real *ret, size_t step);
};
const struct wino_tile *wino_tile(enum cpu cpu);
/* Of any number of rows and panels, in pieces that one call computes: by rows, each for all panels, else each panel for
 * all rows; what comes first stays in the first cache, and the other passes by. */
void wino_products(const struct wino_tile *isa, const struct wino_product *p, bool by_rows);
/* The next of so many rows, or of so many panels, that are left: pieces of one size, as far as that goes. */
static inline int wino_even(size_t left, int most)
{
	size_t pieces = (left + (size_t)most - 1) / (size_t)most;

	return (int)((left + pieces - 1) / pieces);
}

#endif
