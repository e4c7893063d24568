/* Loads OpenBLAS with the core type that this CPU deserves, and cuts products into one slice per worker. */
#include "kernels/gemm.h"
#include <assert.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "libopenblas.so.0"
#define INSTALL "install Debian's libopenblas0-pthread"

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };         /* cblas.h */
enum { ROWS = 8192 };                                          /* of one call; the results are the same bits */
enum { PARALLEL_OPENMP = 2 };                                   /* openblas_get_parallel() */

struct blas {
	void *lib;
	void (*gemm)(int order, int ta, int tb, int m, int n, int k, real alpha, const real *a, int lda,
		const real *b, int ldb, real beta, real *c, int ldc);
	struct blas_info info;
};

/* What a core type's kernels use: 0 SSE, 1 AVX, 2 AVX2 with FMA, 3 AVX-512; -1: not known here. */
static int core_rank(const char *core)
{
	static const struct { const char *name; int rank; } row[] = {
		{ "Katmai", 0 }, { "Coppermine", 0 }, { "Northwood", 0 }, { "Prescott", 0 }, { "Banias", 0 },
		{ "Core2", 0 }, { "Penryn", 0 }, { "Dunnington", 0 }, { "Nehalem", 0 }, { "Atom", 0 },
		{ "Athlon", 0 }, { "Opteron", 0 }, { "Opteron_SSE3", 0 }, { "Barcelona", 0 }, { "Bobcat", 0 },
		{ "Nano", 0 }, { "Sandybridge", 1 }, { "Bulldozer", 1 }, { "Piledriver", 1 },
		{ "Steamroller", 1 }, { "Haswell", 2 }, { "Excavator", 2 }, { "Zen", 2 }, { "SkylakeX", 3 },
		{ "Cooperlake", 3 }, { "SapphireRapids", 3 },
	};

	for (size_t i = 0; i < sizeof row / sizeof *row; i++)
		if (!strcasecmp(core, row[i].name))
			return row[i].rank;
	return -1;
}

/* The core type this CPU deserves; NULL when OpenBLAS's own choice cannot be improved on. */
static const char *core_wanted(void)
{
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
		return "SkylakeX";
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		return "Haswell";
#endif
	return NULL;
}

static int load(struct blas *b, char *core, size_t cap, struct kerr *e)
{
	char *(*corename)(void), *(*config)(void);
	int (*parallel)(void);
	void (*threads)(int);
	const char *symbol = sizeof(real) == sizeof(float) ? "cblas_sgemm" : "cblas_dgemm";

	b->lib = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	if (!b->lib)
		return kerr_set(e, "cannot load %s (%.120s): %s", LIBRARY, dlerror(), INSTALL);
	*(void **)&b->gemm = dlsym(b->lib, symbol);
	*(void **)&corename = dlsym(b->lib, "openblas_get_corename");
	*(void **)&config = dlsym(b->lib, "openblas_get_config");
	*(void **)&parallel = dlsym(b->lib, "openblas_get_parallel");
	*(void **)&threads = dlsym(b->lib, "openblas_set_num_threads");
	if (!b->gemm || !corename || !config || !parallel || !threads)
		return kerr_set(e, "%s is not a whole OpenBLAS (no %s): %s", LIBRARY,
			!b->gemm ? symbol : "openblas_get_corename", INSTALL);
	if (parallel() == PARALLEL_OPENMP)
		return kerr_set(e, "%s is the OpenMP build, whose threads fight with ours: %s and choose it with "
			"update-alternatives --config libopenblas.so.0-x86_64-linux-gnu", LIBRARY, INSTALL);
	threads(1);
	snprintf(core, cap, "%s", corename());
	snprintf(b->info.config, sizeof b->info.config, "%s", config());
	return 0;
}

static void unload(struct blas *b)
{
	if (b->lib)
		dlclose(b->lib);
	b->lib = NULL;
}

static bool poor(const char *core, const char *wanted)
{
	return wanted && core_rank(core) >= 0 && core_rank(core) < core_rank(wanted);
}

