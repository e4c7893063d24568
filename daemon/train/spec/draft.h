/* A spec from few words: "run start r18 --model resnet18 --data cifar10-jpeg:PATH". First the data is looked at
 * (data_about), because classes, shape, mean and deviation are in it; then the rest is filled in with defaults that
 * people use for such data. What is made is a whole spec like one from a file: nothing is special about it later. */
#ifndef TRAIN_DRAFT_H
#define TRAIN_DRAFT_H
#include <jansson.h>
#include "train/data/data.h"

#define ABOUT_SAMPLES 64                        /* that mean and deviation are taken from, spread over the set */

struct data_about {
	char kind[32];
	uint64_t count[DATA_PARTS], classes;    /* classes 0: the targets are no labels */
	bool images;                            /* JPEG or PNG files: red, green, blue unless all are grey */
	struct shape shape;                     /* nd 0: images of different sizes */
	uint32_t channels;                      /* of mean and std, which are of raw values; 0: none */
	double mean[STEP_CHANNELS], std[STEP_CHANNELS];
};
/* Blocking (data lane). vocab: of text, local.vocab; may be NULL. ERR_INVALID: a kind that needs a spec (synthetic). */
int data_about(struct files *f, const char *kind, const char *path, const char *vocab, struct data_about *ret,
	struct err *e);

/* params, as of `run start`: "model" (a name), "with" {parameters of the model}, "name", "data" (KIND:PATH), "tbs",
 * "lr", "optimizer", "epochs", "seed"; all but model and data may be absent. New reference: the shared part with its
 * name, without "local". NULL and e. */
json_t *draft_spec(const json_t *params, const struct data_about *a, struct err *e);
/* The same words over a spec that was written: tbs, lr, optimizer, epochs, seed; strategy, and of its plan stages,
 * schedule and micro_batches. */
void draft_over(json_t *spec, const json_t *params);

#endif
