/* Rows F02 and F03, and where policies cut: what is kept is what was marked, equal segments of n layers hold k + n / k
 * activations, a residual model is parted between its blocks. Whatever is chosen, the gradient has the same bits. */
#include "remat_kit.h"
#include "kernels/vec.h"

/* --- what is held, as the tokens have it */

struct count { const struct plan *p; uint64_t now, most; };

static void held(void *arg, uint32_t stream, uint32_t buf, uint32_t slot, bool taken)
{
	struct count *c = arg;
	const struct plan_buf *b = &c->p->buf[buf];

	if (b->class != PLAN_ACTIVATION && b->class != PLAN_BATCH)
		return;
	c->now += taken ? b->bytes : -b->bytes;
	c->most = c->now > c->most ? c->now : c->most;
}

/* Most bytes of activations at once; the values kept when the loss begins, by name, but y and what lies behind the last
 * cut. */
static uint64_t activations(const struct plan *p, char *kept, size_t cap)
{
	struct count c = { .p = p };
	const struct token_hooks hooks = { .arg = &c, .memory = held };
	struct tokens *t = tokens_new(p, &hooks, NULL);
	size_t at = 0;

	for (struct token_run *r; (r = tokens_start(t)); tokens_end(t, r, NULL))
		for (uint32_t b = 0; r->instr->kind == PLAN_VEC && !strcmp(r->instr->fn, "loss") && b < p->nbufs; b++)
			if (p->buf[b].class == PLAN_ACTIVATION && p->buf[b].name[0] == 'x' && tokens_slot(t, 0, b, 0)->bytes)
				at += (size_t)snprintf(kept + at, cap - at, "%s%s", at ? " " : "", p->buf[b].name);
	kept[at] = 0;
	assert_true(tokens_finished(t));
	tokens_free(t);
	return c.most;
}

struct came { uint64_t activations; uint32_t forward; char kept[8192]; };

/* Runs it so; want: the plain gradient, made when it is NULL there. */
static struct came run_so(struct bed *b, const struct memory_pass *how, real **want)
{
	uint32_t last = (uint32_t)b->model->nops - 1;
	struct came c;
	struct passes s;
	struct plan p;

	memory_passes(&b->profile, 0, last, how, &s);
	bed_program(b, &s, &p);
	c.activations = activations(&p, c.kept, sizeof(c.kept));
	c.forward = passes_forward_ops(&s);
	bed_run(b, &p);
	if (b->broken)
		fail_msg("%s", b->error.text);
	assert_int_equal(b->peak, bed_predicted(b, &p));
	if (!*want)
		*want = xmemdup(b->g, b->model->nparam * sizeof(real));
	for (size_t i = 0; i < b->model->nparam; i++)
		if (memcmp(&b->g[i], &(*want)[i], sizeof(real)))
			fail_msg("gradient %zu is %a, and %a without", i, (double)b->g[i], (double)(*want)[i]);
	plan_free(&p);
	passes_free(&s);
	return c;
}

static double square(const struct bed *b)
{
	return vec_dot(&b->par, b->model->nparam, b->g, b->g);
}

/* --- F03: n layers of one unit each */

#define WIDTH 16
#define UNIT (SAMPLES * WIDTH * sizeof(real))

static void layers_open(struct bed *b, int n)
{
	struct buf t = { 0 };

	for (int i = 0; i < n; i++)
		buf_printf(&t, "%s{\"type\":\"linear\",\"out\":%d}", i ? "," : "[", WIDTH);
	buf_printf(&t, "]");
	buf_u8(&t, 0);
	bed_open(b, "[16]", (const char *)t.p);
	buf_free(&t);
	for (int i = 0; i < b->model->nparams; i++)     /* so that numbers stay numbers through a thousand of them */
		for (size_t k = 0; k < b->model->param[i].count; k++)
			b->w[b->model->param[i].offset + k] = b->model->param[i].shape.nd == 2 ? (real)(k % (WIDTH + 1) == 0) +
				(real)((int)(k * 7 % 5) - 2) / 4096 : 0;
}

