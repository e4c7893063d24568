/* Winograd's 3x3 convolution: images are cut into tiles, blocks of tiles are transformed, multiplied element by
 * element (a * a products of channel matrices) and transformed back.
 *
 * Layouts, e = element of a transformed tile, p = panel of sixteen tiles: weights U[e][out][in]; forward
 * V[e][p][in][16]
 * and M[p][out][e][16]; weight gradients V[e][in / 16][tile][16], D[e][out][tile] and U[e][out][in]. Between two e lies
 * a line more than needed: strides of a power of two would all fall into the same set of the cache. */
#include "kernels/wino.h"
#include <string.h>
#include "kernels/wino_tile.h"

#define L WINO_LANES
#define SLACK 8                                 /* what gather may read behind a row */

static size_t up(size_t n, size_t to)
{
	return (n + to - 1) / to * to;
}

/* One of the three computations, seen as: from `c` channels [h][w] with zeros around to `k` channels [oh][ow]. */
struct pass {
	const struct wino_tile *isa;
	int m, a; size_t e;
	size_t batch, c, k, h, w, oh, ow, pad;
	size_t th, tw, tiles, block;            /* tiles of an image, of all, of a block (a multiple of 16) */
	size_t ld, rows;                        /* a strip: elements between rows, and rows at most */
	size_t cp;                              /* c rounded up to 16 */
};

static void pass_of(struct pass *p, const struct wino *g, enum cpu cpu, bool data)
{
	size_t oh = g->ih + 2 * (size_t)g->pad - 2, ow = g->iw + 2 * (size_t)g->pad - 2;

	*p = (struct pass){ .isa = wino_tile(cpu), .m = g->m, .a = g->m + 2, .batch = g->batch, .c = g->ic, .k = g->oc,
		.h = g->ih, .w = g->iw, .oh = oh, .ow = ow, .pad = (size_t)g->pad };
	if (data) {
		p->c = g->oc;
		p->k = g->ic;
		p->h = oh;
		p->w = ow;
		p->oh = g->ih;
		p->ow = g->iw;
		p->pad = 2 - (size_t)g->pad;
	}
	p->e = (size_t)(p->a * p->a);
	p->th = (p->oh + (size_t)p->m - 1) / (size_t)p->m;
	p->tw = (p->ow + (size_t)p->m - 1) / (size_t)p->m;
	p->tiles = p->batch * p->th * p->tw;
	p->cp = up(p->c, L);
	p->ld = up(p->tw * (size_t)p->m + 2 + SLACK, 8);
}

/* Transformed tiles should stay in the second-level cache, weights must be read again for each block. */
static void block_of(struct pass *p, size_t want)
{
	size_t images, lines;

	p->block = up(want < p->tiles ? want : p->tiles, L);
	images = (p->block - 1) / (p->th * p->tw) + 2;
	lines = (p->block - 1) / p->tw + 2;
	p->rows = lines * (size_t)p->m + images * 2 + (size_t)p->a;     /* the last a rows are zero */
}

/* --- where the tiles of a block lie */

struct seat { size_t image, row, first; };      /* strip rows from `first` on show the image from row * m - pad on */

struct block {
	size_t at, n, panels;                   /* tiles */
	size_t seats, used;                     /* images; strip rows */
	struct seat *seat;
	uint32_t *off;                          /* in the strip */
	size_t *to; uint8_t *rows, *cols;       /* in one channel of the output: corner, and how much is inside */
};

static void block_locate(const struct pass *p, struct block *b, size_t at, size_t side)
{
	size_t per = p->th * p->tw, n = p->tiles - at < p->block ? p->tiles - at : p->block, m = (size_t)p->m;

	b->at = at;
	b->n = n;
	b->panels = (n + L - 1) / L;
	b->seats = b->used = 0;
	for (size_t t = 0; t < n; t++) {
		size_t image = (at + t) / per, y = (at + t) % per / p->tw, x = (at + t) % p->tw, lines;
		struct seat *s;

		if (!b->seats || b->seat[b->seats - 1].image != image) {
			size_t last = at + n - 1, end = last / per == image ? last % per / p->tw : p->th - 1;

			b->seat[b->seats++] = (struct seat){ image, y, b->used };
			lines = end - y;
			b->used += lines * m + side;
		}
		s = &b->seat[b->seats - 1];
		b->off[t] = (uint32_t)((s->first + (y - s->row) * m) * p->ld + x * m);
		b->to[t] = image * p->k * p->oh * p->ow + y * m * p->ow + x * m;
		b->rows[t] = (uint8_t)(p->oh - y * m < m ? p->oh - y * m : m);
		b->cols[t] = (uint8_t)(p->ow - x * m < m ? p->ow - x * m : m);
	}
	for (size_t t = n; t < b->panels * L; t++)
		b->off[t] = (uint32_t)((p->rows - (size_t)p->a) * p->ld);
}

