/* The registry of steps, and what the first one will read of an image. */
#include <stdio.h>
#include <string.h>
#include "train/step.h"

#define STEP(x) extern const struct step_ops step_##x;
#include "train/step/list.h"
#undef STEP

static const struct step_ops *const list[] = {
#define STEP(x) &step_##x,
#include "train/step/list.h"
#undef STEP
	NULL
};

const struct step_ops *step_find(const char *name)
{
	for (int i = 0; list[i]; i++)
		if (!strcmp(list[i]->name, name))
			return list[i];
	return NULL;
}

const char *step_names(char *out, size_t cap)
{
	size_t n = 0;

	out[0] = 0;
	for (int i = 0; list[i] && n < cap; i++)
		n += (size_t)snprintf(out + n, cap - n, "%s%s", i ? " " : "", list[i]->name);
	return out;
}

void sample_window(const struct sample *s, size_t h, size_t w, struct window *ret)
{
	const struct step_ops *ops = s->first ? s->first->ops : NULL;

	if (!ops || !ops->window || !ops->window(s->first, h, w, s->key, s->train, ret))
		*ret = (struct window){ 0, 0, h, w };
}
