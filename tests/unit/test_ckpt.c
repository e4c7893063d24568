/* Checkpoints: what is written reads back bit by bit; every truncation, every flipped byte and every lie of a header is
 * refused with its place; a kill at any call leaves the last whole file; retention, free space,
	the way back to an older
 * file. */
#include <math.h>
#include "ckpt.h"
#include "common/buf.h"
#include "common/rng.h"
#include "tests/unit/state_env.h"
#include "tests/unit/t.h"

struct model { float w[12]; double m[5]; float scalar; struct ckpt_tensor v[4]; float empty[1]; };

static void model_init(struct model *m, int fill)
{
	uint64_t w[] = { 3, 4 }, five = 5, none[] = { 2, 0 };
	struct err e;

	memset(m, 0, sizeof *m);
	for (int i = 0; i < 12 && fill; i++)
		m->w[i] = (float)(fill * 100 + i) * 0.1f;
	for (int i = 0; i < 5 && fill; i++)
		m->m[i] = fill + 1.0 / (i + 3);
	m->scalar = fill ? (float)fill : -1;
	assert_int_equal(ckpt_tensor(&m->v[0], "0.weight", CKPT_F32, 2, w, m->w, &e), 0);
	assert_int_equal(ckpt_tensor(&m->v[1], "adam.m", CKPT_F64, 1, &five, m->m, &e), 0);
	assert_int_equal(ckpt_tensor(&m->v[2], "step", CKPT_F32, 0, NULL, &m->scalar, &e), 0);
	assert_int_equal(ckpt_tensor(&m->v[3], "none", CKPT_F32, 2, none, m->empty, &e), 0);
}

static bool same(const struct model *a, const struct model *b)
{
	return memcmp(a->w, b->w, sizeof a->w) == 0 && memcmp(a->m, b->m, sizeof a->m) == 0 && a->scalar == b->scalar;
}

static char *path_of(struct world *w, const char *name)
{
	static char path[200];

	snprintf(path, sizeof path, "%s/%s", w->dir, name);
	return path;
}

static struct buf slurp(const char *path)
{
	struct buf b = { 0 };
	FILE *f = fopen(path, "rb");
	size_t n;

	assert_non_null(f);
	do {
		n = fread(buf_grow(&b, 4096), 1, 4096, f);
		b.len -= 4096 - n;
	} while (n > 0);
	fclose(f);
	return b;
}

static void spill(const char *path, const void *p, size_t n)
{
	FILE *f = fopen(path, "wb");

	assert_non_null(f);
	assert_int_equal(fwrite(p, 1, n, f), n);
	fclose(f);
}

static int setup(void **state)
{
	*state = world_new();
	return 0;
}

static int teardown(void **state)
{
	world_free_all(*state);
	return 0;
}

static void a_file_reads_back(void **state)
{
	struct world *w = *state;
	struct model a, b;
	struct ckpt_head h;
	struct err e = { 0 };
	json_t *meta = json_pack("{s:s, s:s}", "run", "r1", "prev", "abc"), *got = NULL;
	uint64_t bytes;
	uint8_t xxh[16];
	struct stat st;

	model_init(&a, 1);
	model_init(&b, 0);
	assert_int_equal(ckpt_write(&w->files, path_of(w, "x"), a.v, 4, meta, &bytes, xxh, &e), 0);
	assert_int_equal(stat(path_of(w, "x"), &st), 0);
	assert_int_equal(st.st_size, bytes);
	assert_int_not_equal(access(path_of(w, "x.tmp"), F_OK), 0);
	assert_int_equal(ckpt_read(&w->files, path_of(w, "x"), b.v, 4, &got, &e), 0);
	assert_true(same(&a, &b));
	assert_string_equal(json_string_value(json_object_get(got, "prev")), "abc");
	json_decref(got);
	json_decref(meta);
	assert_int_equal(ckpt_head_read(&h, &w->files, path_of(w, "x"), &e), 0);
	assert_int_equal(h.n, 4);
	assert_int_equal(h.data_at % 64, 0);
	assert_non_null(ckpt_find(&h, "adam.m"));
	assert_int_equal(ckpt_find(&h, "adam.m")->bytes, 40);
	assert_null(ckpt_find(&h, "adam.v"));
	ckpt_head_done(&h);
	/* In another order, some only. */
	model_init(&b, 0);
	b.v[0] = b.v[2];
	assert_int_equal(ckpt_read(&w->files, path_of(w, "x"), b.v, 2, NULL, &e), 0);
	assert_true(b.scalar == 1 && b.m[0] == a.m[0] && b.w[1] == 0);
}

