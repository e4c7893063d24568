/* What a SUM of an elastic group brings is read where its owner has put it: no copy is made, nothing is written there,
 * and it is given back when the last reader has gone. Its room comes out of the executor's own pieces and goes back to
 * them. One who is alone is given what it has brought, which stays as it is. A SUM that is abandoned has taken nothing.
 */
#include "exec_bed.h"

#define LEN 64
#define BYTES (LEN * sizeof(real))

static struct lent {
	struct exec_wait *w; const real *in; void *out;
	int asked, cancelled;
} l;

static void lent_net(void *arg, struct exec_wait *w, const struct exec_net *n, const struct exec_span *in, uint32_t nin,
	const struct exec_span *out, uint32_t nout)
{
	l.w = w;
	l.in = nin ? in->p : NULL;
	l.out = out->p;
	l.asked++;
}

static void lent_cancel(void *arg, struct exec_wait *w)
{
	l.w = NULL;
	l.cancelled++;
}

static uint32_t begin(struct bed *b, struct plan *p)
{
	size_t params = b->model->nparam * sizeof(real);
	static const char *const name[] = { "acc", "mean", "g" };
	uint32_t peers;

	plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT, .bytes = params, .initial = true }, "w");
	for (int i = 0; i < 3; i++)
		plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT_GRAD, .bytes = BYTES, .per = UINT32_MAX, .depth = 1,
			.initial = i == 2 }, "%s", name[i]);
	peers = plan_group(p, "peers", PLAN_OP_MEAN, false, true);
	plan_join(p, peers, 0, 0);
	return peers;
}

/* acc = g, which is seven; the mean of it; then what the plan does with that, and twice what has come of it. */
static void sum(struct bed *b, struct plan *p, const char *sums, const char *reads, const char *adds)
{
	uint32_t peers = begin(b, p);

	if (l.asked == 0)
		plan_vec(p, 0, "copy", "g -> acc");
	plan_coll(p, PLAN_SUM, 0, peers, "%s", sums);
	plan_vec(p, 0, "axpy", "%s", reads)->scale = 1;
	if (adds)
		plan_vec(p, 0, "axpy", "%s", adds)->scale = 2;
}

static void read_it(struct bed *b, struct plan *p) { sum(b, p, "acc! -> mean", "mean! -> g+", NULL); }
static void adds_to(struct bed *b, struct plan *p) { sum(b, p, "acc! -> mean", "g -> mean+", "mean! -> g+"); }
static void changes(struct bed *b, struct plan *p)
{
	sum(b, p, "acc! -> mean", "g mean -> mean", "mean! -> g+");
}

static void in_place(struct bed *b, struct plan *p) { sum(b, p, "acc -> acc", "acc! -> g+", NULL); }

static void open_(struct bed *b, void (*make)(struct bed *b, struct plan *p))
{
	static const struct exec_ops ops = { .load = load, .unload = unload, .net = lent_net, .cancel = lent_cancel,
		.lends = true };
	const struct exec_cb cb = { .plan = plan, .scalar = scalar, .env = vec_env, .failed = failed, .broken = broken };

	memset(b, 0, sizeof(*b));
	b->check = true;
	l = (struct lent){ 0 };
	bed_begin(b, make, &ops, &cb);
	if (b->broken)
		fail_msg("%s", b->error.text);
	assert_int_equal(l.asked, 1);
	assert_non_null(l.w);
	assert_non_null(l.in);
}

static void run_on(struct bed *b)
{
	sim_run_for(b->sim, 1000000);
	if (b->broken)
		fail_msg("%s", b->error.text);
}

static struct lease *filled(struct bed *b, real with)
{
	struct lease *m = exec_room(b->x_, BYTES);

	for (size_t i = 0; i < LEN; i++)
		((real *)m->p)[i] = with;
	return m;
}

