/* A gradient that holds nothing yet: backward writes it, whatever lies there, and leaves what is not the piece's alone.
 * The same bits as adding to zeros where sums have a stated order; by tiles as near as rounding; for any number of
 * workers the same. */
#include "t.h"
#include <math.h>
#include "kernels/gemm.h"
#include "kernels/gemm_tile.h"
#include "train/spec/spec.h"
#include "skip.h"

static void *room(size_t bytes)
{
	void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);

	assert_non_null(p);
	return memset(p, 0, (bytes + 127) / 64 * 64);
}

static struct model *model_of(const char *model)
{
	char json[2000];
	struct err e;
	struct spec *s;
	struct model *m;

	(void)snprintf(json, sizeof(json), "{\"name\":\"x\",\"model\":%s,\"loss\":\"cross_entropy\","
		"\"optimizer\":{\"name\":\"sgd\"},\"target_batch\":4,"
		"\"data\":{\"name\":\"x\",\"kind\":\"synthetic\",\"count\":8}}", model);
	s = spec_parse(json, strlen(json), &e);
	if (!s)
		fail_msg("%s: %s", model, e.text);
	m = spec_model(s, NULL, &e);
	assert_non_null(m);
	spec_free(s);
	return m;
}

/* Gradient of ops [a, b) for inputs and a gradient of the output that depend on nothing else; grad as it comes. The
 * first `cut` parameters lie apart, and their gradients go to `head`. */
static void back_cut(const struct par *par, const struct model *m, int a, int b, size_t batch, bool fresh, real *grad,
	size_t cut, real *head)
{
	enum { PARAM, BUFFER, X, DX, Y, DY, SAVED, WORK, ROOMS };
	struct model_need need;
	void *v[ROOMS];

	model_need(m, a, b, batch, par->n, &need);
	const size_t work = need.work_fwd > need.work_bwd ? need.work_fwd : need.work_bwd, bytes[ROOMS] = {
		m->nparam * sizeof(real), m->nbuffer * sizeof(real), need.x, need.x, need.y, need.y, need.saved, work };

	for (int k = 0; k < ROOMS; k++)
		v[k] = room(bytes[k]);
	struct model_call c = { .batch = batch, .param = v[PARAM], .buffer = m->nbuffer ? v[BUFFER] : NULL, .key = 3,
		.saved = v[SAVED], .work = v[WORK], .train = true, .fresh = fresh };

	model_init(m, 1, v[PARAM]);
	model_init_buffers(m, v[BUFFER]);
	if (cut) {
		c.head.n = cut;
		c.head.param = memcpy(room(cut * sizeof(real)), v[PARAM], cut * sizeof(real));
		c.head.grad = head;
		c.apart = true;
		for (size_t i = 0; i < cut; i++)        /* nobody reads them there */
			((real *)v[PARAM])[i] = (real)NAN;
	}
	if (a > 0 || m->in.nd == 3 || !strcmp(m->op[0].ops->name, "flatten"))   /* text is of word 0 */
		rand_uniform(2, 1, need.x / sizeof(real), v[X]);
	rand_uniform(4, 1, need.y / sizeof(real), v[DY]);
	model_forward(par, m, a, b, &c, v[X], v[Y]);
	model_backward(par, m, a, b, &c, v[X], v[DY], a ? v[DX] : NULL, grad);
	for (int k = 0; k < ROOMS; k++)
		free(v[k]);
	free((real *)(uintptr_t)c.head.param);
}

static void back(const struct par *par, const struct model *m, int a, int b, size_t batch, bool fresh, real *grad)
{
	back_cut(par, m, a, b, batch, fresh, grad, 0, NULL);
}

static const char *const models[] = { "{\"zoo\":\"mlp\",\"inputs\":300,\"widths\":[100]}", "{\"zoo\":\"lenet5\"}",
	"{\"zoo\":\"resnet18\",\"pixels\":32,\"width\":8,\"stem\":\"cifar\",\"classes\":10}",
	"{\"zoo\":\"gpt2\",\"layers\":2,\"width\":32,\"heads\":2,\"vocab\":50,\"positions\":16,\"context\":16}",
	"{\"zoo\":\"bert\",\"layers\":2,\"width\":32,\"heads\":2,\"vocab\":50,\"positions\":16,\"context\":16}",
	"{\"zoo\":\"lstm\",\"width\":32,\"vocab\":50,\"embed\":16,\"context\":16}" };
enum { MODELS = sizeof(models) / sizeof(*models) };

static void junk(const struct model *m, real *g)
{
	for (size_t i = 0; i < m->nparam; i++)
		g[i] = (real)NAN;
}

