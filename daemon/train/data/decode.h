/* JPEG (libjpeg-turbo) and PNG (libpng) files in memory, as planes of bytes. Memory is bounded before anything is
 * decoded; a file that is cut off, lies or is damaged is ERR_CORRUPT. */
#ifndef TRAIN_DATA_DECODE_H
#define TRAIN_DATA_DECODE_H
#include "train/step.h"

#define DECODE_SIDE_MAX 16384
#define DECODE_PIXELS_MAX ((uint64_t)1 << 25)
#define DECODE_SCANS_MAX 200                    /* of a progressive JPEG: more is an attack on the CPU */

/* channels: 1 (grey) or 3 (red, green, blue), whatever the file has. */
int image_decode(const uint8_t *file, size_t n, size_t channels, struct sample *ret, struct err *e);
bool image_name(const char *name);              /* .jpg .jpeg .png, in any case */

#endif
