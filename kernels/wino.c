/* Winograd's 3x3 convolution: images are cut into tiles, blocks of tiles are transformed, multiplied element by
 * element (products of channel matrices) and transformed back.
 *
 * Layouts, e = element of a transformed tile, p = panel of sixteen tiles: weights U[u][out][in]; forward
 * V[e][p][in][16] and M[p][out][e][16]. Between two e lies a line more than needed: strides of a power of two would
 * all fall into the same set of the cache. With many weights and few tiles U is as large as all caches: then it is
 * made in pieces of some output channels, each used while it is near. */
#include "kernels/wino.h"
#include <string.h>
#include "kernels/wino_int.h"

#define SLACK 8                                 /* what gather may read behind a row */
#define WIDE_TILES 256                          /* most tiles, and fewest weights, of a wide pass */
#define WIDE_WEIGHTS (192 * 192)
#define WIDE_PIECE 48                           /* output channels: a multiple of the rows of all products */

static struct grid grid_of(const struct pass *p, size_t step, size_t side)
{
	return (struct grid){ .step = step, .side = side, .ld = up((p->tw - 1) * step + side + SLACK, 8) };
}

void wino_pass(struct pass *p, const struct wino *g, enum cpu cpu, bool data)
{
	size_t stride = g->stride == 2 ? 2 : 1, oh, ow;

	wino_out(g, &oh, &ow);
	*p = (struct pass){ .isa = wino_tile(cpu), .batch = g->batch, .c = g->ic, .k = g->oc, .h = g->ih, .w = g->iw,
		.oh = oh, .ow = ow, .pad = (size_t)g->pad };
	p->kind = stride == 2 ? data ? WINO_SPREAD : WINO_STRIDED : g->m == 4 ? WINO_F4 : WINO_F2;
	if (data) {
		p->c = g->oc;
		p->k = g->ic;
		p->h = oh;
		p->w = ow;
		p->oh = g->ih;
		p->ow = g->iw;
		p->pad = stride == 2 ? 0 : 2 - (size_t)g->pad;
	}
	p->s = wino_shape[p->kind];
	p->e = (size_t)(p->s.side * p->s.side);
	p->u = (size_t)(p->s.weights * p->s.weights);
	for (int i = 0; i < p->s.side; i++)
		for (int j = 0; j < p->s.side; j++) {
			int last = p->s.weights - 1, row = i < last ? i : last, column = j < last ? j : last;

			p->weight[i * p->s.side + j] = (uint8_t)(row * p->s.weights + column);
		}
	p->th = (p->oh + (size_t)p->s.out - 1) / (size_t)p->s.out;
	p->tw = (p->ow + (size_t)p->s.out - 1) / (size_t)p->s.out;
	p->tiles = p->batch * p->th * p->tw;
	p->cp = up(p->c, L);
	p->in = grid_of(p, (size_t)p->s.step, (size_t)p->s.in);
	p->out = grid_of(p, (size_t)p->s.out, (size_t)p->s.out);
	p->wide = p->tiles <= WIDE_TILES && p->c * p->k >= WIDE_WEIGHTS;
}

void wino_out(const struct wino *g, size_t *ret_oh, size_t *ret_ow)
{
	size_t stride = g->stride == 2 ? 2 : 1;

	*ret_oh = (g->ih + 2 * (size_t)g->pad - 3) / stride + 1;
	*ret_ow = (g->iw + 2 * (size_t)g->pad - 3) / stride + 1;
}

/* Transformed tiles should stay in the second-level cache, weights must be read again for each block. */
void wino_block(struct pass *p, size_t want)
{
	size_t images, lines;

	p->block = up(want < p->tiles && !p->wide ? want : p->tiles, L);
	images = (p->block - 1) / (p->th * p->tw) + 2;
	lines = (p->block - 1) / p->tw + 2;
	p->in.rows = lines * p->in.step + (images + 1) * p->in.side;
	p->out.rows = lines * p->out.step + (images + 1) * p->out.side;
}

/* --- where the tiles of a block lie */