/* One channel of all images of a block, with its zeros. x: [h][w] of the channel in image 0; step: to the next image.
 * */
static void strip_fill(const struct pass *p, const struct block *b, const real *x, size_t step, size_t h, size_t w,
	size_t pad, real *strip)
{
	for (size_t i = 0; i < b->seats; i++) {
		size_t end = i + 1 < b->seats ? b->seat[i + 1].first : b->used;
		const real *image = x + b->seat[i].image * step;

		for (size_t r = b->seat[i].first; r < end; r++) {
			size_t y = b->seat[i].row * (size_t)p->m + r - b->seat[i].first;      /* counted from -pad */
			real *to = strip + r * p->ld;

			if (y < pad || y >= h + pad) {
				memset(to, 0, p->ld * sizeof(real));
				continue;
			}
			for (size_t j = 0; j < pad; j++)
				to[j] = 0;
			memcpy(to + pad, image + (y - pad) * w, w * sizeof(real));
			for (size_t j = pad + w; j < p->ld; j++)
				to[j] = 0;
		}
	}
}

/* --- scratch */

struct area { unsigned char *p; size_t used; };

static void *take(struct area *a, size_t bytes)
{
	void *p = a->p ? a->p + a->used : NULL;

	a->used += up(bytes, 64);
	return p;
}

static void block_take(struct area *a, const struct pass *p, struct block *b)
{
	b->seat = take(a, (p->block + 1) * sizeof(*b->seat));
	b->off = take(a, p->block * sizeof(*b->off));
	b->to = take(a, p->block * sizeof(*b->to));
	b->rows = take(a, p->block);
	b->cols = take(a, p->block);
}

/* --- forward, and backward to the data */

struct forward {
	const struct pass *p;
	const real *x, *w, *bias; real *y, *u;
	bool turned;                            /* weights of backward_data */
	unsigned char *own; size_t own_bytes;   /* of each worker */
};
struct worker { struct block b; real *strip, *v, *m; };

static size_t worker_take(const struct pass *p, unsigned char *at, struct worker *w)
{
	struct area a = { at, 0 };

	block_take(&a, p, &w->b);
	w->strip = take(&a, p->rows * p->ld * sizeof(real));
	w->v = take(&a, p->e * (p->block * p->c + L) * sizeof(real));
	w->m = take(&a, p->e * p->block * p->k * sizeof(real));
	return a.used;
}

static void weights_part(void *arg, int part, int parts)
{
	const struct forward *f = arg;
	const struct pass *p = f->p;
	size_t lo, hi;

	par_slice(p->k, 1, part, parts, &lo, &hi);
	for (size_t k = lo; k < hi; k++)
		for (size_t c = 0; c < p->c; c += L) {
			real w[9][L] = { { 0 } };

			for (size_t j = 0; j < L && c + j < p->c; j++) {
				const real *from = f->w + (f->turned ? (c + j) * p->k + k : k * p->c + c + j) * 9;

				for (int i = 0; i < 9; i++)
					w[i][j] = from[f->turned ? 8 - i : i];
			}
			p->isa->weight(p->m, w, f->u + k * p->cp + c, p->k * p->cp + L);
		}
}

static void forward_in(const struct forward *f, struct worker *w)
{
	const struct pass *p = f->p;
	size_t plane = p->h * p->w;

	for (size_t c = 0; c < p->c; c++) {
		strip_fill(p, &w->b, f->x + c * plane, p->c * plane, p->h, p->w, p->pad, w->strip);
		for (size_t q = 0; q < w->b.panels; q++) {
			real d[WINO_E][L];

			p->isa->gather(p->a, w->strip, p->ld, w->b.off + q * L, d);
			p->isa->in(p->m, d, w->v + (q * p->c + c) * L, w->b.panels * p->c * L + L);
		}
	}
}

static void forward_products(const struct forward *f, struct worker *w)
{
	const struct pass *p = f->p;
	size_t rows = (size_t)p->isa->rows;

	for (size_t e = 0; e < p->e; e++)
		for (size_t q = 0; q < w->b.panels; q++)        /* its panel stays in the first cache, weights pass by */
			for (size_t k = 0; k < p->k; k += rows)
				p->isa->product(f->u + (e * p->k + k) * p->cp + e * L, p->cp,
				w->v + ((e * w->b.panels + q) * p->c + e) * L, L, p->c,
					(int)(p->k - k < rows ? p->k - k : rows), w->m + ((q * p->k + k) * p->e + e) * L, p->e * L, false);
}

