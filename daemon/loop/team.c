/* The train lane's team: n - 1 threads beside the caller split one kernel call, part i by thread i. Calls are tens of
 * microseconds to milliseconds apart, so a thread looks a moment for the next one before it sleeps (a moment, because
 * the loop and nanomsg need the core). */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "common/mem.h"
#include "loop/work.h"

#define LOOKS 1000                      /* about 20 us */
#define TEAM_MAX 256

struct mate { struct team *team; int part; pthread_t thread; };

struct team {
	int n, nice;
	void (*fn)(void *arg, int part, int parts);     /* written before `call` grows, read after */
	void *arg;
	atomic_uint call;                       /* grows by one with every run */
	atomic_int left;                        /* parts of this call that the others have not finished */
	atomic_bool stop;
	pthread_mutex_t lock;
	pthread_cond_t wake, done;
	int asleep;                             /* under lock */
	bool waiting;                           /* under lock: the caller sleeps */
	struct mate mate[TEAM_MAX];
};

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* Waits for the call after `seen`; false: the team is over. */
static bool next_call(struct team *t, unsigned seen)
{
	for (int i = 0; i < LOOKS; i++) {
		if (atomic_load_explicit(&t->call, memory_order_acquire) != seen)
			return !atomic_load(&t->stop);
		relax();
	}
	pthread_mutex_lock(&t->lock);
	t->asleep++;
	while (atomic_load(&t->call) == seen)
		pthread_cond_wait(&t->wake, &t->lock);
	t->asleep--;
	pthread_mutex_unlock(&t->lock);
	return !atomic_load(&t->stop);
}

static void *mate_main(void *arg)
{
	struct mate *m = arg;
	struct team *t = m->team;
	unsigned seen = 0;

	pthread_setname_np(pthread_self(), "team");
	if (t->nice)
		setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), getpriority(PRIO_PROCESS, 0) + t->nice);
	while (next_call(t, seen)) {
		seen++;
		t->fn(t->arg, m->part, t->n);
		if (atomic_fetch_sub(&t->left, 1) == 1) {
			pthread_mutex_lock(&t->lock);
			if (t->waiting)
				pthread_cond_signal(&t->done);
			pthread_mutex_unlock(&t->lock);
		}
	}
	return NULL;
}

static void start_call(struct team *t)
{
	pthread_mutex_lock(&t->lock);
	atomic_fetch_add_explicit(&t->call, 1, memory_order_release);
	if (t->asleep)
		pthread_cond_broadcast(&t->wake);
	pthread_mutex_unlock(&t->lock);
}

static void team_run(const struct par *par, void (*fn)(void *arg, int part, int parts), void *arg)
{
	struct team *t = par->team;

	t->fn = fn;
	t->arg = arg;
	atomic_store(&t->left, t->n - 1);
	start_call(t);
	fn(arg, 0, t->n);
	for (int i = 0; i < LOOKS && atomic_load(&t->left); i++)
		relax();
	pthread_mutex_lock(&t->lock);
	t->waiting = true;
	while (atomic_load(&t->left))
		pthread_cond_wait(&t->done, &t->lock);
	t->waiting = false;
	pthread_mutex_unlock(&t->lock);
}

struct team *team_new(int n, int nice)
{
	struct team *t = xcalloc(1, sizeof(*t));
	sigset_t all, old;

	t->n = n < 1 ? 1 : n > TEAM_MAX ? TEAM_MAX : n;
	t->nice = nice;
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->wake, NULL);
	pthread_cond_init(&t->done, NULL);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	for (int i = 1; i < t->n; i++) {
		t->mate[i].team = t;
		t->mate[i].part = i;
		if (pthread_create(&t->mate[i].thread, NULL, mate_main, &t->mate[i])) {
			t->n = i;                       /* fewer threads than asked: still correct */
			break;
		}
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return t;
}

void team_free(struct team *t)
{
	if (!t)
		return;
	atomic_store(&t->stop, true);
	start_call(t);
	for (int i = 1; i < t->n; i++)
		pthread_join(t->mate[i].thread, NULL);
	pthread_cond_destroy(&t->wake);
	pthread_cond_destroy(&t->done);
	pthread_mutex_destroy(&t->lock);
	free(t);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

struct par team_par(struct team *t, enum cpu cpu, const struct blas *blas)
{
	return (struct par){ .n = t->n, .cpu = cpu, .blas = blas, .run = t->n > 1 ? team_run : NULL, .team = t,
		.now_ns = now_ns };
}
