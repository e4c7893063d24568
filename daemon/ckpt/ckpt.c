/* Safetensors files: a writer that a kill cannot hurt, a reader that checks the data against its hash. */
#include "ckpt/int.h"

#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "common/jrpc.h"
#include "common/mem.h"
#include "common/planted.h"
#include "common/text.h"
#include "common/xxh.h"

#define PIECE (1u << 20)                /* bytes hashed and written at a time: they stay in the cache */
#define ALIGN 64

/* --- writing */

struct ckpt_out {
	struct files *f; int fd;                /* -1: closed */
	char *path, *tmp;
	const struct ckpt_tensor *v; size_t n;
	json_t *meta;
	XXH3_state_t *hash;
	uint64_t head, at;                      /* bytes of the header; where the next byte goes */
};

static json_t *head_json(const struct ckpt_tensor *v, size_t n, const json_t *meta, const char *hash)
{
	json_t *root = json_object(), *m = meta ? json_deep_copy(meta) : json_object();
	uint64_t at = 0;

	json_object_set_new(m, "format", json_string("pt"));
	json_object_set_new(m, "xxh128", json_string(hash));
	json_object_set_new(root, "__metadata__", m);
	for (size_t i = 0; i < n; i++) {
		json_t *shape = json_array();

		for (unsigned k = 0; k < v[i].ndim; k++)
			json_array_append_new(shape, json_integer((json_int_t)v[i].shape[k]));
		json_object_set_new(root, v[i].name, json_pack("{s:s, s:o, s:[I,I]}", "dtype", ckpt_dtype_name(v[i].dtype),
			"shape",
			shape, "data_offsets", (json_int_t)at, (json_int_t)(at + v[i].bytes)));
		at += v[i].bytes;
	}
	return root;
}

/* The header with its length in front, padded with blanks to ALIGN. */
static void head_bytes(struct buf *b, const struct ckpt_tensor *v, size_t n, const json_t *meta, const char *hash)
{
	json_t *root = head_json(v, n, meta, hash);
	size_t len, pad;
	char *text = json_line(root, &len);

	buf_clear(b);
	pad = (ALIGN - (8 + len) % ALIGN) % ALIGN;
	buf_u64(b, len + pad);
	buf_put(b, text, len);
	memset(buf_grow(b, pad), ' ', pad);
	free(text);
	json_decref(root);
}

static void hash_hex(XXH3_state_t *x, uint8_t out[16], char hex[33])
{
	XXH128_canonical_t c;

	XXH128_canonicalFromHash(&c, XXH3_128bits_digest(x));
	memcpy(out, c.digest, 16);
	(void)text_hex(c.digest, 16, hex);
}

static int names_unique(const struct ckpt_tensor *v, size_t n, struct err *e)
{
	json_t *seen = json_object();
	int rc = 0;

	for (size_t i = 0; i < n && rc == 0; i++) {
		if (json_object_get(seen, v[i].name))
			rc = err_set(e, ERR_INVALID, "two tensors are named %s", v[i].name);
		json_object_set_new(seen, v[i].name, json_true());
	}
	json_decref(seen);
	return rc;
}

/* The header comes first but holds the hash of what follows: its length is known before its contents. */
static int begin(struct ckpt_out *o, struct err *e)
{
	static const char zeros[] = "00000000000000000000000000000000";
	struct buf b = { 0 };

	if (o->n > CKPT_TENSORS - 1)
		return err_set(e, ERR_LIMIT, "%zu tensors; at most %d", o->n, CKPT_TENSORS - 1);
	if (names_unique(o->v, o->n, e) < 0)
		return -1;
	head_bytes(&b, o->v, o->n, o->meta, zeros);
	o->head = o->at = b.len;
	buf_free(&b);
	if (o->head - 8 > CKPT_HEADER_MAX)
		return err_set(e, ERR_LIMIT, "the header would have %" PRIu64 " bytes; at most %d", o->head, CKPT_HEADER_MAX);
	o->fd = o->f->open(o->f, o->tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640, e);
	return o->fd < 0 ? -1 : 0;
}

