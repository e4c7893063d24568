/* Names to addresses: getaddrinfo as a job on a lane of its own (a slow resolver must not hold up the disk). */
#ifndef NET_RESOLVE_H
#define NET_RESOLVE_H
#include "env.h"
void resolve_start(struct env *env, int lane, struct resolving *r);
#endif
