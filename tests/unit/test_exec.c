/* The executor with real kernels: a model cut in pieces, with rematerialization, weights and gradients in slices,
 * over two tiers, gives the bytes of the whole; plans that ask for what cannot be are refused with their reason;
 * network instructions that fail are planned anew. */
#include "exec_bed.h"

/* Ops 0-1, 2, 3-4; the first one keeps nothing and runs again; the second keeps all; gradients add up over the
 * pieces. */
static void pieces(struct bed *b, struct plan *p)
{
	buffers(b, p);
	plan_do(p, PLAN_LOAD, 0, "-> batch");
	pass(p, PLAN_FWD, 0, 1, PLAN_KEEP_NONE, false, "batch w -> a2");
	pass(p, PLAN_FWD, 2, 2, PLAN_KEEP_ALL, false, "a2 w -> a3 save:k2");
	pass(p, PLAN_FWD, 3, 4, PLAN_KEEP_ALL, false, "a3 w -> a5 save:k3");
	plan_vec(p, 0, "loss", "a5! batch -> d5 loss correct");
	pass(p, PLAN_BWD, 3, 4, PLAN_KEEP_ALL, false, "save:k3! d5! a3! w -> d3 g+");
	pass(p, PLAN_BWD, 2, 2, PLAN_KEEP_ALL, false, "save:k2! d3! a2! w -> d2 g+");
	pass(p, PLAN_FWD, 0, 1, PLAN_KEEP_ALL, true, "batch w -> a2 save:k1");
	pass(p, PLAN_BWD, 0, 1, PLAN_KEEP_ALL, false, "save:k1! d2! batch w -> g+");
	plan_do(p, PLAN_COMMIT, 0, "batch!");
}

/* What FWD kept goes to the host tier and comes back. */
static void offloaded(struct bed *b, struct plan *p)
{
	buffers(b, p);
	plan_buf(p, &(struct plan_buf){ .class = PLAN_ACTIVATION, .bytes = 4096, .tier = 1 }, "away");
	plan_do(p, PLAN_LOAD, 0, "-> batch");
	pass(p, PLAN_FWD, 0, 4, PLAN_KEEP_ALL, false, "batch w -> a5 save:k1");
	plan_do(p, PLAN_MOVE, 0, "k1! -> away");
	plan_vec(p, 0, "loss", "a5 batch -> d5 loss correct");
	plan_do(p, PLAN_MOVE, 0, "away! -> k2");
	pass(p, PLAN_BWD, 0, 4, PLAN_KEEP_ALL, false, "save:k2 d5 batch w -> g");
	plan_do(p, PLAN_COMMIT, 0, "batch!");
}

static void test_pieces(void **state)
{
	struct bed a = { 0 }, b = { 0 }, c = { 0 };
	struct exec_view va, vb;
	double sum = 0;

	run(&a, whole);
	run(&b, pieces);
	run(&c, offloaded);
	for (size_t i = 0; i < a.model->nparam; i++)
		sum += (double)(a.g[i] * a.g[i]);
	assert_true(sum > 1e-3 && a.loss > 0);
	assert_memory_equal(a.g, b.g, a.model->nparam * sizeof(real));
	assert_memory_equal(a.g, c.g, a.model->nparam * sizeof(real));
	assert_true(a.loss == b.loss && a.loss == c.loss);
	exec_view(a.x_, &va);
	exec_view(b.x_, &vb);
	assert_int_equal(va.bytes[PLAN_BATCH], (sizeof(a.x) + 63) / 64 * 64);
	assert_true(va.arena_peak_bytes == va.tokens_peak_bytes && vb.arena_peak_bytes == vb.tokens_peak_bytes);
	assert_int_equal(va.instructions, 5);
	assert_int_equal(vb.instructions, 10);
	bed_close(&a);
	bed_close(&b);
	bed_close(&c);
}

