/* CIFAR-10 as binary files (https://www.cs.toronto.edu/~kriz/cifar.html): a folder with data_batch_1.bin to
 * data_batch_5.bin and test_batch.bin, records of a label and 3 planes of 32 x 32 bytes. Held as it is in the files. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "train/data/data.h"
#include "train/data/manifest.h"

#define PIXELS 3072u
#define RECORD (1 + PIXELS)
#define BATCHES 5
#define FILE_MAX ((int64_t)1 << 32)

struct batch_file { uint8_t *p; uint64_t n, stamp; };
struct cifar { struct data_source d; struct batch_file train[BATCHES], test; };

static const char *const class_name[] = { "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse",
	"ship", "truck", NULL };

static int check(const struct batch_file *b, const char *path, struct err *e)
{
	if (!b->n || b->n % RECORD)
		return err_set(e, ERR_CORRUPT, "%s: %llu bytes; CIFAR-10 has records of %u", path, (unsigned long long)b->n,
			RECORD);
	for (uint64_t i = 0; i < b->n / RECORD; i++)
		if (b->p[i * RECORD] > 9)
			return err_set(e, ERR_CORRUPT, "%s: label %u of record %llu; labels are 0 to 9", path, b->p[i * RECORD],
				(unsigned long long)i);
	return 0;
}

/* 1: not there */
static int load(struct files *f, const char *dir, const char *name, struct batch_file *to, struct manifest *m,
	struct err *e)
{
	char path[1000];
	int64_t n, got;
	int fd;

	if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) >= sizeof(path))
		return err_set(e, ERR_INVALID, "%.200s...: the path is too long", dir);
	n = f->size(f, path, e);
	if (n < 0)
		return e->code == ERR_NOT_FOUND ? 1 : -1;
	if (n > FILE_MAX)
		return err_set(e, ERR_LIMIT, "%s: %lld bytes; at most %lld are read", path, (long long)n, (long long)FILE_MAX);
	to->p = big_alloc(n ? (size_t)n : 1);
	if (!to->p)
		return err_set(e, ERR_NOMEM, "%s: no memory for %lld bytes", path, (long long)n);
	to->n = (uint64_t)n;
	to->stamp = data_stamp(f, path, 0);
	fd = f->open(f, path, O_RDONLY, 0, e);
	got = fd < 0 ? -1 : f->pread(f, fd, to->p, (size_t)n, 0, e);
	if (fd >= 0)
		(void)f->close(f, fd, NULL);
	if (got >= 0 && got != n)
		return err_set(e, ERR_IO, "%s: it became shorter while it was read", path);
	if (got < 0 || check(to, path, e) < 0)
		return -1;
	manifest_add(m, name, to->n, to->p, to->p + (to->n < MANIFEST_PIECE ? 0 : to->n - MANIFEST_PIECE));
	return 0;
}

static void close_(struct data_source *d)
{
	struct cifar *c = (struct cifar *)d;

	for (int i = 0; i < BATCHES; i++)
		big_free(c->train[i].p, c->train[i].n ? c->train[i].n : 1);
	big_free(c->test.p, c->test.n ? c->test.n : 1);
	free(c);
}

static int load_all(struct cifar *c, struct files *f, const char *path, struct err *e)
{
	struct manifest m;
	int rc = 0;

	manifest_begin(&m);
	for (int i = 0; i < BATCHES && rc >= 0; i++) {
		char name[32];

		(void)snprintf(name, sizeof(name), "data_batch_%d.bin", i + 1);
		rc = load(f, path, name, &c->train[i], &m, e);
		c->d.count[DATA_TRAIN] += c->train[i].n / RECORD;
		c->d.stamp = 3 * c->d.stamp + c->train[i].stamp;
	}
	if (rc >= 0)
		rc = load(f, path, "test_batch.bin", &c->test, &m, e);
	c->d.count[DATA_VALIDATION] = c->test.n / RECORD;
	c->d.stamp = 3 * c->d.stamp + c->test.stamp;
	manifest_end(&m, &c->d);
	if (rc >= 0 && !c->d.count[DATA_TRAIN])
		rc = err_set(e, ERR_NOT_FOUND, "%s: no data_batch_1.bin ... data_batch_5.bin; put the files of "
			"cifar-10-binary.tar.gz there or set local.data", path);
	return rc < 0 ? -1 : 0;
}

static struct data_source *open_(struct files *f, const char *path, const struct spec *s, struct err *e)
{
	struct cifar *c = xcalloc(1, sizeof(*c));

	c->d.target = TARGET_CLASS;
	c->d.classes = 10;
	c->d.class_name = class_name;
	c->d.shape = (struct shape){ 3, { 3, 32, 32 } };
	c->d.bytes = true;
	if (load_all(c, f, path, e) < 0) {
		close_(&c->d);
		return NULL;
	}
	return &c->d;
}

static const uint8_t *record(const struct cifar *c, enum data_part part, uint64_t index)
{
	const struct batch_file *b = part == DATA_TRAIN ? c->train : &c->test;

	for (; part == DATA_TRAIN && index >= b->n / RECORD; b++)
		index -= b->n / RECORD;
	return b->p + index * RECORD;
}

static int read_(struct data_source *d, enum data_part part, const uint64_t *index, size_t n, real *x, void *y,
	struct err *e)
{
	for (size_t i = 0; i < n; i++) {
		const uint8_t *p = record((const struct cifar *)d, part, index[i]);

		((int32_t *)y)[i] = p[0];
		for (size_t k = 0; k < PIXELS; k++)
			x[i * PIXELS + k] = (real)p[1 + k];
	}
	return 0;
}

const struct data_ops data_cifar10 = {
	.name = "cifar10", .help = "a folder of CIFAR-10's binary files",
	.open = open_, .read = read_, .close = close_,
};