struct ckpt_out *ckpt_out_new(struct files *f, const char *path, const struct ckpt_tensor *v, size_t n,
	const json_t *meta, struct err *e)
{
	struct ckpt_out *o = xcalloc(1, sizeof *o);

	*o = (struct ckpt_out){ .f = f, .fd = -1, .path = xstrdup(path), .tmp = xasprintf("%s.tmp", path), .v = v, .n = n,
		.meta = json_incref((json_t *)meta), .hash = XXH3_createState() };
	if (!o->hash)
		abort();
	XXH3_128bits_reset(o->hash);
	if (begin(o, e) == 0)
		return o;
	(void)err_wrap(e, "%s", path);
	ckpt_out_drop(o);
	return NULL;
}

static int put(struct ckpt_out *o, const uint8_t *p, uint64_t bytes, struct err *e)
{
	for (uint64_t k = 0; k < bytes; k += PIECE) {
		size_t m = bytes - k < PIECE ? (size_t)(bytes - k) : PIECE;

		XXH3_128bits_update(o->hash, p + k, m);
		if (o->f->pwrite(o->f, o->fd, p + k, m, o->at, e) < 0)
			return -1;
		o->at += m;
	}
	return 0;
}

int ckpt_out_put(struct ckpt_out *o, const void *p, size_t bytes, struct err *e)
{
	return put(o, p, bytes, e) < 0 ? err_wrap(e, "%s", o->path) : 0;
}

static int end(struct ckpt_out *o, uint8_t xxh[16], struct err *e)
{
	struct buf b = { 0 };
	char hex[33];
	int fd = o->fd, rc;

	hash_hex(o->hash, xxh, hex);
	head_bytes(&b, o->v, o->n, o->meta, hex);
	assert(b.len == o->head);
	rc = o->f->pwrite(o->f, fd, b.p, b.len, 0, e);
	buf_free(&b);
	if (rc == 0 && !PLANTED(CKPT_UNSYNCED))
		rc = o->f->fsync(o->f, fd, e);
	o->fd = -1;
	if (o->f->close(o->f, fd, rc == 0 ? e : NULL) < 0)
		rc = -1;
	if (rc == 0)
		rc = o->f->rename(o->f, o->tmp, o->path, e);
	if (rc < 0)
		o->f->unlink(o->f, o->tmp, NULL);
	return rc;
}

int ckpt_out_end(struct ckpt_out *o, uint64_t *ret_bytes, uint8_t xxh[16], struct err *e)
{
	uint8_t hash[16];
	int rc = end(o, xxh ? xxh : hash, e);

	if (ret_bytes)
		*ret_bytes = o->at;
	if (rc < 0)
		(void)err_wrap(e, "%s", o->path);
	ckpt_out_drop(o);
	return rc;
}

void ckpt_out_drop(struct ckpt_out *o)
{
	if (!o)
		return;
	if (o->fd >= 0) {
		o->f->close(o->f, o->fd, NULL);
		o->f->unlink(o->f, o->tmp, NULL);
	}
	XXH3_freeState(o->hash);
	json_decref(o->meta);
	free(o->path);
	free(o->tmp);
	free(o);
}

int ckpt_write(struct files *f, const char *path, const struct ckpt_tensor *v, size_t n, const json_t *meta,
	uint64_t *ret_bytes, uint8_t xxh[16], struct err *e)
{
	struct ckpt_out *o = ckpt_out_new(f, path, v, n, meta, e);

	for (size_t i = 0; o && i < n; i++)
		if (ckpt_out_put(o, v[i].data, v[i].bytes, e) < 0) {
			ckpt_out_drop(o);
			return -1;
		}
	return o ? ckpt_out_end(o, ret_bytes, xxh, e) : -1;
}

/* --- reading */

static void shape_text(const struct ckpt_tensor *t, char *out, size_t cap)
{
	size_t at = (size_t)snprintf(out, cap, "%s[", ckpt_dtype_name(t->dtype));

	for (unsigned i = 0; i < t->ndim && at < cap; i++)
		at += (size_t)snprintf(out + at, cap - at, "%s%" PRIu64, i ? "," : "", t->shape[i]);
	if (at < cap)
		snprintf(out + at, cap - at, "]");
}