/* A slice of the vector: weights and gradients of one piece in buffers of their own, told by their extents. */
static void sliced(struct bed *b, struct plan *p)
{
	size_t lo = b->model->offset[2], n = b->model->nparam - lo;
	uint32_t k;

	buffers(b, p);
	k = plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT, .bytes = n * sizeof(real) }, "wb");
	plan_extent(p, k, PLAN_FLAT, NULL, lo, b->model->nparam);
	k = plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT_GRAD, .bytes = n * sizeof(real) }, "gb");
	plan_extent(p, k, PLAN_FLAT, NULL, lo, b->model->nparam);
	plan_recv(p, 0, 1, "wb");
	plan_do(p, PLAN_LOAD, 0, "-> batch");
	pass(p, PLAN_FWD, 0, 1, PLAN_KEEP_ALL, false, "batch w -> a2 save:k1");
	pass(p, PLAN_FWD, 2, 4, PLAN_KEEP_ALL, false, "a2 wb -> a5 save:k2");
	plan_vec(p, 0, "loss", "a5 batch -> d5 loss correct");
	pass(p, PLAN_BWD, 2, 4, PLAN_KEEP_ALL, false, "save:k2 d5 a2 wb -> d2 gb");
	pass(p, PLAN_BWD, 0, 1, PLAN_KEEP_ALL, false, "save:k1 d2 batch w -> g");
	plan_send(p, 0, 1, "gb");
	plan_do(p, PLAN_COMMIT, 0, "batch!");
}

static const struct bed *whole_bed;         /* what the slices are compared with */

static void sliced_net(void *arg, struct exec_wait *w, const struct exec_net *n, const struct exec_span *in,
	uint32_t nin,
	const struct exec_span *out, uint32_t nout)
{
	struct bed *b = arg;
	size_t lo = b->model->offset[2], bytes = (b->model->nparam - lo) * sizeof(real);

	assert_int_equal(n->peer->b[0], 2);
	if (n->instr->kind == PLAN_RECV) {
		assert_string_equal(n->tag, "wb");
		assert_int_equal(out[0].bytes, bytes);
		memcpy(out[0].p, b->w + lo, bytes);
	} else {
		assert_string_equal(n->tag, "gb");
		assert_memory_equal(in[0].p, whole_bed->g + lo, bytes);
		b->asked++;
	}
	exec_done(w, NULL, NULL);
}

static void test_slices(void **state)
{
	static const struct exec_ops ops = { .load = load, .unload = unload, .net = sliced_net, .cancel = cancel };
	const struct exec_cb cb = { .plan = plan, .commit = commit, .scalar = scalar, .env = vec_env, .broken = broken };
	struct bed a = { 0 }, b = { 0 };

	run(&a, whole);
	whole_bed = &a;
	run(&b, whole);
	memset(b.g, 0, b.model->nparam * sizeof(real));
	struct exec_conf conf = { .env = b.env, .model = b.model, .par = &b.par, .ops = &ops, .ops_arg = &b };
	struct exec *x = exec_new(&conf, &cb, &b);
	exec_bind(x, "w", b.w, b.model->nparam * sizeof(real));
	exec_bind(x, "g", b.g, b.model->nparam * sizeof(real));
	b.make = sliced;
	b.planned = b.asked = 0;
	exec_wake(x);
	sim_run_for(b.sim, 1000000);
	if (b.broken)
		fail_msg("%s", b.error.text);
	assert_int_equal(b.asked, 1);
	assert_memory_equal(a.g, b.g, a.model->offset[2] * sizeof(real));
	exec_free(x, NULL, NULL);
	bed_close(&a);
	bed_close(&b);
}

/* --- what cannot be is refused, with the reason, and nothing is written where it must not be */

static void unknown_fn(struct bed *b, struct plan *p)
{
	buffers(b, p);
	plan_vec(p, 0, "frobnicate", "w -> loss");
}

static void no_carrier(struct bed *b, struct plan *p) { buffers(b, p); plan_send(p, 0, 1, "w"); }

static void small_output(struct bed *b, struct plan *p)
{
	buffers(b, p);
	p->buf[plan_find(p, "a5")].bytes = 64;
	plan_do(p, PLAN_LOAD, 0, "-> batch");
	pass(p, PLAN_FWD, 0, 4, PLAN_KEEP_ALL, false, "batch w -> a5 save:k1");
}

static void small_scratch(struct bed *b, struct plan *p)
{
	buffers(b, p);
	plan_do(p, PLAN_LOAD, 0, "-> batch");
	pass(p, PLAN_FWD, 0, 4, PLAN_KEEP_NONE, false, "batch w -> a5");
	p->instr[p->ninstrs - 1].work_bytes = 1;
}

static void no_such_op(struct bed *b, struct plan *p)
{
	buffers(b, p);
	plan_do(p, PLAN_LOAD, 0, "-> batch");
	pass(p, PLAN_FWD, 0, 5, PLAN_KEEP_NONE, false, "batch w -> a5");
}

