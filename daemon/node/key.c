/* The identity and the swarm key: 64 hex digits in files that nobody else may read. */
#include "node/key.h"
#include <ctype.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include "common/id.h"
#include "common/text.h"

#define KEY_TEXT 64
#define KEY_WINDOW_MAX_MS (30ull * 24 * 3600 * 1000)    /* a clock that was wrong prolongs no window for ever */

static int check_mode(const char *path, struct err *e)
{
	struct stat st;
	if (stat(path, &st))
		return 0;               /* the simulator's files have no modes */
	if (st.st_mode & 077)
		return err_set(e, ERR_AUTH, "%s: mode %03o lets others read a secret; run: chmod 600 %s", path,
		st.st_mode & 0777, path);
	return 0;
}

/* Up to cap - 1 bytes of it, with a 0 behind; how many, or -1. */
static int64_t read_secret(struct env *env, const char *path, char *text, size_t cap, struct err *e)
{
	int fd = env->files->open(env->files, path, O_RDONLY | O_CLOEXEC, 0, e);

	memset(text, 0, cap);
	if (fd < 0)
		return -1;
	int64_t n = env->files->pread(env->files, fd, text, cap - 1, 0, e);
	env->files->close(env->files, fd, NULL);
	return n < 0 || check_mode(path, e) ? -1 : n;
}

static int read_key(struct env *env, const char *path, uint8_t ret[32], struct err *e)
{
	char text[KEY_TEXT + 3];
	struct id id;
	int64_t n = read_secret(env, path, text, sizeof text, e);
	if (n < 0)
		return -1;
	while (n > 0 && isspace((unsigned char)text[n - 1]))
		text[--n] = 0;
	int rc = n == KEY_TEXT ? id_parse(&id, text, NULL) : -1;
	explicit_bzero(text, sizeof text);
	if (rc)
		return err_set(e, ERR_CORRUPT, "%s: expected 64 hex digits and nothing else; restore it from a backup", path);
	memcpy(ret, id.b, 32);
	explicit_bzero(&id, sizeof id);
	return 0;
}

/* A whole secret file at once: tmp, fsync, rename. */
static int write_secret(struct env *env, const char *path, const char *text, size_t n, struct err *e)
{
	struct files *f = env->files;
	char tmp[4096];

	if (snprintf(tmp, sizeof tmp, "%s.tmp", path) >= (int)sizeof tmp)
		return err_set(e, ERR_INVALID, "%s: path too long", path);
	int fd = f->open(f, tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600, e);
	if (fd < 0)
		return -1;
	int rc = f->pwrite(f, fd, text, n, 0, e) || f->fsync(f, fd, e);
	return f->close(f, fd, rc ? NULL : e) || rc || f->rename(f, tmp, path, e) ? -1 : 0;
}

static int make_key(struct env *env, const char *path, uint8_t ret[32], struct err *e)
{
	struct id id;
	char text[ID_HEX + 1];
	env->ops->secure(env, id.b, sizeof id.b);
	id_hex(&id, text);
	text[64] = '\n';
	int rc = write_secret(env, path, text, 65, e);
	memcpy(ret, id.b, 32);
	explicit_bzero(&id, sizeof id);
	explicit_bzero(text, sizeof text);
	return rc;
}

int key_identity(struct env *env, const char *path, uint8_t ret_seed[32], struct err *e)
{
	struct err mine;
	if (!read_key(env, path, ret_seed, &mine))
		return 0;
	if (mine.code == ERR_NOT_FOUND)
		return make_key(env, path, ret_seed, e);
	if (e)
		*e = mine;
	return -1;
}

int key_swarm(struct env *env, const char *path, uint8_t ret_key[32], struct err *e)
{
	if (!read_key(env, path, ret_key, e))
		return 0;
	if (e && e->code == ERR_NOT_FOUND)
		return err_set(e, ERR_NOT_FOUND,
		"%s: no swarm key there; make one with: (umask 077; openssl rand -hex 32 > %s) and copy it to every peer",
		path, path);
	return -1;
}

/* ---- rotation: three lines, the new key, the old one, until when ---- */

int key_rotation_write(struct env *env, const char *path, const struct key_rotation *r, struct err *e)
{
	char key[ID_HEX], old[ID_HEX], text[200];
	struct id id;

	memcpy(id.b, r->key, 32);
	id_hex(&id, key);
	memcpy(id.b, r->old, 32);
	id_hex(&id, old);
	int n = snprintf(text, sizeof text, "%s\n%s\n%" PRIu64 "\n", key, old, r->until_ms);
	int rc = write_secret(env, path, text, (size_t)n, e);
	explicit_bzero(&id, sizeof id);
	explicit_bzero(key, sizeof key);
	explicit_bzero(old, sizeof old);
	explicit_bzero(text, sizeof text);
	return rc;
}

static int parse_rotation(char *text, struct key_rotation *ret)
{
	struct id key, old;
	size_t n = strlen(text);

	if (n < 2 * ID_HEX + 2 || text[64] != '\n' || text[129] != '\n' || text[n - 1] != '\n')
		return -1;
	text[64] = text[129] = text[n - 1] = '\0';
	if (id_parse(&key, text, NULL) || id_parse(&old, text + 65, NULL) || text_u64(text + 130, &ret->until_ms, NULL))
		return -1;
	memcpy(ret->key, key.b, 32);
	memcpy(ret->old, old.b, 32);
	return 0;
}

static int rotation_read(struct env *env, const char *path, struct key_rotation *ret, struct err *e)
{
	char text[200];

	if (read_secret(env, path, text, sizeof text, e) < 0)
		return -1;
	int rc = parse_rotation(text, ret);
	explicit_bzero(text, sizeof text);
	return rc ? err_set(e, ERR_CORRUPT, "%s: it should say which swarm key replaced which and does not; delete it when "
		"the configured swarm_key_file holds the newest key", path) : 0;
}

int key_rotation_apply(struct env *env, const char *path, uint8_t key[32], uint8_t ret_old[32], uint64_t *ret_old_us,
	bool *ret_stale, struct err *e)
{
	struct key_rotation r;
	struct err mine;
	uint64_t now = env_wall(env);

	*ret_old_us = 0;
	*ret_stale = false;
	if (rotation_read(env, path, &r, &mine)) {
		if (mine.code == ERR_NOT_FOUND)
			return 0;
		*e = mine;
		return -1;
	}
	bool is_new = !memcmp(key, r.key, 32), is_old = !memcmp(key, r.old, 32);
	*ret_stale = is_old && !is_new;
	if (*ret_stale)
		memcpy(key, r.key, 32);
	if ((is_new || is_old) && r.until_ms > now && memcmp(r.key, r.old, 32)) {
		uint64_t left = r.until_ms - now;
		*ret_old_us = (left < KEY_WINDOW_MAX_MS ? left : KEY_WINDOW_MAX_MS) * 1000;
		memcpy(ret_old, r.old, 32);
	}
	int rc = 0;
	if (!*ret_stale && !*ret_old_us)        /* it is over, or of another time */
		rc = env->files->unlink(env->files, path, e);
	explicit_bzero(&r, sizeof r);
	return rc;
}

void key_keep(void)
{
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)     /* they look into it from outside */
	(void)prctl(PR_SET_DUMPABLE, 0);
#endif
}
