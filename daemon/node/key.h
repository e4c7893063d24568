/* Secrets in files: the peer's identity and the swarm's key. Read at start, before the loop runs. */
#ifndef DAEMON_KEY_H
#define DAEMON_KEY_H
#include "common/err.h"
#include "env.h"

/* Keys lie in many places, of libcrypto's too: nothing of this process is written into a core file, whatever the limits
 * are, and no other process of the same user may look into it. */
void key_keep(void);
/* 32 bytes as 64 hex digits and a newline. Made with mode 0600 when missing (tmp, fsync, rename). Refused when group or
 * others can read it. */
int key_identity(struct env *env, const char *path, uint8_t ret_seed[32], struct err *e);
/* Must exist; same format, same mode rule. The error says how to make one. */
int key_swarm(struct env *env, const char *path, uint8_t ret_key[32], struct err *e);

/* A swarm key that is being replaced, in the state folder (mode 0600): the daemon was told of `key` while its
 * configuration said `old`, which is good until until_ms (wall clock). Stays until the configured file holds `key`. */
#define KEY_ROTATION_FILE "swarm-key.rotation"
struct key_rotation { uint8_t key[32], old[32]; uint64_t until_ms; };
int key_rotation_write(struct env *env, const char *path, const struct key_rotation *r, struct err *e);
/* At start, *key being what the configured file says. Replaces it by the newer one when there is a rotation of it;
 * ret_old_us: that long is ret_old still good, 0: not at all. ret_stale: the operator should replace the file. */
int key_rotation_apply(struct env *env, const char *path, uint8_t key[32], uint8_t ret_old[32], uint64_t *ret_old_us,
	bool *ret_stale, struct err *e);

#endif
