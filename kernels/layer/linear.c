/* Fully connected (torch.nn.Linear): y = x W^T + b over the last dimension; transposed: W is kept as [in, out], as in
 * the Conv1D of GPT-2's checkpoints. */
#include <math.h>
#include <string.h>
#include "kernels/arena.h"
#include "kernels/gemm.h"
#include "kernels/gemm_bf16.h"
#include "kernels/gemm_tile.h"
#include "kernels/isa.h"
#include "kernels/layer.h"

enum { OUT, BIAS, IN, TRANSPOSED, STD };
#define MANY 512                                /* rows from which a transformer's forward pass gains from the bias */

static int shape(struct layer *l, struct kerr *e)
{
	size_t out = (size_t)l->attr[OUT], in, want = (size_t)l->attr[IN];
	char text[64];

	if (l->in.nd < 1 || l->in.nd > 2)
		return kerr_set(e,
			"linear needs a row of features, not an input of shape %s: put a flatten layer before it",
			shape_text(&l->in, text, sizeof text));
	in = l->in.d[l->in.nd - 1];
	if (want && want != in)
		return kerr_set(e, "linear says in = %zu, but its input of shape %s has %zu features", want,
			shape_text(&l->in, text, sizeof text), in);
	l->out = l->in;
	l->out.d[l->out.nd - 1] = out;
	layer_param_add(l, "weight", 2, l->attr[TRANSPOSED] != 0 ? (size_t[]){ in, out } : (size_t[]){ out, in });
	if (l->attr[BIAS] != 0)
		layer_param_add(l, "bias", 1, (size_t[]){ out });
	return 0;
}

static size_t features(const struct shape *s) { return s->d[s->nd - 1]; }

static void init(const struct layer *l, uint64_t key, real *param)
{
	layer_init(l, key, 1 / sqrt((double)features(&l->in)), l->attr[STD], param);    /* kaiming_uniform_(a = sqrt(5)) */
}

static size_t rows_of(const struct layer *l, size_t batch) { return batch * (shape_count(&l->in) / features(&l->in)); }

/* Few rows: tiles of our own beat the packing of OpenBLAS. Many: as fast, and the bias costs no pass of its own. What
 * is multiplied by tiles has the same bits for any number of workers. */
static bool tiled(const struct layer *l, size_t rows)
{
	return ((rows > 4 && rows <= GEMM_TILE_FEW) || rows >= MANY) && features(&l->out) >= 16 && features(&l->in) >= 16;
}

/* Not without OpenBLAS: then sums have a stated order. */
static bool by_tiles(const struct par *par, const struct layer *l, size_t rows)
{
	return par->blas && gemm_tile_has(par->cpu) && tiled(l, rows);
}

static enum dot dot_of(const struct par *par, const struct layer *l)
{
	return l->precision == PRECISION_BF16 ? par->dot : DOT_NONE;
}

struct job { const struct layer_call *c; struct gemm_tile g; enum cpu cpu; enum dot dot; size_t bytes; };

/* Columns of C are shared out. */
static void tiles_part(void *arg, int part, int parts)
{
	const struct job *j = arg;
	struct gemm_tile g = j->g;

	if (!gemm_tile_part(&g, part, parts))
		return;
	if (j->dot)
		gemm_bf16(j->dot, &g, (unsigned char *)j->c->work + (size_t)part * j->bytes);
	else
		gemm_tile(j->cpu, &g, (unsigned char *)j->c->work + (size_t)part * j->bytes);
}

static void tiles_run(const struct par *par, struct job *j)
{
	if (gemm_flops(j->g.m, j->g.n, j->g.k) < 1e6)
		tiles_part(j, 0, 1);
	else
		par_run(par, tiles_part, j);
}

static size_t tiles_bytes(const struct layer *l, size_t rows)
{
	size_t in = features(&l->in), out = features(&l->out), wide = in > out ? in : out;

	size_t most = wide > rows ? wide : rows, tiles = tiled(l, rows) ? gemm_tile_work(rows, wide, most) : 0;
	size_t halves = l->precision != PRECISION_BF16 ? 0 : gemm_bf16_work(most, most, most);

	return arena_round(tiles > halves ? tiles : halves);
}

/* y = x op(W) + b: rows x n, sums of k. */
static void product(const struct par *par, const struct layer_call *c, bool trans, size_t n, size_t k, const real *x,
	const real *bias, real *y)
{
	size_t rows = rows_of(c->l, c->batch), ld = features(c->l->attr[TRANSPOSED] != 0 ? &c->l->out : &c->l->in);
	struct job j = { .c = c, .cpu = par->cpu, .dot = dot_of(par, c->l), .bytes = tiles_bytes(c->l, rows),
		.g = { .trans_b = trans, .m = rows, .n = n, .k = k, .alpha = 1, .a = x, .lda = k, .b = c->param, .ldb = ld,
		.c = y, .ldc = n, .bias = bias } };

	if (j.dot || by_tiles(par, c->l, rows)) {
		tiles_run(par, &j);
		return;
	}
	for (size_t r = 0; r < rows && bias; r++)
		memcpy(y + r * n, bias, n * sizeof(real));
	gemm(par, false, trans, rows, n, k, 1, x, k, c->param, ld, bias ? 1 : 0, y, n);
}

