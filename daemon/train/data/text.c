/* Text, byte by byte: a sample is as many bytes as the input is long, its label the byte that follows. A single file
 * gives its last tenth to validation; a folder has train.txt, and test.txt or val.txt. */
#include <stdlib.h>
#include "common/hash.h"
#include "common/mem.h"
#include "train/data/whole.h"

struct text { struct data_source d; struct whole part[DATA_PARTS]; const uint8_t *from[DATA_PARTS]; size_t window; };

static void close_(struct data_source *d)
{
	struct text *t = (struct text *)d;

	for (int i = 0; i < DATA_PARTS; i++)
		whole_free(&t->part[i]);
	free(t);
}

/* Windows never reach from one part into the other. */
static int cut(struct text *t, const char *path, struct err *e)
{
	size_t n = t->part[DATA_TRAIN].n, held = t->part[DATA_VALIDATION].n;

	t->from[DATA_TRAIN] = (const uint8_t *)t->part[DATA_TRAIN].p;
	t->from[DATA_VALIDATION] = (const uint8_t *)t->part[DATA_VALIDATION].p;
	if (!t->part[DATA_VALIDATION].p) {
		held = n / 10;
		n -= held;
		t->from[DATA_VALIDATION] = t->from[DATA_TRAIN] + n;
	}
	if (n <= t->window)
		return err_set(e, ERR_INVALID, "%.200s: %zu bytes to train on; a sample is %zu and the byte after", path, n,
			t->window);
	t->d.count[DATA_TRAIN] = n - t->window;
	t->d.count[DATA_VALIDATION] = held > t->window ? (held - 1) / t->window : 0;
	return 0;
}

static struct data_source *open_(struct files *f, const char *path, const struct spec *s, struct err *e)
{
	struct text *t = xcalloc(1, sizeof(*t));
	struct sha256 h;
	int rc;

	t->d.target = TARGET_CLASS;
	t->d.classes = 256;
	t->d.bytes = true;
	t->d.shape = s->input;
	t->window = shape_count(&s->input);
	sha256_init(&h);
	rc = whole_parts(f, path, "txt", t->part, &h, e);
	sha256_end(&h, t->d.digest);
	if (rc < 0 || cut(t, path, e) < 0) {
		close_(&t->d);
		return NULL;
	}
	return &t->d;
}

/* Training begins at any byte; validation takes one window after the other. */
static int read_(struct data_source *d, enum data_part part, const uint64_t *index, size_t n, real *x, void *y,
	struct err *e)
{
	const struct text *t = (const struct text *)d;

	for (size_t i = 0; i < n; i++) {
		const uint8_t *p = t->from[part] + index[i] * (part == DATA_TRAIN ? 1 : t->window);

		for (size_t k = 0; k < t->window; k++)
			x[i * t->window + k] = (real)p[k];
		((int32_t *)y)[i] = p[t->window];
	}
	return 0;
}

const struct data_ops data_text = {
	.name = "text", .help = "a text file or a folder of train.txt and test.txt: bytes, and the byte that follows",
	.open = open_, .read = read_, .close = close_,
};
