/* What folders and archives of images have in common: a list of files by class, their manifest, reading and decoding.
 * Layouts: CLASS/FILE, or train/CLASS/FILE with test/, val/ or validation/ beside it. Classes are numbered in the order
 * of their names (bytes), files within a class likewise, as torchvision's ImageFolder does. */
#ifndef TRAIN_DATA_IMAGES_H
#define TRAIN_DATA_IMAGES_H
#include "train/data/decode.h"
#include "train/data/data.h"

#define IMAGE_FILE_MAX ((int64_t)1 << 26)
#define IMAGES_MAX ((uint64_t)1 << 27)

struct image_file {
	char *path;                             /* "train/cat/1.jpg", from the root of the data set */
	uint64_t at, bytes;                     /* where in the archive; folders: 0 */
	int32_t label;
	bool summed; uint8_t sum[16];           /* XXH3-128 of its first and last bytes, for the manifest */
};
struct images {
	struct data_source d;
	struct files *f;
	size_t channels;
	char **name;                            /* of the classes; ends with NULL */
	struct image_file *file[DATA_PARTS];
	struct image_file *all; size_t n, cap;  /* as they were found, until images_ready */
	/* n bytes of one file from `at` on; called by several workers at once */
	int (*fetch)(struct images *x, const struct image_file *i, uint64_t at, size_t n, uint8_t *to, struct err *e);
};
/* Takes path (1 to 3 parts, without "./"); others than images in classes are left out. */
/* body: all of its bytes, when they are at hand and not many; else NULL. */
int images_add(struct images *x, const char *path, uint64_t at, uint64_t bytes, const uint8_t *body, struct err *e);
/* Sorts, splits into parts, numbers the classes, computes the manifest's digest. */
int images_ready(struct images *x, const char *path, const struct spec *s, struct err *e);
int images_read(struct data_source *d, enum data_part part, uint64_t index, struct sample *s, int32_t *ret_label,
	struct err *e);
void images_free(struct images *x);             /* what images_add made */

#endif
