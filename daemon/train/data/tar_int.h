/* Inside tar: tar.c (what is in an archive), tar_bytes.c (its bytes). */
#ifndef TRAIN_DATA_TAR_INT_H
#define TRAIN_DATA_TAR_INT_H
#include "train/data/images.h"
#include "train/data/tar_parse.h"

struct tar { struct images x; int fd; uint64_t bytes; uint8_t *mem; size_t mem_n; };       /* mem NULL: in the file */

int tar_from_file(void *tar, void *to, size_t n, uint64_t at, struct err *e);   /* tar_input.pread */
int tar_from_memory(void *tar, void *to, size_t n, uint64_t at, struct err *e); /* likewise */
int tar_fetch(struct images *x, const struct image_file *i, uint64_t at, size_t n, uint8_t *to, struct err *e);

#endif
