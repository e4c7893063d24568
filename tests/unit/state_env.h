/* A small world for the tests of state: a clock that is moved by hand, lanes that run when asked, real files below a
 * temporary folder with faults that are counted down. */
#ifndef TESTS_STATE_ENV_H
#define TESTS_STATE_ENV_H
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "env.h"

struct world {
	struct env env;
	struct env_ops ops;
	struct files files; uint64_t read_bytes;
	struct heap heap;
	struct list jobs;
	uint64_t now, wall;
	char dir[64];
	/* Faults of files: the call number fail_at (counted from 1 over open, pwrite, fsync, rename) gives fail_code; with
	 * dead set, every later call fails too, as if the process had been killed. 0: none. */
	int calls, fail_at;
	enum err_code fail_code;
	bool dead;
	int64_t free_bytes;             /* what free_bytes answers; -1: the truth is not asked, plenty */
};

static inline struct world *world_of(struct env *e) { return container_of(e, struct world, env); }
static inline struct world *world_of_files(struct files *f) { return container_of(f, struct world, files); }
static inline uint64_t world_now(struct env *e) { return world_of(e)->now; }
static inline uint64_t world_wall(struct env *e) { return world_of(e)->wall; }
static inline void world_timer(struct env *e, struct timer *t, uint64_t at) { heap_set(&world_of(e)->heap, t, at); }
static inline void world_work(struct env *e, struct job *j) { list_push(&world_of(e)->jobs, &j->link); }
static inline int world_lane(struct env *e, const char *name) { (void)e; return strcmp(name, "disk") == 0 ? 0 : -1; }
static inline uint64_t world_log_wall(void *arg) { return ((struct world *)arg)->wall; }

static inline int world_fault(struct files *f, struct err *e)
{
	struct world *w = world_of_files(f);

	if (++w->calls != w->fail_at && !(w->dead && w->fail_at && w->calls > w->fail_at))
		return 0;
	return err_set(e, w->fail_code, "injected");
}

static inline int world_open(struct files *f, const char *path, int flags, int mode, struct err *e)
{
	int fd;

	if ((flags & O_ACCMODE) != O_RDONLY && world_fault(f, e) < 0)
		return -1;
	fd = open(path, flags, mode);
	return fd >= 0 ? fd : err_set(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, "%s: %s", path, strerror(errno));
}

static inline int64_t world_pread(struct files *f, int fd, void *p, size_t n, uint64_t at, struct err *e)
{
	ssize_t k = pread(fd, p, n, (off_t)at);

	world_of_files(f)->read_bytes += k > 0 ? (uint64_t)k : 0;
	return k >= 0 ? k : err_set(e, ERR_IO, "%s", strerror(errno));
}

static inline int world_pwrite(struct files *f, int fd, const void *p, size_t n, uint64_t at, struct err *e)
{
	if (world_fault(f, e) < 0)
		return -1;
	return pwrite(fd, p, n, (off_t)at) == (ssize_t)n ? 0 : err_set(e, ERR_IO, "%s", strerror(errno));
}

static inline int world_fsync(struct files *f, int fd, struct err *e) { (void)fd; return world_fault(f, e); }
static inline int world_close(struct files *f, int fd, struct err *e) { (void)f; (void)e; return close(fd); }

static inline int world_rename(struct files *f, const char *from, const char *to, struct err *e)
{
	if (world_fault(f, e) < 0)
		return -1;
	return rename(from, to) == 0 ? 0 : err_set(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, "%s: %s", from,
		strerror(errno));
}

static inline int world_unlink(struct files *f, const char *path, struct err *e)
{
	struct world *w = world_of_files(f);

	if (w->dead && w->fail_at && w->calls >= w->fail_at)
		return err_set(e, ERR_IO, "dead");
	return unlink(path) == 0 ? 0 : err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
}

static inline int64_t world_size(struct files *f, const char *path, struct err *e)
{
	struct stat st;

	(void)f;
	return stat(path, &st) == 0 ? st.st_size : err_set(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, "%s: %s", path,
		strerror(errno));
}

static inline int64_t world_free(struct files *f, const char *path, struct err *e)
{
	(void)path; (void)e;
	return world_of_files(f)->free_bytes >= 0 ? world_of_files(f)->free_bytes : INT64_MAX / 2;
}

static inline int world_mkdir(struct files *f, const char *path, int mode, struct err *e)
{
	(void)f;
	return mkdir(path, (mode_t)mode) == 0 || errno == EEXIST ? 0 : err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
}

static inline int world_list(struct files *f, const char *dir, int (*row)(void *arg, const char *name), void *arg,
	struct err *e)
{
	DIR *d = opendir(dir);
	struct dirent *x;

	(void)f;
	if (!d)
		return err_set(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, "%s: %s", dir, strerror(errno));
	while ((x = readdir(d)) && row(arg, x->d_name) == 0)
		;
	closedir(d);
	return 0;
}

static inline struct world *world_new(void)
{
	struct world *w = calloc(1, sizeof *w);

	w->ops = (struct env_ops){ .now = world_now, .wall = world_wall, .timer = world_timer, .work = world_work,
		.lane = world_lane };
	w->files = (struct files){ .open = world_open, .pread = world_pread, .pwrite = world_pwrite, .fsync = world_fsync,
		.close = world_close, .rename = world_rename, .unlink = world_unlink, .size = world_size,
			.free_bytes = world_free,
		.mkdir = world_mkdir, .list = world_list };
	w->env.ops = &w->ops;
	w->env.files = &w->files;
	w->now = 1000000;
	w->wall = 1700000000000;
	w->free_bytes = -1;
	w->env.log = log_new(200, LOG_DEBUG_, world_log_wall, w);
	heap_init(&w->heap);
	list_init(&w->jobs);
	snprintf(w->dir, sizeof w->dir, "%s/hm-state-XXXXXX", getenv("TMPDIR") && strlen(getenv("TMPDIR")) < 40
		? getenv("TMPDIR") : "/tmp");
	if (!mkdtemp(w->dir))
		abort();
	return w;
}

/* Runs jobs and the timers that are due after by_us more. */
static inline void world_turn(struct world *w, uint64_t by_us)
{
	uint64_t until = w->now + by_us;
	struct timer *t;
	struct list *j;

	for (;;) {
		while ((j = list_pop(&w->jobs))) {
			struct job *job = list_entry(j, struct job, link);

			job->run(job);
			job->done(job);
		}
		t = heap_peek(&w->heap);
		if (!t || t->at_us > until)
			break;
		if (t->at_us > w->now) {
			w->wall += (t->at_us - w->now) / 1000;
			w->now = t->at_us;
		}
		heap_pop(&w->heap);             /* this disarms: at_us is 0 from here on */
		t->fire(t);
	}
	w->wall += (until - w->now) / 1000;
	w->now = until;
}

static inline int world_rm(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st; (void)flag; (void)ftw;
	return remove(path);
}

static inline void world_free_all(struct world *w)
{
	nftw(w->dir, world_rm, 16, FTW_DEPTH | FTW_PHYS);
	heap_done(&w->heap);
	log_free(w->env.log);
	free(w);
}

#endif
