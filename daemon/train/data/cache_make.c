/* Making a cache: samples are put one after the other into a file aside, which gets its name when it is whole. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/hash.h"
#include "common/mem.h"
#include "train/data/cache_int.h"

#define PIECE ((size_t)1 << 20)
#define ALIGN 64u
#define SPARE ((uint64_t)256 << 20)             /* of the disk stays free */
#define ASIDE_MAX 64
#define OLD_NS ((int64_t)3600 * 1000000000)     /* after that nobody is making it any more */

struct cache_maker {
	struct files *f;
	int fd;
	char *aside, *path;
	struct cache_head head;
	struct cache_entry *entry;
	uint64_t done, at;                      /* at: of what is in the piece */
	uint8_t *piece; size_t n;
};

struct leftover { struct files *f; const char *dir; int64_t newest; char **v; size_t n; };

static int leftover_row(void *arg, const char *name)
{
	struct leftover *l = arg;
	size_t n = strlen(name);
	int64_t at;
	char *path;

	if (n < 7 || strcmp(name + n - 7, ".making"))
		return 0;
	path = xasprintf("%s/%s", l->dir, name);
	at = l->f->changed_ns(l->f, path, NULL);
	if (at > l->newest)
		l->newest = at;
	l->v = xrealloc(l->v, (l->n + 1) * sizeof(*l->v));
	l->v[l->n++] = path;
	return 0;
}

/* What a daemon that died was making: files that are an hour older than the one that has just been begun. */
static void sweep(struct files *f, const char *dir)
{
	struct leftover l = { f, dir, 0, NULL, 0 };
	struct err none;

	if (!f->changed_ns || f->list(f, dir, leftover_row, &l, &none) < 0)
		return;
	for (size_t i = 0; i < l.n; i++) {
		int64_t at = f->changed_ns(f, l.v[i], &none);

		if (at >= 0 && at < l.newest - OLD_NS)
			(void)f->unlink(f, l.v[i], NULL);
		free(l.v[i]);
	}
	free(l.v);
}

static int room(struct files *f, const char *dir, uint64_t want, struct err *e)
{
	int64_t left = f->free_bytes(f, dir, e);

	if (left < 0)
		return -1;
	if ((uint64_t)left < want + SPARE)
		return err_set(e, ERR_FULL, "%s has %lld MB left, and the prepared data takes about %llu MB (256 more "
			"stay free)", dir, (long long)left / 1000000, (unsigned long long)want / 1000000);
	return 0;
}

struct cache_maker *cache_begin(struct files *f, const char *dir, const struct cache_id *id, uint64_t entries,
	size_t y_bytes, uint64_t bytes_guess, struct err *e)
{
	struct cache_maker *m;

	if (f->mkdir(f, dir, 0770, e) < 0 || room(f, dir, bytes_guess, e) < 0)
		return NULL;
	m = xcalloc(1, sizeof(*m));
	m->f = f;
	m->fd = -1;
	m->path = cache_path(dir, id, ".cache");
	for (int i = 0; i < ASIDE_MAX && m->fd < 0; i++) {
		char end[32];

		(void)snprintf(end, sizeof(end), ".%d.making", i);
		free(m->aside);
		m->aside = cache_path(dir, id, end);
		m->fd = f->open(f, m->aside, O_RDWR | O_CREAT | O_EXCL, 0660, e);
		if (m->fd < 0 && e->code != ERR_EXISTS)
			break;
	}
	m->entry = m->fd < 0 ? NULL : big_alloc(entries * sizeof(*m->entry));
	if (m->fd >= 0 && !m->entry)
		(void)err_set(e, ERR_NOMEM, "no memory for the index of %llu samples", (unsigned long long)entries);
	if (!m->entry) {
		cache_drop(m);
		return NULL;
	}
	sweep(f, dir);
	memcpy(m->head.magic, CACHE_MAGIC, sizeof(m->head.magic));
	memcpy(m->head.key, id->key, 32);
	m->head.entries = entries;
	m->head.y_bytes = y_bytes;
	m->head.real_bytes = sizeof(real);
	m->at = CACHE_HEAD;
	m->piece = xmalloc(PIECE);
	return m;
}

