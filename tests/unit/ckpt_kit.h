/* What the tests of checkpoints share: a small model's tensors, files as bytes, a world with a folder of its own. */
#ifndef TESTS_UNIT_CKPT_KIT_H
#define TESTS_UNIT_CKPT_KIT_H
#include "ckpt/ckpt.h"
#include "common/buf.h"
#include "tests/unit/state_env.h"
#include "tests/unit/t.h"

struct model { float w[12]; double m[5]; float scalar; struct ckpt_tensor v[4]; float empty[1]; };

static inline void model_init(struct model *m, int fill)
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

static inline bool same(const struct model *a, const struct model *b)
{
	return memcmp(a->w, b->w, sizeof a->w) == 0 && memcmp(a->m, b->m, sizeof a->m) == 0 && a->scalar == b->scalar;
}

static inline char *path_of(struct world *w, const char *name)
{
	static char path[200];

	snprintf(path, sizeof path, "%s/%s", w->dir, name);
	return path;
}

static inline struct buf slurp(const char *path)
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

static inline void spill(const char *path, const void *p, size_t n)
{
	FILE *f = fopen(path, "wb");

	assert_non_null(f);
	assert_int_equal(fwrite(p, 1, n, f), n);
	fclose(f);
}

static inline int setup(void **state)
{
	*state = world_new();
	return 0;
}

static inline int teardown(void **state)
{
	world_free_all(*state);
	return 0;
}

#endif
