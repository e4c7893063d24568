/* Files in memory that outlive their node: every file has what the process sees (live) and what a crash leaves (safe).
 * fsync makes the bytes safe, rename makes the name safe; after a kill unsynced bytes are lost, kept or torn by chance.
 * "/" and "/state" exist; other directories must be made. The n-th call can fail, and the disk can be full. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include "sim_int.h"

#define FILES_MAX 4096

static struct snode *of(struct files *f) { return container_of(f, struct snode, files); }

/* Every call passes here: the process may be dying, the disk may fail now. */
static int enter(struct snode *n, const char *call, const char *path, struct err *e)
{
	if (n->dying || !n->alive)
		return err_set(e, ERR_IO, "%s %s: the process is gone", call, path);
	if (n->disk.kill_in > 0 && --n->disk.kill_in == 0) {
		n->struck = true;
		sim_doom(n);
		return err_set(e, ERR_IO, "%s %s: the process is gone", call, path);
	}
	if (n->disk.fail_in > 0 && --n->disk.fail_in == 0) {
		n->struck = true;
		return err_set(e, n->disk.fail_code, "%s %s: simulated failure", call, path);
	}
	return 0;
}

static struct entry *find(struct snode *n, const char *path)
{
	list_each(i, &n->disk.entries) {
		struct entry *x = list_entry(i, struct entry, link);
		if (!strcmp(x->path, path))
			return x;
	}
	return NULL;
}

static struct entry *make(struct snode *n, const char *path, bool dir)
{
	struct entry *x = find(n, path);
	if (!x) {
		x = xcalloc(1, sizeof(*x));
		x->path = xstrdup(path);
		list_push(&n->disk.entries, &x->link);
	}
	x->dir = dir;
	return x;
}

static void drop(struct inode *i)
{
	if (!i || --i->refs)
		return;
	free(i->live);
	free(i->safe);
	free(i);
}

static void set(struct inode **slot, struct inode *i)
{
	if (i)
		i->refs++;
	drop(*slot);
	*slot = i;
}

static bool parent_there(struct snode *n, const char *path)
{
	char dir[512];
	const char *slash = strrchr(path, '/');
	struct entry *x;

	if (!slash || slash == path)
		return true;
	if ((size_t)(slash - path) >= sizeof(dir))
		return false;
	memcpy(dir, path, (size_t)(slash - path));
	dir[slash - path] = 0;
	x = find(n, dir);
	return x && x->dir;
}

static int file_open(struct files *f, const char *path, int flags, int mode, struct err *e)
{
	struct snode *n = of(f);
	struct entry *x = find(n, path);
	int fd = 0;

	if (enter(n, "open", path, e))
		return -1;
	if (x && x->dir)
		return err_set(e, ERR_IO, "open %s: is a directory", path);
	if (x && x->live && (flags & O_CREAT) && (flags & O_EXCL))
		return err_set(e, ERR_EXISTS, "open %s: exists", path);
	if ((!x || !x->live) && !(flags & O_CREAT))
		return err_set(e, ERR_NOT_FOUND, "open %s: no such file", path);
	if (!parent_there(n, path))
		return err_set(e, ERR_NOT_FOUND, "open %s: no such directory", path);
	if (!x || !x->live) {
		x = make(n, path, false);
		set(&x->live, xcalloc(1, sizeof(struct inode)));
	}
	if (flags & O_TRUNC)
		x->live->len = 0;
	while (fd < n->disk.nfds && n->disk.fds[fd].inode)
		fd++;
	if (fd == FILES_MAX)
		return err_set(e, ERR_LIMIT, "open %s: too many open files", path);
	if (fd == n->disk.nfds) {
		n->disk.fds = xrealloc(n->disk.fds, (size_t)(fd + 1) * sizeof(*n->disk.fds));
		n->disk.fds[fd].inode = NULL;
		n->disk.nfds++;
	}
	n->disk.fds[fd].flags = flags;
	set(&n->disk.fds[fd].inode, x->live);
	return fd;
}

static struct inode *inode_of(struct snode *n, int fd, struct err *e)
{
	if (fd >= 0 && fd < n->disk.nfds && n->disk.fds[fd].inode)
		return n->disk.fds[fd].inode;
	err_set(e, ERR_IO, "descriptor %d is not open", fd);
	return NULL;
}

static int64_t file_pread(struct files *f, int fd, void *buf, size_t size, uint64_t at, struct err *e)
{
	struct inode *i = inode_of(of(f), fd, e);
	if (!i || enter(of(f), "pread", "", e))
		return -1;
	if (at >= i->len)
		return 0;
	if (size > i->len - at)
		size = i->len - at;
	memcpy(buf, i->live + at, size);
	return (int64_t)size;
}

