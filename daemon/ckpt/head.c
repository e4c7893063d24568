/* The header of a safetensors file, read strictly: nothing in it is believed before it fits the file. */
#include "ckpt/int.h"

#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "common/jrpc.h"
#include "common/mem.h"

static const struct { const char *name; size_t size; } dtypes[CKPT_DTYPES] = {
	[CKPT_F32] = { "F32", 4 }, [CKPT_F64] = { "F64", 8 }, [CKPT_F16] = { "F16", 2 }, [CKPT_BF16] = { "BF16", 2 },
	[CKPT_I64] = { "I64", 8 }, [CKPT_I32] = { "I32", 4 }, [CKPT_I16] = { "I16", 2 }, [CKPT_I8] = { "I8", 1 },
	[CKPT_U64] = { "U64", 8 }, [CKPT_U32] = { "U32", 4 }, [CKPT_U16] = { "U16", 2 }, [CKPT_U8] = { "U8", 1 },
	[CKPT_BOOL] = { "BOOL", 1 }, [CKPT_F8_E4M3] = { "F8_E4M3", 1 }, [CKPT_F8_E5M2] = { "F8_E5M2", 1 },
};

static size_t dtype_size(enum ckpt_dtype t)
{
	return dtypes[t].size;
}

const char *ckpt_dtype_name(enum ckpt_dtype t)
{
	return dtypes[t].name;
}

static int dtype_find(const char *name, enum ckpt_dtype *ret)
{
	for (int i = 0; i < CKPT_DTYPES; i++)
		if (strcmp(name, dtypes[i].name) == 0) {
			*ret = (enum ckpt_dtype)i;
			return 0;
		}
	return -1;
}

/* Product of the shape times the size; -1 when it does not fit into 63 bits. */
static int measure(struct ckpt_tensor *t)
{
	uint64_t n = dtype_size(t->dtype);

	for (unsigned i = 0; i < t->ndim; i++)
		if (__builtin_mul_overflow(n, t->shape[i], &n) || n > INT64_MAX)
			return -1;
	t->bytes = n;
	return 0;
}

int ckpt_tensor(struct ckpt_tensor *t, const char *name, enum ckpt_dtype dtype, unsigned ndim, const uint64_t *shape,
	void *data, struct err *e)
{
	size_t len = strlen(name);

	memset(t, 0, sizeof *t);
	if (len == 0 || len >= CKPT_NAME || strcmp(name, "__metadata__") == 0)
		return err_set(e, ERR_INVALID, "tensor name \"%.60s\": 1 to %d bytes, not __metadata__", name, CKPT_NAME - 1);
	if (ndim > CKPT_DIMS)
		return err_set(e, ERR_INVALID, "tensor %s: %u dimensions; at most %d", name, ndim, CKPT_DIMS);
	memcpy(t->name, name, len + 1);
	t->dtype = dtype;
	t->ndim = ndim;
	if (ndim)
		memcpy(t->shape, shape, ndim * sizeof *shape);
	t->data = data;
	if (measure(t) < 0)
		return err_set(e, ERR_INVALID, "tensor %s: its shape has more elements than can be addressed", name);
	return 0;
}

/* --- the header */

static int parse_dims(struct ckpt_tensor *t, const json_t *shape, struct err *e)
{
	if (!json_is_array(shape) || json_array_size(shape) > CKPT_DIMS)
		return err_set(e, ERR_CORRUPT, "tensor %s: shape must be a list of at most %d integers", t->name, CKPT_DIMS);
	t->ndim = (unsigned)json_array_size(shape);
	for (unsigned i = 0; i < t->ndim; i++) {
		const json_t *d = json_array_get(shape, i);

		if (!json_is_integer(d) || json_integer_value(d) < 0)
			return err_set(e, ERR_CORRUPT, "tensor %s: shape[%u] must be an integer, not negative", t->name, i);
		t->shape[i] = (uint64_t)json_integer_value(d);
	}
	if (measure(t) < 0)
		return err_set(e, ERR_CORRUPT, "tensor %s: its shape has more elements than can be addressed", t->name);
	return 0;
}

