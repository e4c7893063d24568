/* Inside of Winograd's convolution: passes, blocks of tiles, and strips of images from which tiles are cut. */
#ifndef KERNELS_WINO_INT_H
#define KERNELS_WINO_INT_H
#include "kernels/wino.h"
#include "kernels/wino_tile.h"

#define L WINO_LANES

static inline size_t up(size_t n, size_t to) { return (n + to - 1) / to * to; }

/* How tiles lie in a strip: how far apart, how large, elements between rows, and rows at most (the last are zero). */
struct grid { size_t step, side, ld, rows; };

/* One of the three computations, seen as: from `c` channels [h][w] with zeros around to `k` channels [oh][ow]. */
struct pass {
	const struct wino_tile *isa;
	enum wino_kind kind; struct wino_shape s;
	size_t e, u;                            /* elements of a transformed tile, and of transformed weights */
	uint8_t weight[WINO_E];                 /* which of the weights an element is multiplied with */
	size_t batch, c, k, h, w, oh, ow, pad;
	size_t th, tw, tiles, block;            /* tiles of an image, of all, of a block (a multiple of 16) */
	struct grid in, out;                    /* strips of the input, and of the output's gradient */
	size_t cp;                              /* c rounded up to 16 */
	bool wide;                              /* one block, and many weights: they are made when they are needed */
};
void wino_pass(struct pass *p, const struct wino *g, enum cpu cpu, bool data);
void wino_block(struct pass *p, size_t want);           /* sets block and what follows from it */

struct seat { size_t image, row, first; };      /* strip rows from `first` on show the image from row * step - pad on */

struct block {
	size_t at, n, panels;                   /* tiles */
	size_t seats, used;                     /* images; strip rows */
	struct seat *seat;
	uint32_t *off;                          /* in the strip */
	size_t *to; uint8_t *rows, *cols;       /* in one channel of the output: corner, and how much is inside */
};
void wino_locate(const struct pass *p, const struct grid *g, struct block *b, size_t at);
/* One channel of all images of a block, with its zeros. x: [h][w] of the channel in image 0; step: to the next. */
void wino_strip(const struct pass *p, const struct grid *g, const struct block *b, const real *x, size_t step, size_t h,
	size_t w, size_t pad, real *strip);
static inline void strip_end(const struct grid *g, real *strip)         /* the rows of zeros */
{
	for (size_t i = (g->rows - g->side) * g->ld; i < g->rows * g->ld; i++)
		strip[i] = 0;
}

struct area { unsigned char *p; size_t used; };
void *wino_take(struct area *a, size_t bytes);
void wino_take_block(struct area *a, const struct pass *p, struct block *b);

size_t wino_gradient_work(const struct wino *g, int parts);

#endif
