/* Lanes: one lock per lane for the queue in, one for the completion list out, an eventfd that wakes the loop.
 * A thread is started when a job finds every thread of its lane busy and there may be more. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "common/mem.h"
#include "loop/work.h"

#define THREADS_MAX 64

struct lane {
	struct work *work;
	const char *name;
	int threads, nice;
	int started;                            /* the loop's */
	int idle, queued;                       /* under lock */
	bool stop;                              /* under lock */
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct list queue;                      /* under lock */
	pthread_t thread[THREADS_MAX];          /* the loop's */
};

struct work {
	struct lane lane[LANES_MAX];
	int lanes;
	int fd;
	size_t pending;                         /* the loop's: put and not yet done */
	pthread_mutex_t lock;
	pthread_cond_t some;
	struct list finished;                   /* under lock */
};

/* What has run, to who calls its done. */
static void finished(struct work *w, struct job *j)
{
	uint64_t one = 1;
	bool first;

	pthread_mutex_lock(&w->lock);
	first = list_empty(&w->finished);
	list_push(&w->finished, &j->link);
	pthread_cond_signal(&w->some);
	pthread_mutex_unlock(&w->lock);
	if (first && write(w->fd, &one, sizeof(one)) != sizeof(one))
		abort();
}

static void *lane_main(void *arg)
{
	struct lane *l = arg;

	pthread_setname_np(pthread_self(), l->name);    /* for top -H; longer than 15 letters: it stays unnamed */
	if (l->nice)
		setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), getpriority(PRIO_PROCESS, 0) + l->nice);
	for (;;) {
		struct list *i;
		struct job *j;

		pthread_mutex_lock(&l->lock);
		l->idle++;
		while (list_empty(&l->queue) && !l->stop)
			pthread_cond_wait(&l->wake, &l->lock);
		l->idle--;
		i = list_pop(&l->queue);
		l->queued -= i != NULL;
		pthread_mutex_unlock(&l->lock);
		if (!i)
			return NULL;
		j = list_entry(i, struct job, link);
		j->run(j);
		finished(l->work, j);
	}
}

/* Signals are the loop's business: a lane's thread takes none. */
static void start_thread(struct lane *l)
{
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	if (!pthread_create(&l->thread[l->started], NULL, lane_main, l))
		l->started++;
	else if (!l->started)
		abort();                        /* no thread at all: as hopeless as no memory */
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

struct work *work_new(const struct lane_row *rows, size_t n, struct err *e)
{
	struct work *w;

	if (!n || n > LANES_MAX) {
		err_set(e, ERR_LIMIT, "%zu lanes, expected 1 to %d", n, LANES_MAX);
		return NULL;
	}
	for (size_t i = 0; i < n; i++)
		if (rows[i].threads < 1 || rows[i].threads > THREADS_MAX) {
			err_set(e, ERR_LIMIT, "lane %s: %d threads, expected 1 to %d", rows[i].name, rows[i].threads, THREADS_MAX);
			return NULL;
		}
	w = xcalloc(1, sizeof(*w));
	w->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (w->fd < 0) {
		err_set(e, ERR_IO, "eventfd: %s", strerror(errno));
		free(w);
		return NULL;
	}
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->some, NULL);
	list_init(&w->finished);
	w->lanes = (int)n;
	for (size_t i = 0; i < n; i++) {
		struct lane *l = &w->lane[i];
		l->work = w;
		l->name = rows[i].name;
		l->threads = rows[i].threads;
		l->nice = rows[i].nice;
		pthread_mutex_init(&l->lock, NULL);
		pthread_cond_init(&l->wake, NULL);
		list_init(&l->queue);
	}
	return w;
}

void work_free(struct work *w)
{
	if (!w)
		return;
	work_drain(w);
	for (int i = 0; i < w->lanes; i++) {
		struct lane *l = &w->lane[i];
		pthread_mutex_lock(&l->lock);
		l->stop = true;
		pthread_cond_broadcast(&l->wake);
		pthread_mutex_unlock(&l->lock);
		for (int k = 0; k < l->started; k++)
			pthread_join(l->thread[k], NULL);
		pthread_cond_destroy(&l->wake);
		pthread_mutex_destroy(&l->lock);
	}
	pthread_cond_destroy(&w->some);
	pthread_mutex_destroy(&w->lock);
	close(w->fd);
	free(w);
}

int work_lane(const struct work *w, const char *name)
{
	for (int i = 0; i < w->lanes; i++)
		if (!strcmp(w->lane[i].name, name))
			return i;
	return -1;
}

void work_put(struct work *w, struct job *j)
{
	struct lane *l;
	bool more;

	if (j->lane < 0 || j->lane >= w->lanes)
		abort();                        /* a programmer's error: env_lane() was not asked */
	l = &w->lane[j->lane];
	w->pending++;
	if (j->here) {
		j->run(j);
		finished(w, j);
		return;
	}
	pthread_mutex_lock(&l->lock);
	list_push(&l->queue, &j->link);
	more = l->idle < ++l->queued && l->started < l->threads;
	pthread_cond_signal(&l->wake);
	pthread_mutex_unlock(&l->lock);
	if (more)
		start_thread(l);
}

int work_fd(const struct work *w) { return w->fd; }
size_t work_pending(const struct work *w) { return w->pending; }

struct job *work_take(struct work *w)
{
	uint64_t n, one = 1;
	struct list *i;
	ssize_t rc = read(w->fd, &n, sizeof(n));

	pthread_mutex_lock(&w->lock);
	i = list_pop(&w->finished);
	if (!list_empty(&w->finished) && (rc = write(w->fd, &one, sizeof(one))) != sizeof(one))
		abort();
	pthread_mutex_unlock(&w->lock);
	if (!i)
		return NULL;
	w->pending--;
	return list_entry(i, struct job, link);
}

void work_drain(struct work *w)
{
	while (w->pending) {
		struct job *j;
		pthread_mutex_lock(&w->lock);
		while (list_empty(&w->finished))
			pthread_cond_wait(&w->some, &w->lock);
		pthread_mutex_unlock(&w->lock);
		while ((j = work_take(w)))
			j->done(j);
	}
}
