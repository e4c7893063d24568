/* The manifest of a data set: its files in order, each with name, size and a hash of its first and last
 * 4 KiB. Two of them are compared without sending either: whoever has one says hashes of stretches of it, and the first
 * stretch that differs is divided again, so that a million files need four answers of at most 4 KiB. */
#ifndef TRAIN_MANIFEST_H
#define TRAIN_MANIFEST_H
#include "common/hash.h"
#include "train/data/data.h"

#define MANIFEST_PIECE 4096u
#define MANIFEST_PARTS 256                      /* stretches in one answer */
#define MANIFEST_HASH 16

/* For kinds of few files: what is added becomes the source's digest and its list of files. */
struct manifest { struct sha256 h; uint32_t n; struct data_file file[DATA_FILES_FEW]; };
void manifest_begin(struct manifest *m);
/* first, last: min(bytes, MANIFEST_PIECE) bytes each. The name may be cut in the list, never in the digest. */
void manifest_add(struct manifest *m, const char *name, uint64_t bytes, const void *first, const void *last);
/* The last file added has this content, too (not only its ends). */
void manifest_add_whole(struct manifest *m, const uint8_t digest[32]);
void manifest_end(struct manifest *m, struct data_source *ret /* NULL: frees */);

uint64_t manifest_files(const struct data_source *d);   /* 0: made, not read */
void manifest_file(const struct data_source *d, uint64_t i, struct data_file *ret);
/* Into how many stretches files [lo, hi) are divided, and where the k-th begins. */
uint32_t manifest_parts(uint64_t lo, uint64_t hi);
uint64_t manifest_part(uint64_t lo, uint64_t hi, uint32_t k);
/* Their hashes; blocking, 35 ms per million files. hi at most manifest_files. */
void manifest_hashes(const struct data_source *d, uint64_t lo, uint64_t hi, uint8_t (*ret)[MANIFEST_HASH]);
/* "a/17.png (812 bytes, 9f3c01aa)" */
const char *manifest_text(const struct data_file *f, char out[112]);

#endif
