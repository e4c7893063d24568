/* Bilinear resampling with antialiasing in the integers of Pillow (Resample.c: weights of 22 bits, first along rows,
 * then along columns, each rounded to a byte): the same bytes on every machine and every instruction set. */
#ifndef TRAIN_RESAMPLE_H
#define TRAIN_RESAMPLE_H
#include <stddef.h>
#include <stdint.h>

/* Output i is the weighted sum of n[i] inputs from first[i] on; its weights stand at weight + i * stride. */
struct weights { size_t in, out, stride; uint32_t *first, *n; int32_t *weight; };
void weights_make(struct weights *k, size_t in, size_t out);
void weights_free(struct weights *k);

size_t resample_scratch(size_t in, size_t out);         /* bytes that resample_rows works in */
/* h rows of k->in bytes become h rows of k->out. */
void resample_rows(const struct weights *k, const uint8_t *from, size_t h, uint8_t *to, uint8_t *scratch);
/* k->in rows of w bytes become k->out rows. */
void resample_columns(const struct weights *k, const uint8_t *from, size_t w, uint8_t *to);

#endif
