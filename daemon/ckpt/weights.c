/* Weights that other programs have saved: found by name, converted to F32. */
#include "ckpt/int.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/mem.h"

#define PIECE 65536                     /* values converted at a time */

/* How the file calls what we call x.y.z. */
enum naming { NAMED_ALIKE, NAMED_SHORT /* y.z */, NAMED_MODEL /* model.x.y.z */, NAMED_MODULE /* module.x.y.z */,
	NAMINGS };

static void name_as(enum naming how, const char *ours, char *ret, size_t cap)
{
	const char *dot = strchr(ours, '.');

	(void)snprintf(ret, cap, "%s%s", how == NAMED_MODEL ? "model." : how == NAMED_MODULE ? "module." : "",
		how == NAMED_SHORT && dot ? dot + 1 : ours);
}

/* The naming under which most are there. */
static enum naming naming_of(const json_t *index, const struct ckpt_tensor *v, size_t n)
{
	enum naming best = NAMED_ALIKE;
	size_t most = 0;

	for (enum naming how = 0; how < NAMINGS; how++) {
		size_t found = 0;

		for (size_t i = 0; i < n; i++) {
			char name[CKPT_NAME + 16];

			name_as(how, v[i].name, name, sizeof name);
			found += json_object_get(index, name) != NULL;
		}
		if (found > most) {
			most = found;
			best = how;
		}
	}
	return best;
}

static float half(uint16_t h)
{
	uint32_t sign = (uint32_t)(h >> 15) << 31, exponent = h >> 10 & 31, fraction = h & 1023, bits;
	float f;

	if (exponent == 0) {                    /* zero or subnormal: fraction times 2 to the -24 */
		f = (float)fraction * 0x1p-24f;
		return sign ? -f : f;
	}
	bits = sign | (exponent == 31 ? 255u << 23 : (exponent + 112) << 23) | fraction << 13;
	memcpy(&f, &bits, sizeof f);
	return f;
}

static float brain(uint16_t b)
{
	uint32_t bits = (uint32_t)b << 16;
	float f;

	memcpy(&f, &bits, sizeof f);
	return f;
}

static void convert(enum ckpt_dtype from, const void *p, size_t n, float *ret)
{
	for (size_t i = 0; i < n; i++) {
		uint16_t h = 0;
		double d = 0;

		if (from == CKPT_F64)
			memcpy(&d, (const char *)p + i * 8, 8);
		else
			memcpy(&h, (const char *)p + i * 2, 2);
		ret[i] = from == CKPT_F64 ? (float)d : from == CKPT_F16 ? half(h) : brain(h);
	}
}

static int read_tensor(struct files *f, int fd, const struct ckpt_head *h, const struct ckpt_tensor *t, float *to,
	struct err *e)
{
	size_t unit = t->dtype == CKPT_F64 ? 8 : t->dtype == CKPT_F32 ? 4 : 2, count = t->bytes / unit;
	char *scratch = xmalloc(PIECE * unit);
	int rc = 0;

	for (size_t at = 0; at < count && rc == 0;) {
		size_t n = count - at < PIECE ? count - at : PIECE;
		void *p = t->dtype == CKPT_F32 ? (void *)(to + at) : scratch;
		int64_t got = f->pread(f, fd, p, n * unit, h->data_at + t->at + at * unit, e);

		if (got < 0)
			rc = -1;
		else if ((size_t)got != n * unit)
			rc = err_set(e, ERR_CORRUPT, "tensor %s: the file ends in it", t->name);
		else if (t->dtype != CKPT_F32)
			convert(t->dtype, scratch, n, to + at);
		at += n;
	}
	free(scratch);
	return rc;
}

static void shape_of(const struct ckpt_tensor *t, char *ret, size_t cap)
{
	size_t at = 0;

	*ret = 0;
	for (unsigned i = 0; i < t->ndim && at + 24 < cap; i++)
		at += (size_t)snprintf(ret + at, cap - at, "%s%" PRIu64, i ? " x " : "", t->shape[i]);
	if (!t->ndim)
		(void)snprintf(ret, cap, "a single number");
}

static int fits(const struct ckpt_tensor *want, const struct ckpt_tensor *have, struct err *e)
{
	char a[200], b[200];

	if (have->dtype > CKPT_BF16)
		return err_set(e, ERR_MISMATCH, "tensor %s is %s; weights are F32, F64, F16 or BF16", have->name,
			ckpt_dtype_name(have->dtype));
	if (want->ndim == have->ndim && memcmp(want->shape, have->shape, want->ndim * sizeof *want->shape) == 0)
		return 0;
	shape_of(want, a, sizeof a);
	shape_of(have, b, sizeof b);
	return err_set(e, ERR_MISMATCH, "tensor %s is %s in the file and %s in the model", have->name, b, a);
}

static int read_named(struct files *f, int fd, const struct ckpt_head *h, const json_t *index,
	const struct ckpt_tensor *v,
	size_t n, struct err *e)
{
	enum naming how = naming_of(index, v, n);

	for (size_t i = 0; i < n; i++) {
		char name[CKPT_NAME + 16];
		const json_t *at;

		name_as(how, v[i].name, name, sizeof name);
		at = json_object_get(index, name);
		if (!at)
			return err_set(e, ERR_NOT_FOUND, "tensor %s is not in the file, which has %zu, such as %s", name, h->n,
				h->n ? h->v[0].name : "none");
		const struct ckpt_tensor *t = &h->v[json_integer_value(at)];
		if (fits(&v[i], t, e) < 0 || read_tensor(f, fd, h, t, v[i].data, e) < 0)
			return -1;
	}
	return 0;
}

int ckpt_read_weights(struct files *f, const char *path, const struct ckpt_tensor *v, size_t n, struct err *e)
{
	struct ckpt_head h = { 0 };
	json_t *index = json_object();
	uint64_t bytes;
	int fd = ckpt_open_read(f, path, &bytes, e), rc = -1;

	if (fd >= 0) {
		rc = ckpt_head_of(&h, f, fd, bytes, e);
		for (size_t i = 0; i < h.n && rc == 0; i++)
			json_object_set_new(index, h.v[i].name, json_integer((json_int_t)i));
		if (rc == 0)
			rc = read_named(f, fd, &h, index, v, n, e);
		f->close(f, fd, NULL);
	}
	json_decref(index);
	ckpt_head_done(&h);
	return rc < 0 ? err_wrap(e, "%s", path) : 0;
}
