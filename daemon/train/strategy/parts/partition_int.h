/* Inside the partition: the table that both searches fill (partition.c: stages by themselves; partition_groups.c:
 * stages that hold each other's state). */
#ifndef TRAIN_STRATEGY_PARTITION_INT_H
#define TRAIN_STRATEGY_PARTITION_INT_H
#include "common/map.h"
#include "train/strategy/parts/partition.h"
#include "train/strategy/parts/tied.h"

struct table {
	const struct cutting *c;
	uint32_t nops;
	double *us, *forward;                   /* of all ops before this one, forward and backward; forward alone */
	uint64_t *bytes;                        /* that flow in before this op; behind the last one, what comes out */
	struct ties ties;                       /* of layers that share parameters */
	double *best; uint32_t *from;           /* [stage or group * (nops + 1) + ops so far] */
	bool *full;                             /* too much for a member when it begins there */
	struct map *need;                       /* of pieces that have been asked for */
	uint64_t more;                          /* bytes that every member is thought to have besides */
	bool endless;                           /* and that they have as much as they may need */
};

double partition_speed(const struct cutting *c, const struct stage *x);        /* of the slowest of its members */
uint64_t partition_memory(const struct cutting *c, const struct stage *x);     /* the least; 0: not stated */
/* limit 0: the slowest stage so far, with ops i..j-1 on stage s behind those that cost `before`; else the bytes over
 * all cuts, when none is slower than that. */
double partition_cost(const struct table *t, double limit, double before, uint32_t s, uint32_t i, uint32_t j);
/* Bytes that are missing when stage s has ops i..j-1; 0: it fits. at: as for cutting.holds. ret_surely: they would be
 * with nothing to pass on. */
uint64_t partition_missing(struct table *t, uint32_t s, uint32_t i, uint32_t j, const uint32_t *at, bool *ret_surely);

/* Stages one behind the other: `first` and those that follow it, from op `begin` on; others cost `before`.
 * best, from: of the table, or as large. lacks: as partition_missing, of its k-th stage. */
struct line {
	uint32_t first, begin;
	double before;
	double *best; uint32_t *from;
	uint64_t (*lacks)(struct table *t, const struct line *l, uint32_t k, uint32_t i, uint32_t j, bool *ret_surely);
	const void *arg;
};
/* The best way to put the ops up to j - 1 on its stages 0..k. What a piece needs is asked of the best ones only; what
 * begins before `lo` is too much, as it was with fewer ops (but for the ends of the pipeline, which need less once they
 * have all that is tied to each other). Returns the next lo. */
uint32_t partition_cell(struct table *t, double limit, const struct line *l, uint32_t k, uint32_t j, uint32_t lo);

/* As solve() of partition.c, where stages keep for each other. */
double partition_groups(struct table *t, double limit);

#endif
