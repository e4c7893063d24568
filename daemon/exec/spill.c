/* The file of tier file, and files that SAVE writes. */
#include <assert.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "exec/spill.h"

#define ROUND 4096ull                   /* places begin at pages */
#define TRIES 8

struct hole { uint64_t at, bytes; };
struct spill {
	struct files *files; char *folder;      /* what a lane may read */
	int fd;
	bool opening;
	uint64_t end;                   /* behind the last place that is taken */
	uint32_t nholes, choles; struct hole *hole;     /* before end, ascending, never side by side */
};

struct spill *spill_new(struct files *f, const char *folder)
{
	struct spill *s = xcalloc(1, sizeof(*s));

	*s = (struct spill){ .files = f, .folder = xstrdup(folder), .fd = -1 };
	return s;
}

void spill_free(struct spill *s)
{
	if (!s)
		return;
	assert(s->fd < 0 && !s->opening);
	free(s->folder);
	free(s->hole);
	free(s);
}

/* --- places */

static uint64_t rounded(uint64_t bytes)
{
	return bytes ? (bytes + ROUND - 1) / ROUND * ROUND : ROUND;
}

static void hole_del(struct spill *s, uint32_t k)
{
	memmove(&s->hole[k], &s->hole[k + 1], (--s->nholes - k) * sizeof(*s->hole));
}

uint64_t spill_take(struct spill *s, uint64_t bytes)
{
	uint64_t at;

	bytes = rounded(bytes);
	for (uint32_t k = 0; k < s->nholes; k++) {
		if (s->hole[k].bytes < bytes)
			continue;
		at = s->hole[k].at;
		s->hole[k].at += bytes;
		s->hole[k].bytes -= bytes;
		if (!s->hole[k].bytes)
			hole_del(s, k);
		return at;
	}
	at = s->end;
	s->end += bytes;
	return at;
}

void spill_give(struct spill *s, uint64_t at, uint64_t bytes)
{
	uint32_t k = 0;

	bytes = rounded(bytes);
	while (k < s->nholes && s->hole[k].at < at)
		k++;
	if (s->nholes == s->choles) {
		s->choles = s->choles ? 2 * s->choles : 16;
		s->hole = xrealloc(s->hole, s->choles * sizeof(*s->hole));
	}
	memmove(&s->hole[k + 1], &s->hole[k], (s->nholes++ - k) * sizeof(*s->hole));
	s->hole[k] = (struct hole){ at, bytes };
	if (k + 1 < s->nholes && s->hole[k].at + s->hole[k].bytes == s->hole[k + 1].at) {
		s->hole[k].bytes += s->hole[k + 1].bytes;
		hole_del(s, k + 1);
	}
	if (k && s->hole[k - 1].at + s->hole[k - 1].bytes == s->hole[k].at) {
		s->hole[k - 1].bytes += s->hole[k].bytes;
		hole_del(s, k);
	}
	k = s->nholes - 1;
	if (s->hole[k].at + s->hole[k].bytes == s->end) {
		s->end = s->hole[k].at;
		s->nholes--;
	}
}

/* --- open and close */

int spill_fd(const struct spill *s) { return s->fd; }
bool spill_opening(const struct spill *s) { return s->opening; }
void spill_begin(struct spill *s) { s->opening = true; }

void spill_opened(struct spill *s, int fd)
{
	s->opening = false;
	s->fd = fd;
}

/* The name is there for a moment. A crash in it leaves an empty file, which the next one to open takes away; so does
 * another executor of the same folder, which harms nobody: the file stays with who has it open. */
int spill_open(const struct spill *s, struct err *e)
{
	struct files *f = s->files;
	char *path = xasprintf("%s/.values", s->folder);
	struct err why = { 0 };
	int fd = -1;

	if (f->mkdir(f, s->folder, 0750, e) < 0) {
		free(path);
		return -1;
	}
	for (int k = 0; k < TRIES && fd < 0; k++) {
		fd = f->open(f, path, O_RDWR | O_CREAT | O_EXCL, 0600, &why);
		if (fd < 0 && (why.code != ERR_EXISTS || (f->unlink(f, path, &why) < 0 && why.code != ERR_NOT_FOUND)))
			break;
	}
	if (fd >= 0 && f->unlink(f, path, &why) < 0 && why.code != ERR_NOT_FOUND) {
		(void)f->close(f, fd, NULL);
		fd = -1;
	}
	free(path);
	if (fd < 0 && e)
		*e = why;
	return fd;
}

void spill_close(const struct spill *s, int fd)
{
	(void)s->files->close(s->files, fd, NULL);      /* nobody wants what is in it */
}

int spill_read(const struct spill *s, int fd, void *p, size_t bytes, uint64_t at, struct err *e)
{
	int64_t got = s->files->pread(s->files, fd, p, bytes, at, e);

	if (got >= 0 && (size_t)got != bytes)
		return err_set(e, ERR_IO, "read descriptor %d at byte %llu: %lld of %zu bytes are there", fd,
			(unsigned long long)at, (long long)got, bytes);
	return got < 0 ? -1 : 0;
}

int spill_write(const struct spill *s, int fd, const void *p, size_t bytes, uint64_t at, struct err *e)
{
	return s->files->pwrite(s->files, fd, p, bytes, at, e);
}

/* --- SAVE */

int spill_out_open(struct spill_out *o, const struct spill *s, const char *name, struct err *e)
{
	struct files *f = s->files;

	*o = (struct spill_out){ .s = s, .fd = -1 };
	if (f->mkdir(f, s->folder, 0750, e) < 0)
		return -1;
	o->path = xasprintf("%s/%s", s->folder, name);
	o->tmp = xasprintf("%s/.%s.tmp", s->folder, name);
	o->fd = f->open(f, o->tmp, O_WRONLY | O_CREAT | O_TRUNC, 0640, e);
	return o->fd < 0 ? -1 : 0;
}

int spill_out_put(struct spill_out *o, const void *p, size_t bytes, struct err *e)
{
	int rc = o->s->files->pwrite(o->s->files, o->fd, p, bytes, o->at, e);

	o->at += bytes;
	return rc;
}

int spill_out_close(struct spill_out *o, int rc, struct err *e)
{
	struct files *f = o->s->files;

	if (!rc)
		rc = f->fsync(f, o->fd, e);
	if (o->fd >= 0 && f->close(f, o->fd, rc ? NULL : e) < 0)
		rc = -1;
	if (!rc)
		rc = f->rename(f, o->tmp, o->path, e);
	if (rc && o->fd >= 0)
		(void)f->unlink(f, o->tmp, NULL);
	free(o->path);
	free(o->tmp);
	return rc;
}
