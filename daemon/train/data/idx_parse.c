/* One IDX file, plain or .gz. The header says how long the data is; a file that is longer or shorter is refused, and
 * nothing is allocated that the file's own length cannot justify (deflate never shrinks more than 1032 times). */
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <zlib.h>
#include "common/mem.h"
#include "train/data/idx.h"

#define DEFLATE_RATIO 1032u

static uint32_t be32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static unsigned elem_bytes(unsigned type)
{
	switch (type) {
	case IDX_U8: case IDX_I8: return 1;
	case IDX_I16: return 2;
	case IDX_I32: case IDX_F32: return 4;
	case IDX_F64: return 8;
	default: return 0;
	}
}

int idx_head_parse(struct idx_head *h, const void *file, size_t n, struct err *e)
{
	const uint8_t *p = file;

	memset(h, 0, sizeof(*h));
	if (n < 4)
		return err_set(e, ERR_CORRUPT, "truncated: %zu bytes, and an IDX header has at least 8", n);
	if (p[0] || p[1])
		return err_set(e, ERR_CORRUPT, "not an IDX file: it begins with %02x %02x, not with 00 00", p[0], p[1]);
	h->elem = elem_bytes(p[2]);
	if (!h->elem)
		return err_set(e, ERR_CORRUPT, "unknown element type 0x%02x at byte 2; IDX has 08, 09, 0b, 0c, 0d, 0e", p[2]);
	h->type = (enum idx_type)p[2];
	h->ndim = p[3];
	if (!h->ndim || h->ndim > IDX_DIMS)
		return err_set(e, ERR_CORRUPT, "%u dimensions at byte 3; 1 to %d are possible", h->ndim, IDX_DIMS);
	h->data_at = 4 + 4 * h->ndim;
	if (n < h->data_at)
		return err_set(e, ERR_CORRUPT, "truncated: %zu bytes, and the header of %u dimensions has %llu", n, h->ndim,
			(unsigned long long)h->data_at);
	h->count = 1;
	for (unsigned i = 0; i < h->ndim; i++) {
		h->dim[i] = be32(p + 4 + 4 * i);
		if (!h->dim[i])
			return err_set(e, ERR_CORRUPT, "dimension %u is 0", i);
		if (h->count > (uint64_t)INT64_MAX / h->elem / h->dim[i])
			return err_set(e, ERR_CORRUPT, "dimension %u is %llu: more elements than any file has", i,
				(unsigned long long)h->dim[i]);
		h->count *= h->dim[i];
	}
	h->bytes = h->count * h->elem;
	return 0;
}

static int wrong_length(const struct idx_head *h, uint64_t have, const char *unit, struct err *e)
{
	uint64_t want = h->data_at + h->bytes;

	return err_set(e, ERR_CORRUPT, "%s: the header promises %llu bytes, and there are %s%llu%s",
		have < want ? "truncated" : "trailing bytes", (unsigned long long)want,
		have < want ? "" : "at least ", (unsigned long long)have, unit);
}

int idx_length_check(const struct idx_head *h, uint64_t n, struct err *e)
{
	return h->data_at + h->bytes == n ? 0 : wrong_length(h, n, "", e);
}

static int parse_plain(struct idx_head *h, uint8_t **ret_data, const void *file, size_t n, struct err *e)
{
	if (idx_head_parse(h, file, n, e) < 0)
		return -1;
	if (idx_length_check(h, n, e) < 0)
		return -1;
	*ret_data = big_alloc(n);
	if (!*ret_data)
		return err_set(e, ERR_NOMEM, "no memory for %zu bytes", n);
	memcpy(*ret_data, file, n);
	return 0;
}

