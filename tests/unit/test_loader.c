/* Prefetching: the same bytes for any number of workers; a new grant takes away what is not in it. */
#include "data_kit.h"

struct reader { struct loader *l; uint8_t *bytes; size_t n; uint64_t samples, back; struct rng rng; bool gone; };

static void take(void *arg)
{
	struct reader *r = arg;
	struct batch *b;
	struct err e;

	while ((b = loader_next(r->l, &e))) {
		if (r->back && rng_below(&r->rng, 3) == 0) {    /* an interrupt: it comes again */
			r->back--;
			loader_back(r->l, b);
			continue;
		}
		memcpy(r->bytes + r->n, b->x, b->n * 16 * sizeof(real));
		r->n += b->n * 16 * sizeof(real);
		r->samples += b->n;
		loader_done(r->l, b);
	}
	assert_int_equal(e.code, ERR_NONE);
}

static bool taken(struct sim *s, void *arg) { return ((struct reader *)arg)->samples == 101; }
static void gone(void *arg) { ((struct reader *)arg)->gone = true; }
static bool is_gone(struct sim *s, void *arg) { return ((struct reader *)arg)->gone; }

#define PREPARED "{\"type\":\"normalize\",\"mean\":9,\"std\":3}"
#define CHANCE "{\"type\":\"shift\",\"pixels\":2},{\"type\":\"flip\"}"

/* kept: with prepared data in a file, which is made meanwhile. */
static void read_all(uint32_t workers, uint32_t depth, uint64_t back, bool kept, struct reader *r)
{
	struct world w;
	struct spec *s = spec(kept ? "\"local\":{\"cache\":\"c\"}," : "", kept ? ",\"steps\":[" PREPARED "," CHANCE "],"
		"\"materialize_after\":1" : ",\"steps\":[" PREPARED "," CHANCE "]");
	struct ranges g = { 0 };
	struct data *d;
	struct err e;

	world_open(&w);
	put_set(&w, "train-images-idx3-ubyte", "train-labels-idx1-ubyte", 30, 2);
	d = opened(&w, s);
	*r = (struct reader){ .bytes = malloc(101 * 16 * sizeof(real)), .back = back };
	rng_seed(&r->rng, 1);
	r->l = loader_new(w.env, d, 7, depth, workers, take, r, &e);
	ranges_add(&g, 0, 60);
	loader_grant(r->l, &g);
	ranges_add(&g, 80, 121);                        /* more of it, before anything was taken */
	loader_grant(r->l, &g);
	take(r);
	assert_true(sim_run_until(w.sim, taken, r, 1000000));
	if (kept)
		sim_run_for(w.sim, 1000000);
	assert_false(data_cache_wanted(d));
	assert_int_equal(loader_left(r->l), 0);
	loader_free(r->l, gone, r);
	assert_true(r->gone || sim_run_until(w.sim, is_gone, r, 1000000));
	ranges_free(&g);
	data_free(d);
	spec_free(s);
	sim_free(w.sim);
}

static void test_workers(void **state)
{
	static const uint32_t workers[] = { 1, 2, 4 };
	struct reader one, r;

	read_all(1, 1, 0, false, &one);
	for (int i = 0; i < 3; i++)
		for (uint32_t depth = 1; depth < 6; depth += 2)
			for (uint64_t back = 0; back < 9; back += 4) {
				read_all(workers[i], depth, back, (back + depth) % 3 == 2, &r);
				assert_int_equal(r.n, one.n);
				assert_memory_equal(r.bytes, one.bytes, one.n);
				free(r.bytes);
			}
	free(one.bytes);
}

/* A new grant takes away what is not in it, and nothing comes twice. */
static void test_regrant(void **state)
{
	struct world w;
	struct spec *s = spec("", "");
	struct ranges g = { 0 }, seen = { 0 };
	struct reader r = { 0 };
	struct data *d;
	struct batch *b;
	struct err e;

	world_open(&w);
	put_set(&w, "train-images-idx3-ubyte", "train-labels-idx1-ubyte", 30, 2);
	d = opened(&w, s);
	r.l = loader_new(w.env, d, 4, 3, 2, gone, &r, &e);
	ranges_add(&g, 0, 40);
	loader_grant(r.l, &g);
	sim_run_for(w.sim, 10000);
	b = loader_next(r.l, &e);
	assert_non_null(b);
	assert_int_equal(b->position[0], 0);
	ranges_clear(&g);
	ranges_add(&g, 8, 20);                          /* 4..8 is lost, 8..12 is ready and stays */
	loader_grant(r.l, &g);
	assert_int_equal(loader_left(r.l), 12);
	loader_done(r.l, b);
	for (int i = 0; i < 3; i++) {
		sim_run_for(w.sim, 10000);
		b = loader_next(r.l, &e);
		assert_non_null(b);
		for (uint32_t k = 0; k < b->n; k++) {
			assert_false(ranges_has(&seen, b->position[k]));
			ranges_add(&seen, b->position[k], b->position[k] + 1);
		}
		loader_done(r.l, b);
	}
	assert_int_equal(ranges_count(&seen), 12);
	assert_true(ranges_inside(&seen, &g));
	assert_null(loader_next(r.l, &e));
	loader_free(r.l, NULL, NULL);
	ranges_free(&g);
	ranges_free(&seen);
	data_free(d);
	spec_free(s);
	sim_free(w.sim);
}

