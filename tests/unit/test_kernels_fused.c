/* Ops that run in one pass give the bits of the same ops one by one: outputs, gradients and running statistics of the
 * zoo's networks and of graphs made to be awkward, whole and in pieces, with memory that shows what was not written. */
#include <math.h>
#include "kernels_util.h"
#include "golden.h"
#include "kernels/gemm.h"

struct run { real *y, *dx, *grad, *buffer; struct model_need need[2]; };

/* Training forward and backward, in two pieces cut before op `cut` (0: one piece), then evaluation of the whole. */
static struct run run_of(const struct model *m, const struct par *par, size_t batch, int cut, const real *param)
{
	struct run r = { .grad = calloc(m->nparam + 1, sizeof(real)), .buffer = buffers(m) };
	struct model_need n;
	int at[3] = { 0, cut, m->nops };
	real *x, *mid = NULL, *dy, *dmid = NULL;
	void *saved[2] = { NULL, NULL };

	model_need(m, 0, m->nops, batch, par->n, &n);
	x = noise(2, 1, n.x / sizeof(real));
	dy = noise(3, 1, n.y / sizeof(real));
	r.y = bytes(n.y * 2);
	r.dx = bytes(n.x);
	for (int p = cut ? 0 : 1; p < 2; p++) {
		struct model_call c = { .batch = batch, .param = param, .buffer = r.buffer, .key = 3, .train = true };
		struct model_need *own = &r.need[p];

		model_need(m, at[p], at[p + 1], batch, par->n, own);
		if (p == 0) {
			mid = bytes(own->y);
			dmid = bytes(own->y);
		}
		c.saved = saved[p] = bytes(own->saved);
		c.work = bytes(own->work_fwd);
		model_forward(par, m, at[p], at[p + 1], &c, p && cut ? mid : x, p ? r.y : mid);
		free(c.work);
	}
	for (int p = 1; p >= (cut ? 0 : 1); p--) {
		struct model_call c = { .batch = batch, .param = param, .buffer = r.buffer, .key = 3, .train = true,
			.saved = saved[p], .work = bytes(r.need[p].work_bwd) };

		model_backward(par, m, at[p], at[p + 1], &c, p && cut ? mid : x, p ? dy : dmid, p && cut ? dmid : r.dx, r.grad);
		free(c.work);
		free(saved[p]);
	}
	struct model_call c = { .batch = batch, .param = param, .buffer = r.buffer, .work = bytes(n.work_eval) };
	model_forward(par, m, 0, m->nops, &c, x, r.y + n.y / sizeof(real));
	free(c.work);
	free(x);
	free(dy);
	free(mid);
	free(dmid);
	return r;
}

static void run_done(struct run *r)
{
	free(r->y);
	free(r->dx);
	free(r->grad);
	free(r->buffer);
}

static void same(const char *what, const real *a, const real *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (memcmp(&a[i], &b[i], sizeof(*a)))
			fail_msg("%s: element %zu is %.9g here and %.9g there", what, i, (double)a[i], (double)b[i]);
}

/* Not more memory than apart either; returns how many bytes less are kept. */
static size_t compare(struct model *m, size_t batch, int cut, int parts, const struct blas *blas, const char *name)
{
	struct par par = team(parts, CPU_PLAIN, blas);
	real *param = reals(m->nparam + 1);
	struct run fused, apart;
	struct model_need n;

	(void)cpu_pick(NULL, &par.cpu, NULL);
	model_init(m, 7, param);
	for (size_t i = 0; i < m->nparam; i += 3)       /* scales and shifts that are not 1 and 0 */
		param[i] += (real)0.05 * (real)((i % 7) - 3.0);
	model_need(m, 0, m->nops, batch, parts, &n);
	fused = run_of(m, &par, batch, cut, param);
	m->apart = true;
	apart = run_of(m, &par, batch, cut, param);
	m->apart = false;
	same(name, fused.y, apart.y, n.y * 2 / sizeof(real));
	same(name, fused.dx, apart.dx, n.x / sizeof(real));
	same(name, fused.grad, apart.grad, m->nparam);
	same(name, fused.buffer, apart.buffer, m->nbuffer);
	for (int p = 0; p < 2; p++)
		assert_true(fused.need[p].saved <= apart.need[p].saved);
	run_done(&fused);
	run_done(&apart);
	free(param);
	return apart.need[0].saved + apart.need[1].saved - fused.need[0].saved - fused.need[1].saved;
}

