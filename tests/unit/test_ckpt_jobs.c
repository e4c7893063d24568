/* Checkpoints as jobs of the disk lane: a kill at any call leaves the last whole file; retention, free space, the way
 * back to an older file, and what is set aside instead of deleted. */
#include "tests/unit/ckpt_kit.h"

struct end { struct ckpt_result r; int times; };

static void ended(void *arg, const struct ckpt_result *r)
{
	struct end *x = arg;

	x->r = *r;
	x->r.meta = NULL;
	x->times++;
}

static struct ckpt_result save(struct world *w, const struct model *m, uint64_t epoch, unsigned keep, uint64_t floor)
{
	struct end x = { 0 };
	struct ckpt_save o = { .dir = path_of(w, "runs/r1"), .epoch = epoch, .v = m->v, .n = 4, .keep = keep,
		.free_min_bytes = floor };

	ckpt_save(&w->env, &o, ended, &x);
	assert_int_equal(x.times, 0);
	world_turn(w, 0);
	assert_int_equal(x.times, 1);
	return x.r;
}

static struct ckpt_result save_after_fork(struct world *w, const struct model *m, uint64_t epoch, uint64_t lost_from)
{
	struct end x = { 0 };

	ckpt_save(&w->env, &(struct ckpt_save){ .dir = path_of(w, "runs/r1"), .epoch = epoch, .v = m->v, .n = 4,
		.lost_from = lost_from }, ended, &x);
	world_turn(w, 0);
	return x.r;
}

static struct ckpt_result load_without(struct world *w, struct model *m, uint64_t reject)
{
	struct end x = { 0 };

	model_init(m, 0);
	ckpt_load(&w->env, path_of(w, "runs/r1"), m->v, 4, reject, ended, &x);
	world_turn(w, 0);
	assert_int_equal(x.times, 1);
	return x.r;
}

static struct ckpt_result load(struct world *w, struct model *m)
{
	return load_without(w, m, CKPT_NONE);
}

static bool there(struct world *w, const char *name)
{
	char path[256];

	snprintf(path, sizeof path, "%s/%s", path_of(w, "runs/r1"), name);
	return access(path, F_OK) == 0;
}

/* One that must stay does, and counts among those that do; of later epochs than it none is older. */
static void one_is_held(void **state)
{
	struct world *w = *state;
	struct model a;
	struct end x = { 0 };
	uint64_t epochs[16];
	struct err e;

	for (uint64_t k = 1; k <= 6; k++) {
		model_init(&a, (int)k);
		ckpt_save(&w->env, &(struct ckpt_save){ .dir = path_of(w, "runs/r1"), .epoch = k * 10, .v = a.v, .n = 4,
			.keep = 3, .hold = k > 2 ? 20 : 0 }, ended, &x);
		world_turn(w, 0);
		assert_int_equal(x.r.error.code, ERR_NONE);
	}
	assert_int_equal(ckpt_list(&w->files, path_of(w, "runs/r1"), epochs, 16, &e), 3);
	assert_int_equal(epochs[0], 60);
	assert_int_equal(epochs[1], 50);
	assert_int_equal(epochs[2], 20);
	(void)save(w, &a, 70, 1, 0);
	assert_int_equal(ckpt_list(&w->files, path_of(w, "runs/r1"), epochs, 16, &e), 1);
	ckpt_save(&w->env, &(struct ckpt_save){ .dir = path_of(w, "runs/r1"), .epoch = 80, .v = a.v, .n = 4, .keep = 1,
		.hold = 70 }, ended, &x);
	world_turn(w, 0);
	assert_int_equal(ckpt_list(&w->files, path_of(w, "runs/r1"), epochs, 16, &e), 2);
}

struct looked { size_t n; uint64_t epoch[4]; char run[16]; };

static void looked(void *arg, const struct ckpt_seen *v, size_t n)
{
	struct looked *x = arg;

	x->n = n;
	for (size_t i = 0; i < n && i < 4; i++)
		x->epoch[i] = v[i].epoch;
	snprintf(x->run, sizeof x->run, "%s", n ? json_string_value(json_object_get(v[0].meta, "epoch")) : "");
}

/* Headers alone, newest first; what cannot be read is left out. */
static void headers_are_seen(void **state)
{
	struct world *w = *state;
	struct model a;
	struct looked x = { 0 };
	char path[256];

	for (uint64_t k = 1; k <= 3; k++) {
		model_init(&a, (int)k);
		(void)save(w, &a, k * 10, 0, 0);
	}
	ckpt_path(path_of(w, "runs/r1"), 20, path, sizeof path);
	assert_int_equal(truncate(path, 5), 0);
	ckpt_look(&w->env, path_of(w, "runs/r1"), 4, looked, &x);
	world_turn(w, 0);
	assert_int_equal(x.n, 2);
	assert_int_equal(x.epoch[0], 30);
	assert_int_equal(x.epoch[1], 10);
	assert_string_equal(x.run, "30");
}