/* A09: three peers with 1, 2 and 4 workers and other batches share two data epochs, dealt in ranges of chance: each
 * sample comes once per epoch over all of them, and is the same bytes whoever had it. */
enum { SAMPLES = 30, DEALT = 2 * SAMPLES };
struct peer { struct loader *l; real *x; bool *seen; uint64_t total; };

static void peer_take(void *arg)
{
	struct peer *p = arg;
	struct batch *b;
	struct err e;

	while ((b = loader_next(p->l, &e))) {
		for (uint32_t i = 0; i < b->n; i++) {
			assert_true(b->position[i] < DEALT && !p->seen[b->position[i]]);
			p->seen[b->position[i]] = true;
			memcpy(p->x + b->position[i] * 16, b->x + i * 16, 16 * sizeof(real));
		}
		p->total += b->n;
		loader_done(p->l, b);
	}
	assert_int_equal(e.code, ERR_NONE);
}

static void test_peers(void **state)
{
	struct world w;
	struct spec *s = spec("", ",\"steps\":[" PREPARED "," CHANCE "]");
	struct peer peer[3];
	struct ranges grant[3] = { { 0 } };
	real *x = calloc(DEALT * 16, sizeof(*x)), *alone = calloc(DEALT * 16, sizeof(*x));
	bool seen[DEALT] = { false };
	unsigned times[2][SAMPLES] = { { 0 } };
	uint64_t position[DEALT];
	int32_t y[DEALT];
	struct data *d[3];
	struct rng r;
	struct err e;

	world_open(&w);
	put_set(&w, "train-images-idx3-ubyte", "train-labels-idx1-ubyte", SAMPLES, 2);
	rng_seed(&r, 9);
	for (uint64_t at = 0, n; at < DEALT; at += n) {
		n = 1 + rng_below(&r, DEALT - at < 7 ? DEALT - at : 7);
		ranges_add(&grant[rng_below(&r, 3)], at, at + n);
	}
	for (uint32_t i = 0; i < 3; i++) {
		d[i] = opened(&w, s);
		peer[i] = (struct peer){ .x = x, .seen = seen };
		peer[i].l = loader_new(w.env, d[i], 3 + 2 * i, 1 + i, 1u << i, peer_take, &peer[i], &e);
		loader_grant(peer[i].l, &grant[i]);
		peer_take(&peer[i]);
	}
	sim_run_for(w.sim, 1000000);
	for (uint64_t i = 0; i < DEALT; i++) {
		assert_true(seen[i]);
		position[i] = i;
		times[i / SAMPLES][data_index(d[i % 3], i)]++;
	}
	for (int i = 0; i < SAMPLES; i++)
		assert_true(times[0][i] == 1 && times[1][i] == 1);
	assert_int_equal(peer[0].total + peer[1].total + peer[2].total, DEALT);
	assert_int_equal(data_read(d[1], DATA_TRAIN, position, DEALT, alone, y, &e), 0);
	assert_memory_equal(x, alone, DEALT * 16 * sizeof(*x));
	for (int i = 0; i < 3; i++) {
		loader_free(peer[i].l, NULL, NULL);
		ranges_free(&grant[i]);
		data_free(d[i]);
	}
	free(x);
	free(alone);
	spec_free(s);
	sim_free(w.sim);
}

/* A09: decoding takes 20 ms a batch and training 10: one worker gives 20 ms a step, all of it waiting for data but the
 * 10 that training takes; two workers give 10. */
struct trainee { struct world w; struct env env; struct env_ops ops; struct loader *l; struct timer done;
	struct batch *b; int steps; uint64_t begun_us; };

