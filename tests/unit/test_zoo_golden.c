/* Models of the zoo against PyTorch: weights that Hugging Face's GPT-2 and BERT wrote are found by their names and give
 * the same outputs and gradients to 1e-4; torch.nn's Transformer and torchvision's ResNets likewise, these in training
 * and in evaluation, with the running statistics that one step leaves. tests/data/make-golden-models.py and
 * make-golden-transformer.py wrote the files. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "ckpt/ckpt.h"
#include "common/mem.h"
#include "golden.h"
#include "kernels/gemm.h"
#include "train/zoo.h"

struct file { unsigned char *p; struct ckpt_head h; const char *name; };

static struct file file_open(const char *name)
{
	struct file f = { .name = name };
	char path[400];
	struct err e;
	FILE *in;
	long n;

	(void)snprintf(path, sizeof(path), SOURCE_ROOT "/tests/data/models/%s.safetensors", name);
	in = fopen(path, "rb");
	assert_non_null(in);
	assert_int_equal(fseek(in, 0, SEEK_END), 0);
	n = ftell(in);
	rewind(in);
	f.p = malloc((size_t)n);
	assert_int_equal(fread(f.p, 1, (size_t)n, in), n);
	fclose(in);
	if (ckpt_head_parse(&f.h, f.p, (size_t)n, (uint64_t)n, &e) < 0)
		fail_msg("%s: %s", path, e.text);
	return f;
}

static void file_close(struct file *f)
{
	ckpt_head_done(&f->h);
	free(f->p);
}

/* Copies: data in a file need not be aligned. */
static real *tensor(const struct file *f, const char *name, size_t count)
{
	const struct ckpt_tensor *t = ckpt_find(&f->h, name);
	real *to = malloc(count * sizeof(*to));

	if (!t || t->bytes != count * sizeof(float))
		fail_msg("%s: no %zu elements under the name %s", f->name, count, name);
	memcpy(to, f->p + f->h.data_at + t->at, count * sizeof(*to));
	return to;
}

struct pass { const struct model *m; struct model_call call; struct par par; struct model_need need; real *y, *grad; };

static struct pass pass_of(const struct model *m, size_t batch, real *param, real *buffer, const struct blas *blas)
{
	struct pass p = { .m = m, .par = par_serial(CPU_PLAIN, blas) };

	(void)cpu_pick(NULL, &p.par.cpu, NULL);
	model_need(m, 0, m->nops, batch, 1, &p.need);
	p.call = (struct model_call){ .batch = batch, .param = param, .buffer = buffer, .key = 3,
		.saved = big_alloc(p.need.saved + 1),
		.work = big_alloc(p.need.work_fwd + p.need.work_bwd + p.need.work_eval) };
	p.y = big_alloc(p.need.y);
	p.grad = calloc(m->nparam, sizeof(real));
	return p;
}

static void pass_done(struct pass *p)
{
	big_free(p->call.saved, p->need.saved + 1);
	big_free(p->call.work, p->need.work_fwd + p->need.work_bwd + p->need.work_eval);
	big_free(p->y, p->need.y);
	free(p->grad);
}

/* Relative to the largest element. */
static void close_to(const char *what, const real *got, const real *want, size_t n, double tolerance)
{
	double most = 0, off = 0;
	size_t at = 0;

	for (size_t i = 0; i < n; i++) {
		most = fmax(most, fabs((double)want[i]));
		if (!(fabs((double)got[i] - (double)want[i]) <= off)) {
			off = fabs((double)got[i] - (double)want[i]);
			at = i;
		}
	}
	if (!(off <= tolerance * most))
		fail_msg("%s: element %zu is %.8g, PyTorch has %.8g (largest %.3g)", what, at, (double)got[at],
			(double)want[at],
			most);
}

static void check(const struct file *f, const char *name, const real *got, size_t n, double tolerance)
{
	real *want = tensor(f, name, n);
	char what[300];

	(void)snprintf(what, sizeof(what), "%s: %s", f->name, name);
	close_to(what, got, want, n, tolerance);
	free(want);
}

static void check_grad(const struct file *f, const struct pass *p, const char *name, double tolerance)
{
	const struct model_param *t = model_param_find(p->m, name);
	char full[200];

	assert_non_null(t);
	(void)snprintf(full, sizeof(full), "golden.grad.%s", name);
	if (ckpt_find(&f->h, full))
		check(f, full, p->grad + t->offset, t->count, tolerance);
}

