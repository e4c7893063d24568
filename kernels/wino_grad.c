/* Winograd's convolution, backward to the weights: tiles of the input and of the output's gradient are transformed and
 * multiplied over tiles, and the sums are transformed back to kernels.
 *
 * Layouts: V[e][in / 16][tile][16], D[e][out][tile] and U[u][out][in], a line more than needed between two e. Sums run
 * over the tiles of a block and then over blocks. A wide pass (wino_int.h) makes U in pieces of some channels. */
#include <string.h>
#include "kernels/wino.h"
#include "kernels/wino_int.h"

#define PIECE 48                                /* output channels of a wide pass: whole rows of products */

struct gradient {
	const struct pass *p;
	const real *x, *dy; real *dw;
	struct block in, out;                   /* the same tiles in strips of x and of dy */
	real *v, *d, *u;                        /* u of a wide pass is each worker's own */
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
			wino_strip(p, &p->in, &g->in, g->x + (c + j) * plane, p->c * plane, p->h, p->w, p->pad,
				strip + j * g->strip);
			strip_end(&p->in, strip + j * g->strip);
		}
		for (size_t q = 0; q < g->in.panels; q++) {
			for (size_t j = 0; j < L; j++) {
				real d[WINO_E][L];

				if (c + j < p->c)
					p->isa->gather(p->s.in, strip + j * g->strip, p->in.ld, g->in.off + q * L, d);
				else
					memset(d, 0, sizeof(d));
				p->isa->in(p->kind, d, tmp + j * L, L * L);
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

	strip_end(&p->out, strip);
	par_slice(p->k, 1, part, parts, &lo, &hi);
	for (size_t k = lo; k < hi; k++) {
		wino_strip(p, &p->out, &g->out, g->dy + k * plane, p->k * plane, p->oh, p->ow, 0, strip);
		for (size_t q = 0; q < g->out.panels; q++) {
			real y[WINO_E][L];

			p->isa->gather(p->s.out, strip, p->out.ld, g->out.off + q * L, y);
			p->isa->grad(p->kind, y, g->d + k * p->block + q * L, p->k * p->block + L);
		}
	}
}

/* Sums of weights w for the output channels [lo, hi); ret begins with those, cp apart. */
static void sums(const struct gradient *g, size_t w, size_t lo, size_t hi, bool add, real *ret)
{
	const struct pass *p = g->p;
	struct wino_product x = { .lda = p->block, .ldb = L, .bn = L * p->block, .n = g->in.panels * L, .ldc = p->cp,
		.cn = L, .rows = (int)(hi - lo), .panels = (int)(p->cp / L), .c = ret, .add = add };

	for (size_t e = 0; e < p->e; e++) {
		if (p->weight[e] != w)
			continue;
		x.a = g->d + (e * p->k + lo) * p->block + e * L;
		x.b = g->v + e * p->cp * p->block + e * L;
		wino_products(p->isa, &x, true);
		x.add = true;
	}
}

/* Kernels of the output channels [lo, hi) from u, which begins with those, `all` apart. */
static void kernels_add(const struct gradient *g, size_t lo, size_t hi, size_t all, const real *u)
{
	const struct pass *p = g->p;

	for (size_t k = lo; k < hi; k++)
		for (size_t c = 0; c < p->c; c += L) {
			real w[9][L];

			p->isa->dweight(p->kind, u + (k - lo) * p->cp + c, all * p->cp + L, w);
			for (size_t j = 0; j < L && c + j < p->c; j++)
				for (int i = 0; i < 9; i++)
					g->dw[(k * p->c + c + j) * 9 + (size_t)i] += w[i][j];
		}
}

static void sums_part(void *arg, int part, int parts)
{
	const struct gradient *g = arg;
	const struct pass *p = g->p;
	size_t lo, hi;

	par_slice(p->u, 1, part, parts, &lo, &hi);
	for (size_t w = lo; w < hi; w++)
		sums(g, w, 0, p->k, g->add, g->u + w * (p->k * p->cp + L));
}

static void kernels_part(void *arg, int part, int parts)
{
	const struct gradient *g = arg;
	size_t lo, hi;

	par_slice(g->p->k, 1, part, parts, &lo, &hi);
	kernels_add(g, lo, hi, g->p->k, g->u + lo * g->p->cp);
}

static void wide_part(void *arg, int part, int parts)
{
	const struct gradient *g = arg;
	const struct pass *p = g->p;
	real *u = (real *)(g->own + (size_t)part * g->own_bytes);
	size_t lo, hi;

	par_slice(p->k, PIECE, part, parts, &lo, &hi);
	for (size_t k = lo; k < hi; k += PIECE) {
		size_t end = hi - k < PIECE ? hi : k + PIECE;

		for (size_t w = 0; w < p->u; w++)
			sums(g, w, k, end, false, u + w * (PIECE * p->cp + L));
		kernels_add(g, k, end, PIECE, u);
	}
}

static size_t gradient_bytes(const struct pass *p, int parts, struct area *a, struct gradient *g)
{
	size_t strip = p->in.rows * p->in.ld, out = p->out.rows * p->out.ld, piece = p->u * (PIECE * p->cp + L), own;

	wino_take_block(a, p, &g->in);
	wino_take_block(a, p, &g->out);
	g->v = wino_take(a, p->e * (p->block * p->cp + L) * sizeof(real));
	g->d = wino_take(a, p->e * (p->block * p->k + L) * sizeof(real));
	g->u = p->wide ? NULL : wino_take(a, p->u * (p->k * p->cp + L) * sizeof(real));
	g->strip = strip;
	own = L * strip + p->e * L * L;
	own = own > out ? own : out;
	own = p->wide && piece > own ? piece : own;
	g->own_bytes = up(own * sizeof(real), 64);
	g->own = wino_take(a, (size_t)parts * g->own_bytes);
	return a->used;
}

static size_t gradient_block(const struct pass *p)
{
	return p->e > 36 ? 32 : 64;     /* both sides of a block should stay near */
}

void wino_backward_weights(const struct par *par, const struct wino *w, const real *x, const real *dy, real *dw,
	void *work)
{
	struct pass p;
	struct area a = { work, 0 };
	struct gradient g = { .p = &p, .x = x, .dy = dy, .dw = dw };

	if (!w->batch)
		return;
	wino_pass(&p, w, par->cpu, false);
	wino_block(&p, gradient_block(&p));
	(void)gradient_bytes(&p, par->n, &a, &g);
	for (size_t at = 0; at < p.tiles; at += p.block, g.add = true) {
		wino_locate(&p, &p.in, &g.in, at);
		wino_locate(&p, &p.out, &g.out, at);
		par_run(par, in_part, &g);
		par_run(par, out_part, &g);
		if (!p.wide)
			par_run(par, sums_part, &g);
	}
	par_run(par, p.wide ? wide_part : kernels_part, &g);
}

size_t wino_gradient_work(const struct wino *g, int parts)
{
	struct area a = { NULL, 0 };
	struct gradient d;
	struct pass p;

	wino_pass(&p, g, CPU_PLAIN, false);
	wino_block(&p, gradient_block(&p));
	return gradient_bytes(&p, parts, &a, &d);
}
