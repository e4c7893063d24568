/* Row A01: every layer at fifty shapes of chance against central differences in double; layers of nothing but matrices
 * are one matrix; XOR, and two classes of pictures by binary cross entropy, are learned. Row A02: every loss against
 * its definition in long double. */
#include <math.h>
#include "kernels_util.h"
#include "kernels/optim.h"
#include "kernels/vec.h"

enum { SHAPES = 50, TRIES = 4000 };

struct dice { uint64_t key, at; };
static unsigned roll(struct dice *d, unsigned n) { return (unsigned)(rand_bits(d->key, d->at++) % n); }

static void nobody_waits(void *arg, uint64_t us, bool backward) {}

/* Pictures, rows or a line, and a text of the layer that may not fit them. false: it is not known here. */
static bool draw(struct dice *d, const char *type, struct shape *in, char t[200])
{
	unsigned a = 1 + roll(d, 4), b = 1 + roll(d, 5), c = 1 + roll(d, 3), k = 1 + roll(d, 3);
	bool rows = strstr("bias softmax layernorm rmsnorm position select attention lstm rnn", type) != NULL;

	*in = strstr("conv2d maxpool2d avgpool2d adaptiveavgpool2d batchnorm groupnorm", type) ?
		(struct shape){ 3, { a, 1 + roll(d, 7), 1 + roll(d, 7) } } : rows || roll(d, 2) ?
		(struct shape){ 2, { 1 + roll(d, 4), 1 + roll(d, 9) } } : (struct shape){ 1, { 1 + roll(d, 12) } };
	if (!strcmp(type, "linear"))
		(void)snprintf(t, 200, "linear out=%u bias=%u transposed=%u", b, roll(d, 2), roll(d, 2));
	else if (!strcmp(type, "conv2d"))
		(void)snprintf(t, 200, "conv2d out=%u kernel=%u stride=%u padding=%u dilation=%u groups=%u bias=%u", a * c, k,
			1 + roll(d, 2), roll(d, 3), 1 + roll(d, 2), roll(d, 2) ? a : 1, roll(d, 2));
	else if (!strcmp(type, "maxpool2d") || !strcmp(type, "avgpool2d"))
		(void)snprintf(t, 200, "%s kernel=%u stride=%u padding=%u", type, k, 1 + roll(d, 3), roll(d, 2));
	else if (!strcmp(type, "adaptiveavgpool2d"))
		(void)snprintf(t, 200, "%s out=%u", type, b);
	else if (!strcmp(type, "gelu"))
		(void)snprintf(t, 200, "gelu tanh=%u", roll(d, 2));
	else if (!strcmp(type, "dropout"))
		(void)snprintf(t, 200, "dropout p=0.%u", 1 + roll(d, 8));
	else if (!strcmp(type, "sleep"))
		(void)snprintf(t, 200, "sleep fwd_ms=%u", roll(d, 3));
	else if (!strcmp(type, "groupnorm"))
		(void)snprintf(t, 200, "groupnorm groups=%u", b);
	else if (!strcmp(type, "position"))
		(void)snprintf(t, 200, "position max=%u", b);
	else if (!strcmp(type, "select"))
		(void)snprintf(t, 200, "select index=%u axis=%u count=%u", roll(d, 4), roll(d, 3), roll(d, 3));
	else if (!strcmp(type, "attention"))
		(void)snprintf(t, 200, "attention heads=%u causal=%u dropout=0.%u", k, roll(d, 2), roll(d, 2) ? 3u : 0u);
	else if (!strcmp(type, "rmsnorm"))      /* a row that is all but 0 bends within a step of the difference */
		(void)snprintf(t, 200, "rmsnorm eps=0.01");
	else if (!strcmp(type, "lstm"))
		(void)snprintf(t, 200, "lstm out=%u last=%u bias=%u", b, roll(d, 2), roll(d, 2));
	else if (!strcmp(type, "rnn"))
		(void)snprintf(t, 200, "rnn out=%u last=%u bias=%u relu=%u", b, roll(d, 2), roll(d, 2), roll(d, 2));
	else if (!strcmp(type, "embedding"))
		(void)snprintf(t, 200, "embedding vocab=%u dim=%u", 1 + b, a);
	else if (!strcmp(type, "add"))
		(void)snprintf(t, 200, "tanh :a; sigmoid <input :b; add <a,b%s", roll(d, 2) ? ",input" : "");
	else if (!strcmp(type, "concat"))
		(void)snprintf(t, 200, "tanh :a; concat <a,input%s axis=%u", roll(d, 2) ? ",a" : "", roll(d, 3));
	else
		(void)snprintf(t, 200, "%s", type);
	return strstr("linear conv2d maxpool2d avgpool2d adaptiveavgpool2d gelu dropout sleep groupnorm position select "
		"attention embedding add concat relu sigmoid tanh flatten silu softmax bias batchnorm layernorm rmsnorm lstm "
		"rnn", type) != NULL;
}

