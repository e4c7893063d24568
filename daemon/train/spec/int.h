/* Shared by the files that read a spec. */
#ifndef TRAIN_SPEC_INT_H
#define TRAIN_SPEC_INT_H
#include "train/spec/spec.h"
#include "train/spec/read.h"

int spec_read_model(struct spec *s, const json_t *shared, struct err *e);       /* input, model, loss */
int spec_read_layers(struct spec *s, const json_t *shared, struct err *e);      /* input, model, conv, precision */
int spec_read_loss(struct spec *s, const json_t *shared, struct err *e);        /* loss; model has been read */
int spec_read_optim(struct spec *s, const json_t *shared, struct err *e);       /* optimizer, clip_norm, schedule */
int spec_read_data(struct spec *s, const json_t *shared, struct err *e);        /* data, validation */
int spec_read_averaging(struct spec *s, const json_t *shared, struct err *e);   /* averaging; strategy has been read */
int spec_read_plan(struct spec *s, const json_t *shared, struct err *e);        /* plan; likewise */
/* Members of one unit have micro-batches of one size: the author's local.batch becomes part of the plan's keys, and is
 * that of everybody. local may be NULL. */
int spec_one_batch(struct spec *s, const json_t *local, struct err *e);
bool spec_plan_has(const struct planner_ops *p, const char *key);       /* key is one of p's in "plan" */
int spec_read_weights(struct spec *s, const json_t *shared, struct err *e);     /* weights */
/* data.steps, data.materialize_after */
int spec_read_steps(struct spec *s, const json_t *data, const struct place *data_at, struct err *e);
/* The shared part has been read. */
int spec_read_local(struct spec_local *l, const struct spec *s, const json_t *local, struct err *e);
int spec_read_remat(struct spec_local *l, const struct spec *s, const json_t *local, struct err *e);
json_t *spec_remat_json(const struct spec *s);
/* May members have means that differ in the last bits, where the topology makes such? Says what is promised then. */
int spec_topology_fits(const struct spec *s, struct planner_mode *mode, struct err *e);
/* What a scaled loss does not go with: a gradient that has overflowed must be in everybody's mean, as it is. */
int spec_scale_fits(const struct spec *s, const struct planner_mode *mode, struct err *e);
int spec_track_fits(const struct spec *s, const struct planner_mode *mode, struct err *e);
int spec_scale_wire(const struct spec *s, const json_t *codec, enum robust robust, struct err *e);       /* in rounds */
/* Is it one of the strategy's settings, and a good value? 1: it is none. */
int spec_mode_set(const struct spec *s, const char *key, const json_t *v, struct err *e);
/* A name out of a list of names separated by blanks: "unknown ...; did you mean ...". */
int place_unknown(const struct place *at, const char *what, const char *word, const char *names, struct err *e);

#endif