static void test_periodic(void **state)
{
	static const struct { int n; uint32_t k, units; } row[] = { { 16, 4, 8 }, { 100, 10, 20 }, { 1000, 31, 64 } };

	for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
		struct memory_pass how = { .ops = memory_find("periodic") };
		uint32_t n = (uint32_t)row[i].n;
		struct came c, whole, each;
		real *want = NULL;
		struct bed b;

		layers_open(&b, row[i].n);
		whole = run_so(&b, NULL, &want);
		assert_true(square(&b) > 1e-6);
		c = run_so(&b, &how, &want);
		print_message("%u layers, %u segments: %llu units, %u forward\n", n, row[i].k,
			(unsigned long long)(c.activations / UNIT), c.forward);
		assert_int_equal(memory_segments(memory_units(&b.profile, 0, n - 1, &how), &how), row[i].k);
		assert_int_equal(c.activations, row[i].units * UNIT);
		assert_true(c.forward <= 2 * n && c.forward > n);
		how.segments = 1;
		assert_int_equal(run_so(&b, &how, &want).activations, whole.activations);
		assert_int_equal(run_so(&b, &how, &want).forward, n);
		assert_int_equal(whole.activations, (n + 1) * UNIT);
		how.segments = n;
		each = run_so(&b, &how, &want);
		assert_int_equal(each.activations, (n + 1) * UNIT);
		assert_int_equal(each.forward, 2 * n - 1);
		free(want);
		bed_close(&b);
	}
}

/* --- F02: what is marked */

static void test_marks(void **state)
{
	static const uint32_t marks[][4] = { { 3 }, { 2, 6 }, { 1, 4, 8, 10 }, { 0 }, { 10 } };
	static const uint32_t n[] = { 1, 2, 4, 1, 1 };
	real *want = NULL;
	struct bed b;

	bed_open(&b, "[6]", "[{\"type\":\"linear\",\"out\":9},{\"type\":\"tanh\"},{\"type\":\"dropout\",\"p\":0.5},"
		"{\"type\":\"linear\",\"out\":7},{\"type\":\"batchnorm\"},{\"type\":\"relu\"},{\"type\":\"linear\","
		"\"out\":8},{\"type\":\"sigmoid\"},{\"type\":\"layernorm\"},{\"type\":\"linear\",\"out\":5},"
		"{\"type\":\"gelu\"},{\"type\":\"linear\",\"out\":3}]");
	(void)run_so(&b, NULL, &want);
	for (size_t i = 0; i < sizeof(n) / sizeof(*n); i++) {
		const struct memory_pass how = { .ops = memory_find("user"), .nmarks = n[i], .mark = marks[i] };
		struct came c = run_so(&b, &how, &want);
		char list[200] = "";

		for (uint32_t k = 0; k < n[i]; k++)
			(void)snprintf(list + strlen(list), sizeof(list) - strlen(list), "%sx%u", k ? " " : "",
				marks[i][k] + 1);
		assert_string_equal(c.kept, list);
		assert_int_equal(c.forward, 12 + marks[i][n[i] - 1] + 1);
	}
	free(want);
	bed_close(&b);
}

/* --- where a graph is cut */

static void cut_at(const struct bed *b, const char *policy, const char *want)
{
	const struct memory_pass how = { .ops = memory_find(policy) };
	uint32_t cut[200], n = how.ops->cuts(&b->profile, 0, (uint32_t)b->model->nops - 1, &how, cut);
	char text[1000] = "";

	for (uint32_t i = 0; i < n; i++)
		(void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s", i ? " " : "",
			b->model->op[cut[i]].name);
	assert_string_equal(text, want);
}

