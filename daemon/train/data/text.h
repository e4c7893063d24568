/* What else a text can be asked. */
#ifndef TRAIN_DATA_TEXT_H
#define TRAIN_DATA_TEXT_H
#include "train/data/alphabet.h"

bool text_masked(const struct data_source *d);          /* hidden tokens are guessed, not the next one */

#endif
