/* What does not come, with real kernels: nothing that hangs on it is computed, summed, told or counted; where the plan
 * says `newest`, the value before is there once more, whatever the failed transfer has scribbled. A failed instruction
 * is an outcome, which the owner is told and decides on. */
#include "exec_bed.h"

static struct {
	uint64_t fails;                         /* bits: the n-th RECV does */
	int recvs, sends, loss, commits;
	const void *brings; size_t bytes;       /* what RECVs bring; NULL: what was sent last */
	char sent[65536], log[65536]; size_t len;
} wire;

static void wire_net(void *arg, struct exec_wait *w, const struct exec_net *n, const struct exec_span *in, uint32_t nin,
	const struct exec_span *out, uint32_t nout)
{
	struct err e;

	if (n->instr->kind == PLAN_SEND) {
		assert_true(in[0].bytes <= sizeof(wire.sent));
		memcpy(wire.sent, in[0].p, in[0].bytes);
		wire.sends++;
		exec_done(w, NULL, NULL);
		return;
	}
	if (wire.fails >> wire.recvs++ & 1) {
		memset(out[0].p, 0xff, out[0].bytes / 2);
		(void)err_set(&e, ERR_TIMEOUT, "peer 2 has not sent %s", n->tag);
		exec_done(w, NULL, &e);
		return;
	}
	memcpy(out[0].p, wire.brings ? wire.brings : wire.sent, out[0].bytes);
	exec_done(w, NULL, NULL);
}

static void wire_scalar(void *arg, const char *name, int64_t index, const void *p, size_t bytes)
{
	wire.loss += !strcmp(name, "loss");
}

static void wire_commit(void *arg, const struct plan_instr *i, int64_t index, const struct batch *t)
{
	wire.commits++;
}

static void wire_log(void *arg, const char *line, size_t len)
{
	assert_true(wire.len + len + 2 <= sizeof(wire.log));
	memcpy(wire.log + wire.len, line, len);
	wire.len += len;
	wire.log[wire.len++] = '\n';
}

static int lines(const char *what)
{
	int n = 0;

	for (const char *p = wire.log; (p = strstr(p, what)); p++)
		n++;
	return n;
}

static const struct exec_ops wire_ops = { .load = load, .unload = unload, .net = wire_net, .cancel = cancel };
static const struct exec_cb wire_cb = { .plan = plan, .commit = wire_commit, .scalar = wire_scalar, .env = vec_env,
	.failed = failed, .broken = broken, .log = wire_log };

static void wire_open(struct bed *b, void (*make)(struct bed *b, struct plan *p), uint64_t fails)
{
	memset(&wire, 0, sizeof(wire));
	wire.fails = fails;
	bed_begin(b, make, &wire_ops, &wire_cb);
}

static uint64_t rounds;

/* Micro-batches through the model in two pieces; between them the value goes out and comes back, or not. */
static void through(struct bed *b, struct plan *p)
{
	struct model_need need;

	buffers(b, p);
	p->iterations = rounds;
	p->buf[plan_find(p, "g")].per = p->buf[plan_find(p, "w")].per = 8;
	model_need(b->model, 1, 2, N, 1, &need);
	buffer(p, "back", PLAN_ACTIVATION, need.y, false);
	plan_do(p, PLAN_LOAD, 0, "-> batch");
	pass(p, PLAN_FWD, 0, 1, PLAN_KEEP_ALL, false, "batch w -> a2 save:k1");
	plan_send(p, 0, 1, "a2!");
	plan_recv(p, 0, 1, "back")->on_missing = PLAN_WITHOUT;
	pass(p, PLAN_FWD, 2, 4, PLAN_KEEP_ALL, false, "back w -> a5 save:k3");
	plan_vec(p, 0, "loss", "a5! batch -> d5 loss correct");
	pass(p, PLAN_BWD, 2, 4, PLAN_KEEP_ALL, false, "save:k3! d5! back! w -> d2 g+");
	pass(p, PLAN_BWD, 0, 1, PLAN_KEEP_ALL, false, "save:k1! d2! batch w -> g+");
	plan_do(p, PLAN_COMMIT, 0, "batch! loss!");
}