struct at { struct par par; const struct model *m; struct model_call call; real *x, *param, *weight, *y; };

/* The sum of weight * output; what training keeps of running statistics is dropped. */
static double value(const struct at *a)
{
	struct model_need need;
	struct model_call c = a->call;
	double sum;

	model_need(a->m, 0, a->m->nops, c.batch, a->par.n, &need);
	c.saved = NULL;
	c.work = bytes(need.work_eval);
	c.buffer = buffers(a->m);
	model_forward(&a->par, a->m, 0, a->m->nops, &c, a->x, a->y);
	sum = vec_dot(&a->par, c.batch * shape_count(&a->m->out), a->weight, a->y);
	free(c.work);
	free(c.buffer);
	return sum;
}

struct tally { size_t elements, kinks; };

/* One tensor: no element is further from its difference than 1e-6 of the tensor's largest. An element at a kink of a
 * rectifier or a maximum has two slopes, and is left out; they are counted. */
static void hold(const struct at *a, const char *text, const char *what, real *v, const real *grad, size_t n,
	struct tally *count)
{
	const double step = 1e-5, here = value(a);
	double *want = calloc(n + 1, sizeof *want), most = 0;

	for (size_t i = 0; i < n; i++) {
		const real old = v[i];
		double up, down;

		v[i] = old + step;
		up = value(a);
		v[i] = old - step;
		down = value(a);
		v[i] = old;
		want[i] = (up - down) / (2 * step);
		count->elements++;
		if (fabs(up - 2 * here + down) / step > 0.03) {
			count->kinks++;
			want[i] = NAN;
		} else {
			most = fmax(most, fabs(want[i]));
		}
	}
	for (size_t i = 0; i < n; i++)
		if (!isnan(want[i]) && !(fabs(grad[i] - want[i]) <= 1e-6 * fmax(most, 1e-3)))
			fail_msg("%s: %s[%zu] is %.12g, its difference %.12g, the largest %.3g", text, what, i, grad[i], want[i],
				most);
	free(want);
}