/* In every plan: the lease alone keeps it, and it is back among the pieces when the plan has ended. */
static void lent_to(void (*make)(struct bed *b, struct plan *p), bool here, real comes)
{
	struct bed b;
	struct lease *m, *next;
	void *at;

	open_(&b, make);
	assert_null(l.out);                     /* it has no memory yet */
	m = filled(&b, 3);
	at = m->p;
	exec_done_with(l.w, m->p, m);
	if (here) {                             /* whoever made it still reads it */
		run_on(&b);
		for (size_t i = 0; i < LEN; i++)
			assert_true(((real *)m->p)[i] == 3);
		assert_int_equal(m->refs, 1);
		lease_put(m);
	} else {
		lease_put(m);
		run_on(&b);
	}
	assert_true(b.over);
	for (size_t i = 0; i < LEN; i++)
		assert_true(b.g[i] == comes);
	next = exec_room(b.x_, BYTES);
	assert_true(make != read_it || next->p == at);  /* the piece that went back last */
	lease_put(next);
	bed_close(&b);
}

static void test_lent(void **state)
{
	lent_to(read_it, false, 7 + 3);
	lent_to(read_it, true, 7 + 3);
	lent_to(adds_to, true, 7 + 2 * (3 + 7));
	lent_to(changes, true, 7 + 2 * (3 + 7));
}

/* The room of a value that nobody has taken, and one that outlives the executor. */
static void test_room(void **state)
{
	struct lease *a, *c;
	struct bed b;
	void *at;

	open_(&b, read_it);
	a = filled(&b, 1);
	at = a->p;
	lease_put(a);
	c = filled(&b, 2);
	assert_ptr_equal(c->p, at);
	exec_free(b.x_, NULL, NULL);
	b.x_ = NULL;
	bed_close(&b);
	assert_true(((real *)c->p)[LEN - 1] == 2);
	lease_put(c);
}

/* It is given back what it has brought. */
static void test_alone(void **state)
{
	struct lease *m;
	real was[LEN];
	struct bed b;

	open_(&b, read_it);
	assert_null(exec_keep(l.w, was));
	memcpy(was, l.in, BYTES);
	m = exec_keep(l.w, l.in);
	assert_ptr_equal(m->p, l.in);
	exec_done_with(l.w, m->p, m);
	run_on(&b);
	assert_true(b.over);
	assert_memory_equal(m->p, was, BYTES);  /* acc was dropped, and is kept all the same */
	lease_put(m);
	bed_close(&b);
}

static void gone(void *arg) { *(bool *)arg = true; }

/* Its memory is the executor's, which waits for it. */
static void test_kept(void **state)
{
	bool ended = false;
	struct lease *m;
	struct bed b;

	open_(&b, read_it);
	m = exec_keep(l.w, l.in + 5);
	exec_free(b.x_, gone, &ended);
	b.x_ = NULL;
	run_on(&b);
	assert_false(ended);
	assert_true(m->bytes >= BYTES && m->p == l.in);
	lease_put(m);
	run_on(&b);
	assert_true(ended);
	assert_int_equal(l.cancelled, 1);
	bed_close(&b);
}

/* The same SUM is asked anew, with the same value, though it was to drop that. */
static void test_abandoned(void **state)
{
	const real *in;
	struct lease *m;
	struct bed b;

	open_(&b, read_it);
	in = l.in;
	b.troubles = 1;                         /* one more program */
	exec_interrupt(b.x_);
	run_on(&b);
	assert_int_equal(l.cancelled, 1);
	assert_int_equal(l.asked, 2);
	assert_ptr_equal(l.in, in);
	m = filled(&b, 3);
	exec_done_with(l.w, m->p, m);
	lease_put(m);
	run_on(&b);
	assert_true(b.over);
	bed_close(&b);
}

/* One that brings what it takes has memory, and is answered as all others. */
static void test_in_place(void **state)
{
	struct bed b;

	open_(&b, in_place);
	assert_ptr_equal(l.out, l.in);
	exec_done(l.w, NULL, NULL);
	run_on(&b);
	assert_true(b.over);
	bed_close(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_lent), cmocka_unit_test(test_room),
		cmocka_unit_test(test_alone), cmocka_unit_test(test_kept), cmocka_unit_test(test_abandoned),
		cmocka_unit_test(test_in_place) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
