/* Functions that change state give the same bytes in place and from one version to the next (a ring), whose memory
 * holds anything before; and they leave the version that they started from as it was. */
#include "vec_bed.h"
#include "kernels/vec.h"

#define OPERANDS 4

struct value { void *p; size_t bytes; enum plan_class class; };

static struct value value_new(size_t bytes, enum plan_class class)
{
	struct value v = { malloc(bytes), bytes, class };

	memset(v.p, 0xff, bytes);               /* NaN */
	return v;
}

static struct value reals_new(size_t n, double phase, enum plan_class class)
{
	struct value v = value_new(n * sizeof(real), class);

	for (size_t i = 0; i < n; i++)
		((real *)v.p)[i] = vbed_wave(i, phase);
	return v;
}

static struct vec_arg arg_of(const struct value *v)
{
	return (struct vec_arg){ .p = v->p, .bytes = v->bytes, .class = v->class };
}

/* Inputs of which the last `states` are the outputs' former versions, in order; behind these one scalar. */
struct step { const char *fn; uint32_t nin, states; struct value in[OPERANDS]; };

static void step_free(struct step *s)
{
	for (uint32_t k = 0; k < s->nin; k++)
		free(s->in[k].p);
}

/* Once with copies as outputs, in place; once with memory of its own. */
static void both(struct vbed *b, struct step *s, bool scalar)
{
	struct vec_arg in[OPERANDS], out[OPERANDS];
	struct value apart[OPERANDS], kept[OPERANDS];
	uint32_t from = s->nin - s->states, nout = s->states + scalar;
	double skipped[2] = { -1, -2 };
	struct kerr e;

	for (uint32_t k = 0; k < s->nin; k++) {
		in[k] = arg_of(&s->in[k]);
		kept[k] = value_new(s->in[k].bytes, 0);
		memcpy(kept[k].p, s->in[k].p, s->in[k].bytes);
	}
	for (uint32_t k = 0; k < s->states; k++) {
		apart[k] = value_new(s->in[from + k].bytes, s->in[from + k].class);
		out[k] = arg_of(&apart[k]);
	}
	out[s->states] = (struct vec_arg){ .p = &skipped[0], .bytes = 8, .class = PLAN_SCALAR };
	if (vbed_call(b, s->fn, in, s->nin, out, nout, &e) < 0)
		fail_msg("%s: %s", s->fn, e.text);
	for (uint32_t k = from; k < s->nin; k++)
		if (memcmp(s->in[k].p, kept[k].p, kept[k].bytes))
			fail_msg("%s has changed its input %u", s->fn, k);
	memcpy(s->in[0].p, kept[0].p, kept[0].bytes);   /* a gradient may be clipped where it lies */
	for (uint32_t k = 0; k < s->states; k++)
		out[k] = in[from + k];
	out[s->states].p = &skipped[1];
	if (vbed_call(b, s->fn, in, s->nin, out, nout, &e) < 0)
		fail_msg("%s: %s", s->fn, e.text);
	for (uint32_t k = 0; k < s->states; k++)
		if (memcmp(s->in[from + k].p, apart[k].p, apart[k].bytes))
			fail_msg("%s: output %u differs from that in place", s->fn, k);
	assert_true(!scalar || skipped[0] == skipped[1]);
	for (uint32_t k = 0; k < s->nin; k++)
		free(kept[k].p);
	for (uint32_t k = 0; k < s->states; k++)
		free(apart[k].p);
}

/* Every optimizer, several steps, with clipping; and a step that is skipped. */
static void test_opt(void **state)
{
	struct vbed b;

	vbed_open(&b, 300);
	for (int i = 0; optim_at(i); i++)
		for (int clip = 0; clip < 2; clip++) {
			size_t bytes = vbed_optim(&b, optim_at(i));
			struct step s = { "opt", 3, 2, { reals_new(b.len, 1, PLAN_WEIGHT_GRAD),
				reals_new(b.len, 2, PLAN_WEIGHT), value_new(bytes, PLAN_OPTIMIZER) } };

			b.env.clip_norm = clip ? 0.1 : 0;
			vbed_fresh(s.in[2].p, bytes);
			for (int k = 0; k < 4; k++) {
				for (size_t j = 0; j < b.len; j++)
					((real *)s.in[0].p)[j] = vbed_wave(j, k + 0.3);
				if (k == 2)
					((real *)s.in[0].p)[b.n / 2] = (real)NAN;
				both(&b, &s, true);
			}
			step_free(&s);
		}
	vbed_close(&b);
}

