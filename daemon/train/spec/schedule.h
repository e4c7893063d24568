/* Schedules of the learning rate: lr of epoch e = lr * schedule_factor(e). Epochs are the swarm's (one step each), so
 * that who joins late has the same rate; equal bits on every machine (no libm).
 *
 * To add one: a line in the table of schedule.c. */
#ifndef TRAIN_SCHEDULE_H
#define TRAIN_SCHEDULE_H
#include <stdbool.h>
#include <stdint.h>
#include <jansson.h>
#include "common/err.h"

struct schedule_ops;
enum warmup_from { WARMUP_ZERO, WARMUP_BASE, WARMUP_CONSTANT };
struct schedule {
	const struct schedule_ops *ops;         /* NULL: constant */
	uint64_t warmup, total, every;          /* in units */
	uint64_t unit; bool stairs;             /* swarm epochs in a unit; stairs: changes only between units */
	double gamma, min;                      /* min: share of lr */
	enum warmup_from from;
	bool log;                               /* warmup_decay: rises by ln(t + 1) / ln(warmup), as DeepSpeed does */
	double base_batch;                      /* linear scaling: lr is for batches of this size; 0: none */
	bool track;                             /* of the samples of each commit; else of the target */
};

/* Reads spec.schedule (NULL: constant). */
int schedule_read(struct schedule *s, const json_t *o, struct err *e);
double schedule_factor(const struct schedule *s, uint64_t target_batch, uint64_t epoch);
const char *schedule_names(char *out, size_t cap);

#endif
