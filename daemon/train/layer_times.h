/* How long the layers of a model take on this machine, forward and backward: passes over made-up samples, measured one
 * by one. The profile that planners and people ask for before anything is trained (Narayanan et al., PipeDream, SOSP
 * 2019, section 3.1: times, activation and weight bytes of each layer). */
#ifndef TRAIN_LAYER_TIMES_H
#define TRAIN_LAYER_TIMES_H
#include <jansson.h>
#include "kernels/model.h"

#define LAYER_TIMES_PASSES 1000

struct layer_times;
/* What it takes while it measures, in bytes. */
uint64_t layer_times_bytes(const struct model *m, size_t batch, int parts);
/* m and par (with a clock) must outlive it; passes that count: 1 to LAYER_TIMES_PASSES. NULL: there is no memory. */
struct layer_times *layer_times_new(const struct model *m, const struct par *par, size_t batch, int passes);
void layer_times_free(struct layer_times *t);           /* NULL is fine */
/* In the lane of par's team. The first makes weights and samples, and does not count; false: that was the last. */
bool layer_times_pass(struct layer_times *t);
uint64_t layer_times_last_us(const struct layer_times *t);      /* what the last pass took */
const real *layer_times_output(const struct layer_times *t, size_t *ret_n);     /* and what it has put out */
/* Medians of the passes: {batch, passes, threads, forward_us, backward_us: of whole passes, layers_us: the sum over
 * layers, saved_bytes: kept for backward in all, layers: [those of model show (zoo.h), with forward_us, backward_us,
 * in?: whose forward pass it runs in], text}. */
json_t *layer_times_json(const struct layer_times *t);

#endif