void wino_locate(const struct pass *p, const struct grid *g, struct block *b, size_t at)
{
	size_t per = p->th * p->tw, n = p->tiles - at < p->block ? p->tiles - at : p->block, m = (size_t)p->s.out;

	b->at = at;
	b->n = n;
	b->panels = (n + L - 1) / L;
	b->seats = b->used = 0;
	for (size_t t = 0; t < n; t++) {
		size_t image = (at + t) / per, y = (at + t) % per / p->tw, x = (at + t) % p->tw;
		struct seat *s;

		if (!b->seats || b->seat[b->seats - 1].image != image) {
			size_t last = at + n - 1, end = last / per == image ? last % per / p->tw : p->th - 1;

			b->seat[b->seats++] = (struct seat){ image, y, b->used };
			b->used += (end - y) * g->step + g->side;
		}
		s = &b->seat[b->seats - 1];
		b->off[t] = (uint32_t)((s->first + (y - s->row) * g->step) * g->ld + x * g->step);
		b->to[t] = image * p->k * p->oh * p->ow + y * m * p->ow + x * m;
		b->rows[t] = (uint8_t)(p->oh - y * m < m ? p->oh - y * m : m);
		b->cols[t] = (uint8_t)(p->ow - x * m < m ? p->ow - x * m : m);
	}
	for (size_t t = n; t < b->panels * L; t++)
		b->off[t] = (uint32_t)((g->rows - g->side) * g->ld);
}

/* Rows are short, often a few vectors: no call for each. The zeros go first, in whole vectors as well. */
static void row_copy(const real *restrict x, size_t w, size_t pad, size_t ld, real *restrict to)
{
	size_t j = 0;

	for (size_t i = 0; i < pad; i++)
		to[i] = 0;
	for (size_t i = ld - 8; ; i -= 8) {
		memset(to + i, 0, 8 * sizeof(real));
		if (i <= pad + w)
			break;
	}
	for (; j + 8 <= w; j += 8)
		memcpy(to + pad + j, x + j, 8 * sizeof(real));
	for (; j < w; j++)
		to[pad + j] = x[j];
}

void wino_strip(const struct pass *p, const struct grid *g, const struct block *b, const real *x, size_t step, size_t h,
	size_t w, size_t pad, real *strip)
{
	for (size_t i = 0; i < b->seats; i++) {
		size_t end = i + 1 < b->seats ? b->seat[i + 1].first : b->used;
		const real *image = x + b->seat[i].image * step;

		for (size_t r = b->seat[i].first; r < end; r++) {
			size_t y = b->seat[i].row * g->step + r - b->seat[i].first;     /* counted from -pad */
			real *to = strip + r * g->ld;

			if (y < pad || y >= h + pad) {
				memset(to, 0, g->ld * sizeof(real));
				continue;
			}
			for (size_t j = 0; j < w; j += 64 / sizeof(real))       /* the next channel lies far away */
				__builtin_prefetch(image + (h + y - pad) * w + j);
			row_copy(image + (y - pad) * w, w, pad, g->ld, to);
		}
	}
}

/* --- scratch */

void *wino_take(struct area *a, size_t bytes)
{
	void *p = a->p ? a->p + a->used : NULL;

	a->used += up(bytes, 64);
	return p;
}

void wino_take_block(struct area *a, const struct pass *p, struct block *b)
{
	b->seat = wino_take(a, (p->block + 1) * sizeof(*b->seat));
	b->off = wino_take(a, p->block * sizeof(*b->off));
	b->to = wino_take(a, p->block * sizeof(*b->to));
	b->rows = wino_take(a, p->block);
	b->cols = wino_take(a, p->block);
}

/* --- forward, and backward to the data */

struct forward {
	const struct pass *p;
	const real *x, *w, *bias; real *y;
	real *u, *v;                            /* of all; v of a wide pass, else u: the other is each worker's own */
	bool turned;                            /* weights of backward_data */
	struct block all;                       /* of a wide pass */
	unsigned char *own; size_t own_bytes;   /* of each worker */
};
struct worker { struct block b; real *strip, *u, *v, *m; };