static void test_without(void **state)
{
	struct bed all = { 0 }, some = { 0 }, two = { 0 };
	struct exec_view v, whole;

	rounds = 2;
	wire_open(&two, through, 0);
	if (two.broken)
		fail_msg("%s", two.error.text);
	rounds = 3;
	wire_open(&all, through, 0);
	assert_true(all.over && wire.commits == 3 && wire.loss == 3 && all.unloaded == 3);
	exec_view(all.x_, &whole);
	assert_true(!whole.passed && !whole.failed);
	wire_open(&some, through, 2);           /* all but the second */
	if (some.broken)
		fail_msg("%s", some.error.text);
	assert_true(some.over && some.withouts == 1 && !some.troubles);
	assert_err(some.error, ERR_TIMEOUT, "has not sent back");
	assert_true(wire.commits == 2 && wire.loss == 2 && wire.sends == 3);
	assert_int_equal(some.unloaded, 3);     /* the one that does not count goes back, too */
	exec_view(some.x_, &v);
	assert_true(v.failed == 1 && v.passed == 5);
	assert_int_equal(v.instructions, whole.instructions - 6);
	assert_true(v.arena_bytes == whole.arena_bytes && v.arena_peak_bytes <= whole.arena_peak_bytes);
	assert_int_equal(lines("\"ev\":\"without\""), 1);
	assert_int_equal(lines("\"ev\":\"passed\""), 5);
	assert_memory_equal(some.g, two.g, two.model->nparam * sizeof(real));
	bed_close(&two);
	bed_close(&all);
	bed_close(&some);
}

/* Weights that somebody else keeps; those that do not come are those before. Larger than the loop copies by itself. */
static void kept_elsewhere(struct bed *b, struct plan *p)
{
	struct model_need need;

	buffers(b, p);
	p->iterations = 4;
	p->buf[plan_find(p, "g")].per = 8;
	model_need(b->model, 0, 5, N, 1, &need);
	plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT, .bytes = 100000, .depth = 2 }, "v");
	plan_recv(p, 0, 1, "v")->on_missing = PLAN_USE_NEWEST;
	plan_do(p, PLAN_LOAD, 0, "-> batch");
	pass(p, PLAN_FWD, 0, 4, PLAN_KEEP_ALL, false, "batch v -> a5 save:k1");
	plan_vec(p, 0, "loss", "a5! batch -> d5 loss correct");
	pass(p, PLAN_BWD, 0, 4, PLAN_KEEP_ALL, false, "save:k1! d5! batch v -> g+");
	plan_do(p, PLAN_COMMIT, 0, "batch! v");
}

static void test_newest(void **state)
{
	static real weights[25000];
	struct bed a = { 0 }, b = { 0 };
	struct model *m = make_model();

	model_init(m, 9, weights);
	model_free(m);
	for (int k = 0; k < 2; k++) {
		struct bed *x = k ? &b : &a;

		memset(&wire, 0, sizeof(wire));
		wire.brings = weights;
		wire.fails = k ? 14 : 0;
		bed_begin(x, kept_elsewhere, &wire_ops, &wire_cb);
		if (x->broken)
			fail_msg("%s", x->error.text);
		assert_true(x->over && wire.commits == 4 && wire.loss == 4);
		assert_int_equal(x->withouts, k ? 3 : 0);
	}
	assert_true(a.g[0] != 0 || a.g[1] != 0);
	assert_memory_equal(a.g, b.g, a.model->nparam * sizeof(real));
	bed_close(&a);
	bed_close(&b);
}

/* A VEC that can do without runs; one that cannot is refused before anything runs. */
static void adds(struct bed *b, struct plan *p)
{
	buffers(b, p);
	plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT_GRAD, .bytes = b->model->nparam * sizeof(real) }, "more");
	plan_recv(p, 0, 1, "more")->on_missing = PLAN_WITHOUT;
	plan_vec(p, 0, "copy", "w -> g");
	plan_vec(p, 0, "axpy", "more g -> g")->on_missing = PLAN_WITHOUT;
	plan_vec(p, 0, "dot", "g g -> loss");
}

static void cannot(struct bed *b, struct plan *p)
{
	buffers(b, p);
	plan_vec(p, 0, "digest", "w -> loss")->on_missing = PLAN_WITHOUT;
}