static void the_newest_stay(void **state)
{
	struct world *w = *state;
	struct model a, b;
	struct ckpt_result r;
	uint64_t epochs[16];
	struct err e;

	r = load(w, &b);
	assert_err(r.error, ERR_NOT_FOUND, "no checkpoint");
	for (uint64_t k = 1; k <= 6; k++) {
		model_init(&a, (int)k);
		r = save(w, &a, k * 10, 0, 0);
		assert_int_equal(r.error.code, ERR_NONE);
		assert_int_equal(r.removed, k > 3);
	}
	assert_int_equal(ckpt_list(&w->files, path_of(w, "runs/r1"), epochs, 16, &e), 3);
	assert_int_equal(epochs[0], 60);
	assert_int_equal(epochs[2], 40);
	r = load(w, &b);
	assert_int_equal(r.error.code, ERR_NONE);
	assert_int_equal(r.epoch, 60);
	assert_true(same(&a, &b));
	/* A fork was lost: later ones belong to a history that was given up. */
	model_init(&a, 9);
	r = save(w, &a, 45, 2, 0);
	assert_int_equal(r.removed, 0);
	assert_int_equal(r.aside, 2);
	assert_int_equal(ckpt_list(&w->files, path_of(w, "runs/r1"), epochs, 16, &e), 2);
	assert_int_equal(epochs[0], 45);
	assert_int_equal(epochs[1], 40);
	assert_true(there(w, "epoch-0000000050.safetensors.aside"));
	/* From 42 on nothing was of this history; what was set aside before stays. */
	save(w, &a, 50, 2, 0);
	r = save_after_fork(w, &a, 48, 42);
	assert_int_equal(r.aside, 2);
	assert_true(there(w, "epoch-0000000045.safetensors.aside"));
	assert_true(there(w, "epoch-0000000050.safetensors.aside"));
	assert_true(there(w, "epoch-0000000050.safetensors.aside2"));
	assert_int_equal(ckpt_list(&w->files, path_of(w, "runs/r1"), epochs, 16, &e), 1);
	assert_int_equal(epochs[0], 48);
}

/* It is being read, and stays until it is not. */
static void one_that_is_lent_stays(void **state)
{
	struct world *w = *state;
	struct model a;
	struct end x = { 0 };

	model_init(&a, 1);
	for (uint64_t k = 1; k <= 6; k++) {
		ckpt_save(&w->env, &(struct ckpt_save){ .dir = path_of(w, "runs/r1"), .epoch = k, .v = a.v, .n = 4, .keep = 2,
			.lent = k < 6 ? 2 : 0 }, ended, &x);
		world_turn(w, 0);
		assert_int_equal(x.r.error.code, ERR_NONE);
		assert_int_equal(there(w, "epoch-0000000002.safetensors"), k >= 2 && k < 6);
		assert_false(k > 2 && there(w, "epoch-0000000001.safetensors"));
	}
}

/* It may be a good one: no older one is taken for it, and it stays where it is. */
static void one_that_cannot_be_read_is_no_corrupted_one(void **state)
{
	struct world *w = *state;
	struct model a, b;
	struct ckpt_result r;
	uint64_t epochs[4];
	struct err e;
	char path[256];

	for (int k = 1; k <= 2; k++) {
		model_init(&a, k);
		save(w, &a, (uint64_t)k, 0, 0);
	}
	ckpt_path(path_of(w, "runs/r1"), 3, path, sizeof path);
	assert_int_equal(mkdir(path, 0750), 0);
	r = load(w, &b);
	assert_err(r.error, ERR_IO, "0000000003");
	assert_int_equal(r.skipped, 0);
	assert_int_equal(ckpt_list(&w->files, path_of(w, "runs/r1"), epochs, 4, &e), 3);
	assert_int_equal(rmdir(path), 0);
	/* What is read and of no use after all: the next one. */
	r = load_without(w, &b, 2);
	assert_int_equal(r.error.code, ERR_NONE);
	assert_int_equal(r.epoch, 1);
	assert_true(there(w, "epoch-0000000002.safetensors.corrupt"));
	r = load_without(w, &b, 2);             /* it has gone: nothing to set aside */
	assert_int_equal(r.error.code, ERR_NONE);
}