/* Every parameter by its name; every tensor of the file is used. */
static real *weights(const struct file *f, const struct model *m)
{
	real *param = calloc(m->nparam, sizeof(real));
	size_t golden = 0;

	for (int i = 0; i < m->nparams; i++) {
		const struct ckpt_tensor *t = ckpt_find(&f->h, m->param[i].name);
		real *v = tensor(f, m->param[i].name, m->param[i].count);

		assert_int_equal(t->ndim, m->param[i].shape.nd);
		for (unsigned d = 0; d < t->ndim; d++)
			assert_int_equal(t->shape[d], m->param[i].shape.d[d]);
		memcpy(param + m->param[i].offset, v, m->param[i].count * sizeof(real));
		free(v);
	}
	for (size_t i = 0; i < f->h.n; i++)
		golden += !strncmp(f->h.v[i].name, "golden.", 7);
	assert_int_equal(f->h.n, (size_t)m->nparams + golden);
	return param;
}

static void gpt2_is_hugging_face_s(void **state)
{
	enum { BATCH = 2, T = 20, V = 61 };
	struct file f = file_open("gpt2");
	struct model *m = golden_model("{\"zoo\":\"gpt2\",\"layers\":2,\"width\":24,\"heads\":3,\"vocab\":61,"
		"\"positions\":32,\"context\":20,"
		"\"dropout\":0}");
	real *param = weights(&f, m), *x = tensor(&f, "golden.input", BATCH * T), *dy = calloc(BATCH * T * V, sizeof(real));
	struct pass p = pass_of(m, BATCH, param, NULL, NULL);
	int32_t next[T];

	model_forward(&p.par, m, 0, m->nops, &p.call, x, p.y);
	check(&f, "golden.output", p.y, BATCH * T * V, 1e-5);
	for (size_t b = 0; b < BATCH; b++) {    /* the mean over all positions but the last of each sample */
		for (int t = 0; t + 1 < T; t++)
			next[t] = (int32_t)x[b * T + t + 1];
		(void)loss_run(&p.par, loss_find("cross_entropy"), T - 1, V, p.y + b * T * V, next, 1.0 / (BATCH * (T - 1)),
			dy + b * T * V, NULL);
	}
	model_backward(&p.par, m, 0, m->nops, &p.call, x, dy, NULL, p.grad);
	check_grad(&f, &p, "transformer.wte.weight", 1e-5);
	check_grad(&f, &p, "transformer.h.0.attn.c_attn.weight", 1e-5);
	check_grad(&f, &p, "transformer.h.1.mlp.c_fc.bias", 1e-5);
	check_grad(&f, &p, "transformer.ln_f.weight", 1e-5);
	pass_done(&p);
	free(param);
	free(x);
	free(dy);
	model_free(m);
	file_close(&f);
}

/* Output and every gradient, from a gradient that is given, of `rows` rows of t tokens of `vocab`. Biases of keys are
 * 0, but for rounding: softmax does not feel them. */
static void every_gradient(const char *file, const char *json, size_t batch, size_t rows, size_t t, size_t vocab,
	const char *key_bias)
{
	struct file f = file_open(file);
	struct model *m = golden_model(json);
	real *param = weights(&f, m), *x = tensor(&f, "golden.input", batch * rows * t);
	real *dy = tensor(&f, "golden.dy", batch * t * vocab);
	struct pass p = pass_of(m, batch, param, NULL, NULL);

	p.call.train = true;
	model_forward(&p.par, m, 0, m->nops, &p.call, x, p.y);
	check(&f, "golden.output", p.y, batch * t * vocab, 1e-5);
	model_backward(&p.par, m, 0, m->nops, &p.call, x, dy, NULL, p.grad);
	for (int i = 0; i < m->nparams; i++) {
		const struct model_param *q = &m->param[i];

		if (!strstr(q->name, key_bias)) {
			check_grad(&f, &p, q->name, 1e-5);
			continue;
		}
		for (size_t k = 0; k < q->count; k++)
			assert_true(fabs((double)p.grad[q->offset + k]) < 1e-5);
	}
	pass_done(&p);
	free(param);
	free(x);
	free(dy);
	model_free(m);
	file_close(&f);
}

#define BERT(norm) "{\"zoo\":\"bert\",\"layers\":3,\"width\":16,\"heads\":2,\"inner\":40,\"vocab\":50," \
	"\"positions\":24,\"context\":12,\"dropout\":0,\"norm\":\"" norm "\"}"
#define TRANSFORMER(norm) "{\"zoo\":\"transformer\",\"layers\":2,\"width\":16,\"heads\":2,\"inner\":24," \
	"\"vocab\":30,\"context\":9,\"dropout\":0,\"norm\":\"" norm "\"}"

static void transformer_is_torch_s(void **state)
{
	every_gradient("transformer", TRANSFORMER("post"), 3, 3, 9, 30, "k_proj.bias");
}

static void transformer_in_the_other_order(void **state)
{
	every_gradient("transformer-pre", TRANSFORMER("pre"), 3, 3, 9, 30, "k_proj.bias");
}

static void bert_is_hugging_face_s(void **state)
{
	every_gradient("bert", BERT("post"), 2, 2, 12, 50, "key.bias");
}

static void bert_in_megatrons_order(void **state)
{
	every_gradient("bert-pre", BERT("pre"), 2, 2, 12, 50, "key.bias");
}

