/* Prepared data: opening, checking and reading a cache. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include "common/hash.h"
#include "common/mem.h"
#include "common/rng.h"
#include "common/text.h"
#include "train/data/cache_int.h"
#include "train/data/data.h"

struct cache {
	struct files *f;
	int fd;
	const uint8_t *p;
	size_t n;
	const struct cache_head *head;
	const struct cache_entry *entry;
	bool copied;                            /* no mapping here: it is held in memory */
};

uint64_t cache_sum(const void *p, size_t n)
{
	uint8_t digest[16];
	uint64_t sum;

	xxh128_of(p, n, digest);
	memcpy(&sum, digest, sizeof(sum));
	return sum;
}

char *cache_path(const char *dir, const struct cache_id *id, const char *end)
{
	char hex[33];

	return xasprintf("%s/%s%s", dir, text_hex(id->name, 16, hex), end);
}

void cache_remove(struct files *f, const char *dir, const struct cache_id *id)
{
	char *path = cache_path(dir, id, ".cache");

	(void)f->unlink(f, path, NULL);
	free(path);
}

/* Everything but the samples themselves, which have their own digests. */
static int check(const struct cache *c, const struct cache_id *id, uint64_t entries, size_t y_bytes, struct err *e)
{
	const struct cache_head *h = c->head;
	struct cache_head copy = *h;

	copy.sum = 0;
	if (memcmp(h->magic, CACHE_MAGIC, sizeof(h->magic)) || h->sum != cache_sum(&copy, sizeof(copy)))
		return err_set(e, ERR_CORRUPT, "its header is damaged");
	if (memcmp(h->key, id->key, 32) || h->entries != entries || h->y_bytes != y_bytes || h->real_bytes != sizeof(real))
		return err_set(e, ERR_CORRUPT, "it is stale");
	if (h->bytes != c->n || h->index_at > c->n || (c->n - h->index_at) / sizeof(*c->entry) != entries)
		return err_set(e, ERR_CORRUPT, "%zu bytes, and its header says %llu", c->n, (unsigned long long)h->bytes);
	if (h->index_at % _Alignof(struct cache_entry))
		return err_set(e, ERR_CORRUPT, "its index is at byte %llu, where none can be", (unsigned long long)h->index_at);
	if (cache_sum(c->p + h->index_at, entries * sizeof(*c->entry)) != h->index_sum)
		return err_set(e, ERR_CORRUPT, "its index is damaged");
	return 0;
}

static int take(struct cache *c, struct err *e)
{
	uint8_t *copy;

	if (c->f->map) {
		c->p = c->f->map(c->f, c->fd, c->n, e);
		return c->p ? 0 : -1;
	}
	copy = big_alloc(c->n);
	if (!copy)
		return err_set(e, ERR_NOMEM, "no memory for %zu bytes", c->n);
	c->p = copy;
	c->copied = true;
	return c->f->pread(c->f, c->fd, copy, c->n, 0, e) == (int64_t)c->n ? 0 : err_set(e, ERR_IO, "cannot be read");
}

struct cache *cache_open(struct files *f, const char *dir, const struct cache_id *id, uint64_t entries, size_t y_bytes,
	struct err *e)
{
	char *path = cache_path(dir, id, ".cache");
	int64_t n = f->size(f, path, e);
	struct cache *c = NULL;
	int rc = n < 0 ? -1 : 0;

	if (!rc) {
		c = xcalloc(1, sizeof(*c));
		c->f = f;
		c->n = (size_t)n;
		c->fd = f->open(f, path, O_RDONLY, 0, e);
		rc = c->fd < 0 ? -1 : 0;
		if (!rc && c->n < sizeof(*c->head))
			rc = err_set(e, ERR_CORRUPT, "it is cut off");
		if (!rc)
			rc = take(c, e);
		c->head = (const struct cache_head *)c->p;
		if (!rc)
			rc = check(c, id, entries, y_bytes, e);
		if (rc < 0 && e->code == ERR_CORRUPT)
			cache_remove(f, dir, id);
		if (rc < 0)
			(void)err_wrap(e, "%s", path);
	}
	free(path);
	if (rc < 0) {
		cache_close(c);
		return NULL;
	}
	c->entry = (const struct cache_entry *)(c->p + c->head->index_at);
	return c;
}

void cache_close(struct cache *c)
{
	if (!c)
		return;
	if (c->copied)
		big_free((void *)(uintptr_t)c->p, c->n);
	else if (c->p)
		c->f->unmap(c->f, c->p, c->n);
	if (c->fd >= 0)
		(void)c->f->close(c->f, c->fd, NULL);
	free(c);
}

uint64_t cache_bytes(const struct cache *c)
{
	return c->n;
}

/* The index has a digest, but places are checked all the same: a digest is no proof against whoever made it. */
static int find(const struct cache *c, uint64_t i, size_t *ret_values, struct err *e)
{
	const struct cache_entry *x = &c->entry[i];
	uint64_t room = c->head->index_at, row = x->flags & CACHE_BYTES ? 1 : sizeof(real), rows = 1;
	bool sides = x->c <= CACHE_SIDE_MAX && x->h <= CACHE_SIDE_MAX && x->w <= CACHE_SIDE_MAX;

	if (x->flags & CACHE_BROKEN) {
		*ret_values = x->w;
	} else {
		row *= x->w;
		rows = (uint64_t)x->c * x->h;
		sides = sides && rows && row && row <= room / rows;     /* the product may be more than 64 bits hold */
		*ret_values = (size_t)(rows * row);
	}
	if (!sides || x->at > room || *ret_values > room - x->at || c->head->y_bytes > room - x->at - *ret_values)
		return err_set(e, ERR_MISMATCH, "sample %llu of the cache lies outside of it", (unsigned long long)i);
	if (cache_sum(c->p + x->at, *ret_values + c->head->y_bytes) != x->sum)
		return err_set(e, ERR_MISMATCH, "sample %llu of the cache is damaged", (unsigned long long)i);
	return 0;
}

int cache_get(const struct cache *c, uint64_t i, struct sample *s, void *y, struct err *e)
{
	const struct cache_entry *x = &c->entry[i];
	const uint8_t *from;
	size_t n;

	if (find(c, i, &n, e) < 0)
		return -1;
	from = c->p + x->at;
	memcpy(y, from + n, c->head->y_bytes);
	if (x->flags & CACHE_BROKEN)
		return err_set(e, ERR_CORRUPT, "%.*s", n && *from ? (int)n : 64, n && *from ? (const char *)from :
			"it was broken when the cache was made");
	s->c = x->c;
	s->h = x->h;
	s->w = x->w;
	s->bytes = x->flags & CACHE_BYTES;
	s->p = NULL;
	s->p = sample_room(s, n);
	memcpy(s->p, from, n);
	for (int k = 0; k < STEP_CHANNELS; k++)
		s->zero[k] = (real)c->head->zero[k];
	sample_whole(s);
	return 0;
}

uint64_t data_stamp(struct files *f, const char *path, uint64_t before)
{
	struct err none;
	int64_t at = f->changed_ns ? f->changed_ns(f, path, &none) : 0;

	return rng_mix(before, (uint64_t)at);
}
