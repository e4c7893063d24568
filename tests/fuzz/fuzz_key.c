/* The daemon's secrets in files: the identity, the swarm's key, a rotation of it. First byte of the input, modulo
 * 3: which; of a rotation: what the configuration says by the next two bits (zeros, the new key, the old one),
 * whether the clock is near by the next. A file that is not understood is refused with a text, and never written
 * over. */
#include <stdlib.h>
#include <string.h>
#include "common/id.h"
#include "common/mem.h"
#include "node/key.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PATH "/nowhere/key"
#define NEAR_MS 1700000000000ull
#define WINDOW_MAX_US (30ull * 24 * 3600 * 1000000)

/* ---- a folder in memory: the file, and what is written beside it ---- */

struct memory { struct files f; struct env env; uint8_t *p, *tmp; size_t n, tmp_n; bool there, fresh;
	uint64_t wall_ms; };

static struct memory *of(struct files *f) { return (struct memory *)f; }
static int fine(struct files *f, int fd, struct err *e) { return 0; }
static uint64_t wall(struct env *env) { return container_of(env, struct memory, env)->wall_ms; }
static void secure(struct env *env, void *out, size_t n) { memset(out, 0x77, n); }

static int open_it(struct files *f, const char *path, int flags, int mode, struct err *e)
{
	bool tmp = strcmp(path, PATH) != 0;

	if (!tmp && !of(f)->there)
		return err_set(e, ERR_NOT_FOUND, "%s: not there", path);
	return tmp ? 4 : 3;
}

static int64_t read_it(struct files *f, int fd, void *out, size_t n, uint64_t at, struct err *e)
{
	if (fd != 3 || at)
		abort();
	n = n < of(f)->n ? n : of(f)->n;
	if (n)
		memcpy(out, of(f)->p, n);
	return (int64_t)n;
}

static int write_it(struct files *f, int fd, const void *p, size_t n, uint64_t at, struct err *e)
{
	if (fd != 4 || at)
		abort();
	free(of(f)->tmp);
	of(f)->tmp = xmemdup(p, n);
	of(f)->tmp_n = n;
	return 0;
}

static int rename_it(struct files *f, const char *from, const char *to, struct err *e)
{
	struct memory *m = of(f);

	if (strcmp(to, PATH) || !m->tmp)
		abort();
	free(m->p);
	m->p = m->tmp;
	m->n = m->tmp_n;
	m->tmp = NULL;
	m->there = m->fresh = true;
	return 0;
}

static int unlink_it(struct files *f, const char *path, struct err *e)
{
	of(f)->there = false;
	return 0;
}

/* ---- the three of them ---- */

static void check(bool ok)
{
	if (!ok)
		abort();
}

static void one_key(struct memory *m, bool identity)
{
	uint8_t key[32], again[32];
	char hex[ID_HEX];
	struct id id;
	struct err e = { 0 };
	bool was = m->there;
	int rc = identity ? key_identity(&m->env, PATH, key, &e) : key_swarm(&m->env, PATH, key, &e);

	check(m->fresh == (identity && !was));
	if (rc) {
		check(e.code && e.text[0] && !m->fresh);
		return;
	}
	check(m->there && m->n >= 64);
	memcpy(id.b, key, 32);
	id_hex(&id, hex);
	check(!strncasecmp(hex, (const char *)m->p, 64));
	check(!key_swarm(&m->env, PATH, again, &e) && !memcmp(key, again, 32));
}

static void rotation(struct memory *m, unsigned how)
{
	uint8_t key[32] = { 0 }, was[32], old[32], again[32];
	char hex[ID_HEX] = "";
	size_t at = how & 1 ? 0 : 65;
	uint64_t left_us, left_again;
	struct id id;
	struct err e = { 0 };
	bool stale;

	if (how % 3 && m->n >= at + 64) {
		memcpy(hex, m->p + at, 64);
		if (!id_parse(&id, hex, NULL))
			memcpy(key, id.b, 32);
	}
	memcpy(was, key, 32);
	if (key_rotation_apply(&m->env, PATH, key, old, &left_us, &stale, &e)) {
		check(e.code && e.text[0] && !memcmp(key, was, 32) && m->there);
		return;
	}
	check(left_us <= WINDOW_MAX_US && stale == (memcmp(key, was, 32) != 0));
	check(m->there == (stale || left_us) && (!left_us || memcmp(key, old, 32)));
	if (!left_us)
		return;
	struct key_rotation r = { .until_ms = m->wall_ms + left_us / 1000 };
	memcpy(r.key, key, 32);
	memcpy(r.old, old, 32);
	memcpy(again, old, 32);
	check(!key_rotation_write(&m->env, PATH, &r, &e));
	check(!key_rotation_apply(&m->env, PATH, again, old, &left_again, &stale, &e));
	check(stale && left_again == left_us && !memcmp(again, key, 32));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct env_ops ops = { .wall = wall, .secure = secure };
	struct memory m = { .f = { .open = open_it, .pread = read_it, .pwrite = write_it, .fsync = fine, .close = fine,
		.rename = rename_it, .unlink = unlink_it } };

	if (!size)
		return 0;
	m.env = (struct env){ .ops = &ops, .files = &m.f };
	m.n = size - 1;
	m.there = m.n != 0;
	m.p = xmemdup(data + 1, m.n);
	m.wall_ms = data[0] & 64 ? NEAR_MS : 1000;
	if (data[0] % 3 < 2)
		one_key(&m, data[0] % 3 == 0);
	else if (m.there)
		rotation(&m, data[0] >> 3 & 3);
	free(m.p);
	free(m.tmp);
	return 0;
}
