/* The table of a state's tensors. */
#include "state/layout.h"
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"

bool layout_add(struct layout *l, const char *name, int nd, const uint64_t *shape, uint64_t n)
{
	const struct layout_tensor *last = l->ntensors ? &l->tensor[l->ntensors - 1] : NULL;
	uint64_t at = last ? last->at + last->n : 0;
	struct layout_tensor *t;

	if (nd < 0 || nd > STATE_DIMS || strlen(name) >= sizeof(t->name) || n > layout_elements(l) - at ||
	    (at < l->params && at + n > l->params))
		return false;
	if (!(l->ntensors & (l->ntensors - 1)))         /* a power of two, or none: room for as many again */
		l->tensor = xrealloc(l->tensor, (l->ntensors ? 2 * l->ntensors : 1) * sizeof(*l->tensor));
	t = &l->tensor[l->ntensors++];
	*t = (struct layout_tensor){ .nd = nd, .at = at, .n = n };
	memcpy(t->name, name, strlen(name) + 1);
	for (int d = 0; d < nd; d++)
		t->shape[d] = shape[d];
	return true;
}

void layout_free(struct layout *l)
{
	free(l->tensor);
	*l = (struct layout){ 0 };
}
