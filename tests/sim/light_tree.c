/* A tree that a simulation has in place of common/tree256.c: its digests decide who leads, so that another one would
 * make every seed another run, and those that once showed a fault would show nothing any more. */
#include "common/hash.h"

#ifndef LIGHT_OPEN                              /* which is measured */
void tree256_of(const void *p, size_t n, uint8_t out[TREE256])
{
	tree256_by("hivemind-tree-1", sha256_of, p, n, out);
}
#endif
