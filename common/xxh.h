/* libxxhash, with the widest instructions that this CPU has: alone it uses those that every CPU has, at 2.5 times the
 * processor time. The hashes are the same. */
#ifndef COMMON_XXH_H
#define COMMON_XXH_H
#include <xxhash.h>
#ifdef XXH_BY_CPU
#include <xxh_x86dispatch.h>
#endif

#endif
