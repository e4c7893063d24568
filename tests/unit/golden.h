/* What tests against another program's numbers share: the noise that both fill tensors with, how a gradient is
 * compared, the model of a spec and how its convolutions are computed. Included after cmocka.h. */
#ifndef TESTS_GOLDEN_H
#define TESTS_GOLDEN_H
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "train/spec/spec.h"

/* Element i of tensor k: between -1 and 1. */
static inline double golden_noise(double i, double k)
{
	double u = sin(12.9898 * i + k) * 43758.5453;

	return 2 * (u - floor(u)) - 1;
}

/* Fails unless p's gradient is the other program's to `tolerance` of its norm: by the norm, and along a direction whose
 * norm is sqrt(n / 2). How far it is off along that one, in its norm. */
static inline double golden_close(const struct model_param *p, const real *grad, const char *what, const char *name,
	double norm, double along, double tolerance)
{
	const real *v = grad + p->offset;
	double square = 0, a = 0;

	assert_string_equal(p->name, name);
	for (size_t i = 0; i < p->count; i++) {
		square += (double)v[i] * (double)v[i];
		a += (double)v[i] * cos(0.7 * (double)i + 0.3);
	}
	if (!(fabs(sqrt(square) - norm) <= tolerance * norm) || !(fabs(a - along) <= tolerance * norm))
		fail_msg("%s, %s: norm %.17g, PyTorch's %.17g; along %.17g, PyTorch's %.17g", what, name, sqrt(square), norm, a,
			along);
	return (a - along) / norm;
}

/* Convolutions as tiles of that kind; 0: as sums of products. Tiles are a few 1e-6 off, which is enough for the other
 * side of a ReLU. */
static inline void golden_tiles(struct model *m, int winograd)
{
	for (int i = 0; i < m->nops; i++)
		for (int a = 0; a < m->op[i].ops->nattrs; a++)
			if (!strcmp(m->op[i].ops->attr[a].name, "winograd"))
				m->op[i].attr[a] = winograd;
}

/* model: what stands behind "model" in a spec, and what may follow it there. The caller's: model_free. */
static inline struct model *golden_model(const char *model)
{
	static const char form[] = "{\"name\":\"m\",\"model\":%s,\"loss\":\"mse\",\"optimizer\":{\"name\":\"sgd\","
		"\"lr\":0.1},\"target_batch\":64,\"data\":{\"name\":\"s\",\"kind\":\"synthetic\",\"count\":256}}";
	char text[1000];
	struct err e;
	struct spec *s;
	struct model *m;

	assert_true((size_t)snprintf(text, sizeof(text), form, model) < sizeof(text));
	s = spec_parse(text, strlen(text), &e);
	m = s ? spec_model(s, NULL, &e) : NULL;
	if (!m)
		fail_msg("%s: %s", model, e.text);
	spec_free(s);
	return m;
}

#endif