void blas_settle(struct blas_info *ret_settled)
{
	const char *wanted = core_wanted(), *set = getenv("OPENBLAS_CORETYPE");
	struct blas look = { 0 };
	struct kerr e;

	*ret_settled = (struct blas_info){ .by_operator = set && *set };
	setenv("OPENBLAS_NUM_THREADS", "1", 1);
	setenv("OPENBLAS_THREAD_TIMEOUT", "10", 1);
	if (ret_settled->by_operator)
		return;
	if (load(&look, ret_settled->core_unset, sizeof ret_settled->core_unset, &e) == 0)
		ret_settled->forced = poor(ret_settled->core_unset, wanted);
	unload(&look);
	if (ret_settled->forced)
		setenv("OPENBLAS_CORETYPE", wanted, 1);
}

struct blas *blas_load(const struct blas_info *settled, struct kerr *e)
{
	struct blas *b = calloc(1, sizeof *b);

	if (!b) {
		kerr_set(e, "out of memory opening %s", LIBRARY);
		return NULL;
	}
	b->info = *settled;
	snprintf(b->info.library, sizeof b->info.library, "openblas");
	if (load(b, b->info.core, sizeof b->info.core, e) < 0) {
		blas_close(b);
		return NULL;
	}
	b->info.below_cpu = poor(b->info.core, core_wanted());
	return b;
}

struct blas *blas_open(struct kerr *e)
{
	struct blas_info settled;

	blas_settle(&settled);
	return blas_load(&settled, e);
}

void blas_close(struct blas *b)
{
	if (b)
		unload(b);
	free(b);
}

void blas_info(const struct blas *b, struct blas_info *ret_info)
{
	if (b)
		*ret_info = b->info;
	else
		*ret_info = (struct blas_info){ .library = "reference", .core = "plain", .core_unset = "plain",
			.config = "plain C, fixed order" };
}

struct product {
	const struct par *par;
	bool trans_a, trans_b, by_rows;
	size_t m, n, k;
	real alpha, beta;
	const real *a, *b;
	real *c;
	size_t lda, ldb, ldc;
};

static void product_part(void *arg, int part, int parts)
{
	const struct product *p = arg;
	const struct blas *bl = p->par->blas;
	const real *a = p->a, *b = p->b;
	real *c = p->c;
	size_t lo, hi, m = p->m, n = p->n;

	par_slice(p->by_rows ? m : n, 16, part, parts, &lo, &hi);
	if (lo == hi)
		return;
	if (p->by_rows) {
		a += p->trans_a ? lo : lo * p->lda;
		c += lo * p->ldc;
		m = hi - lo;
	} else {
		b += p->trans_b ? lo * p->ldb : lo;
		c += lo;
		n = hi - lo;
	}
	/* OpenBLAS first copies rows times k numbers, which for the gradient of a vocabulary is much. */
	for (size_t at = 0; bl && at < m; at += ROWS)
		bl->gemm(ROW_MAJOR, p->trans_a ? TRANS : NO_TRANS, p->trans_b ? TRANS : NO_TRANS,
			(int)(m - at < ROWS ? m - at : ROWS), (int)n, (int)p->k, p->alpha, a + (p->trans_a ? at : at * p->lda),
			(int)p->lda, b, (int)p->ldb, p->beta, c + at * p->ldc, (int)p->ldc);
	if (!bl)
		gemm_reference(p->par, p->trans_a, p->trans_b, m, n, p->k, p->alpha, a, p->lda, b, p->ldb, p->beta,
			c, p->ldc);
}

void gemm(const struct par *par, bool trans_a, bool trans_b, size_t m, size_t n, size_t k, real alpha, const real *a,
	size_t lda, const real *b, size_t ldb, real beta, real *c, size_t ldc)
{
	struct product p = { par, trans_a, trans_b, m >= n, m, n, k, alpha, beta, a, b, c, lda, ldb, ldc };

	if (m == 0 || n == 0)
		return;
	assert(m <= INT_MAX && n <= INT_MAX && k <= INT_MAX && lda <= INT_MAX && ldb <= INT_MAX && ldc <= INT_MAX);
	assert(lda >= (trans_a ? m : k) && ldb >= (trans_b ? k : n) && ldc >= n);
	/* A team is woken for 1 MFLOP or more: below that a slice is shorter than the waking. */
	if (par->n == 1 || gemm_flops(m, n, k) < 1e6)
		product_part(&p, 0, 1);
	else
		par_run(par, product_part, &p);
}
