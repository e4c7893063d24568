/* The identity and the swarm key: 64 hex digits in files that nobody else may read. */
#include "key.h"
#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "common/id.h"

#define KEY_TEXT 64

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

static int read_key(struct env *env, const char *path, uint8_t ret[32], struct err *e)
{
	char text[KEY_TEXT + 3] = { 0 };
	struct id id;
	int fd = env->files->open(env->files, path, O_RDONLY | O_CLOEXEC, 0, e);
	if (fd < 0)
		return -1;
	int64_t n = env->files->pread(env->files, fd, text, sizeof text - 1, 0, e);
	env->files->close(env->files, fd, NULL);
	if (n < 0 || check_mode(path, e))
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

static int make_key(struct env *env, const char *path, uint8_t ret[32], struct err *e)
{
	struct id id;
	char text[ID_HEX + 1], tmp[4096];
	env->ops->secure(env, id.b, sizeof id.b);
	id_hex(&id, text);
	text[64] = '\n';
	if (snprintf(tmp, sizeof tmp, "%s.tmp", path) >= (int)sizeof tmp)
		return err_set(e, ERR_INVALID, "%s: path too long", path);
	struct files *f = env->files;
	int fd = f->open(f, tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600, e);
	if (fd < 0)
		return -1;
	int rc = f->pwrite(f, fd, text, 65, 0, e) || f->fsync(f, fd, e);
	if (f->close(f, fd, rc ? NULL : e) || rc || f->rename(f, tmp, path, e))
		return -1;
	memcpy(ret, id.b, 32);
	explicit_bzero(&id, sizeof id);
	explicit_bzero(text, sizeof text);
	return 0;
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