/* The k-th tensor as make-golden-models.py fills it. */
static void fill(const struct model_param *t, int k, real *to)
{
	size_t fan = t->shape.nd > 1 ? t->count / t->shape.d[0] : 1;
	bool vector = t->shape.nd == 1, scale = vector && strstr(t->name, "weight");

	for (size_t i = 0; i < t->count; i++) {
		double v = golden_noise((double)i, k) / sqrt((double)fan);

		to[i] = (real)(scale ? 1 + 0.2 * v : vector ? 0.2 * v : v);
	}
}

static const real *stat_of(const struct model *m, const real *buffer, const char *name, size_t *ret_n)
{
	for (int i = 0; i < m->nbuffers; i++)
		if (!strcmp(m->buffer[i].name, name)) {
			*ret_n = m->buffer[i].count;
			return buffer + m->buffer[i].offset;
		}
	fail_msg("no buffer %s", name);
	return NULL;
}

/* Images are batch of noise at a phase. ResNet-18's are such that no ReLU is near 0 (make-golden-resnet.py): gradients
 * agree to 1e-4. For the ResNet-50 there are no such images, its slack is that of values on the other side of a ReLU:
 * PyTorch's own float32 is 1.7e-2 off its float64. */
static void resnet(const char *file, const char *json, size_t side, size_t batch, double phase, double slack)
{
	static const char *const grads[] = { "conv1.weight", "bn1.weight", "layer2.0.downsample.0.weight",
		"layer1.0.bn1.bias",
		"layer4.1.bn2.weight", "fc.weight" };
	static const char *const stats[] = { "bn1.running_mean", "bn1.running_var", "layer3.0.bn1.running_var",
		"layer2.0.downsample.1.running_mean" };
	enum { BATCH_MAX = 4 };
	size_t pixels = 3 * side * side;
	struct file f = file_open(file);
	struct model *m = golden_model(json);
	struct blas *blas = blas_open(NULL);
	real *param = calloc(m->nparam, sizeof(real)), *buffer = calloc(m->nbuffer, sizeof(real));
	real *x = calloc(batch * pixels, sizeof(real)), dy[BATCH_MAX * 10];
	struct pass p;

	golden_tiles(m, 0);
	p = pass_of(m, batch, param, buffer, blas);
	for (int k = 0; k < m->nparams; k++)
		fill(&m->param[k], k, param + m->param[k].offset);
	for (size_t i = 0; i < batch * pixels; i++)
		x[i] = (real)golden_noise((double)i, phase);
	for (size_t i = 0; i < batch * 10; i++)
		dy[i] = (real)sin(0.37 * (double)i + 0.9);
	model_init_buffers(m, buffer);
	p.call.train = true;
	model_forward(&p.par, m, 0, m->nops, &p.call, x, p.y);
	check(&f, "golden.train", p.y, batch * 10, 1e-4);
	model_backward(&p.par, m, 0, m->nops, &p.call, x, dy, NULL, p.grad);
	for (size_t i = 0; i < sizeof(grads) / sizeof(*grads); i++)
		check_grad(&f, &p, grads[i], slack);
	for (size_t i = 0; i < sizeof(stats) / sizeof(*stats); i++) {
		size_t n = 0;
		const real *got = stat_of(m, buffer, stats[i], &n);

		check(&f, stats[i], got, n, 1e-4);
	}
	struct model_call eval = p.call;
	eval.train = false;
	eval.saved = NULL;
	model_forward(&p.par, m, 0, m->nops, &eval, x, p.y);
	check(&f, "golden.eval", p.y, batch * 10, 1e-4);
	pass_done(&p);
	free(param);
	free(buffer);
	free(x);
	blas_close(blas);
	model_free(m);
	file_close(&f);
}

static void resnet18_is_torchvision_s(void **state)
{
	resnet("resnet18", "{\"zoo\":\"resnet18\",\"classes\":10,\"pixels\":64}", 64, 2, 96.5, 1e-4);
}

static void resnet18_with_the_small_stem(void **state)
{
	resnet("resnet18-cifar",
		"{\"zoo\":\"resnet18\",\"classes\":10,\"pixels\":16,\"stem\":\"cifar\"}", 16, 2, 92.5, 1e-4);
}

static void resnet50_is_torchvision_s(void **state)
{
	resnet("resnet50", "{\"zoo\":\"resnet50\",\"classes\":10,\"pixels\":64}", 64, 4, 0.5, 3e-2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gpt2_is_hugging_face_s),
		cmocka_unit_test(bert_is_hugging_face_s),
		cmocka_unit_test(bert_in_megatrons_order),
		cmocka_unit_test(transformer_is_torch_s),
		cmocka_unit_test(transformer_in_the_other_order),
		cmocka_unit_test(resnet18_is_torchvision_s),
		cmocka_unit_test(resnet18_with_the_small_stem),
		cmocka_unit_test(resnet50_is_torchvision_s),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
