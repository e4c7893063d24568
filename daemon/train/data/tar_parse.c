/* tar headers: checked one by one (checksum, sizes inside the archive). Headers are read through a window, since small
 * members lie close together. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/text.h"
#include "train/data/tar_parse.h"

#define BLOCK 512u
#define WINDOW ((size_t)1 << 18)
#define EXTENDED_MAX ((uint64_t)1 << 20)        /* a pax header or long name */

struct walk {
	const struct tar_input *in;
	uint64_t at;                            /* of the current header */
	uint8_t *window; uint64_t window_at, window_n;
	char path[TAR_PATH]; bool has_path;     /* from a header before: of the next member */
	uint64_t size; bool has_size;
};

static int bad(const struct walk *w, struct err *e, const char *what)
{
	return err_set(e, ERR_CORRUPT, "tar header at byte %llu: %s", (unsigned long long)w->at, what);
}

/* n bytes from `at` on, all inside; a pointer that was given before is no longer good. */
static const uint8_t *span(struct walk *w, uint64_t at, uint64_t n, struct err *e)
{
	if (at < w->window_at || at + n > w->window_at + w->window_n) {
		w->window_at = at;
		w->window_n = w->in->bytes - at < WINDOW ? w->in->bytes - at : WINDOW;
		if (w->in->pread(w->in->arg, w->window, (size_t)w->window_n, at, e) < 0)
			return NULL;
	}
	return w->window + (at - w->window_at);
}

/* Octal, or (GNU, beyond 8 GiB) the top bit and a big-endian number. */
static int number(const uint8_t *p, size_t n, uint64_t *ret)
{
	uint64_t v = 0;
	size_t i = 0;

	if (p[0] & 0x80) {
		for (i = 1; i < n; i++) {
			if (v >> 55)
				return -1;
			v = v << 8 | p[i];
		}
		*ret = v;
		return p[0] == 0x80 ? 0 : -1;
	}
	while (i < n && p[i] == ' ')
		i++;
	for (; i < n && p[i] >= '0' && p[i] <= '7'; i++)
		v = v << 3 | (uint64_t)(p[i] - '0');
	*ret = v;
	return i == n || p[i] == ' ' || !p[i] ? 0 : -1;
}

static int checksum(const uint8_t *p)
{
	uint64_t want;
	unsigned sum = 8 * ' ';                 /* the sum itself counts as blanks */

	if (number(p + 148, 8, &want))
		return -1;
	for (unsigned i = 0; i < BLOCK; i++)
		sum += p[i];
	for (unsigned i = 148; i < 156; i++)
		sum -= p[i];
	return sum == want ? 0 : -1;
}

static bool zeros(const uint8_t *p)
{
	for (unsigned i = 0; i < BLOCK; i++)
		if (p[i])
			return false;
	return true;
}

static int set_path(struct walk *w, const uint8_t *p, size_t n, struct err *e)
{
	size_t len = strnlen((const char *)p, n);

	if (len >= sizeof(w->path))
		return bad(w, e, "the path is too long");
	memcpy(w->path, p, len);
	w->path[len] = 0;
	w->has_path = true;
	return 0;
}

/* "LENGTH KEY=VALUE\n", LENGTH counts all of it. */
static int pax(struct walk *w, const uint8_t *p, size_t n, struct err *e)
{
	while (n) {
		size_t len = 0, i = 0;
		const uint8_t *key, *eq;

		for (; i < n && i < 8 && p[i] >= '0' && p[i] <= '9'; i++)
			len = len * 10 + (size_t)(p[i] - '0');
		if (!i || i >= n || p[i] != ' ' || len > n || len < i + 4 || p[len - 1] != '\n')
			return bad(w, e, "damaged pax record");
		key = p + i + 1;
		eq = memchr(key, '=', len - i - 2);
		if (!eq)
			return bad(w, e, "a pax record without =");
		if (eq - key == 4 && !memcmp(key, "path", 4)) {
			if (set_path(w, eq + 1, (size_t)(p + len - 1 - eq - 1), e) < 0)
				return -1;
		} else if (eq - key == 4 && !memcmp(key, "size", 4)) {
			uint64_t v = 0;
			const uint8_t *d = eq + 1;

			for (; *d >= '0' && *d <= '9' && v < (uint64_t)1 << 56; d++)
				v = v * 10 + (uint64_t)(*d - '0');
			if (*d != '\n' || d == eq + 1)
				return bad(w, e, "a pax size that is no number");
			w->size = v;
			w->has_size = true;
		} else if (eq - key > 10 && !memcmp(key, "GNU.sparse", 10)) {
			return bad(w, e, "a sparse file; make the archive without --sparse");
		}
		p += len;
		n -= len;
	}
	return 0;
}