static int parse_tensor(struct ckpt_tensor *t, const char *name, const json_t *o, uint64_t data_bytes, struct err *e)
{
	static const char *const known[] = { "dtype", "shape", "data_offsets", NULL };
	const json_t *off, *a, *b;
	const char *dtype;
	uint64_t end;

	if (strlen(name) == 0 || strlen(name) >= CKPT_NAME)
		return err_set(e, ERR_CORRUPT, "tensor name \"%.40s...\": 1 to %d bytes", name, CKPT_NAME - 1);
	memcpy(t->name, name, strlen(name) + 1);
	if (!json_is_object(o) || json_only(o, known, name, e) < 0 || json_get_str(o, "dtype", &dtype, e) < 0)
		return err_set(e, ERR_CORRUPT, "tensor %s: expected {dtype, shape, data_offsets}", name);
	if (dtype_find(dtype, &t->dtype) < 0)
		return err_set(e, ERR_MISMATCH, "tensor %s: dtype %.16s is not known here", name, dtype);
	if (parse_dims(t, json_object_get(o, "shape"), e) < 0)
		return -1;
	off = json_object_get(o, "data_offsets");
	a = json_array_get(off, 0);
	b = json_array_get(off, 1);
	if (json_array_size(off) != 2 || !json_is_integer(a) || !json_is_integer(b) || json_integer_value(a) < 0 ||
		json_integer_value(b) < json_integer_value(a))
		return err_set(e, ERR_CORRUPT, "tensor %s: data_offsets must be [begin, end]", name);
	t->at = (uint64_t)json_integer_value(a);
	end = (uint64_t)json_integer_value(b);
	if (end > data_bytes)
		return err_set(e, ERR_CORRUPT, "tensor %s: ends at byte %" PRIu64 " of %" PRIu64 ": the file is truncated "
			"or lies",
			name, end, data_bytes);
	if (end - t->at != t->bytes)
		return err_set(e, ERR_CORRUPT, "tensor %s: its shape needs %" PRIu64 " bytes, its offsets give %" PRIu64, name,
			t->bytes, end - t->at);
	return 0;
}