static void test_others(void **state)
{
	const struct plan_result set[] = { { "outer_lr", 0.7 }, { "outer_momentum", 0.9 }, { "overlap", 1 },
		{ "mix", 0.5 } };
	struct vbed b;

	vbed_open(&b, 30);
	b.env.settings = (struct plan_results){ 4, set };
	for (int bad = 0; bad < 2; bad++) {
		struct step delta = { "delta", 3, 1, { reals_new(b.len, 1, PLAN_WEIGHT_GRAD),
			reals_new(b.len, 2, PLAN_WEIGHT_GRAD), reals_new(b.len, 3, PLAN_WEIGHT) } };
		struct step fragment = { "fragment", 4, 3, { reals_new(b.len, 1, PLAN_WEIGHT_GRAD),
			reals_new(b.len, 2, PLAN_WEIGHT), reals_new(b.len, 3, PLAN_OPTIMIZER),
			reals_new(b.len, 4, PLAN_WEIGHT) } };

		if (bad) {
			((real *)delta.in[0].p)[3] = (real)INFINITY;
			((real *)fragment.in[0].p)[3] = (real)INFINITY;
		}
		both(&b, &delta, false);
		both(&b, &fragment, true);
		step_free(&delta);
		step_free(&fragment);
	}
	vbed_close(&b);
}

/* DiLoCo's step names two versions and makes three: w is whatever the anchor is. */
static void test_outer(void **state)
{
	const struct plan_result set[] = { { "outer_lr", 0.7 }, { "outer_momentum", 0.9 } };
	struct vbed b;
	struct value d, anchor, m, to[2], w[2];
	double skipped;
	struct kerr e;

	vbed_open(&b, 30);
	b.env.settings = (struct plan_results){ 2, set };
	d = reals_new(b.len, 1, PLAN_WEIGHT_GRAD);
	anchor = reals_new(b.len, 2, PLAN_WEIGHT);
	m = reals_new(b.len, 3, PLAN_OPTIMIZER);
	for (int k = 0; k < 2; k++) {
		to[k] = value_new(b.len * sizeof(real), k ? PLAN_OPTIMIZER : PLAN_WEIGHT);
		w[k] = value_new(b.len * sizeof(real), PLAN_WEIGHT);
	}
	struct vec_arg in[3] = { arg_of(&d), arg_of(&anchor), arg_of(&m) };
	struct vec_arg apart[4] = { arg_of(&to[0]), arg_of(&to[1]), arg_of(&w[0]), { .p = &skipped, .bytes = 8 } };
	struct vec_arg there[4] = { in[1], in[2], arg_of(&w[1]), apart[3] };

	assert_int_equal(vbed_call(&b, "outer", in, 3, apart, 4, &e), 0);
	assert_true(((real *)anchor.p)[1] == vbed_wave(1, 2));
	assert_int_equal(vbed_call(&b, "outer", in, 3, there, 4, &e), 0);
	assert_memory_equal(anchor.p, to[0].p, anchor.bytes);
	assert_memory_equal(m.p, to[1].p, m.bytes);
	assert_memory_equal(w[0].p, w[1].p, w[0].bytes);
	assert_memory_equal(w[0].p, anchor.p, w[0].bytes);
	free(d.p);
	free(anchor.p);
	free(m.p);
	for (int k = 0; k < 2; k++) {
		free(to[k].p);
		free(w[k].p);
	}
	vbed_close(&b);
}

/* A version that is not as long as the one before it is refused, and nothing is written past its end. */
/* A step of elements lo to hi - 1, whose optimizer's vectors begin as zeros; into w. */
static int step_part(struct vbed *b, const struct optim_ops *o, size_t lo, size_t hi, const real *g, real *w,
	struct kerr *e)
{
	size_t len = hi - lo, vectors = 0, bytes;
	double skipped = -1;
	void *opt;
	int rc;

