/* Lanes: threads that take jobs from a queue and hand them back to the loop through a list and an eventfd. Threads
 * start with the first job. A job owns what it points to until done; nothing else is shared.
 * The train lane has a team: a struct par (kernels/par.h) whose run() splits one kernel call over n threads. */
#ifndef DAEMON_WORK_H
#define DAEMON_WORK_H
#include <stdbool.h>
#include <stddef.h>
#include "common/err.h"
#include "env.h"
#include "kernels/par.h"

#define LANES_MAX 16
struct lane_row { const char *name; int threads; int nice; };  /* threads 1..64; nice: added to the process's */
struct work;
struct work *work_new(const struct lane_row *rows, size_t n, struct err *e);   /* rows are copied; names are borrowed */
void work_free(struct work *w);                         /* after work_drain; joins the threads */
int work_lane(const struct work *w, const char *name);  /* -1 unknown */
void work_put(struct work *w, struct job *j);           /* from the loop thread */
int work_fd(const struct work *w);                      /* readable when jobs have been done */
/* a finished job whose done the caller now calls; NULL = none */
struct job *work_take(struct work *w);
void work_drain(struct work *w);                        /* waits for every job, calling done, until none is left */
size_t work_pending(const struct work *w);              /* put and not yet done */

/* The team: n-1 threads beside the caller, which must be one thread at a time (the train lane's). */
struct team;
struct team *team_new(int n, int nice);
void team_free(struct team *t);
struct par team_par(struct team *t, enum cpu cpu, const struct blas *blas);    /* run() may be used until team_free */

#endif