static int by_offset(const void *a, const void *b)
{
	const struct ckpt_tensor *x = a, *y = b;

	if (x->at != y->at)
		return x->at < y->at ? -1 : 1;
	return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static int parse_meta(struct ckpt_head *h, json_t *meta, struct err *e)
{
	const char *key;
	json_t *v;

	if (!json_is_object(meta))
		return err_set(e, ERR_CORRUPT, "__metadata__ must be an object of strings");
	json_object_foreach(meta, key, v)
		if (!json_is_string(v))
			return err_set(e, ERR_CORRUPT, "__metadata__.%.60s must be a string", key);
	json_decref(h->meta);
	h->meta = json_incref(meta);
	return 0;
}

static int parse_all(struct ckpt_head *h, const json_t *root, struct err *e)
{
	uint64_t at = 0;
	const char *key;
	json_t *v;

	if (json_object_size(root) > CKPT_TENSORS)
		return err_set(e, ERR_CORRUPT, "header: %zu entries; at most %d", json_object_size(root), CKPT_TENSORS);
	h->v = xcalloc(json_object_size(root) + 1, sizeof *h->v);
	json_object_foreach((json_t *)root, key, v) {
		if (strcmp(key, "__metadata__") == 0) {
			if (parse_meta(h, v, e) < 0)
				return -1;
		} else if (parse_tensor(&h->v[h->n], key, v, h->data_bytes, e) < 0) {
			return -1;
		} else {
			h->n++;
		}
	}
	qsort(h->v, h->n, sizeof *h->v, by_offset);
	for (size_t i = 0; i < h->n; i++) {
		if (h->v[i].at != at)
			return err_set(e, ERR_CORRUPT, "tensor %s begins at byte %" PRIu64 ", the one before ends at %" PRIu64
				": %s", h->v[i].name, h->v[i].at, at, h->v[i].at < at ? "they overlap" : "there is a hole");
		at += h->v[i].bytes;
	}
	if (at != h->data_bytes)
		return err_set(e, ERR_CORRUPT, "%" PRIu64 " bytes follow the last tensor", h->data_bytes - at);
	return 0;
}

int ckpt_head_parse(struct ckpt_head *h, const void *p, size_t n, uint64_t file_bytes, struct err *e)
{
	struct rd r = rd_of(p, n);
	uint64_t len = rd_u64(&r);
	json_t *root;
	int rc;

	memset(h, 0, sizeof *h);
	h->meta = json_object();
	if (r.bad || file_bytes < 8)
		return err_set(e, ERR_CORRUPT, "not a safetensors file: %" PRIu64 " bytes are too few", file_bytes);
	if (len < 2 || len > CKPT_HEADER_MAX)
		return err_set(e, ERR_CORRUPT, "not a safetensors file: a header of %" PRIu64 " bytes (2 to %d are "
			"possible)", len,
			CKPT_HEADER_MAX);
	if (len > file_bytes - 8 || len > n - 8)
		return err_set(e, ERR_CORRUPT, "truncated: the header has %" PRIu64 " bytes, the file %" PRIu64, len,
			file_bytes);
	h->data_at = 8 + len;
	h->data_bytes = file_bytes - h->data_at;
	if (((const char *)p)[8] != '{')
		return err_set(e, ERR_CORRUPT, "not a safetensors file: the header does not begin with {");
	root = json_read((const char *)p + 8, (size_t)len, (struct json_limits){ CKPT_HEADER_MAX, 4, 1048576 }, e);
	if (!root) {
		if (e)
			e->code = ERR_CORRUPT;
		return err_wrap(e, "header");
	}
	rc = json_is_object(root) ? parse_all(h, root, e) : err_set(e, ERR_CORRUPT, "header: expected an object");
	json_decref(root);
	return rc;
}

void ckpt_head_done(struct ckpt_head *h)
{
	free(h->v);
	json_decref(h->meta);
	memset(h, 0, sizeof *h);
}

const struct ckpt_tensor *ckpt_find(const struct ckpt_head *h, const char *name)
{
	for (size_t i = 0; i < h->n; i++)
		if (strcmp(h->v[i].name, name) == 0)
			return &h->v[i];
	return NULL;
}

/* Reads the header of an open file. */
int ckpt_head_of(struct ckpt_head *h, struct files *f, int fd, uint64_t file_bytes, struct err *e)
{
	uint8_t first[8];
	uint8_t *p;
	uint64_t len;
	int64_t got = f->pread(f, fd, first, 8, 0, e);
	struct rd r = rd_of(first, got < 0 ? 0 : (size_t)got);
	int rc;

	if (got < 0)
		return -1;
	len = rd_u64(&r);
	if (r.bad || len > CKPT_HEADER_MAX || len > file_bytes)
		return ckpt_head_parse(h, first, (size_t)got, file_bytes, e);
	p = xmalloc(8 + (size_t)len);
	got = f->pread(f, fd, p, 8 + (size_t)len, 0, e);
	rc = got < 0 ? -1 : ckpt_head_parse(h, p, (size_t)got, file_bytes, e);
	free(p);
	return rc;
}

int ckpt_open_read(struct files *f, const char *path, uint64_t *ret_bytes, struct err *e)
{
	int64_t bytes = f->size(f, path, e);

	if (bytes < 0)
		return -1;
	*ret_bytes = (uint64_t)bytes;
	return f->open(f, path, O_RDONLY | O_CLOEXEC, 0, e);
}

int ckpt_head_read(struct ckpt_head *h, struct files *f, const char *path, struct err *e)
{
	uint64_t bytes;
	int fd = ckpt_open_read(f, path, &bytes, e), rc;

	memset(h, 0, sizeof *h);
	if (fd < 0)
		return -1;
	rc = ckpt_head_of(h, f, fd, bytes, e);
	f->close(f, fd, NULL);
	return rc < 0 ? err_wrap(e, "%s", path) : 0;
}
