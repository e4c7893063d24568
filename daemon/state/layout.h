/* What the state of a run consists of, the same on every peer, whoever holds which part of it:
 *
 *   elements     0 .. params - 1 are the parameters, in the order of the model's flat vector; running statistics follow
 *   vectors      "w" over all elements; the optimizer's over the parameters; the strategy's over all elements
 *   clock        the optimizer's, which every holder has
 *
 * A *shard* (shard.h) is what one peer holds of it. Units: elements, unless bytes are said. */
#ifndef STATE_LAYOUT_H
#define STATE_LAYOUT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STATE_DIMS 8
#define STATE_NAME 128                  /* of a tensor, with what stands before it; with NUL */
#define STATE_VECTORS 8
#define STATE_VECTOR_NAME 48
#define STATE_CLOCK 3                   /* doubles: step, powers */
#define STATE_CLOCK_MAX 5               /* with a scaled loss: its scale, steps since that changed (kernels/scale.h) */
#define STATE_CUT 1024                  /* flat shards are cut at multiples of so many */

struct layout_tensor { char name[STATE_NAME]; int nd; uint64_t shape[STATE_DIMS]; uint64_t at, n; };
struct layout_vector { char name[STATE_VECTOR_NAME]; };
struct layout {
	uint32_t unit;                          /* bytes of an element: 4, or 8 where all is done in double */
	uint64_t params, stats;
	size_t ntensors; struct layout_tensor *tensor;  /* without holes, in order; none crosses params */
	uint32_t nopt; struct layout_vector opt[STATE_VECTORS];
	/* the strategy's; the first nbegin begin as a copy of w, the others as zeros */
	uint32_t nextra, nbegin; struct layout_vector extra[STATE_VECTORS];
	double scale;                           /* of the loss to begin with; 0: it is not scaled */
};

/* Takes a tensor's name and shape; it lies behind the one before. false: there is no room for it in the elements. */
bool layout_add(struct layout *l, const char *name, int nd, const uint64_t *shape, uint64_t n);
void layout_free(struct layout *l);             /* leaves {0} */
static inline size_t layout_clock_of(bool scaled) { return scaled ? STATE_CLOCK_MAX : STATE_CLOCK; }
static inline size_t layout_clock(const struct layout *l) { return layout_clock_of(l->scale > 0); }     /* doubles */
/* Bytes of the optimizer's vectors and the clock of so many doubles, which stand behind w bytes of parameters and
 * running statistics: the clock at a multiple of 8 of all. */
static inline size_t layout_opt_bytes(size_t w, size_t vectors, size_t clock)
{
	return (w + vectors + 7) / 8 * 8 + clock * sizeof(double) - w;
}
static inline uint64_t layout_elements(const struct layout *l) { return l->params + l->stats; }

#endif
