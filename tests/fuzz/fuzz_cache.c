/* A file of prepared data (train/cache.h) that somebody else wrote: header, index and samples, as they are or, by the
 * first byte of the input, with digests that are right, so that what they say is looked at and not only that it
 * changed. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "train/data/cache_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ENTRIES 3u
#define Y_BYTES 4u

/* ---- a file in memory ---- */

struct memory { struct files f; const uint8_t *p; size_t n; };

static int64_t size_of(struct files *f, const char *path, struct err *e) { return (int64_t)((struct memory *)f)->n; }
static int open_it(struct files *f, const char *path, int flags, int mode, struct err *e) { return 3; }
static int close_it(struct files *f, int fd, struct err *e) { return 0; }
static int unlink_it(struct files *f, const char *path, struct err *e) { return 0; }
static int64_t read_it(struct files *f, int fd, void *out, size_t n, uint64_t at, struct err *e)
{
	const struct memory *m = (struct memory *)f;

	if (at > m->n)
		return 0;
	if (n > m->n - at)
		n = (size_t)(m->n - at);
	memcpy(out, m->p + at, n);
	return (int64_t)n;
}

/* The input's numbers are the header's, made small enough to be near the truth; then the digests are made right. */
static void make_good(uint8_t *p, size_t n, const struct cache_id *id, bool index_too)
{
	struct cache_head h;

	memcpy(&h, p, sizeof(h));
	memcpy(h.magic, CACHE_MAGIC, sizeof(h.magic));
	memcpy(h.key, id->key, sizeof(h.key));
	h.entries = ENTRIES;
	h.y_bytes = Y_BYTES;
	h.real_bytes = sizeof(real);
	h.bytes = n;
	if (index_too)
		h.index_at = n - ENTRIES * sizeof(struct cache_entry);
	h.sum = 0;
	if (h.index_at <= n && n - h.index_at >= ENTRIES * sizeof(struct cache_entry))
		h.index_sum = cache_sum(p + h.index_at, ENTRIES * sizeof(struct cache_entry));
	h.sum = cache_sum(&h, sizeof(h));
	memcpy(p, &h, sizeof(h));
}

/* Samples that lie inside get the digest of what is there. */
static void sign_samples(uint8_t *p, size_t n)
{
	uint8_t *index = p + n - ENTRIES * sizeof(struct cache_entry);

	for (unsigned i = 0; i < ENTRIES; i++) {
		struct cache_entry x;
		size_t room = n - ENTRIES * sizeof(x);
		uint64_t bytes;

		memcpy(&x, index + i * sizeof(x), sizeof(x));
		x.at %= 2 * n;
		x.c %= 5;
		x.h %= 70;
		x.w %= 70;
		bytes = Y_BYTES + (x.flags & CACHE_BROKEN ? x.w : (uint64_t)x.c * x.h * x.w * (x.flags & CACHE_BYTES ? 1 :
			sizeof(real)));
		if (x.at <= room && bytes <= room - x.at)
			x.sum = cache_sum(p + x.at, (size_t)bytes);
		memcpy(index + i * sizeof(x), &x, sizeof(x));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct memory m = { { .open = open_it, .pread = read_it, .size = size_of, .close = close_it,
		.unlink = unlink_it } };
	struct cache_id id = { .name = { 1 }, .key = { 2 } };
	struct err e = { .code = ERR_NONE };
	uint8_t *p = NULL, y[Y_BYTES];
	struct sample s = { 0 };
	struct cache *c;
	unsigned sum = 0;

	if (!size)
		return 0;
	m.n = size - 1;
	/* A header is 4096 bytes of which few matter: short inputs stand for longer files. */
	if (data[0] & 4)
		m.n += CACHE_HEAD;
	p = xcalloc(m.n + 1, 1);
	memcpy(p + (data[0] & 4 ? CACHE_HEAD : 0), data + 1, size - 1);
	if (data[0] & 2 && m.n >= CACHE_HEAD + ENTRIES * sizeof(struct cache_entry))
		sign_samples(p, m.n);
	if (data[0] & 1 && m.n >= sizeof(struct cache_head) + ENTRIES * sizeof(struct cache_entry))
		make_good(p, m.n, &id, data[0] & 8);
	m.p = p;
	c = cache_open(&m.f, "d", &id, ENTRIES, Y_BYTES, &e);
	if (!c && !e.text[0])
		abort();
	for (uint64_t i = 0; c && i < ENTRIES; i++) {
		if (cache_get(c, i, &s, y, &e) < 0) {
			if (!e.text[0])
				abort();
			continue;
		}
		for (size_t k = 0; k < sample_count(&s) * sample_unit(&s); k++)
			sum += ((uint8_t *)s.p)[k];
	}
	sample_free(&s);
	cache_close(c);
	free(p);
	return sum == 1 ? 0 : 0;                        /* read, so that a sanitizer sees it */
}