static size_t worker_take(const struct pass *p, unsigned char *at, struct worker *w)
{
	size_t k = p->wide ? WIDE_PIECE : p->k;
	struct area a = { at, 0 };

	wino_take_block(&a, p, &w->b);
	w->strip = wino_take(&a, p->in.rows * p->in.ld * sizeof(real));
	w->m = wino_take(&a, p->e * p->block * k * sizeof(real));
	if (p->wide)
		w->u = wino_take(&a, p->u * (k * p->cp + L) * sizeof(real));
	else
		w->v = wino_take(&a, p->e * (p->block * p->c + L) * sizeof(real));
	return a.used;
}

/* Weights of the output channels [lo, hi): those of `first` come first, `all` output channels apart. */
static void weights_make(const struct forward *f, size_t lo, size_t hi, size_t first, size_t all, real *u)
{
	const struct pass *p = f->p;

	for (size_t k = lo; k < hi; k++)
		for (size_t c = 0; c < p->c; c += L) {
			real w[9][L] = { { 0 } };

			for (size_t j = 0; j < L && c + j < p->c; j++) {
				const real *from = f->w + (f->turned ? (c + j) * p->k + k : k * p->c + c + j) * 9;

				for (int i = 0; i < 9; i++)
					w[i][j] = from[f->turned ? 8 - i : i];
			}
			p->isa->weight(p->kind, w, u + (k - first) * p->cp + c, all * p->cp + L);
		}
}

static void weights_part(void *arg, int part, int parts)
{
	const struct forward *f = arg;
	size_t lo, hi;

	par_slice(f->p->k, 1, part, parts, &lo, &hi);
	weights_make(f, lo, hi, 0, f->p->k, f->u);
}

/* Transformed tiles of the channels [lo, hi). */
static void tiles_in(const struct forward *f, const struct block *b, size_t lo, size_t hi, real *strip, real *v)
{
	const struct pass *p = f->p;
	size_t plane = p->h * p->w;

	for (size_t c = lo; c < hi; c++) {
		wino_strip(p, &p->in, b, f->x + c * plane, p->c * plane, p->h, p->w, p->pad, strip);
		for (size_t q = 0; q < b->panels; q++) {
			real d[WINO_E][L];

			p->isa->gather(p->s.in, strip, p->in.ld, b->off + q * L, d);
			p->isa->in(p->kind, d, v + (q * p->c + c) * L, b->panels * p->c * L + L);
		}
	}
}

/* n output channels; u and m begin with them. */
static void products(const struct pass *p, const struct block *b, const real *u, const real *v, size_t n, size_t all,
	real *m)
{
	struct wino_product x = { .lda = p->cp, .ldb = L, .bn = p->c * L, .n = p->c, .ldc = p->e * L, .cn = n * p->e * L,
		.rows = (int)n, .panels = (int)b->panels };

	for (size_t e = 0; e < p->e; e++) {
		x.a = u + p->weight[e] * (all * p->cp + L);
		x.b = v + (e * b->panels * p->c + e) * L;
		x.c = m + e * L;
		wino_products(p->isa, &x, false);
	}
}

