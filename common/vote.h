/* What most of several peers say of one thing, each with a digest of TREE256 bytes. */
#ifndef COMMON_VOTE_H
#define COMMON_VOTE_H
#include <stddef.h>
#include "common/hash.h"

#define VOTE_NONE SIZE_MAX

/* said[i]: the word of one, NULL: it says nothing. Returns the first of those who say what most say, VOTE_NONE: nobody
 * says anything. *ret_rival (may be NULL): the first who says something else that as many say, else VOTE_NONE. */
size_t vote_most(const uint8_t *const *said, size_t n, size_t *ret_rival);

#endif
