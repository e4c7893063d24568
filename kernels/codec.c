/* The list of encodings. */
#include "kernels/codec.h"
#include "kernels/lookup.h"

#define CODEC(name) extern const struct codec_ops codec_##name;
#include "kernels/codec/list.h"
#undef CODEC

static const struct codec_ops *const all[] = {
#define CODEC(name) &codec_##name,
#include "kernels/codec/list.h"
#undef CODEC
};
LOOKUP(codec);