/* A header about the next member. */
static int extended(struct walk *w, char type, uint64_t bytes, struct err *e)
{
	uint8_t *p;
	int rc;

	if (type == 'K')                        /* a link's target */
		return 0;
	if (bytes > EXTENDED_MAX)
		return bad(w, e, "an extended header of more than 1 MiB");
	p = xmalloc((size_t)bytes + 1);
	p[bytes] = 0;
	rc = w->in->pread(w->in->arg, p, (size_t)bytes, w->at + BLOCK, e);
	if (!rc)
		rc = type == 'L' ? set_path(w, p, (size_t)bytes, e) : pax(w, p, (size_t)bytes, e);
	free(p);
	if (!rc && type == 'g' && (w->has_path || w->has_size))
		return bad(w, e, "a path or a size for all members; make the archive without --pax-option");
	return rc;
}

static int plain_path(struct walk *w, const uint8_t *p, struct err *e)
{
	size_t prefix = !memcmp(p + 257, "ustar\0", 6) ? strnlen((const char *)p + 345, 155) : 0;
	size_t name = strnlen((const char *)p, 100);

	if (w->has_path)
		return 0;
	if (prefix) {
		memcpy(w->path, p + 345, prefix);
		w->path[prefix++] = '/';
	}
	memcpy(w->path + prefix, p, name);
	w->path[prefix + name] = 0;
	return 0;
}

static int member(struct walk *w, const uint8_t *p, uint64_t bytes, tar_member_fn *fn, void *arg, struct err *e)
{
	const char *path = w->path;
	char type = (char)p[156];

	if (plain_path(w, p, e) < 0)
		return -1;
	w->has_path = w->has_size = false;
	if (type == '1')
		return bad(w, e, "a hard link; make the archive with --hard-dereference");
	if (type == 'S' || type == 'M')
		return bad(w, e, "a sparse or split file; make a plain archive");
	if (type != '0' && type != 0 && type != '7')
		return 0;                               /* folders, symbolic links, devices, labels */
	while (path[0] == '.' && path[1] == '/')
		path += 2;
	if (!text_utf8_ok(path, strlen(path)))
		return bad(w, e, "a name that is not UTF-8");
	return fn(arg, path, w->at + BLOCK, bytes, bytes <= TAR_BODY ? p + BLOCK : NULL, e);
}

static int walk(struct walk *w, tar_member_fn *fn, void *arg, struct err *e)
{
	while (w->at + BLOCK <= w->in->bytes) {
		const uint8_t *p = span(w, w->at, BLOCK, e);
		uint64_t bytes, room = w->in->bytes - w->at - BLOCK;
		bool about_next;

		if (!p)
			return -1;
		if (zeros(p))
			return 0;
		if (checksum(p))
			return bad(w, e, "its checksum is wrong: damaged, or no tar archive");
		about_next = p[156] == 'L' || p[156] == 'K' || p[156] == 'x' || p[156] == 'g';
		if (number(p + 124, 12, &bytes))
			return bad(w, e, "its size is no number");
		if (w->has_size && !about_next)
			bytes = w->size;
		if (bytes > room)
			return bad(w, e, "truncated: its file goes on behind the end of the archive");
		if (!about_next && bytes <= TAR_BODY)
			p = span(w, w->at, BLOCK + bytes, e);
		if (!p)
			return -1;
		if ((about_next ? extended(w, (char)p[156], bytes, e) : member(w, p, bytes, fn, arg, e)) < 0)
			return -1;
		w->at += BLOCK + (bytes + BLOCK - 1) / BLOCK * BLOCK;
	}
	return w->at && w->in->bytes ? 0 : bad(w, e, "no tar archive: it has less than 512 bytes");
}

int tar_walk(const struct tar_input *in, tar_member_fn *fn, void *arg, struct err *e)
{
	struct walk w = { .in = in, .window = xmalloc(WINDOW) };
	int rc = walk(&w, fn, arg, e);

	free(w.window);
	return rc;
}