static void forward(const struct par *par, const struct layer_call *c)
{
	product(par, c, c->l->attr[TRANSPOSED] == 0, features(&c->l->out), features(&c->l->in), c->x,
		c->l->nparams > 1 ? c->param + c->l->param[1].offset : NULL, c->y);
}

struct columns { const real *dy; real *db; size_t rows, n; };

/* Sums of columns [lo, hi): in the order of the rows, whoever adds them. */
ISA_BODY columns_body(const void *v, size_t lo, size_t hi)
{
	const struct columns *s = v;
	real *restrict db = s->db;

	for (size_t r = 0; r < s->rows; r++) {
		const real *restrict dy = s->dy + r * s->n;

		for (size_t j = lo; j < hi; j++)
			db[j] += dy[j];
	}
}
ISA_KERNEL(columns);

/* dW (+)= a^T b: m x n, sums over the rows. Where nothing is there yet the tiles only write, which OpenBLAS cannot: it
 * clears what it will add to. */
static void weight_grad(const struct par *par, const struct layer_call *c, size_t m, size_t n, const real *a,
	const real *b)
{
	size_t rows = rows_of(c->l, c->batch);
	struct job j = { .c = c, .cpu = par->cpu, .dot = dot_of(par, c->l), .bytes = tiles_bytes(c->l, rows),
		.g = { .trans_a = true, .add = !c->fresh, .m = m, .n = n, .k = rows, .alpha = 1, .a = a, .lda = m, .b = b,
		.ldb = n, .c = c->dparam, .ldc = n } };

	if (!j.dot && (!c->fresh || !by_tiles(par, c->l, rows) || (rows >= MANY && par->cpu != CPU_AVX512)))
		gemm(par, true, false, m, n, rows, 1, a, m, b, n, c->fresh ? 0 : 1, c->dparam, n);
	else
		tiles_run(par, &j);
}

static void backward(const struct par *par, const struct layer_call *c)
{
	size_t in = features(&c->l->in), out = features(&c->l->out), rows = rows_of(c->l, c->batch);
	bool across = c->l->attr[TRANSPOSED] != 0;

	if (c->dparam) {
		if (across)
			weight_grad(par, c, in, out, c->x, c->dy);
		else
			weight_grad(par, c, out, in, c->dy, c->x);
		if (c->l->nparams > 1 && c->fresh)
			memset(c->dparam + c->l->param[1].offset, 0, out * sizeof(real));
		if (c->l->nparams > 1)
			isa_run(par, &columns, &(struct columns){ c->dy, c->dparam + c->l->param[1].offset, rows, out }, out, 16,
				rows * out < 32768 ? out : 0);
	}
	if (c->dx)
		product(par, c, across, in, out, c->dy, NULL, c->dx);
}

static size_t work(const struct layer *l, size_t batch, int parts, bool backward)
{
	size_t rows = rows_of(l, batch);

	/* The last batch of a data set is smaller, and must not need more: few rows go by tiles. */
	return tiles_bytes(l, rows > GEMM_TILE_FEW && rows < MANY ? GEMM_TILE_FEW : rows) * (size_t)parts;
}

static uint64_t macs(const struct layer *l)
{
	return (uint64_t)shape_count(&l->in) * features(&l->out);
}

static uint64_t other(const struct layer *l)
{
	return l->nparams > 1 ? (uint64_t)shape_count(&l->out) : 0;
}

const struct layer_ops layer_linear = {
	.name = "linear", .help = "fully connected",
	.nattrs = 5,
	.attr = {
		[OUT] = { "out", NAN, 1, 1 << 24, true, "output features" },
		[BIAS] = { "bias", 1, 0, 1, true, "add a bias" },
		[IN] = { "in", 0, 0, 1 << 24, true, "input features, to be checked; 0: whatever comes" },
		[TRANSPOSED] = { "transposed", 0, 0, 1, true, "the weight is kept as [in, out]" },
		[STD] = { "std", 0, 0, 1e3, false, "deviation of normal initial weights (bias 0); 0: PyTorch's uniform ones" },
	},
	.multiplies = true, .packs = true, .needs_x = true, .stores = true, .other = other, .shape = shape, .init = init,
	.forward = forward, .backward = backward, .macs = macs, .work = work,
};
