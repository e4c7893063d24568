/* What tests against another program's numbers share: the noise that both fill tensors with, two numbers that stand for
 * a gradient, the model of a spec and how its convolutions are computed. Included after cmocka.h. */
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

/* The norm of v, and v along a direction whose norm is sqrt(n / 2). */
static inline void golden_two(const real *v, size_t n, double *ret_norm, double *ret_along)
{
	double square = 0, along = 0;

	for (size_t i = 0; i < n; i++) {
		square += (double)v[i] * (double)v[i];
		along += (double)v[i] * cos(0.7 * (double)i + 0.3);
	}
	*ret_norm = sqrt(square);
	*ret_along = along;
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