static int file_pwrite(struct files *f, int fd, const void *buf, size_t size, uint64_t at, struct err *e)
{
	struct snode *n = of(f);
	struct inode *i = inode_of(n, fd, e);
	size_t end = at + size;

	if (!i || enter(n, "pwrite", "", e))
		return -1;
	if ((n->disk.fds[fd].flags & O_ACCMODE) == O_RDONLY)
		return err_set(e, ERR_IO, "pwrite: descriptor %d is read-only", fd);
	if (end > i->len) {
		if (n->disk.free >= 0 && (int64_t)(end - i->len) > n->disk.free) {
			n->struck = true;
			return err_set(e, ERR_IO, "pwrite: No space left on device");
		}
		if (n->disk.free >= 0)
			n->disk.free -= (int64_t)(end - i->len);
		i->live = xrealloc(i->live, end);
		memset(i->live + i->len, 0, end - i->len);
		i->len = end;
	}
	if (size)
		memcpy(i->live + at, buf, size);
	return 0;
}

static int file_fsync(struct files *f, int fd, struct err *e)
{
	struct snode *n = of(f);
	struct inode *i = inode_of(n, fd, e);

	if (!i || enter(n, "fsync", "", e))
		return -1;
	i->safe = xrealloc(i->safe, i->len ? i->len : 1);
	if (i->len)
		memcpy(i->safe, i->live, i->len);
	i->safe_len = i->len;
	list_each(k, &n->disk.entries) {        /* ext4: a synced new file is found again */
		struct entry *x = list_entry(k, struct entry, link);
		if (x->live == i && !x->safe)
			set(&x->safe, i);
	}
	return 0;
}

static int file_close(struct files *f, int fd, struct err *e)
{
	struct inode *i = inode_of(of(f), fd, e);
	if (!i)
		return -1;
	set(&of(f)->disk.fds[fd].inode, NULL);
	return enter(of(f), "close", "", e);
}

/* With all that lies in it. */
static int rename_dir(struct snode *n, struct entry *a, const char *to, struct err *e)
{
	size_t len = strlen(a->path);
	char *from = xstrdup(a->path);
	int rc = find(n, to) && (find(n, to)->live || find(n, to)->dir) ? err_set(e, ERR_EXISTS, "rename %s: %s is there",
		from, to) : parent_there(n, to) ? 0 : err_set(e, ERR_NOT_FOUND, "rename %s: no such directory", to);
	list_each_safe(i, &n->disk.entries) {
		struct entry *x = list_entry(i, struct entry, link);
		if (rc || strncmp(x->path, from, len) || (x->path[len] && x->path[len] != '/'))
			continue;
		char *path = xasprintf("%s%s", to, x->path + len);
		struct entry *old = find(n, path);
		if (old) {                      /* a name without anything */
			list_del(&old->link);
			set(&old->live, NULL);
			set(&old->safe, NULL);
			free(old->path);
			free(old);
		}
		free(x->path);
		x->path = path;
	}
	free(from);
	return rc;
}

static int file_rename(struct files *f, const char *from, const char *to, struct err *e)
{
	struct snode *n = of(f);
	struct entry *a = find(n, from), *b;

	if (enter(n, "rename", from, e))
		return -1;
	if (a && a->dir)
		return rename_dir(n, a, to, e);
	if (!a || !a->live)
		return err_set(e, ERR_NOT_FOUND, "rename %s: no such file", from);
	if (!parent_there(n, to))
		return err_set(e, ERR_NOT_FOUND, "rename %s: no such directory", to);
	b = make(n, to, false);
	if (a == b)
		return 0;
	set(&b->live, a->live);
	set(&b->safe, a->live);
	set(&a->live, NULL);
	set(&a->safe, NULL);
	return 0;
}

/* The file, or the directory, that is asked about; NULL and e. */
static struct entry *entry_of(struct files *f, const char *call, const char *path, bool dir, struct err *e)
{
	struct entry *x = find(of(f), path);
	if (enter(of(f), call, path, e))
		return NULL;
	if (x && (dir ? x->dir : x->live != NULL))
		return x;
	err_set(e, ERR_NOT_FOUND, "%s %s: no such %s", call, path, dir ? "directory" : "file");
	return NULL;
}

static int file_unlink(struct files *f, const char *path, struct err *e)
{
	struct entry *x = entry_of(f, "unlink", path, false, e);
	if (!x)
		return -1;
	if (of(f)->disk.free >= 0)
		of(f)->disk.free += (int64_t)x->live->len;
	set(&x->live, NULL);
	set(&x->safe, NULL);
	return 0;
}

