/* For pipe_world.h: a small language model whose output has the weights of its embedding, and what it reads. */
#ifndef TESTS_PIPE_TOKENS_H
#define TESTS_PIPE_TOKENS_H
#include "exec/batch.h"
#include "kernels/real.h"

#define VOCAB 11
#define CONTEXT 5
static const char tied_text[] = "{\"name\":\"c\",\"input\":[5],\"model\":{\"zoo\":\"gpt2\",\"layers\":2,\"width\":8,"
	"\"heads\":2,\"vocab\":11,\"positions\":5,\"context\":5},\"loss\":\"cross_entropy\",\"optimizer\":%s,"
	"\"target_batch\":8,\"data\":{\"name\":\"x\",\"kind\":\"text\"}}";

/* Tokens that follow from the positions of their samples, as many as there is room for; bad: one is no word. */
static inline void tokens_of(struct batch *b, uint32_t samples, bool bad)
{
	for (uint32_t i = 0; i < samples * CONTEXT; i++) {
		uint64_t at = b->position[i / CONTEXT] * 7 + i % CONTEXT;

		((real *)b->x)[i] = (real)(at * at % VOCAB);
		((int32_t *)b->y)[i] = (int32_t)((at * at + 3 * at) % VOCAB);
	}
	if (bad)
		((real *)b->x)[0] = VOCAB;
}

#endif
