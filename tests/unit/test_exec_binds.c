/* Memory that a program begins with: what the owner lends and does not fit the plan, and what there is not enough
 * memory for, is an error with the buffer's name before anything runs. */
#include "t.h"
#include "sim.h"
#include "exec/exec.h"

#define BYTES 256

struct bed {
	struct sim *sim;
	struct exec *x;
	void (*make)(struct plan *p);
	char memory[BYTES];
	int planned, commits, broken;
	struct err error;
};

static void *start(struct env *env, int node, void *arg) { return arg; }
static void stop(void *app) { }

static int plan(void *arg, const struct plan_results *r, uint64_t first, struct plan *ret, struct err *e)
{
	struct bed *b = arg;

	plan_init(ret, "test", 0, 1, (struct id[]){ { { 1 } } });
	ret->first = first;
	if (b->planned++)
		return 0;
	b->make(ret);
	plan_do(ret, PLAN_COMMIT, 0, "->");
	return 0;
}

static void commit(void *arg, const struct plan_instr *i, int64_t index, const struct batch *t)
{
	((struct bed *)arg)->commits++;
}

static void broken(void *arg, const struct err *e)
{
	struct bed *b = arg;

	b->error = *e;
	b->broken++;
}

static void weights(struct plan *p, uint64_t bytes, uint32_t depth)
{
	plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT, .bytes = bytes, .initial = true, .depth = depth }, "w");
}

static void fits(struct plan *p) { weights(p, BYTES, 0); }
static void ring(struct plan *p) { weights(p, BYTES, 2); }
static void larger(struct plan *p) { weights(p, BYTES + 64, 1); }

static void streams(struct plan *p)
{
	weights(p, BYTES, 1);
	p->streams = 3;
}

static void one_for_all_streams(struct plan *p)
{
	weights(p, BYTES, 1);
	p->buf[0].shared = true;
	p->streams = 3;
}

static void journal(struct plan *p)
{
	weights(p, BYTES, 1);
	p->buf[0].journal = true;
}

/* More than there are addresses: refused without a question to the system (ASan would end the program at it). */
static void too_much(struct plan *p)
{
	weights(p, BYTES, 1);
	plan_buf(p, &(struct plan_buf){ .class = PLAN_SCALAR, .bytes = 1ull << 63, .initial = true }, "vast");
}

static void run(struct bed *b, void (*make)(struct plan *p))
{
	const struct exec_cb cb = { .plan = plan, .commit = commit, .broken = broken };
	static const struct exec_ops ops = { 0 };
	struct sim_app app = { start, stop, b };

	memset(b, 0, sizeof(*b));
	b->sim = sim_new(1);
	(void)sim_node_add(b->sim, NULL, &app);
	b->make = make;
	struct exec_conf conf = { .env = sim_env(b->sim, 0), .ops = &ops };
	b->x = exec_new(&conf, &cb, b);
	exec_bind(b->x, "w", b->memory, BYTES);
	exec_wake(b->x);
	sim_run_for(b->sim, 1000000);
	exec_interrupt(b->x);                   /* broken is broken: nothing of it runs later either */
	sim_run_for(b->sim, 1000000);
	exec_free(b->x, NULL, NULL);
	sim_run_for(b->sim, 1000000);
	sim_free(b->sim);
}

static void test_refused(void **state)
{
	static const struct { void (*make)(struct plan *p); enum err_code code; const char *text; } row[] = {
		{ ring, ERR_INVALID, "plan test: buffer w is to hold 2 values, and lies in memory of its owner, which has room "
			"for one" },
		{ streams, ERR_INVALID, "plan test: buffer w is to hold 3 values" },
		{ larger, ERR_INVALID, "plan test: buffer w needs 320 bytes, and lies in memory of its owner, which has 256" },
		{ journal, ERR_INVALID, "plan test: buffer w needs 512 bytes" },
		{ too_much, ERR_NOMEM, "no memory for 9223372036854775808 bytes of vast" },
	};

	for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
		struct bed b;

		run(&b, row[i].make);
		assert_int_equal(b.broken, 1);
		assert_int_equal(b.error.code, row[i].code);
		if (!strstr(b.error.text, row[i].text))
			fail_msg("\"%s\" does not say \"%s\"", b.error.text, row[i].text);
		assert_int_equal(b.commits, 0);
	}
}

static void test_fits(void **state)
{
	struct bed b;

	run(&b, fits);
	assert_true(!b.broken && b.commits == 1);
	run(&b, one_for_all_streams);
	assert_true(!b.broken && b.commits == 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_refused), cmocka_unit_test(test_fits) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