/* zlib's windows are 32 bits wide: input and output are fed in pieces. 1 = stream ended. */
static int pump(z_stream *z, const uint8_t *in, size_t n, size_t *at, uint8_t *out, size_t cap, size_t *done,
	struct err *e)
{
	while (*done < cap) {
		size_t give = n - *at < UINT_MAX / 2 ? n - *at : UINT_MAX / 2;
		size_t room = cap - *done < UINT_MAX / 2 ? cap - *done : UINT_MAX / 2;
		int rc;

		z->next_in = (Bytef *)(in + *at);
		z->avail_in = (uInt)give;
		z->next_out = out + *done;
		z->avail_out = (uInt)room;
		rc = inflate(z, Z_NO_FLUSH);
		*at += give - z->avail_in;
		*done += room - z->avail_out;
		if (rc == Z_STREAM_END)
			return 1;
		if (rc != Z_OK && !(rc == Z_BUF_ERROR && *at == n))
			return err_set(e, ERR_CORRUPT, "corrupted gzip data at byte %zu: %s", *at, z->msg ? z->msg : "bad stream");
		if (*at == n && z->avail_out)
			return err_set(e, ERR_CORRUPT, "truncated gzip file: it ends at byte %zu inside the data", *at);
	}
	return 0;
}

/* The stream must end exactly here, and so must the file: the checksum behind the data is read by one more call. */
static int pump_end(z_stream *z, const struct idx_head *h, const uint8_t *in, size_t n, size_t *at, bool ended,
	struct err *e)
{
	uint8_t more;
	size_t one = 0;
	int rc = ended ? 1 : pump(z, in, n, at, &more, 1, &one, e);

	if (rc < 0)
		return -1;
	if (one)
		return wrong_length(h, h->data_at + h->bytes + 1, " after decompression", e);
	if (*at != n)
		return err_set(e, ERR_CORRUPT, "%zu bytes follow the end of the gzip data", n - *at);
	return 0;
}

static int inflate_idx(z_stream *z, struct idx_head *h, uint8_t **ret_data, const uint8_t *in, size_t n, struct err *e)
{
	uint8_t head[4 + 4 * IDX_DIMS] = { 0 }, *out;
	size_t at = 0, got = 0, need = 4;
	int ended = 0;

	for (int round = 0; round < 2 && !ended; round++) {     /* 4 bytes tell how long the header is */
		ended = pump(z, in, n, &at, head, need, &got, e);
		if (ended < 0)
			return -1;
		if (got >= 4)
			need = 4 + 4 * (head[3] <= IDX_DIMS ? head[3] : 0u);
	}
	if (idx_head_parse(h, head, got, e) < 0)
		return -1;
	if ((h->data_at + h->bytes) / DEFLATE_RATIO > n)
		return wrong_length(h, (uint64_t)n * DEFLATE_RATIO, " at most after decompression", e);
	out = big_alloc(h->data_at + h->bytes);
	if (!out)
		return err_set(e, ERR_NOMEM, "no memory for %llu bytes", (unsigned long long)(h->data_at + h->bytes));
	memcpy(out, head, got);
	if (!ended)
		ended = pump(z, in, n, &at, out, h->data_at + h->bytes, &got, e);
	if (ended < 0 || (got < h->data_at + h->bytes && wrong_length(h, got, " after decompression", e) < 0) ||
	    pump_end(z, h, in, n, &at, ended, e) < 0) {
		big_free(out, h->data_at + h->bytes);
		return -1;
	}
	*ret_data = out;
	return 0;
}

int idx_parse(struct idx_head *h, uint8_t **ret_data, const void *file, size_t n, struct err *e)
{
	const uint8_t *p = file;
	z_stream z = { 0 };
	int rc;

	*ret_data = NULL;
	if (n < 2 || p[0] != 0x1f || p[1] != 0x8b)
		return parse_plain(h, ret_data, file, n, e);
	if (inflateInit2(&z, 15 + 16) != Z_OK)
		return err_set(e, ERR_NOMEM, "no memory to decompress");
	rc = inflate_idx(&z, h, ret_data, p, n, e);
	(void)inflateEnd(&z);
	return rc;
}
