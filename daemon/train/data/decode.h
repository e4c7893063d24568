/* JPEG (libjpeg-turbo) and PNG (libpng) files in memory, as planes of bytes. Memory is bounded before anything is
 * decoded; a file that is cut off, lies or is damaged is ERR_CORRUPT.
 *
 * What files hold becomes 8 bits of grey or of red, green, blue: palettes and fewer bits are expanded, of 16 bits the
 * upper 8 count, transparency is left out, CMYK (as Adobe writes it) becomes RGB as in Pillow. EXIF orientation is not
 * applied, as in torchvision's ImageFolder: pixels stay as they are stored.
 *
 * When the first step reads a piece of the image only (sample_window), no more than that is decoded: the same bytes as
 * out of the whole, and damage behind the piece is not seen. */
#ifndef TRAIN_DATA_DECODE_H
#define TRAIN_DATA_DECODE_H
#include "train/step.h"

#define DECODE_SIDE_MAX 16384
#define DECODE_PIXELS_MAX ((uint64_t)1 << 25)
#define DECODE_SCANS_MAX 200                    /* of a progressive JPEG: more is an attack on the CPU */

/* channels: 1 (grey) or 3 (red, green, blue), whatever the file has. */
int image_decode(const uint8_t *file, size_t n, size_t channels, struct sample *ret, struct err *e);
bool image_name(const char *name);              /* .jpg .jpeg .png, in any case */

/* Between decode.c, its two formats and what these have in common (decode_rows.c). */
int decode_jpeg(const uint8_t *file, size_t n, size_t channels, struct sample *s, struct err *e);
void decode_jpeg_end(void *decoder);
int decode_png(const uint8_t *file, size_t n, size_t channels, struct sample *s, struct err *e);
/* An image of h x w: checks it, and makes room for the piece that is wanted. */
int decode_start(struct sample *s, uint64_t h, uint64_t w, size_t channels, struct window *ret, struct err *e);
/* Row y of the piece, out of channels interleaved; row points to its first pixel. */
void decode_row(struct sample *s, size_t y, const uint8_t *row);

#endif