static void forward_out(const struct forward *f, struct worker *w)
{
	const struct pass *p = f->p;

	for (size_t q = 0; q < w->b.panels; q++) {
		int n = (int)(w->b.n - q * L < L ? w->b.n - q * L : L);

		for (size_t k = 0; k < p->k; k++) {
			real y[16][L];

			p->isa->out(p->m, w->m + (q * p->k + k) * p->e * L, y);
			for (int i = 0; f->bias && i < p->m * p->m; i++)
				for (int j = 0; j < L; j++)
					y[i][j] += f->bias[k];
			p->isa->scatter(p->m, y, f->y + k * p->oh * p->ow, p->ow, w->b.to + q * L, w->b.rows + q * L,
				w->b.cols + q * L, n);
		}
	}
}

static void forward_part(void *arg, int part, int parts)
{
	const struct forward *f = arg;
	const struct pass *p = f->p;
	struct worker w;
	size_t lo, hi;

	(void)worker_take(p, f->own + (size_t)part * f->own_bytes, &w);
	memset(w.strip + (p->rows - (size_t)p->a) * p->ld, 0, (size_t)p->a * p->ld * sizeof(real));
	par_slice(p->tiles, p->block, part, parts, &lo, &hi);
	for (size_t at = lo; at < hi; at += p->block) {
		block_locate(p, &w.b, at, (size_t)p->a);
		forward_in(f, &w);
		forward_products(f, &w);
		forward_out(f, &w);
	}
}

/* How many tiles at once: the products read all weights for each block, so many channels want large blocks. */
static size_t forward_block(const struct pass *p)
{
	return p->c * p->k <= 64 * 64 ? 32 : 64;
}

static size_t forward_bytes(const struct pass *p, int parts, struct area *a, struct forward *f)
{
	struct worker w;

	f->u = take(a, p->e * (p->k * p->cp + L) * sizeof(real));
	f->own_bytes = worker_take(p, NULL, &w);
	f->own = take(a, (size_t)parts * f->own_bytes);
	return a->used;
}

static void convolve(const struct par *par, const struct wino *g, bool data, const real *x, const real *w,
	const real *bias, real *y, void *work)
{
	struct pass p;
	struct area a = { work, 0 };
	struct forward f = { .p = &p, .x = x, .w = w, .bias = bias, .y = y, .turned = data };

	if (!g->batch)
		return;
	pass_of(&p, g, par->cpu, data);
	block_of(&p, forward_block(&p));
	(void)forward_bytes(&p, par->n, &a, &f);
	par_run(par, weights_part, &f);
	par_run(par, forward_part, &f);
}

void wino_forward(const struct par *par, const struct wino *g, const real *x, const real *w, const real *bias, real *y,
	void *work)
{
	convolve(par, g, false, x, w, bias, y, work);
}

void wino_backward_data(const struct par *par, const struct wino *g, const real *dy, const real *w, real *dx,
	void *work)
{
	convolve(par, g, true, dy, w, NULL, dx, work);
}

/* --- backward to the weights */

struct gradient {
	const struct pass *p;
	const real *x, *dy; real *dw;
	struct block in, out;                   /* the same tiles in strips of x and of dy */
	real *v, *d, *u;
	unsigned char *own; size_t own_bytes, strip;
	bool add;
};

static void in_part(void *arg, int part, int parts)
{
	const struct gradient *g = arg;
	const struct pass *p = g->p;
	size_t plane = p->h * p->w, lo, hi;
	real *strip = (real *)(g->own + (size_t)part * g->own_bytes), *tmp = strip + L * g->strip;

	par_slice(p->cp, L, part, parts, &lo, &hi);
	for (size_t c = lo; c < hi; c += L) {
		for (size_t j = 0; j < L && c + j < p->c; j++) {
			strip_fill(p, &g->in, g->x + (c + j) * plane, p->c * plane, p->h, p->w, p->pad, strip + j * g->strip);
			memset(strip + j * g->strip + (p->rows - (size_t)p->a) * p->ld, 0, (size_t)p->a * p->ld * sizeof(real));
		}
		for (size_t q = 0; q < g->in.panels; q++) {
			for (size_t j = 0; j < L; j++) {
				real d[WINO_E][L] = { { 0 } };

				if (c + j < p->c)
					p->isa->gather(p->a, strip + j * g->strip, p->ld, g->in.off + q * L, d);
				p->isa->in(p->m, d, tmp + j * L, L * L);
			}
			for (size_t e = 0; e < p->e; e++)
				p->isa->turn(tmp + e * L * L, L, g->v + ((e * p->cp / L + c / L) * p->block + q * L + e) * L, L);
		}
	}
}