static bool inside(const struct entry *x, const char *dir)
{
	size_t n = strlen(dir);
	return (x->live || x->dir) && !strncmp(x->path, dir, n) && x->path[n] == '/';
}

static int file_rmdir(struct files *f, const char *path, struct err *e)
{
	struct entry *x = entry_of(f, "rmdir", path, true, e);
	if (!x)
		return -1;
	list_each(i, &of(f)->disk.entries)
		if (inside(list_entry(i, struct entry, link), path))
			return err_set(e, ERR_IO, "rmdir %s: not empty", path);
	x->dir = false;
	return 0;
}

static int64_t file_size(struct files *f, const char *path, struct err *e)
{
	struct entry *x = entry_of(f, "stat", path, false, e);
	if (!x)
		return -1;
	return (int64_t)x->live->len;
}

static int64_t file_free_bytes(struct files *f, const char *path, struct err *e)
{
	if (enter(of(f), "statvfs", path, e))
		return -1;
	return of(f)->disk.free >= 0 ? of(f)->disk.free : (int64_t)1 << 40;
}

static int file_mkdir(struct files *f, const char *path, int mode, struct err *e)
{
	struct entry *x = find(of(f), path);
	if (enter(of(f), "mkdir", path, e))
		return -1;
	if (x && x->live)
		return err_set(e, ERR_EXISTS, "mkdir %s: a file has that name", path);
	if (!parent_there(of(f), path))
		return err_set(e, ERR_NOT_FOUND, "mkdir %s: no such directory", path);
	make(of(f), path, true);
	return 0;
}

static int file_list(struct files *f, const char *dir, int (*row)(void *arg, const char *name), void *arg,
	struct err *e)
{
	struct snode *n = of(f);
	size_t len = strlen(dir);

	if (!entry_of(f, "list", dir, true, e))
		return -1;
	list_each_safe(i, &n->disk.entries) {
		struct entry *x = list_entry(i, struct entry, link);
		if ((x->live || x->dir) && !strncmp(x->path, dir, len) && x->path[len] == '/' &&
		    !strchr(x->path + len + 1, '/') && row(arg, x->path + len + 1))
			return -1;
	}
	return 0;
}

void simdisk_init(struct snode *n)
{
	n->files = (struct files){ file_open, file_pread, file_pwrite, file_fsync, file_close, file_rename, file_unlink,
		file_size, file_free_bytes, file_mkdir, file_list, file_rmdir };
	list_init(&n->disk.entries);
	n->disk.free = -1;
	make(n, "/", true);
	make(n, "/state", true);
}

/* What a file holds after the crash: the synced bytes, and of the rest nothing, everything, or a torn part. */
static void crash_inode(struct sim *s, struct inode *i)
{
	bool same = i->len == i->safe_len && (!i->len || !memcmp(i->live, i->safe, i->len));
	size_t keep;

	if (same)
		return;
	switch (rng_below(&s->world, 4)) {
	case 0: keep = i->len; break;
	case 1: keep = rng_below(&s->world, i->len + 1); break;
	default: keep = 0;
	}
	if (keep < i->len) {
		size_t len = i->safe_len > keep ? i->safe_len : keep;
		i->live = xrealloc(i->live, len ? len : 1);
		if (i->safe_len > keep)
			memcpy(i->live + keep, i->safe + keep, i->safe_len - keep);
		i->len = len;
	}
	i->safe = xrealloc(i->safe, i->len ? i->len : 1);
	if (i->len)
		memcpy(i->safe, i->live, i->len);
	i->safe_len = i->len;
}

void simdisk_crash(struct snode *n)
{
	for (int i = 0; i < n->disk.nfds; i++)
		set(&n->disk.fds[i].inode, NULL);
	n->disk.fail_in = n->disk.kill_in = 0;
	list_each_safe(k, &n->disk.entries) {
		struct entry *x = list_entry(k, struct entry, link);
		if (x->dir)
			continue;
		if (!x->safe && x->live && rng_below(&n->sim->world, 2))
			set(&x->safe, x->live);         /* the name happened to be written */
		set(&x->live, x->safe);
		if (x->live)
			crash_inode(n->sim, x->live);
	}
}

void simdisk_free(struct snode *n)
{
	struct list *l;
	for (int i = 0; i < n->disk.nfds; i++)
		set(&n->disk.fds[i].inode, NULL);
	free(n->disk.fds);
	while ((l = list_pop(&n->disk.entries))) {
		struct entry *x = list_entry(l, struct entry, link);
		set(&x->live, NULL);
		set(&x->safe, NULL);
		free(x->path);
		free(x);
	}
}
