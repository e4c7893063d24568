/* Written by tests/data/make-golden-images.py with Pillow 13.0.0. Do not edit. */
#ifndef TESTS_IMAGES_GOLDEN_H
#define TESTS_IMAGES_GOLDEN_H
#include "images_jpeg.h"
#include "images_png.h"
#include "images_resized.h"

#endif