static void the_zoo_has_the_same_bits(void **state)
{
	static const struct { const char *json; size_t batch, less; } row[] = {
		{ "{'zoo':'resnet18','classes':10,'pixels':32,'stem':'cifar'}", 1 },
		{ "{'zoo':'resnet18','classes':10,'pixels':40}", 3, 3 * 64 * 20 * 20 * 4 },  /* what the pool reads */
		{ "{'zoo':'resnet34','classes':10,'pixels':32}", 2, 2 * 64 * 16 * 16 * 4 },
		{ "{'zoo':'resnet50','classes':10,'pixels':32}", 2, 2 * 64 * 16 * 16 * 4 },
		{ "{'zoo':'vgg16','classes':10,'widths':[8,8,8,8,8],'hidden':16}", 1 },
		{ "{'zoo':'alexnet','classes':10}", 1 },
		{ "'lenet5'", 2 }, { "'mlp'", 3 },
		{ "{'zoo':'gpt2','layers':2,'width':32,'heads':2,'vocab':50,'context':16}", 2 },
		{ "{'zoo':'bert','layers':2,'width':32,'heads':2,'vocab':50,'context':16}", 2 },
	};
	struct blas *blas = blas_open(NULL);

	for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
		char text[200];
		struct model *m;
		size_t less;

		for (size_t k = 0; (text[k] = row[i].json[k] == '\'' ? '"' : row[i].json[k]); k++)
			;
		m = golden_model(text);
		less = compare(m, row[i].batch, 0, 1, blas, text);
		if (less != row[i].less)
			fail_msg("%s: %zu bytes less", text, less);
		model_free(m);
	}
	blas_close(blas);
}

/* Cuts between a head and what follows, branches that are read again, sums of a value with itself. */
static void awkward_graphs_have_the_same_bits(void **state)
{
	static const char *const text[] = {
		"conv2d out=4 kernel=3 padding=1; batchnorm; relu; conv2d out=4 kernel=3 padding=1; batchnorm",
		"conv2d out=4 kernel=1 :c; batchnorm :b; add <b,c; relu; conv2d out=2 kernel=1",
		"conv2d out=4 kernel=1 :c; batchnorm :b; add <c,b; relu; batchnorm; relu :r; maxpool2d kernel=2",
		"conv2d out=4 kernel=1 :c; batchnorm :d; batchnorm :e <c; add <d,e; relu :r; batchnorm; relu; add <r,6",
		"batchnorm; relu; batchnorm :b; relu :r; add <b,r; batchnorm :t; add <t,t; relu",
		"batchnorm; add <0,input; relu; batchnorm; add <3,2; batchnorm; relu; flatten; linear out=3",
		"conv2d out=3 kernel=1; batchnorm :b; add <b,input; batchnorm affine=0; relu; relu; batchnorm eps=0.1",
		"batchnorm; relu; add <0,1,input; batchnorm; relu",
	};
	struct kerr e;

	for (size_t i = 0; i < sizeof(text) / sizeof(*text); i++) {
		struct model *m = model_text((struct shape){ 3, { 3, 6, 4 } }, text[i], NULL, &e);

		if (!m)
			fail_msg("%s: %s", text[i], e.text);
		for (int cut = 0; cut < m->nops; cut++)
			for (int parts = 1; parts <= 3; parts += 2)
				compare(m, 3, cut, parts, NULL, text[i]);
		model_free(m);
	}
}

/* A residual network with a layer for each way of computing convolutions but columns, whose sums follow the split. */
static void workers_do_not_change_a_bit(void **state)
{
	struct model *m = golden_model("{\"zoo\":\"resnet18\",\"classes\":10,\"pixels\":32}");
	struct par one = team(1, CPU_PLAIN, NULL);
	real *param = reals(m->nparam);
	struct model_need n;
	struct run want;

	(void)cpu_pick(NULL, &one.cpu, NULL);
	model_init(m, 5, param);
	model_need(m, 0, m->nops, 3, 1, &n);
	want = run_of(m, &one, 3, 0, param);
	for (int parts = 2; parts <= 5; parts += 3) {
		struct par par = team(parts, one.cpu, NULL);
		struct run got = run_of(m, &par, 3, 0, param);

		same("outputs", got.y, want.y, n.y * 2 / sizeof(real));
		same("dx", got.dx, want.dx, n.x / sizeof(real));
		same("gradients", got.grad, want.grad, m->nparam);
		same("statistics", got.buffer, want.buffer, m->nbuffer);
		run_done(&got);
	}
	run_done(&want);
	free(param);
	model_free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_zoo_has_the_same_bits),
		cmocka_unit_test(awkward_graphs_have_the_same_bits),
		cmocka_unit_test(workers_do_not_change_a_bit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