static void with_all(struct bed *b)
{
	const char *policy[] = { "periodic", "boundary" };
	real *want = NULL;

	(void)run_so(b, NULL, &want);
	assert_true(square(b) > 1e-9);
	for (int i = 0; i < 2; i++)
		for (uint32_t k = 0; k < 12; k++)
			(void)run_so(b, &(struct memory_pass){ .ops = memory_find(policy[i]), .segments = k }, &want);
	free(want);
}

static void test_residual(void **state)
{
	struct bed b;

	bed_open(&b, "[3,32,32]", "{\"zoo\":\"resnet18\",\"classes\":10,\"width\":4}");
	cut_at(&b, "boundary", "layer1.0.conv1 layer1.1.conv1 layer2.0.conv1 layer2.1.conv1 layer3.0.conv1 "
		"layer3.1.conv1 layer4.0.conv1 layer4.1.conv1 avgpool");
	with_all(&b);
	bed_close(&b);
}

/* With a part of the gradient's vector alone a piece would write outside of it. */
static void slice_refused(struct bed *b)
{
	struct passes s;
	struct plan p;

	memory_passes(&b->profile, 0, (uint32_t)b->model->nops - 1, &(struct memory_pass){ .ops = memory_find("periodic") },
		&s);
	bed_program(b, &s, &p);
	plan_extent(&p, plan_find(&p, "g"), PLAN_FLAT, NULL, 1, b->model->nparam);
	bed_run(b, &p);
	assert_true(b->broken);
	assert_err(b->error, ERR_INVALID, "shares parameters with ops outside of it");
	plan_free(&p);
	passes_free(&s);
}

/* Token embedding and output are one tensor, in the first piece and in the last one. */
static void test_tied(void **state)
{
	struct bed b;

	bed_open(&b, "[6]", "{\"zoo\":\"gpt2\",\"layers\":2,\"width\":16,\"heads\":2,\"vocab\":20,\"positions\":6,"
		"\"context\":6}");
	cut_at(&b, "boundary", "transformer.h.0.ln_1 transformer.h.0.ln_2 transformer.h.1.ln_1 transformer.h.1.ln_2 "
		"transformer.ln_f");
	with_all(&b);
	slice_refused(&b);
	bed_close(&b);
}

static void test_chain(void **state)
{
	struct bed b;

	bed_open(&b, "[1,8,8]", "[{\"type\":\"conv2d\",\"name\":\"c\",\"out\":4,\"kernel\":3},{\"type\":\"relu\",\"name\":"
		"\"r\"},{\"type\":\"conv2d\",\"name\":\"d\",\"out\":4,\"kernel\":3},{\"type\":\"relu\",\"name\":\"s\"},"
		"{\"type\":\"flatten\",\"name\":\"f\"},{\"type\":\"linear\",\"name\":\"l\",\"out\":3}]");
	cut_at(&b, "boundary", "d l");
	cut_at(&b, "none", "");
	with_all(&b);
	bed_close(&b);
}

/* Nothing is cut where two values flow, or where two layers go over memory at once. */
static void test_where(void **state)
{
	struct bed b;

	bed_open(&b, "[4,6,6]", "[{\"type\":\"conv2d\",\"name\":\"c\",\"out\":4,\"kernel\":1},{\"type\":\"batchnorm\","
		"\"name\":\"n\"},{\"type\":\"relu\",\"name\":\"r\"},{\"type\":\"conv2d\",\"name\":\"d\",\"out\":4,"
		"\"kernel\":1},{\"type\":\"add\",\"name\":\"a\",\"inputs\":[\"d\",\"r\"]},{\"type\":\"flatten\","
		"\"name\":\"f\"},{\"type\":\"linear\",\"name\":\"l\",\"out\":3}]");
	cut_at(&b, "periodic", "n d f l");
	cut_at(&b, "boundary", "d f");
	with_all(&b);
	bed_close(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_periodic), cmocka_unit_test(test_marks), cmocka_unit_test(test_residual),
		cmocka_unit_test(test_tied), cmocka_unit_test(test_chain), cmocka_unit_test(test_where),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