static int same_shape(const struct ckpt_tensor *want, const struct ckpt_tensor *have, struct err *e)
{
	char a[200], b[200];

	if (want->dtype == have->dtype && want->ndim == have->ndim &&
		memcmp(want->shape, have->shape, want->ndim * sizeof *want->shape) == 0)
		return 0;
	shape_text(want, a, sizeof a);
	shape_text(have, b, sizeof b);
	return err_set(e, ERR_MISMATCH, "tensor %.100s is %.80s in the file, the model needs %.80s", want->name, b, a);
}

/* One tensor's bytes into data (NULL: only hashed). */
static int read_data(struct files *f, int fd, uint64_t at, const struct ckpt_tensor *t, uint8_t *data, uint8_t *scratch,
	XXH3_state_t *x, struct err *e)
{
	for (uint64_t k = 0; k < t->bytes; k += PIECE) {
		size_t m = t->bytes - k < PIECE ? (size_t)(t->bytes - k) : PIECE;
		uint8_t *p = data ? data + k : scratch;
		int64_t got = f->pread(f, fd, p, m, at + t->at + k, e);

		if (got < 0)
			return -1;
		if ((size_t)got != m)
			return err_set(e, ERR_CORRUPT, "tensor %s: the file ends in it", t->name);
		if (x)
			XXH3_128bits_update(x, p, m);
	}
	return 0;
}

/* Where each tensor of the file goes, in file order; -1 when one is missing or does not fit. */
static int place(const struct ckpt_head *h, const struct ckpt_tensor *v, size_t n, void **ret_to, struct err *e)
{
	json_t *index = json_object();
	int rc = 0;

	for (size_t i = 0; i < h->n; i++)
		json_object_set_new(index, h->v[i].name, json_integer((json_int_t)i));
	for (size_t i = 0; i < n && rc == 0; i++) {
		const json_t *at = json_object_get(index, v[i].name);

		if (!at) {
			rc = err_set(e, ERR_NOT_FOUND, "tensor %s is not in the file", v[i].name);
			break;
		}
		rc = same_shape(&v[i], &h->v[json_integer_value(at)], e);
		ret_to[json_integer_value(at)] = v[i].data;
	}
	json_decref(index);
	return rc;
}

static int read_all(struct files *f, int fd, const struct ckpt_head *h, void **to, struct err *e)
{
	const char *want = json_string_value(json_object_get(h->meta, "xxh128"));
	XXH3_state_t *x = want ? XXH3_createState() : NULL;
	uint8_t *scratch = xmalloc(PIECE), hash[16];
	char hex[33];
	int rc = 0;

	if (x)
		XXH3_128bits_reset(x);
	for (size_t i = 0; i < h->n && rc == 0; i++)
		if (x || to[i])
			rc = read_data(f, fd, h->data_at, &h->v[i], to[i], scratch, x, e);
	if (x && rc == 0) {
		hash_hex(x, hash, hex);
		if (strcmp(hex, want) != 0 && !PLANTED(CKPT_TORN))
			rc = err_set(e, ERR_CORRUPT, "the data has the hash %s, the header says %.40s", hex, want);
	}
	XXH3_freeState(x);
	free(scratch);
	return rc;
}

int ckpt_read(struct files *f, const char *path, const struct ckpt_tensor *v, size_t n, json_t **ret_meta,
	struct err *e)
{
	struct ckpt_head h = { 0 };
	void **to = NULL;
	uint64_t bytes;
	int fd = ckpt_open_read(f, path, &bytes, e), rc;

	if (fd < 0)
		return err_wrap(e, "%s", path);
	rc = ckpt_head_of(&h, f, fd, bytes, e);
	if (rc == 0) {
		to = xcalloc(h.n + 1, sizeof *to);
		rc = place(&h, v, n, to, e);
	}
	if (rc == 0)
		rc = read_all(f, fd, &h, to, e);
	f->close(f, fd, NULL);
	if (rc == 0 && ret_meta)
		*ret_meta = json_incref(h.meta);
	free(to);
	ckpt_head_done(&h);
	return rc < 0 ? err_wrap(e, "%s", path) : 0;
}