static void another_model_is_refused(void **state)
{
	struct world *w = *state;
	struct model a, b;
	struct err e;
	uint64_t shape[] = { 4, 3 };

	model_init(&a, 1);
	model_init(&b, 0);
	assert_int_equal(ckpt_write(&w->files, path_of(w, "x"), a.v, 4, NULL, NULL, NULL, &e), 0);
	ckpt_tensor(&b.v[0], "0.weight", CKPT_F32, 2, shape, b.w, &e);
	assert_int_equal(ckpt_read(&w->files, path_of(w, "x"), b.v, 4, NULL, &e), -1);
	assert_err(e, ERR_MISMATCH, "F32[3,4]");
	assert_err(e, ERR_MISMATCH, "F32[4,3]");
	ckpt_tensor(&b.v[0], "0.bias", CKPT_F32, 2, shape, b.w, &e);
	assert_int_equal(ckpt_read(&w->files, path_of(w, "x"), b.v, 4, NULL, &e), -1);
	assert_err(e, ERR_NOT_FOUND, "0.bias");
	assert_int_equal(ckpt_read(&w->files, path_of(w, "y"), b.v, 4, NULL, &e), -1);
	assert_err(e, ERR_NOT_FOUND, "y");
	a.v[1] = a.v[0];
	assert_int_equal(ckpt_write(&w->files, path_of(w, "y"), a.v, 2, NULL, NULL, NULL, &e), -1);
	assert_err(e, ERR_INVALID, "two tensors are named 0.weight");
}

static void every_truncation_is_refused(void **state)
{
	struct world *w = *state;
	struct model a, b;
	struct err e;
	struct buf file;

	model_init(&a, 2);
	assert_int_equal(ckpt_write(&w->files, path_of(w, "x"), a.v, 4, NULL, NULL, NULL, &e), 0);
	file = slurp(path_of(w, "x"));
	for (size_t n = 0; n < file.len; n++) {
		model_init(&b, 0);
		spill(path_of(w, "cut"), file.p, n);
		assert_int_equal(ckpt_read(&w->files, path_of(w, "cut"), b.v, 4, NULL, &e), -1);
		assert_err(e, ERR_CORRUPT, "cut");
	}
	buf_u8(&file, 0);                       /* and a byte too many */
	spill(path_of(w, "cut"), file.p, file.len);
	assert_int_equal(ckpt_read(&w->files, path_of(w, "cut"), b.v, 4, NULL, &e), -1);
	assert_err(e, ERR_CORRUPT, "1 bytes follow");
	buf_free(&file);
}

static void every_flipped_byte_is_seen(void **state)
{
	struct world *w = *state;
	struct model a, b;
	struct err e;
	struct buf file;
	struct ckpt_head h;
	size_t data;

	model_init(&a, 3);
	assert_int_equal(ckpt_write(&w->files, path_of(w, "x"), a.v, 4, NULL, NULL, NULL, &e), 0);
	assert_int_equal(ckpt_head_read(&h, &w->files, path_of(w, "x"), &e), 0);
	data = h.data_at;
	ckpt_head_done(&h);
	file = slurp(path_of(w, "x"));
	for (size_t i = 0; i < file.len; i++) {
		int rc;

		file.p[i] ^= 0x10;
		model_init(&b, 0);
		spill(path_of(w, "flip"), file.p, file.len);
		rc = ckpt_read(&w->files, path_of(w, "flip"), b.v, 4, NULL, &e);
		file.p[i] ^= 0x10;
		if (rc == 0 && !same(&a, &b))
			fail_msg("byte %zu: wrong data was accepted", i);
		if (i >= data)
			assert_int_equal(rc, -1);
	}
	buf_free(&file);
}

struct lie { const char *json; enum err_code code; const char *says; };

