/* Where the numbers are computed: OpenBLAS is opened and the train lane's team started when the first run begins. */
#ifndef DAEMON_COMPUTE_H
#define DAEMON_COMPUTE_H
#include "common/log.h"
#include "run/run.h"

struct engine;
/* ERR_INVALID: cpu. Sets environment variables: before there is a second thread. */
struct engine *engine_new(struct log *log, int threads, const char *cpu, struct err *e);
void engine_free(struct engine *g);             /* after the lanes have stopped; NULL is fine */
struct compute engine_compute(struct engine *g);

#endif