static void no_weights(struct bed *b, struct plan *p)
{
	buffers(b, p);
	plan_do(p, PLAN_LOAD, 0, "-> batch");
	pass(p, PLAN_FWD, 0, 4, PLAN_KEEP_NONE, false, "batch -> a5");
}

static void few_operands(struct bed *b, struct plan *p) { buffers(b, p); plan_vec(p, 0, "dot", "w -> loss"); }

static void file_tier(struct bed *b, struct plan *p)
{
	buffers(b, p);
	plan_buf(p, &(struct plan_buf){ .class = PLAN_ACTIVATION, .bytes = 4096, .tier = 2 }, "disk");
	plan_do(p, PLAN_MOVE, 0, "w -> disk");
}

static void test_refused(void **state)
{
	static const struct { void (*make)(struct bed *b, struct plan *p); const char *text; } row[] = {
		{ unknown_fn, "unknown function of VEC \"frobnicate\"" },
		{ no_carrier, "SEND (instruction 0) leaves this peer, and nobody carries it" },
		{ small_output, "a5 has 64 bytes and needs" }, { small_scratch, "has 1 bytes of scratch and needs" },
		{ no_such_op, "FWD has no piece of this model (5 ops)" }, { no_weights, "FWD 0..4 lacks an operand" },
		{ few_operands, "VEC dot has 1 inputs and 1 outputs, and needs 2 and 1" },
		{ file_tier, "buffer disk lies in tier file, and there is no folder for it" },
	};

	for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
		struct bed b = { 0 };

		bed_open(&b, row[i].make, false);
		assert_int_equal(b.broken, 1);
		if (!strstr(b.error.text, row[i].text))
			fail_msg("\"%s\" does not say \"%s\"", b.error.text, row[i].text);
		bed_close(&b);
	}
}

/* T5: one byte under the peak is too little. */
static void test_budget(void **state)
{
	struct bed a = { 0 }, b = { 0 };
	struct exec_view v;

	run(&a, whole);
	exec_view(a.x_, &v);
	bed_close(&a);
	a.budget = v.arena_peak_bytes;
	run(&a, whole);
	bed_close(&a);
	b.budget = v.arena_peak_bytes - 1;
	bed_open(&b, whole, false);
	assert_int_equal(b.broken, 1);
	assert_err(b.error, ERR_LIMIT, "memory: the step needs");
	bed_close(&b);
}

/* --- the network fails */

static void asks(struct bed *b, struct plan *p)
{
	buffers(b, p);
	plan_do(p, PLAN_LOAD, 0, "-> batch");
	plan_recv(p, 0, 1, "a1")->on_missing = b->troubles > 1 ? PLAN_WITHOUT : PLAN_FAIL;
	plan_do(p, PLAN_COMMIT, 0, "batch!");
}

static void test_trouble(void **state)
{
	struct bed b = { 0 };
	struct err e;

	bed_open(&b, asks, true);
	assert_int_equal(b.asked, 1);
	(void)err_set(&e, ERR_TIMEOUT, "peer 2 has not sent a1");
	for (int i = 0; i < 2; i++) {           /* planned anew each time */
		exec_done(b.wait, NULL, &e);
		sim_run_for(b.sim, 10000);
		assert_int_equal(b.troubles, i + 1);
		assert_int_equal(b.asked, i + 2);
	}
	assert_err(b.error, ERR_TIMEOUT, "has not sent");
	exec_done(b.wait, NULL, &e);            /* on_missing: without */
	sim_run_for(b.sim, 10000);
	assert_int_equal(b.troubles, 2);
	assert_int_equal(b.withouts, 1);
	assert_true(b.over);
	assert_true(b.commits >= 1);
	assert_int_equal(b.broken, 0);
	bed_close(&b);
}

/* A member that leaves interrupts: the wait is cancelled and the batch comes back uncounted. */
static void test_lost(void **state)
{
	struct bed b = { 0 };

	bed_open(&b, asks, true);
	assert_non_null(b.wait);
	b.troubles = 1;                         /* let it plan once more */
	exec_lost(b.x_, 1);
	sim_run_for(b.sim, 10000);
	assert_int_equal(b.asked, 2);
	exec_stop(b.x_);
	sim_run_for(b.sim, 10000);
	assert_null(b.wait);
	assert_true(exec_quiet(b.x_));
	assert_int_equal(b.unloaded, 2);
	bed_close(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pieces), cmocka_unit_test(test_slices), cmocka_unit_test(test_refused),
		cmocka_unit_test(test_budget), cmocka_unit_test(test_trouble), cmocka_unit_test(test_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