static void lying_headers_are_refused(void **state)
{
	static const struct lie lies[] = {
		{ "[]", ERR_CORRUPT, "does not begin with {" },
		{ "{\"a\":1}", ERR_CORRUPT, "tensor a" },
		{ "{", ERR_CORRUPT, "header" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"a\":{}}", ERR_CORRUPT, "header" },
		{ "{\"a\":{\"dtype\":\"F128\",\"shape\":[4],\"data_offsets\":[0,8]}}", ERR_MISMATCH, "F128" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":1}}", ERR_CORRUPT, "tensor a" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}}", ERR_CORRUPT, "shape" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", ERR_CORRUPT, "shape[0]" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]}}", ERR_CORRUPT, "shape[0]" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,8]}}", ERR_CORRUPT,
			"at most 8" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,8]}}", ERR_CORRUPT,
			"addressed" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,16]}}", ERR_CORRUPT, "truncated or lies" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,9223372036854775807]}}", ERR_CORRUPT,
			"truncated or lies" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,8]}}", ERR_CORRUPT, "needs 4 bytes" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", ERR_CORRUPT, "[begin, end]" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]}}", ERR_CORRUPT, "[begin, end]" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", ERR_CORRUPT, "[begin, end]" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", ERR_CORRUPT, "hole" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", ERR_CORRUPT, "4 bytes follow" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
			"\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", ERR_CORRUPT, "overlap" },
		{ "{\"__metadata__\":{\"k\":1}}", ERR_CORRUPT, "__metadata__.k" },
		{ "{\"__metadata__\":[]}", ERR_CORRUPT, "__metadata__" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[[[2]]],\"data_offsets\":[0,8]}}", ERR_CORRUPT, "header" },
	};

	for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
		struct ckpt_head h;
		struct buf b = { 0 };
		struct err e = { 0 };

		buf_u64(&b, strlen(lies[i].json));
		buf_put(&b, lies[i].json, strlen(lies[i].json));
		memset(buf_grow(&b, 8), 0, 8);
		assert_int_equal(ckpt_head_parse(&h, b.p, b.len, b.len, &e), -1);
		assert_err(e, lies[i].code, lies[i].says);
		ckpt_head_done(&h);
		buf_free(&b);
	}
	for (uint64_t len = CKPT_HEADER_MAX; len; len = len == UINT64_MAX ? 0 : len > UINT64_MAX / 3 ? UINT64_MAX
		: len * 3) {
		struct ckpt_head h;
		struct buf b = { 0 };
		struct err e;

		buf_u64(&b, len);
		buf_put(&b, "{}", 2);
		assert_int_equal(ckpt_head_parse(&h, b.p, b.len, b.len, &e), -1);
		assert_int_equal(e.code, ERR_CORRUPT);
		ckpt_head_done(&h);
		buf_free(&b);
	}
}

/* --- jobs */

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

static struct ckpt_result load(struct world *w, struct model *m)
{
	struct end x = { 0 };

	model_init(m, 0);
	ckpt_load(&w->env, path_of(w, "runs/r1"), m->v, 4, ended, &x);
	world_turn(w, 0);
	assert_int_equal(x.times, 1);
	return x.r;
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
	assert_int_equal(r.removed, 2);
	assert_int_equal(ckpt_list(&w->files, path_of(w, "runs/r1"), epochs, 16, &e), 2);
	assert_int_equal(epochs[0], 45);
	assert_int_equal(epochs[1], 40);
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
	ckpt_load(&w->env, path_of(w, "runs/r1"), b.v, 4, ended, &x);
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

static void large_tensors_cross_pieces(void **state)
{
	struct world *w = *state;
	enum { N = 700001 };
	float *a = malloc(N * sizeof *a), *b = calloc(N, sizeof *b);
	uint64_t n = N;
	struct ckpt_tensor v;
	struct rng r;
	struct err e;

	rng_seed(&r, 5);
	for (size_t i = 0; i < N; i++)
		a[i] = (float)rng_unit(&r);
	ckpt_tensor(&v, "big", CKPT_F32, 1, &n, a, &e);
	assert_int_equal(ckpt_write(&w->files, path_of(w, "big"), &v, 1, NULL, NULL, NULL, &e), 0);
	v.data = b;
	assert_int_equal(ckpt_read(&w->files, path_of(w, "big"), &v, 1, NULL, &e), 0);
	assert_memory_equal(a, b, N * sizeof *a);
	free(a);
	free(b);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(a_file_reads_back), T(another_model_is_refused), T(every_truncation_is_refused),
			T(every_flipped_byte_is_seen),
		cmocka_unit_test(lying_headers_are_refused), T(the_newest_stay), T(a_corrupted_one_falls_back),
		T(another_model_does_not_fall_back), T(a_full_disk_is_refused_before_writing),
		T(a_kill_anywhere_leaves_the_last_whole_one), T(large_tensors_cross_pieces),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
