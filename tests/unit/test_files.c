/* Real files: what comes back is what went in, and errors say which path and why. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>
#include "loop/files.h"

static char dir[64];
static char synced[8][128];
static unsigned nsynced;
static bool sync_fails;

/* Stands before libc's: which files and folders are asked for. */
int fsync(int fd)
{
	char link[40];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, synced[nsynced % 8], sizeof(synced[0]) - 1);
	if (n > 0)
		synced[nsynced++ % 8][n] = 0;
	if (sync_fails) {
		errno = EIO;
		return -1;
	}
	return (int)syscall(SYS_fsync, fd);
}

static const char *in(const char *name, char out[128]) { snprintf(out, 128, "%s/%s", dir, name); return out; }

static int count(void *arg, const char *name)
{
	assert_string_equal(name, "b");
	return ++*(int *)arg > 5;
}

static void test_round(void **state)
{
	struct files *f = files_real();
	struct err e;
	char a[128], b[128], buf[16];
	int n = 0, fd = f->open(f, in("a", a), O_CREAT | O_EXCL | O_RDWR, 0600, &e);

	assert_true(fd >= 0);
	assert_int_equal(f->pwrite(f, fd, "hello", 5, 3, &e), 0);
	assert_int_equal(f->fsync(f, fd, &e), 0);
	assert_int_equal(f->pread(f, fd, buf, 16, 0, &e), 8);
	assert_memory_equal(buf, "\0\0\0hello", 8);
	assert_int_equal(f->pread(f, fd, buf, 16, 8, &e), 0);
	assert_int_equal(f->close(f, fd, &e), 0);
	assert_int_equal(f->rename(f, a, in("b", b), &e), 0);
	assert_int_equal(f->size(f, b, &e), 8);
	assert_int_equal(f->list(f, dir, count, &n, &e), 0);
	assert_int_equal(n, 1);
	assert_true(f->free_bytes(f, dir, &e) >= 0);
	assert_int_equal(f->unlink(f, b, &e), 0);
}

static void test_errors(void **state)
{
	struct files *f = files_real();
	struct err e;
	char a[128], buf[4];
	int fd;

	assert_int_equal(f->size(f, in("none", a), &e), -1);
	assert_int_equal(e.code, ERR_NOT_FOUND);
	assert_non_null(strstr(e.text, a));
	assert_int_equal(f->open(f, a, O_RDONLY, 0, &e), -1);
	assert_int_equal(e.code, ERR_NOT_FOUND);
	assert_int_equal(f->unlink(f, a, &e), -1);
	assert_int_equal(f->rename(f, a, "/nowhere/x", &e), -1);
	assert_int_equal(f->list(f, a, count, NULL, &e), -1);
	assert_int_equal(f->free_bytes(f, a, &e), -1);
	assert_int_equal(f->mkdir(f, dir, 0700, &e), 0);
	assert_int_equal(f->mkdir(f, "/nowhere/x", 0700, &e), -1);
	assert_int_equal(f->size(f, dir, &e), -1);
	assert_int_equal(f->pread(f, 9999, buf, 4, 0, &e), -1);
	assert_int_equal(f->fsync(f, 9999, &e), -1);
	fd = f->open(f, "/dev/full", O_WRONLY, 0, &e);
	if (fd >= 0) {
		assert_int_equal(f->pwrite(f, fd, "x", 1, 0, &e), -1);
		assert_int_equal(e.code, ERR_IO);
		assert_non_null(strstr(e.text, "No space"));
		f->close(f, fd, &e);
	}
	fd = f->open(f, in("x", a), O_CREAT | O_RDWR, 0600, &e);
	f->close(f, fd, &e);
	assert_int_equal(f->mkdir(f, a, 0700, &e), -1);
	assert_int_equal(f->open(f, a, O_CREAT | O_EXCL | O_RDWR, 0600, &e), -1);
	assert_int_equal(e.code, ERR_EXISTS);
	f->unlink(f, a, &e);
}

/* A new folder is on the disk with what is put into it; where that cannot be said it is not there. */
static void test_folder(void **state)
{
	struct files *f = files_real();
	struct err e;
	char a[128];

	nsynced = 0;
	assert_int_equal(f->mkdir(f, in("folder", a), 0700, &e), 0);
	assert_int_equal(nsynced, 1);
	assert_string_equal(synced[0], dir);
	assert_int_equal(f->mkdir(f, a, 0700, &e), 0);
	assert_int_equal(nsynced, 1);
	assert_int_equal(rmdir(a), 0);
	sync_fails = true;
	assert_int_equal(f->mkdir(f, a, 0700, &e), -1);
	assert_non_null(strstr(e.text, dir));
	sync_fails = false;
	assert_int_equal(rmdir(a), -1);
	assert_int_equal(f->mkdir(f, a, 0700, &e), 0);
	assert_int_equal(rmdir(a), 0);
}

static int make_dir(void **state)
{
	snprintf(dir, sizeof(dir), "/tmp/test_files.XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int drop_dir(void **state) { return rmdir(dir); }

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_round), cmocka_unit_test(test_errors),
		cmocka_unit_test(test_folder) };
	return cmocka_run_group_tests(tests, make_dir, drop_dir);
}
