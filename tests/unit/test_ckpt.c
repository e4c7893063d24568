/* Checkpoints as files: what is written reads back bit by bit; every truncation, every flipped byte and every lie of a
 * header is refused with its place. As jobs: test_ckpt_jobs. */
#include <math.h>
#include "common/rng.h"
#include "tests/unit/ckpt_kit.h"

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

/* Written in pieces as they come it is the same file; and without an end it is none. */
static void pieces_of_any_size_make_the_same_file(void **state)
{
	struct world *w = *state;
	struct model m;
	struct ckpt_out *o;
	struct buf want, have;
	struct err e;
	uint64_t bytes;
	json_t *meta = json_pack("{s:s}", "run", "x");

	model_init(&m, 3);
	assert_int_equal(ckpt_write(&w->files, path_of(w, "a"), m.v, 4, meta, NULL, NULL, &e), 0);
	want = slurp(path_of(w, "a"));
	for (size_t piece = 1; piece < 60; piece += 7) {
		o = ckpt_out_new(&w->files, path_of(w, "b"), m.v, 4, meta, &e);
		assert_non_null(o);
		for (int i = 0; i < 4; i++)
			for (size_t at = 0; at < m.v[i].bytes; at += piece) {
				size_t n = m.v[i].bytes - at < piece ? m.v[i].bytes - at : piece;

				assert_int_equal(ckpt_out_put(o, (char *)m.v[i].data + at, n, &e), 0);
			}
		assert_int_equal(ckpt_out_end(o, &bytes, NULL, &e), 0);
		have = slurp(path_of(w, "b"));
		assert_int_equal(bytes, want.len);
		assert_int_equal(have.len, want.len);
		assert_memory_equal(have.p, want.p, want.len);
		buf_free(&have);
	}
	o = ckpt_out_new(&w->files, path_of(w, "c"), m.v, 4, meta, &e);
	assert_int_equal(ckpt_out_put(o, m.w, sizeof m.w, &e), 0);
	ckpt_out_drop(o);
	assert_int_equal(access(path_of(w, "c"), F_OK), -1);
	assert_int_equal(access(path_of(w, "c.tmp"), F_OK), -1);
	buf_free(&want);
	json_decref(meta);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(a_file_reads_back), T(another_model_is_refused), T(every_truncation_is_refused),
		T(every_flipped_byte_is_seen), cmocka_unit_test(lying_headers_are_refused), T(large_tensors_cross_pieces),
		T(pieces_of_any_size_make_the_same_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