	for (int i = 0; i < o->nstates; i++)
		vectors += b->env.state[i];
	bytes = (vectors * len * sizeof(real) + 7) / 8 * 8 + 3 * sizeof(double);
	opt = malloc(bytes);
	vbed_fresh(opt, bytes);
	struct vec_arg in[3] = { { .p = (void *)(g + lo), .bytes = len * sizeof(real), .part = true, .lo = lo, .hi = hi },
		{ .p = w + lo, .bytes = len * sizeof(real), .part = true, .lo = lo, .hi = hi },
		{ .p = opt, .bytes = bytes, .part = true, .lo = lo, .hi = hi } };
	struct vec_arg out[3] = { in[1], in[2], { .p = &skipped, .bytes = 8, .class = PLAN_SCALAR } };

	for (int k = 0, steps = 3; k < steps; k++) {
		rc = vbed_call(b, "opt", in, 3, out, 3, e);
		if (rc < 0 || skipped != 0)
			break;
	}
	free(opt);
	return rc;
}

/* Parts step as they do in the whole, with every optimizer; a part ends where a tensor does. */
static void test_part(void **state)
{
	struct vbed b;
	struct kerr e;

	vbed_open(&b, 33);
	size_t cut = b.m->param[2].offset, n = b.n;
	real *g = malloc(n * sizeof(real)), *one = malloc(n * sizeof(real)), *two = malloc(n * sizeof(real));
	for (int k = 0; optim_at(k); k++) {
		(void)vbed_optim(&b, optim_at(k));
		for (size_t i = 0; i < n; i++) {
			g[i] = vbed_wave(i, 1);
			one[i] = two[i] = vbed_wave(i, 2);
		}
		assert_int_equal(step_part(&b, optim_at(k), 0, n, g, one, &e), 0);
		assert_int_equal(step_part(&b, optim_at(k), 0, cut, g, two, &e), 0);
		assert_int_equal(step_part(&b, optim_at(k), cut, n, g, two, &e), 0);
		if (memcmp(one, two, n * sizeof(real)))
			fail_msg("%s: parts step otherwise than the whole", optim_at(k)->name);
		assert_true(one[0] != vbed_wave(0, 2) && one[n - 1] != vbed_wave(n - 1, 2));
	}
	assert_int_equal(step_part(&b, optim_at(0), 0, cut + 1, g, two, &e), -1);
	assert_non_null(strstr(e.text, "begins and ends with tensors"));
	b.env.clip_norm = 1;
	assert_int_equal(step_part(&b, optim_at(0), 0, cut, g, two, &e), -1);
	assert_non_null(strstr(e.text, "norm of all gradients"));
	free(g);
	free(one);
	free(two);
	vbed_close(&b);
}

static void test_sizes(void **state)
{
	struct vbed b;
	size_t bytes;
	struct kerr e;

	vbed_open(&b, 30);
	bytes = vbed_optim(&b, optim_find("adam"));
	struct value g = reals_new(b.len, 1, PLAN_WEIGHT_GRAD), w = reals_new(b.len, 2, PLAN_WEIGHT);
	struct value opt = value_new(bytes, PLAN_OPTIMIZER), few = value_new(bytes - 64, PLAN_OPTIMIZER);
	double skipped;
	struct vec_arg in[3] = { arg_of(&g), arg_of(&w), arg_of(&opt) };
	struct vec_arg out[3] = { arg_of(&w), arg_of(&few), { .p = &skipped, .bytes = 8 } };

	assert_int_equal(vbed_call(&b, "opt", in, 3, out, 3, &e), -1);
	assert_non_null(strstr(e.text, "what it goes on from (input 2)"));
	free(g.p);
	free(w.p);
	free(opt.p);
	free(few.p);
	vbed_close(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_opt), cmocka_unit_test(test_others), cmocka_unit_test(test_outer),
		cmocka_unit_test(test_sizes), cmocka_unit_test(test_part),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