static void one_shape(struct model *m, const char *text, struct dice *d, struct tally *count)
{
	size_t batch = 2 + roll(d, 2), nx = batch * shape_count(&m->in), ny = batch * shape_count(&m->out);
	bool ids = strstr(text, "embedding");
	struct at a = { team(1 + (int)roll(d, 3), CPU_PLAIN, NULL), m, { .batch = batch, .train = true, .key = 7 },
		noise(d->key + 1, 2, nx), noise(d->key + 2, 1, m->nparam), noise(d->key + 3, 1, ny), bytes(ny * sizeof(real)) };
	real *dx = bytes(nx * sizeof(real)), *grad = calloc(m->nparam + 1, sizeof(real));
	struct model_need need;
	struct model_call c;

	for (size_t i = 0; ids && i < nx; i++)
		a.x[i] = (real)roll(d, 2);
	model_need(m, 0, m->nops, batch, a.par.n, &need);
	a.call.param = a.param;
	c = a.call;
	c.buffer = buffers(m);
	c.saved = bytes(need.saved);
	c.work = bytes(need.work_fwd + need.work_bwd);
	model_forward(&a.par, m, 0, m->nops, &c, a.x, a.y);
	model_backward(&a.par, m, 0, m->nops, &c, a.x, a.weight, ids ? NULL : dx, grad);
	if (!ids)
		hold(&a, text, "dx", a.x, dx, nx, count);
	for (int p = 0; p < m->nparams; p++)
		hold(&a, text, m->param[p].name, a.param + m->param[p].offset, grad + m->param[p].offset, m->param[p].count,
			count);
	free(a.x); free(a.param); free(a.weight); free(a.y); free(dx); free(grad); free(c.buffer); free(c.saved);
	free(c.work);
}

/* By the name: another layer in the list changes the shapes of none. */
static uint64_t key_of(const char *type)
{
	uint64_t key = 0;

	while (*type)
		key = rand_key(key, (uint64_t)*type++);
	return key;
}

static void fifty_shapes_of_each(void **state)
{
	const struct layer_host host = { nobody_waits, NULL };

	for (int l = 0; layer_at(l); l++) {
		const char *type = layer_at(l)->name;
		struct tally count = { 0 };
		int shapes = 0;

		for (int i = 0; i < TRIES && shapes < SHAPES; i++) {
			struct dice d = { rand_key(key_of(type), (uint64_t)i), 0 };
			struct shape in;
			struct kerr e;
			char text[200];
			struct model *m;

			if (!draw(&d, type, &in, text))
				fail_msg("layer %s has no shapes of chance: add it to draw", type);
			m = model_text(in, text, &host, &e);
			if (!m)
				continue;
			one_shape(m, text, &d, &count);
			model_free(m);
			shapes++;
		}
		if (shapes < SHAPES)
			fail_msg("layer %s: only %d shapes that fit", type, shapes);
		if (count.kinks * 100 > count.elements)
			fail_msg("layer %s: %zu of %zu elements at kinks", type, count.kinks, count.elements);
	}
}

/* Five linear layers with biases, and the product of their matrices. */
static void linear_layers_are_one(void **state)
{
	enum { IN = 7, LAYERS = 5, BATCH = 3, WIDE = 12 };
	static const size_t out[LAYERS] = { 12, 5, 9, 12, 4 };
	struct kerr e;
	struct model *m = model_text((struct shape){ 1, { IN } }, "linear out=12; linear out=5; linear out=9;"
		"linear out=12; linear out=4", NULL, &e);
	struct par par = team(2, CPU_PLAIN, NULL);
	real *param = noise(5, 1, m->nparam), *x = noise(6, 1, BATCH * IN), y[BATCH * 4];
	double a[WIDE][IN + 1] = { { 0 } };     /* the product so far, and what it does to 0 */
	struct model_need need;
	struct model_call c = { .batch = BATCH, .param = param };
	size_t n = IN, at = 0;

	for (size_t i = 0; i < IN; i++)
		a[i][i] = 1;
	for (int l = 0; l < LAYERS; l++) {
		const real *w = param + m->param[at++].offset, *bias = param + m->param[at++].offset;
		double next[WIDE][IN + 1] = { { 0 } };

		for (size_t o = 0; o < out[l]; o++) {
			for (size_t i = 0; i < n; i++)
				for (size_t k = 0; k <= IN; k++)
					next[o][k] += w[o * n + i] * a[i][k];
			next[o][IN] += bias[o];
		}
		memcpy(a, next, sizeof a);
		n = out[l];
	}
	model_need(m, 0, m->nops, BATCH, par.n, &need);
	c.work = bytes(need.work_eval);
	model_forward(&par, m, 0, m->nops, &c, x, y);
	for (size_t b = 0; b < BATCH; b++)
		for (size_t o = 0; o < n; o++) {
			double want = a[o][IN];

			for (size_t k = 0; k < IN; k++)
				want += a[o][k] * x[b * IN + k];
			if (!(fabs(y[b * n + o] - want) <= 1e-12 * (1 + fabs(want))))
				fail_msg("sample %zu: %.17g, the product says %.17g", b, y[b * n + o], want);
		}
	free(c.work);
	free(param);
	free(x);
	model_free(m);
}