static void a_corrupted_one_falls_back(void **state)
{
	struct world *w = *state;
	struct model a, b;
	struct ckpt_result r;
	struct err e;
	struct buf file;
	uint64_t epochs[4];
	char path[256];

	for (int k = 1; k <= 3; k++) {
		model_init(&a, k);
		save(w, &a, (uint64_t)k, 0, 0);
	}
	ckpt_path(path_of(w, "runs/r1"), 3, path, sizeof path);
	file = slurp(path);
	file.p[file.len - 5] ^= 1;
	spill(path, file.p, file.len);
	buf_free(&file);
	ckpt_path(path_of(w, "runs/r1"), 2, path, sizeof path);
	spill(path, "short", 5);
	r = load(w, &b);
	assert_int_equal(r.error.code, ERR_NONE);
	assert_int_equal(r.epoch, 1);
	assert_int_equal(r.skipped, 2);
	assert_err(r.skip_error, ERR_CORRUPT, "hash");
	assert_non_null(strstr(r.skip_path, "0000000003"));
	model_init(&a, 1);
	assert_true(same(&a, &b));
	assert_int_equal(ckpt_list(&w->files, path_of(w, "runs/r1"), epochs, 4, &e), 1);
	snprintf(path, sizeof path, "%s/epoch-0000000003.safetensors.corrupt", path_of(w, "runs/r1"));
	assert_int_equal(access(path, F_OK), 0);
}

static void another_model_does_not_fall_back(void **state)
{
	struct world *w = *state;
	struct model a, b;
	struct end x = { 0 };
	struct err e;
	uint64_t one = 1, epochs[4];

	model_init(&a, 1);
	save(w, &a, 1, 0, 0);
	model_init(&b, 0);
	ckpt_tensor(&b.v[0], "0.weight", CKPT_F32, 1, &one, b.w, &e);
	ckpt_load(&w->env, path_of(w, "runs/r1"), b.v, 4, CKPT_NONE, ended, &x);
	world_turn(w, 0);
	assert_err(x.r.error, ERR_MISMATCH, "0.weight");
	assert_int_equal(ckpt_list(&w->files, path_of(w, "runs/r1"), epochs, 4, &e), 1);
}

static void a_full_disk_is_refused_before_writing(void **state)
{
	struct world *w = *state;
	struct model a, b;
	struct ckpt_result r;

	model_init(&a, 1);
	save(w, &a, 1, 0, 0);
	w->free_bytes = 1 << 20;
	r = save(w, &a, 2, 0, 1 << 20);
	assert_err(r.error, ERR_FULL, "checkpoint.free_min");
	r = save(w, &a, 2, 0, 1 << 18);
	assert_int_equal(r.error.code, ERR_NONE);
	w->free_bytes = 10;
	r = save(w, &a, 3, 0, 0);
	assert_err(r.error, ERR_FULL, "training goes on");
	assert_int_equal(load(w, &b).epoch, 2);
}

/* Each call in turn fails, once as an error in a process that lives on and once as the process's end. */
static void a_kill_anywhere_leaves_the_last_whole_one(void **state)
{
	struct world *w = *state;
	struct model old, new, b;
	struct ckpt_result r;
	bool done = false;

	model_init(&old, 1);
	model_init(&new, 2);
	save(w, &old, 1, 0, 0);
	for (int at = 1; !done; at++)
		for (int dead = 0; dead < 2; dead++) {
			w->calls = 0;
			w->fail_at = at;
			w->fail_code = dead ? ERR_IO : ERR_FULL;
			w->dead = dead;
			r = save(w, &new, 2, 0, 0);
			done = r.error.code == ERR_NONE;
			w->fail_at = 0;
			w->dead = false;
			if (!done && !dead)
				assert_err(r.error, ERR_FULL, "injected");
			r = load(w, &b);
			assert_int_equal(r.error.code, ERR_NONE);
			assert_int_equal(r.skipped, 0);
			assert_true(same(&b, r.epoch == 2 ? &new : &old));
			assert_int_equal(r.epoch, done ? 2 : 1);
		}
	/* What a kill left behind goes with the next save. */
	save(w, &new, 3, 0, 0);
	assert_int_not_equal(access(path_of(w, "runs/r1/epoch-0000000002.safetensors.tmp"), F_OK), 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(one_that_is_lent_stays), T(one_is_held), T(headers_are_seen), T(the_newest_stay),
		T(a_corrupted_one_falls_back),
		T(one_that_cannot_be_read_is_no_corrupted_one),
		T(another_model_does_not_fall_back), T(a_full_disk_is_refused_before_writing),
		T(a_kill_anywhere_leaves_the_last_whole_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
