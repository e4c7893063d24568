/* Continues a text with a model that answers at every position: one token after the other, drawn from what the model
 * says behind the text so far. What it touches is its own, or does not change, so a job of any lane may run it.
 *
 * The text is run through the model anew for each token, in a window that is the next power of two, and the last layer
 * only for the position that counts. When the text is longer than the model's context, its end is what counts.
 *
 * Of pairs of texts the prompt is a source, and what is drawn its answer, to the sign that it ends; the whole model is
 * run for each token. A prompt that has no place is ERR_LIMIT. */
#ifndef TRAIN_SAMPLER_H
#define TRAIN_SAMPLER_H
#include "train/data/pairs.h"
#include "train/data/text.h"
#include "train/trainer.h"

struct sampler_opts {
	double temperature;             /* 0: always the most likely token; 1: as the model says */
	uint32_t top_k;                 /* among so many of the most likely ones; 0: all */
	uint64_t seed;
};
struct sampler;
/* source: whose alphabet it is; its data stay open as long. weights: trainer_weights' copy, which it keeps a reference
 * to. prompt: at least one id. ERR_INVALID: this model continues no text (e says why). On the loop. */
struct sampler *sampler_new(const struct spec *s, const struct data_source *source, const struct par *par,
	struct snapshot *weights, const struct ids *prompt, const struct sampler_opts *o, struct err *e);
/* NULL when the model can; else why not. */
int sampler_can(const struct spec *s, const struct data_source *source, struct err *e);
void sampler_free(struct sampler *x);           /* on the loop; NULL is fine */
/* The next token's id; in any lane. ERR_NONFINITE: the model says nothing that is a number. */
int sampler_next(struct sampler *x, int32_t *ret_id, struct err *e);
size_t sampler_bytes(const struct sampler *x);  /* memory it holds, without the weights */

/* Draws from n scores; scores are left as they are. room: n of them. Deterministic in (key, index). NAN: -1. */
int32_t sampler_draw(const real *score, size_t n, const struct sampler_opts *o, uint64_t index, real *room);

#endif