/* Trains on all of x and returns the last mean loss; the outputs stay in y. */
static double learn(struct model *m, const char *loss, size_t n, const real *x, const real *want, real *y, int steps)
{
	const struct optim_ops *adam = optim_find("adam");
	struct par par = team(2, CPU_PLAIN, NULL);
	size_t outs = shape_count(&m->out);
	real *param = reals(m->nparam), *grad = reals(m->nparam), *dy = bytes(n * outs * sizeof(real)), *s[2];
	double hyper[OPTIM_KEYS_MAX], last = 0;
	struct optim_clock clock;
	struct model_need need;
	struct model_call c = { .batch = n, .param = param, .train = true };
	struct kerr e;

	model_need(m, 0, m->nops, n, par.n, &need);
	c.saved = bytes(need.saved);
	c.work = bytes(need.work_fwd + need.work_bwd);
	for (int i = 0; i < 2; i++)
		s[i] = calloc(m->nparam, sizeof(real));
	model_init(m, 1, param);
	optim_defaults(adam, hyper);
	assert_int_equal(optim_set(adam, hyper, "lr", 0.02, &e), 0);
	optim_clock_init(&clock);
	for (int step = 0; step < steps; step++) {
		vec_fill(&par, m->nparam, 0, grad);
		model_forward(&par, m, 0, m->nops, &c, x, y);
		last = loss_run(&par, loss_find(loss), n, outs, y, want, 1.0 / (double)n, dy, NULL) / (double)n;
		model_backward(&par, m, 0, m->nops, &c, x, dy, NULL, grad);
		optim_tick(adam, hyper, &clock);
		adam->step(&par, hyper, &clock, s, param, grad, 0, m->nparam);
	}
	c.train = false;
	model_forward(&par, m, 0, m->nops, &c, x + n * shape_count(&m->in), y);        /* as many again, held out */
	free(param); free(grad); free(dy); free(s[0]); free(s[1]); free(c.saved); free(c.work);
	return last;
}

static void xor_is_learned(void **state)
{
	real x[16] = { 0, 0, 0, 1, 1, 0, 1, 1, 0, 0, 0, 1, 1, 0, 1, 1 }, want[4] = { 0, 1, 1, 0 }, y[4];
	struct kerr e;
	struct model *m = model_text((struct shape){ 1, { 2 } }, "linear out=8; tanh; linear out=1", NULL, &e);
	double last = learn(m, "bce_with_logits", 4, x, want, y, 500);

	if (!(last < 0.01))
		fail_msg("the loss of XOR is %g", last);
	for (int i = 0; i < 4; i++)
		assert_true((y[i] > 0) == (want[i] > 0));
	model_free(m);
}

