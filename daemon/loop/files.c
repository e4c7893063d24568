/* Real files: thin calls around POSIX that finish what they begin (EINTR, short writes) and say what went wrong. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>
#include "loop/files.h"

static int fail(struct err *e, const char *call, const char *path)
{
	int no = errno;
	enum err_code code = no == ENOENT ? ERR_NOT_FOUND : no == EEXIST ? ERR_EXISTS : no == ENOMEM ? ERR_NOMEM : ERR_IO;
	return err_set(e, code, "%s %s: %s", call, path, strerror(no));
}

static int fail_fd(struct err *e, const char *call, int fd, uint64_t at)
{
	return err_set(e, ERR_IO, "%s descriptor %d at byte %llu: %s", call, fd, (unsigned long long)at, strerror(errno));
}

static int file_open(struct files *f, const char *path, int flags, int mode, struct err *e)
{
	int fd;
	do
		fd = open(path, flags | O_CLOEXEC, mode);
	while (fd < 0 && errno == EINTR);
	return fd < 0 ? fail(e, "open", path) : fd;
}

static int64_t file_pread(struct files *f, int fd, void *buf, size_t n, uint64_t at, struct err *e)
{
	size_t got = 0;
	while (got < n) {
		ssize_t rc = pread(fd, (char *)buf + got, n - got, (off_t)(at + got));
		if (rc < 0 && errno == EINTR)
			continue;
		if (rc < 0)
			return fail_fd(e, "read", fd, at + got);
		if (!rc)
			break;
		got += (size_t)rc;
	}
	return (int64_t)got;
}

static int file_pwrite(struct files *f, int fd, const void *buf, size_t n, uint64_t at, struct err *e)
{
	size_t put = 0;
	while (put < n) {
		ssize_t rc = pwrite(fd, (const char *)buf + put, n - put, (off_t)(at + put));
		if (rc < 0 && errno == EINTR)
			continue;
		if (rc < 0)
			return fail_fd(e, "write", fd, at + put);
		put += (size_t)rc;
	}
	return 0;
}

static int file_fsync(struct files *f, int fd, struct err *e)
{
	return fdatasync(fd) ? fail_fd(e, "fsync", fd, 0) : 0;
}

static int file_close(struct files *f, int fd, struct err *e)
{
	return close(fd) && errno != EINTR ? fail_fd(e, "close", fd, 0) : 0;
}

static int sync_dir_of(const char *path, struct err *e)
{
	char dir[4096];
	const char *slash = strrchr(path, '/');
	size_t n = slash ? (size_t)(slash - path) : 0;
	int fd, rc;

	if (n >= sizeof(dir))
		return err_set(e, ERR_LIMIT, "%.60s...: the path is too long", path);
	if (slash)
		memcpy(dir, path, n ? n : 1);
	else
		dir[0] = '.';
	dir[n ? n : 1] = 0;
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return fail(e, "open", dir);
	/* EINVAL: this file system has nothing to sync */
	rc = fsync(fd) && errno != EINVAL ? fail(e, "fsync", dir) : 0;
	close(fd);
	return rc;
}

static int file_rename(struct files *f, const char *from, const char *to, struct err *e)
{
	return rename(from, to) ? fail(e, "rename", from) : sync_dir_of(to, e);
}

static int file_unlink(struct files *f, const char *path, struct err *e)
{
	return unlink(path) ? fail(e, "unlink", path) : 0;
}

static int64_t file_size(struct files *f, const char *path, struct err *e)
{
	struct stat st;
	if (stat(path, &st))
		return fail(e, "stat", path);
	return S_ISREG(st.st_mode) ? (int64_t)st.st_size : err_set(e, ERR_IO, "stat %s: not a regular file", path);
}

static int64_t file_free_bytes(struct files *f, const char *path, struct err *e)
{
	struct statvfs v;
	return statvfs(path, &v) ? fail(e, "statvfs", path) : (int64_t)(v.f_bavail * v.f_frsize);
}

static int file_mkdir(struct files *f, const char *path, int mode, struct err *e)
{
	struct stat st;
	if (!mkdir(path, (mode_t)mode)) {
		if (!sync_dir_of(path, e))
			return 0;
		(void)rmdir(path);              /* else the next one would find it there, and take it for safe */
		return -1;
	}
	if (errno == EEXIST && !stat(path, &st) && S_ISDIR(st.st_mode))
		return 0;
	return fail(e, "mkdir", path);
}

static int file_rmdir(struct files *f, const char *path, struct err *e)
{
	return rmdir(path) ? fail(e, "rmdir", path) : 0;
}

static int file_list(struct files *f, const char *dir, int (*row)(void *arg, const char *name), void *arg,
	struct err *e)
{
	DIR *d = opendir(dir);
	struct dirent *x;
	int rc = 0;

	if (!d)
		return fail(e, "open", dir);
	while (!rc && (errno = 0, x = readdir(d)))
		if (strcmp(x->d_name, ".") && strcmp(x->d_name, ".."))
			rc = row(arg, x->d_name);
	if (!rc && errno)
		rc = fail(e, "read", dir);
	closedir(d);
	return rc ? -1 : 0;
}

static const void *file_map(struct files *f, int fd, size_t n, struct err *e)
{
	void *p = mmap(NULL, n, PROT_READ, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) {
		(void)err_set(e, ERR_IO, "map descriptor %d, %zu bytes: %s", fd, n, strerror(errno));
		return NULL;
	}
	return p;
}

static void file_unmap(struct files *f, const void *p, size_t n)
{
	munmap((void *)(uintptr_t)p, n);
}

static int64_t file_changed_ns(struct files *f, const char *path, struct err *e)
{
	struct stat st;
	if (stat(path, &st))
		return fail(e, "stat", path);
	return (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
}

static uint64_t file_ticks_ns(struct files *f)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

struct files *files_real(void)
{
	static const struct files real = { file_open, file_pread, file_pwrite, file_fsync, file_close, file_rename,
		file_unlink, file_size, file_free_bytes, file_mkdir, file_list, file_rmdir, file_map, file_unmap,
		file_changed_ns, file_ticks_ns };
	return (struct files *)(uintptr_t)&real;        /* a table: nobody writes to it */
}
