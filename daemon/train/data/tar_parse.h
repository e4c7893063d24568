/* The members of a tar archive, in place: ustar, GNU and pax headers (POSIX.1-2017 pax, "ustar Interchange Format" and
 * "pax Header Block"). Sparse files, multi-volume archives and hard links are refused by name. Nothing is unpacked. */
#ifndef TRAIN_DATA_TAR_PARSE_H
#define TRAIN_DATA_TAR_PARSE_H
#include <stdint.h>
#include "common/err.h"

#define TAR_PATH 4096

struct tar_input {
	uint64_t bytes;                         /* of the archive */
	int (*pread)(void *arg, void *to, size_t n, uint64_t at, struct err *e);       /* n bytes, all inside */
	void *arg;
};
/* One regular file: its path (without a leading "./"), where its bytes are. */
typedef int tar_member_fn(void *arg, const char *path, uint64_t at, uint64_t bytes, struct err *e);
/* ERR_CORRUPT names the place in the archive. */
int tar_walk(const struct tar_input *in, tar_member_fn *member, void *arg, struct err *e);

#endif
