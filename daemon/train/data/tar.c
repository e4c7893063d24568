/* A tar archive of images by class, read in place. One compressed with gzip is taken into memory (the images, not the
 * archive around them), up to a limit: gzip has no places to begin at. */
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include "common/mem.h"
#include "train/data/tar_int.h"

#define UNZIPPED_MAX ((uint64_t)1 << 30)

static int add(void *arg, const char *path, uint64_t at, uint64_t bytes, const uint8_t *body, struct err *e)
{
	return images_add(arg, path, at, bytes, body, e);
}

/* The whole archive, piece by piece from the file. */
static int unzip(struct tar *t, z_stream *z, uint64_t want, struct err *e)
{
	uint8_t in[16384];
	uint64_t at = 0, done = 0;
	int rc = Z_OK;

	while (rc != Z_STREAM_END) {
		size_t n = t->bytes - at < sizeof(in) ? (size_t)(t->bytes - at) : sizeof(in);
		uInt room = want - done < UINT_MAX / 2 ? (uInt)(want - done) : UINT_MAX / 2;

		if (!n)
			return err_set(e, ERR_CORRUPT, "truncated gzip file");
		if (tar_from_file(t, in, n, at, e) < 0)
			return -1;
		z->next_in = in;
		z->avail_in = (uInt)n;
		z->next_out = t->mem + done;
		z->avail_out = room;
		rc = inflate(z, Z_NO_FLUSH);
		at += n - z->avail_in;
		done += room - z->avail_out;
		if (rc != Z_OK && rc != Z_STREAM_END)
			return err_set(e, ERR_CORRUPT, "damaged gzip file at byte %llu: %s", (unsigned long long)at,
				rc == Z_BUF_ERROR ? "more than its end promises" : z->msg ? z->msg : "bad stream");
	}
	return done == want ? 0 : err_set(e, ERR_CORRUPT, "gzip file of %llu bytes, and its end promises %llu",
		(unsigned long long)done, (unsigned long long)want);
}

/* Only the images stay. */
static int compact(struct tar *t, struct err *e)
{
	uint64_t n = 0, at = 0;
	uint8_t *mem;

	for (size_t i = 0; i < t->x.n; i++)
		n += t->x.all[i].bytes;
	mem = big_alloc(n ? n : 1);
	if (!mem)
		return err_set(e, ERR_NOMEM, "no memory for %llu bytes of images", (unsigned long long)n);
	for (size_t i = 0; i < t->x.n; i++) {
		struct image_file *f = &t->x.all[i];

		memcpy(mem + at, t->mem + f->at, f->bytes);
		f->at = at;
		at += f->bytes;
	}
	big_free(t->mem, t->mem_n);
	t->mem = mem;
	t->mem_n = n ? n : 1;
	return 0;
}

static int zipped(struct tar *t, struct err *e)
{
	struct tar_input in = { .pread = tar_from_memory, .arg = t };
	z_stream z = { 0 };
	uint8_t end[4];
	int rc;

	if (t->bytes < 18 || tar_from_file(t, end, 4, t->bytes - 4, e) < 0)
		return err_set(e, ERR_CORRUPT, "truncated gzip file");
	in.bytes = (uint64_t)end[3] << 24 | (uint64_t)end[2] << 16 | (uint64_t)end[1] << 8 | end[0];
	if (in.bytes > UNZIPPED_MAX || !in.bytes || in.bytes / 1032 > t->bytes)
		return err_set(e, ERR_LIMIT,
			"%llu bytes after decompression; up to %llu are taken into memory: gunzip it, a .tar is "
			"read in place", (unsigned long long)in.bytes, (unsigned long long)UNZIPPED_MAX);
	t->mem = big_alloc(t->mem_n = (size_t)in.bytes);
	if (!t->mem || inflateInit2(&z, 15 + 16) != Z_OK)
		return err_set(e, ERR_NOMEM, "no memory for %llu bytes", (unsigned long long)in.bytes);
	rc = unzip(t, &z, in.bytes, e);
	(void)inflateEnd(&z);
	return rc < 0 || tar_walk(&in, add, t, e) < 0 ? -1 : compact(t, e);
}

/* Other compressions than gzip, by their first bytes. */
static const char *squeezed(const uint8_t *p)
{
	static const struct { const char *name; uint8_t magic[4]; } known[] = { { "zstd", { 0x28, 0xb5, 0x2f, 0xfd } },
		{ "xz", { 0xfd, '7', 'z', 'X' } }, { "bzip2", { 'B', 'Z', 'h', 0 } }, { "lz4", { 0x04, 0x22, 0x4d, 0x18 } },
		{ "zip, not tar,", { 'P', 'K', 3, 4 } } };

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (!memcmp(p, known[i].magic, known[i].magic[3] ? 4 : 3))
			return known[i].name;
	return NULL;
}

static int load(struct tar *t, const char *path, struct err *e)
{
	struct tar_input in = { .pread = tar_from_file, .arg = t };
	int64_t n = t->x.f->size(t->x.f, path, e);
	uint8_t magic[4] = { 0 };

	if (n < 0)
		return -1;
	in.bytes = t->bytes = (uint64_t)n;
	t->x.d.stamp = data_stamp(t->x.f, path, 0);
	t->fd = t->x.f->open(t->x.f, path, O_RDONLY, 0, e);
	if (t->fd < 0 || (n >= 4 && tar_from_file(t, magic, 4, 0, e) < 0))
		return -1;
	if (squeezed(magic))
		return err_set(e, ERR_INVALID, "%.200s: compressed with %s: decompress it, a .tar is read in place (gzip would "
			"do, too)", path, squeezed(magic));
	if ((magic[0] == 0x1f && magic[1] == 0x8b ? zipped(t, e) : tar_walk(&in, add, t, e)) < 0)
		return err_wrap(e, "%.200s", path);
	return 0;
}

static void close_(struct data_source *d)
{
	struct tar *t = (struct tar *)d;

	images_free(&t->x);
	if (t->fd >= 0)
		(void)t->x.f->close(t->x.f, t->fd, NULL);
	big_free(t->mem, t->mem_n);
	free(t);
}

static struct data_source *open_(struct files *f, const char *path, const struct spec *s, struct err *e)
{
	struct tar *t = xcalloc(1, sizeof(*t));

	t->fd = -1;
	t->x.f = f;
	t->x.fetch = tar_fetch;
	if (load(t, path, e) < 0 || images_ready(&t->x, path, s, e) < 0) {
		close_(&t->x.d);
		return NULL;
	}
	return &t->x.d;
}

const struct data_ops data_tar = {
	.name = "tar", .help = "a tar archive of JPEG and PNG files by class, read in place (.tar.gz: into memory)",
	.open = open_, .image = images_read, .close = close_,
};