static int flush(struct cache_maker *m, struct err *e)
{
	int rc = m->n ? m->f->pwrite(m->f, m->fd, m->piece, m->n, m->at, e) : 0;

	m->at += m->n;
	m->n = 0;
	return rc;
}

static int put(struct cache_maker *m, const void *p, size_t n, struct err *e)
{
	while (n) {
		size_t k = PIECE - m->n < n ? PIECE - m->n : n;

		memcpy(m->piece + m->n, p, k);
		m->n += k;
		p = (const char *)p + k;
		n -= k;
		if (m->n == PIECE && flush(m, e) < 0)
			return -1;
	}
	return 0;
}

static int align(struct cache_maker *m, struct err *e)
{
	static const uint8_t zero[ALIGN];
	size_t over = (size_t)((m->at + m->n) % ALIGN);

	return over ? put(m, zero, ALIGN - over, e) : 0;
}

int cache_put(struct cache_maker *m, const struct sample *s, const void *y, const char *why, struct err *e)
{
	struct cache_entry *x = &m->entry[m->done];
	size_t n = s ? sample_count(s) * sample_unit(s) : strlen(why);
	uint8_t *all;
	int rc;

	if (align(m, e) < 0)
		return -1;
	*x = (struct cache_entry){ .at = m->at + m->n, .w = (uint32_t)n, .flags = CACHE_BROKEN };
	if (s) {
		*x = (struct cache_entry){ x->at, (uint32_t)s->c, (uint32_t)s->h, (uint32_t)s->w,
			s->bytes ? CACHE_BYTES : 0, 0 };
		for (int k = 0; k < STEP_CHANNELS; k++)
			m->head.zero[k] = (double)s->zero[k];
	}
	all = xmalloc(n + m->head.y_bytes + 1);
	memcpy(all, s ? s->p : (const void *)why, n);
	memcpy(all + n, y, m->head.y_bytes);
	x->sum = cache_sum(all, n + m->head.y_bytes);
	rc = put(m, all, n + m->head.y_bytes, e);
	free(all);
	m->done++;
	return rc;
}

uint64_t cache_making(const struct cache_maker *m)
{
	return (m->at + m->n + ALIGN - 1) / ALIGN * ALIGN + m->head.entries * sizeof(*m->entry);
}

int cache_finish(struct cache_maker *m, struct err *e)
{
	size_t n = m->head.entries * sizeof(*m->entry);
	uint8_t head[CACHE_HEAD] = { 0 };
	int rc;

	if (align(m, e) < 0)
		return -1;
	m->head.index_at = m->at + m->n;
	m->head.bytes = m->head.index_at + n;
	m->head.index_sum = cache_sum(m->entry, n);
	m->head.sum = 0;
	m->head.sum = cache_sum(&m->head, sizeof(m->head));
	memcpy(head, &m->head, sizeof(m->head));
	if (put(m, m->entry, n, e) < 0 || flush(m, e) < 0 || m->f->pwrite(m->f, m->fd, head, sizeof(head), 0, e) < 0 ||
	    m->f->fsync(m->f, m->fd, e) < 0)
		return -1;
	rc = m->f->close(m->f, m->fd, e);
	m->fd = -1;
	if (!rc)
		rc = m->f->rename(m->f, m->aside, m->path, e);
	if (!rc) {
		free(m->aside);
		m->aside = NULL;
	}
	return rc;
}

void cache_drop(struct cache_maker *m)
{
	bool begun = m && m->entry;

	if (!m)
		return;
	if (m->fd >= 0)
		(void)m->f->close(m->f, m->fd, NULL);
	if (begun && m->aside)
		(void)m->f->unlink(m->f, m->aside, NULL);
	big_free(m->entry, m->head.entries * sizeof(*m->entry));
	free(m->piece);
	free(m->aside);
	free(m->path);
	free(m);
}