static void test_does_without(void **state)
{
	struct bed b = { 0 };
	struct exec_view v;

	wire_open(&b, adds, 1);
	if (b.broken)
		fail_msg("%s", b.error.text);
	exec_view(b.x_, &v);
	assert_true(b.over && wire.loss == 1 && v.passed == 0);
	assert_memory_equal(b.g, b.w, b.model->nparam * sizeof(real));
	bed_close(&b);
	wire_open(&b, cannot, 0);
	assert_int_equal(b.broken, 1);
	assert_err(b.error, ERR_INVALID, "VEC digest (instruction 0) can do without none of its inputs");
	bed_close(&b);
}

/* Who has nothing to send, and others wait for it, has failed; the plan is made anew. */
static void passes_on(struct bed *b, struct plan *p)
{
	buffers(b, p);
	plan_recv(p, 0, 1, "a1")->on_missing = PLAN_WITHOUT;
	plan_send(p, 0, 1, "a1!");
}

static void test_nothing_to_send(void **state)
{
	struct bed b = { 0 };

	wire_open(&b, passes_on, 1);
	assert_true(b.over && !b.broken);
	assert_true(b.withouts == 1 && b.troubles == 1 && wire.sends == 1);
	assert_err(b.error, ERR_NOT_FOUND, "SEND of index 0 has to send a1, which has not come");
	assert_int_equal(lines("\"ev\":\"failed\""), 1);
	bed_close(&b);
}

static enum exec_outcome later(void *arg, const struct plan *p, const struct plan_instr *i, enum exec_outcome meant,
	const struct err *e)
{
	return failed(arg, p, i, meant, e) == EXEC_WITHOUT ? EXEC_WITHOUT : EXEC_LATER;
}

/* Whose owner interrupts later has failed once, however often something else starts until then. */
static void test_nothing_to_send_later(void **state)
{
	struct exec_cb cb = wire_cb;
	struct bed b = { 0 };

	memset(&wire, 0, sizeof(wire));
	wire.fails = 1;
	cb.failed = later;
	bed_begin(&b, passes_on, &wire_ops, &cb);
	for (int k = 0; k < 3; k++)
		exec_hold(b.x_, false);
	assert_true(b.withouts == 1 && b.troubles == 1 && b.planned == 1 && !exec_quiet(b.x_));
	assert_int_equal(lines("\"ev\":\"failed\""), 1);
	exec_interrupt(b.x_);
	sim_run_for(b.sim, 1000000);
	assert_true(b.over && !b.broken && exec_quiet(b.x_) && wire.sends == 1);
	bed_close(&b);
}

/* Without an owner who decides a failure is the end, and so it is when that says so. */
static enum exec_outcome ends(void *arg, const struct plan *p, const struct plan_instr *i, enum exec_outcome meant,
	const struct err *e)
{
	((struct bed *)arg)->troubles++;
	return EXEC_BREAK;
}

static void fails(struct bed *b, struct plan *p)
{
	buffers(b, p);
	plan_recv(p, 0, 1, "a1");
	plan_do(p, PLAN_COMMIT, 0, "a1");
}

static void test_break(void **state)
{
	struct exec_cb cb = wire_cb;

	for (int k = 0; k < 2; k++) {
		struct bed b = { 0 };

		memset(&wire, 0, sizeof(wire));
		wire.fails = 1;
		cb.failed = k ? ends : NULL;
		bed_begin(&b, fails, &wire_ops, &cb);
		assert_true(b.broken == 1 && b.troubles == k && !wire.commits && b.planned == 1);
		assert_err(b.error, ERR_TIMEOUT, "peer 2 has not sent a1");
		bed_close(&b);
	}
}

/* A transfer that an interrupt has cut off has not come: the mark behind it commits nothing. */
static void test_cut_off(void **state)
{
	static const struct exec_ops slow = { .load = load, .unload = unload, .net = net, .cancel = cancel };
	struct bed b = { 0 };

	memset(&wire, 0, sizeof(wire));
	bed_begin(&b, fails, &slow, &wire_cb);
	assert_int_equal(b.asked, 1);
	exec_interrupt(b.x_);
	sim_run_for(b.sim, 10000);
	assert_true(exec_quiet(b.x_) && b.over);
	assert_int_equal(wire.commits, 0);
	bed_close(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_without), cmocka_unit_test(test_newest), cmocka_unit_test(test_does_without),
		cmocka_unit_test(test_nothing_to_send), cmocka_unit_test(test_nothing_to_send_later),
		cmocka_unit_test(test_break), cmocka_unit_test(test_cut_off),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