/* Output channels [lo, hi) from m, which holds those. */
static void tiles_out(const struct forward *f, const struct block *b, size_t lo, size_t hi, const real *m)
{
	const struct pass *p = f->p;

	for (size_t q = 0; q < b->panels; q++) {
		int n = (int)(b->n - q * L < L ? b->n - q * L : L);

		for (size_t k = lo; k < hi; k++) {
			real y[WINO_E][L];

			p->isa->out(p->kind, m + (q * (hi - lo) + k - lo) * p->e * L, y);
			for (int i = 0; f->bias && i < p->s.out * p->s.out; i++)
				for (int j = 0; j < L; j++)
					y[i][j] += f->bias[k];
			p->isa->scatter(p->s.out, y, f->y + k * p->oh * p->ow, p->ow, b->to + q * L, b->rows + q * L,
				b->cols + q * L, n);
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
	strip_end(&p->in, w.strip);
	par_slice(p->tiles, p->block, part, parts, &lo, &hi);
	for (size_t at = lo; at < hi; at += p->block) {
		wino_locate(p, &p->in, &w.b, at);
		tiles_in(f, &w.b, 0, p->c, w.strip, w.v);
		products(p, &w.b, f->u, w.v, p->k, p->k, w.m);
		tiles_out(f, &w.b, 0, p->k, w.m);
	}
}

static void wide_in_part(void *arg, int part, int parts)
{
	const struct forward *f = arg;
	struct worker w;
	size_t lo, hi;

	(void)worker_take(f->p, f->own + (size_t)part * f->own_bytes, &w);
	strip_end(&f->p->in, w.strip);
	par_slice(f->p->c, 1, part, parts, &lo, &hi);
	tiles_in(f, &f->all, lo, hi, w.strip, f->v);
}

static void wide_out_part(void *arg, int part, int parts)
{
	const struct forward *f = arg;
	const struct pass *p = f->p;
	struct worker w;
	size_t lo, hi;

	(void)worker_take(p, f->own + (size_t)part * f->own_bytes, &w);
	par_slice(p->k, WIDE_PIECE, part, parts, &lo, &hi);
	for (size_t k = lo; k < hi; k += WIDE_PIECE) {
		size_t end = hi - k < WIDE_PIECE ? hi : k + WIDE_PIECE;

		weights_make(f, k, end, k, WIDE_PIECE, w.u);
		products(p, &f->all, w.u, f->v, end - k, WIDE_PIECE, w.m);
		tiles_out(f, &f->all, k, end, w.m);
	}
}

/* How many tiles at once: the products read all weights for each block, so many channels want large blocks. */
static size_t forward_block(const struct pass *p)
{
	return p->c * p->k <= 64 * 64 ? 32 : p->c * p->k <= 128 * 128 ? 64 : 128;
}

static size_t forward_bytes(const struct pass *p, int parts, struct area *a, struct forward *f)
{
	struct worker w;

	if (p->wide) {
		wino_take_block(a, p, &f->all);
		f->v = wino_take(a, p->e * (p->block * p->c + L) * sizeof(real));
	} else {
		f->u = wino_take(a, p->u * (p->k * p->cp + L) * sizeof(real));
	}
	f->own_bytes = worker_take(p, NULL, &w);
	f->own = wino_take(a, (size_t)parts * f->own_bytes);
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
	wino_pass(&p, g, par->cpu, data);
	wino_block(&p, forward_block(&p));
	(void)forward_bytes(&p, par->n, &a, &f);
	if (p.wide) {
		wino_locate(&p, &p.in, &f.all, 0);
		par_run(par, wide_in_part, &f);
		par_run(par, wide_out_part, &f);
		return;
	}
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

static size_t work_of(const struct wino *g, int parts, bool backward)
{
	struct pass p;
	struct forward f;
	size_t most = backward ? wino_gradient_work(g, parts) : 0;

	for (int data = 0; data <= (backward ? 1 : 0); data++) {
		struct area a = { NULL, 0 };

		wino_pass(&p, g, CPU_PLAIN, data);
		wino_block(&p, forward_block(&p));
		if (forward_bytes(&p, parts, &a, &f) > most)
			most = a.used;
	}
	return most;
}

/* Enough for smaller batches too: the largest wide pass may need more than one of many tiles. */
size_t wino_work(const struct wino *g, int parts, bool backward)
{
	size_t most = work_of(g, parts, backward);

	for (int data = 0; data < 2; data++) {
		struct wino small = *g;
		struct pass p;
		size_t need;

		wino_pass(&p, g, CPU_PLAIN, data);
		small.batch = WIDE_TILES / (p.th * p.tw);
		need = small.batch && small.batch < g->batch ? work_of(&small, parts, backward) : 0;
		most = need > most ? need : most;
	}
	return most;
}