/* A cross or a ring somewhere in noise: two classes, one output, pictures that training has not seen. */
static void two_classes_of_pictures(void **state)
{
	enum { N = 600, SIDE = 10, PIXELS = SIDE * SIDE };
	real *x = noise(31, 0.4, 2 * N * PIXELS), want[2 * N], *y = reals(N);
	struct kerr e;
	struct model *m = model_text((struct shape){ 3, { 1, SIDE, SIDE } }, "conv2d out=6 kernel=3 padding=1; relu;"
		"maxpool2d kernel=2; flatten; linear out=16; relu; linear out=1", NULL, &e);
	size_t right = 0;

	for (size_t i = 0; i < 2 * N; i++) {
		size_t top = rand_bits(32, i) % (SIDE - 5), left = rand_bits(33, i) % (SIDE - 5);

		want[i] = (real)(rand_bits(34, i) % 2);
		for (size_t r = 0; r < 5; r++)
			for (size_t k = 0; k < 5; k++)
				x[i * PIXELS + (top + r) * SIDE + left + k] += (real)(want[i] > 0 ? r == 2 || k == 2 :
					r % 4 == 0 || k % 4 == 0);
	}
	(void)learn(m, "bce_with_logits", N, x, want, y, 100);
	for (size_t i = 0; i < N; i++)
		right += (y[i] > 0) == (want[N + i] > 0);
	if (right * 100 < 95 * N)
		fail_msg("%zu of %d held-out pictures", right, N);
	free(x);
	free(y);
	model_free(m);
}

/* Of one row with n scores, by its definition. Returns the loss, and its gradient in dz. */
static long double defined(const char *loss, size_t n, const real *z, const real *want, int32_t label, long double *dz)
{
	long double sum = 0, top = z[0], out = 0;
	bool classes = !strcmp(loss, "cross_entropy") || !strcmp(loss, "parts");

	for (size_t i = 1; i < n; i++)
		top = fmaxl(top, z[i]);
	for (size_t i = 0; i < n; i++)
		sum += expl(z[i] - top);
	for (size_t i = 0; i < n; i++)
		if (classes) {
			dz[i] = expl(z[i] - top) / sum - ((int32_t)i == label);
		} else if (!strcmp(loss, "mse")) {
			dz[i] = 2 * ((long double)z[i] - want[i]) / (long double)n;
			out += ((long double)z[i] - want[i]) * ((long double)z[i] - want[i]) / (long double)n;
		} else {
			dz[i] = (1 / (1 + expl(-(long double)z[i])) - want[i]) / (long double)n;
			out += (log1pl(expl(-fabsl(z[i]))) + fmaxl(z[i], 0) - (long double)z[i] * want[i]) / (long double)n;
		}
	return classes ? top + logl(sum) - z[label] : out;
}

/* To 1e-12, a thousand rows of each. (PyTorch's own values stand beside, with twelve digits: test_kernels_losses,
 * test_kernels_model.) */
static void losses_are_their_definitions(void **state)
{
	enum { ROWS = 1000, N = 6 };
	real *z = noise(41, 6, ROWS * N), *want = noise(42, 1, ROWS * N), *dz = reals(N);
	struct par par = par_serial(CPU_PLAIN, NULL);

	for (int l = 0; loss_at(l); l++)
		for (size_t r = 0; r < ROWS; r++) {
			const struct loss_ops *o = loss_at(l);
			int32_t label = (int32_t)(rand_bits(43, r) % N);
			long double d[N], loss;
			real target[N];
			double got;

			for (size_t i = 0; i < N; i++)
				target[i] = !strcmp(o->name, "mse") ? want[r * N + i] : fabs(want[r * N + i]);
			loss = defined(o->name, N, z + r * N, target, label, d);
			got = loss_run(&par, o, 1, N, z + r * N, o->target == TARGET_CLASS ? (const void *)&label : target, 1, dz,
				NULL);
			if (!(fabsl(got - loss) <= 1e-12L * (1 + fabsl(loss))))
				fail_msg("%s: %.17g, by its definition %.17Lg", o->name, got, loss);
			for (size_t i = 0; i < N; i++)
				if (!(fabsl(dz[i] - d[i]) <= 1e-12L))
					fail_msg("%s: dz[%zu] is %.17g, by its definition %.17Lg", o->name, i, dz[i], d[i]);
		}
	free(z);
	free(want);
	free(dz);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fifty_shapes_of_each),
		cmocka_unit_test(linear_layers_are_one),
		cmocka_unit_test(xor_is_learned),
		cmocka_unit_test(two_classes_of_pictures),
		cmocka_unit_test(losses_are_their_definitions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