static void out_part(void *arg, int part, int parts)
{
	const struct gradient *g = arg;
	const struct pass *p = g->p;
	size_t plane = p->oh * p->ow, lo, hi;
	real *strip = (real *)(g->own + (size_t)part * g->own_bytes);

	memset(strip + (p->rows - (size_t)p->a) * p->ld, 0, (size_t)p->a * p->ld * sizeof(real));
	par_slice(p->k, 1, part, parts, &lo, &hi);
	for (size_t k = lo; k < hi; k++) {
		strip_fill(p, &g->out, g->dy + k * plane, p->k * plane, p->oh, p->ow, 0, strip);
		for (size_t q = 0; q < g->out.panels; q++) {
			real y[16][L];

			p->isa->gather(p->m, strip, p->ld, g->out.off + q * L, y);
			p->isa->grad(p->m, y, g->d + k * p->block + q * L, p->k * p->block + L);
		}
	}
}

static void product_part(void *arg, int part, int parts)
{
	const struct gradient *g = arg;
	const struct pass *p = g->p;
	size_t rows = (size_t)p->isa->rows, lo, hi;

	par_slice(p->e, 1, part, parts, &lo, &hi);
	for (size_t e = lo; e < hi; e++)
		for (size_t k = 0; k < p->k; k += rows)
			for (size_t c = 0; c < p->cp; c += L)
				p->isa->product(g->d + (e * p->k + k) * p->block + e * L, p->block,
					g->v + (e * p->cp + c) * p->block + e * L, L, g->in.panels * L, (int)(p->k - k < rows ? p->k - k :
					rows), g->u + (e * p->k + k) * p->cp + e * L + c,
					p->cp, g->add);
}

static void dweights_part(void *arg, int part, int parts)
{
	const struct gradient *g = arg;
	const struct pass *p = g->p;
	size_t lo, hi;

	par_slice(p->k, 1, part, parts, &lo, &hi);
	for (size_t k = lo; k < hi; k++)
		for (size_t c = 0; c < p->c; c += L) {
			real w[9][L];

			p->isa->dweight(p->m, g->u + k * p->cp + c, p->k * p->cp + L, w);
			for (size_t j = 0; j < L && c + j < p->c; j++)
				for (int i = 0; i < 9; i++)
					g->dw[(k * p->c + c + j) * 9 + (size_t)i] += w[i][j];
		}
}

static size_t gradient_bytes(const struct pass *p, int parts, struct area *a, struct gradient *g)
{
	block_take(a, p, &g->in);
	block_take(a, p, &g->out);
	g->v = take(a, p->e * (p->block * p->cp + L) * sizeof(real));
	g->d = take(a, p->e * (p->block * p->k + L) * sizeof(real));
	g->u = take(a, p->e * (p->k * p->cp + L) * sizeof(real));
	g->strip = p->rows * p->ld;
	g->own_bytes = up((L * g->strip + p->e * L * L) * sizeof(real), 64);
	g->own = take(a, (size_t)parts * g->own_bytes);
	return a->used;
}

static size_t gradient_block(const struct pass *p)
{
	return p->c * p->k <= 128 * 128 ? 128 : 64;
}

void wino_backward_weights(const struct par *par, const struct wino *w, const real *x, const real *dy, real *dw,
	void *work)
{
	struct pass p;
	struct area a = { work, 0 };
	struct gradient g = { .p = &p, .x = x, .dy = dy, .dw = dw };

	if (!w->batch)
		return;
	pass_of(&p, w, par->cpu, false);
	block_of(&p, gradient_block(&p));
	(void)gradient_bytes(&p, par->n, &a, &g);
	for (size_t at = 0; at < p.tiles; at += p.block, g.add = true) {
		block_locate(&p, &g.in, at, (size_t)p.a);
		block_locate(&p, &g.out, at, (size_t)p.m);
		par_run(par, in_part, &g);
		par_run(par, out_part, &g);
		par_run(par, product_part, &g);
	}
	par_run(par, dweights_part, &g);
}

size_t wino_work(const struct wino *g, int parts, bool backward)
{
	struct pass p;
	struct forward f;
	struct gradient d;
	size_t most = 0;

	for (int data = 0; data <= (backward ? 1 : 0); data++) {
		struct area a = { NULL, 0 };

		pass_of(&p, g, CPU_PLAIN, data);
		block_of(&p, forward_block(&p));
		if (forward_bytes(&p, parts, &a, &f) > most)
			most = a.used;
	}
	if (backward) {
		struct area a = { NULL, 0 };

		pass_of(&p, g, CPU_PLAIN, false);
		block_of(&p, gradient_block(&p));
		if (gradient_bytes(&p, parts, &a, &d) > most)
			most = a.used;
	}
	return most;
}