static void test_same_bits(void **state)
{
	const struct par par = par_serial(CPU_PLAIN, NULL);

	for (int k = 0; k < MODELS; k++) {
		struct model *m = model_of(models[k]);
		real *added = room(m->nparam * sizeof(real)), *written = room(m->nparam * sizeof(real));

		back(&par, m, 0, m->nops, 3, false, added);
		junk(m, written);
		back(&par, m, 0, m->nops, 3, true, written);
		assert_memory_equal(added, written, m->nparam * sizeof(real));
		for (size_t i = 0; i < m->nparam; i++)
			assert_true(isfinite((double)written[i]));
		free(added);
		free(written);
		model_free(m);
	}
}

/* Nothing outside of a piece is touched. */
static void test_piece(void **state)
{
	const struct par par = par_serial(CPU_PLAIN, NULL);
	struct model *m = model_of(models[1]);
	int b = m->nops - 2;
	real *whole = room(m->nparam * sizeof(real)), *cut = room(m->nparam * sizeof(real));

	junk(m, cut);
	assert_true(m->offset[2] > 0 && m->offset[b] < m->nparam && m->offset[b] > m->offset[2]);
	back(&par, m, 2, b, 3, false, whole);
	back(&par, m, 2, b, 3, true, cut);
	for (size_t i = 0; i < m->nparam; i++)
		assert_true(i < m->offset[2] || i >= m->offset[b] ? isnan((double)cut[i]) : cut[i] == whole[i]);
	free(whole);
	free(cut);
	model_free(m);
}

/* Parameters that lie in two places, as two members of a pipeline have them: the same bits, and each of two pieces
 * writes all that it has for a tensor which both use. */
static void test_two_places(void **state)
{
	const struct par par = par_serial(CPU_PLAIN, NULL);
	struct model *m = model_of(models[3]);
	int last = m->nops - 1, from[] = { 0, last };
	size_t cut = m->offset[1], bytes = m->nparam * sizeof(real);

	assert_true(m->node[last].owner == 0 && cut > 0);
	for (int k = 0; k < 2; k++) {
		int b = k ? m->nops : last;
		real *whole = room(bytes), *rest = room(bytes), *head = room(cut * sizeof(real));

		back(&par, m, from[k], b, 3, false, whole);
		junk(m, rest);
		for (size_t i = 0; i < cut; i++)
			head[i] = (real)NAN;
		back_cut(&par, m, from[k], b, 3, true, rest, cut, head);
		for (size_t i = 0; i < m->nparam; i++)
			assert_true(i < cut ? head[i] == whole[i] && isnan((double)rest[i]) :
				k ? isnan((double)rest[i]) : rest[i] == whole[i]);
		free(whole);
		free(rest);
		free(head);
	}
	model_free(m);
}

/* Parts one after the other, as a team would share them out. */
static void test_tiles(void **state)
{
	struct kerr e;
	struct blas *blas = blas_open(&e);
	enum cpu cpu;

	if (!blas)
		skip_because("no OpenBLAS here");
	cpu_pick(NULL, &cpu, NULL);
	for (int k = 0; k < MODELS; k++) {
		struct par par = par_serial(cpu, blas);
		struct model *m = model_of(models[k]);
		real *added = room(m->nparam * sizeof(real)), *written = room(m->nparam * sizeof(real));
		real *two = room(m->nparam * sizeof(real));
		double worst = 0, most = 0;

		back(&par, m, 0, m->nops, 33, false, added);
		junk(m, written);
		back(&par, m, 0, m->nops, 33, true, written);
		for (size_t i = 0; i < m->nparam; i++) {
			worst = fmax(worst, fabs((double)added[i] - (double)written[i]));
			most = fmax(most, fabs((double)added[i]));
			if (!isfinite((double)written[i]))
				fail_msg("%s: element %zu is %g, and %g by adding", models[k], i, (double)written[i], (double)added[i]);
		}
		if (worst > 1e-4 * most)
			fail_msg("%s: a gradient of up to %g differs by %g", models[k], most, worst);
		par.n = 2;
		junk(m, two);
		back(&par, m, 0, m->nops, 33, true, two);
		for (size_t i = 0; i < m->nparam; i++)
			assert_true(fabs((double)two[i] - (double)written[i]) <= 1e-4 * most);
		if (gemm_tile_has(cpu) && k == 0)
			assert_memory_equal(two, written, m->nparam * sizeof(real));
		free(added);
		free(written);
		free(two);
		model_free(m);
	}
	blas_close(blas);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_same_bits), cmocka_unit_test(test_piece),
		cmocka_unit_test(test_two_places), cmocka_unit_test(test_tiles) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