static void slow_work(struct env *env, struct job *j)
{
	struct trainee *t = container_of(env, struct trainee, env);

	j->cost_us = 20000;
	env_work(t->w.env, j);
}

static uint64_t outer_now(struct env *env) { return env_now(container_of(env, struct trainee, env)->w.env); }
static int outer_lane(struct env *env, const char *name)
{
	return env_lane(container_of(env, struct trainee, env)->w.env, name);
}

static void step_begin(void *arg)
{
	struct trainee *t = arg;
	struct err e;

	if (t->b)
		return;
	t->b = loader_next(t->l, &e);
	if (t->b)
		env_after(t->w.env, &t->done, 10000);
}

static void step_end(struct timer *tm)
{
	struct trainee *t = container_of(tm, struct trainee, done);

	loader_done(t->l, t->b);
	t->b = NULL;
	t->steps++;
	step_begin(t);
}

static bool forty(struct sim *s, void *arg) { return ((struct trainee *)arg)->steps == 40; }

static void set_flag(void *arg) { *(bool *)arg = true; }
static bool flag_set(struct sim *s, void *arg) { return *(bool *)arg; }

static void bottleneck(uint32_t workers, double *ret_ms, double *ret_wait_ms)
{
	struct trainee t = { .steps = 0 };
	bool gone = false;
	struct spec *s = spec("", "");
	struct ranges g = { 0 };
	struct sim_app app = { start, stop, &t };
	struct data *d;
	struct err e;

	t.w.sim = sim_new(3);
	(void)sim_node_add(t.w.sim, NULL, &app);
	t.w.env = sim_env(t.w.sim, 0);
	assert_int_equal(t.w.env->files->mkdir(t.w.env->files, "d", 0755, &e), 0);
	put_set(&t.w, "train-images-idx3-ubyte", "train-labels-idx1-ubyte", 300, 2);
	d = opened(&t.w, s);
	t.env = *t.w.env;
	t.ops = *t.w.env->ops;
	t.ops.work = slow_work;
	t.ops.now = outer_now;
	t.ops.lane = outer_lane;
	t.env.ops = &t.ops;
	t.done = (struct timer){ .fire = step_end, .name = "step" };
	t.l = loader_new(&t.env, d, 4, 4, workers, step_begin, &t, &e);
	ranges_add(&g, 0, 400);
	loader_grant(t.l, &g);
	t.begun_us = env_now(t.w.env);
	step_begin(&t);
	assert_true(sim_run_until(t.w.sim, forty, &t, 100000000));
	*ret_ms = (double)(env_now(t.w.env) - t.begun_us) / 40e3;
	*ret_wait_ms = (double)loader_wait_us(t.l) / 40e3;
	loader_free(t.l, set_flag, &gone);
	assert_true(sim_run_until(t.w.sim, flag_set, &gone, 1000000));  /* its jobs read the data */
	ranges_free(&g);
	data_free(d);
	spec_free(s);
	sim_free(t.w.sim);
}

static void test_bottleneck(void **state)
{
	double ms, wait;

	bottleneck(1, &ms, &wait);
	assert_true(ms > 19.5 && ms < 20.8);
	assert_true(wait > 9.5 && wait < 10.5);
	bottleneck(2, &ms, &wait);
	assert_true(ms > 9.9 && ms < 10.8);
	assert_true(wait < 0.8);
}

/* Samples of 16 numbers, a label and a position: 76 bytes. */
static void test_depth(void **state)
{
	struct world w;
	struct spec *s = spec("", "");
	struct data *d;

	world_open(&w);
	put_set(&w, "train-images-idx3-ubyte", "train-labels-idx1-ubyte", 30, 2);
	d = opened(&w, s);
	assert_int_equal(s->local.prefetch, 0);
	assert_int_equal(loader_depth(d, 64, 0, 1), 5);
	assert_int_equal(loader_depth(d, 140000, 0, 1), 4);     /* three of 10.6 MB, and the one in use */
	assert_int_equal(loader_depth(d, 1 << 20, 0, 1), 2);
	assert_int_equal(loader_depth(d, 1 << 20, 0, 3), 4);    /* each worker has one to make */
	assert_int_equal(loader_depth(d, 1 << 20, 7, 1), 8);    /* as asked */
	data_free(d);
	spec_free(s);
	sim_free(w.sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_workers), cmocka_unit_test(test_regrant),
		cmocka_unit_test(test_peers),
		cmocka_unit_test(test_bottleneck), cmocka_unit_test(test_depth) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
