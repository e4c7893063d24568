/* Secrets in files: the peer's identity and the swarm's key. Read at start, before the loop runs. */
#ifndef DAEMON_KEY_H
#define DAEMON_KEY_H
#include "common/err.h"
#include "env.h"

/* 32 bytes as 64 hex digits and a newline. Made with mode 0600 when missing (tmp, fsync, rename). Refused when group or
 * others can read it. */
int key_identity(struct env *env, const char *path, uint8_t ret_seed[32], struct err *e);
/* Must exist; same format, same mode rule. The error says how to make one. */
int key_swarm(struct env *env, const char *path, uint8_t ret_key[32], struct err *e);

#endif
