/* The state folder belongs to one daemon: it is made when missing, and locked for as long as the daemon lives. */
#include "files_state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/mem.h"

static int make_dirs(const char *path, struct err *e)
{
	char *p = xstrdup(path);
	int rc = 0;

	for (char *s = p + 1; rc == 0; s++) {
		bool end = *s == '\0';

		if (*s != '/' && !end)
			continue;
		*s = '\0';
		if (mkdir(p, 0750) < 0 && errno != EEXIST)
			rc = err_set(e, ERR_IO, "state folder %s: %s: %s", path, p, strerror(errno));
		*s = end ? '\0' : '/';
		if (end)
			break;
	}
	free(p);
	return rc;
}

int files_state_take(const char *dir, struct log *log, int *ret_fd, struct err *e)
{
	char *path, text[32] = "";
	ssize_t n;
	int fd;

	if (make_dirs(dir, e) < 0)
		return -1;
	path = xasprintf("%s/lock", dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0640);
	if (fd < 0) {
		err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
	} else if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		n = pread(fd, text, sizeof text - 1, 0);
		text[n > 0 ? strcspn(text, "\n") : 0] = '\0';
		err_set(e, ERR_BUSY, "%s is in use by another hivemindd%s%s: stop that one, or give this one its own "
			"--state-dir",
			dir, *text ? ", process " : "", text);
		close(fd);
		fd = -1;
	} else if (n = snprintf(text, sizeof text, "%ld\n", (long)getpid()), ftruncate(fd, 0) < 0 ||
		pwrite(fd, text, (size_t)n, 0) != n) {
		log_write(log, LOG_WARN_, "main", "%s: %s", path, strerror(errno));
	}
	free(path);
	*ret_fd = fd;
	return fd < 0 ? -1 : 0;
}
