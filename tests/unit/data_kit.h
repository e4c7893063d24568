/* For tests of data: IDX files made up in the files of a simulated peer, and a spec that reads them. */
#ifndef TESTS_DATA_KIT_H
#define TESTS_DATA_KIT_H
#include "t.h"
#include <fcntl.h>
#include "sim.h"
#include "common/mem.h"
#include "train/data/data.h"
#include "train/step.h"

struct world { struct sim *sim; struct env *env; };
static inline void *start(struct env *env, int node, void *arg) { return arg; }
static inline void stop(void *app) { }

static inline void world_open(struct world *w)
{
	struct sim_app app = { start, stop, w };
	struct err e;

	w->sim = sim_new(3);
	(void)sim_node_add(w->sim, NULL, &app);
	w->env = sim_env(w->sim, 0);
	assert_int_equal(w->env->files->mkdir(w->env->files, "d", 0755, &e), 0);
}

static inline void put(struct world *w, const char *name, const void *p, size_t n)
{
	char path[100];
	struct files *f = w->env->files;
	struct err e;
	int fd;

	(void)snprintf(path, sizeof(path), "d/%s", name);
	fd = f->open(f, path, O_WRONLY | O_CREAT | O_TRUNC, 0644, &e);
	assert_true(fd >= 0);
	assert_int_equal(f->pwrite(f, fd, p, n, 0, &e), 0);
	assert_int_equal(f->close(f, fd, &e), 0);
}

static inline void put_set(struct world *w, const char *images, const char *labels, unsigned n, uint8_t label_max)
{
	uint8_t *x = calloc(1, 16 + n * 16), *y = calloc(1, 8 + n);
	const uint8_t hx[16] = { 0, 0, 8, 3, 0, 0, (uint8_t)(n >> 8), (uint8_t)n, 0, 0, 0, 4, 0, 0, 0, 4 };
	const uint8_t hy[8] = { 0, 0, 8, 1, 0, 0, (uint8_t)(n >> 8), (uint8_t)n };

	memcpy(x, hx, 16);
	memcpy(y, hy, 8);
	for (unsigned i = 0; i < n; i++) {
		for (unsigned k = 0; k < 16; k++)
			x[16 + i * 16 + k] = (uint8_t)(i * 7 + k);
		y[8 + i] = (uint8_t)(i % (label_max + 1u));
	}
	put(w, images, x, 16 + n * 16);
	put(w, labels, y, 8 + n);
	free(x);
	free(y);
}

#define SPEC "{\"name\":\"a\",\"input\":[1,4,4],\"model\":[{\"type\":\"flatten\"},{\"type\":\"linear\",\"out\":3}]," \
	"\"loss\":\"cross_entropy\",\"target_batch\":8,\"optimizer\":{\"name\":\"sgd\",\"lr\":0.1},\"seed\":5,%s" \
	"\"data\":{\"name\":\"d\"%s}}"

static inline struct spec *spec(const char *more, const char *data)
{
	char json[1000];
	struct spec *s;
	struct err e;

	(void)snprintf(json, sizeof(json), SPEC, more, data);
	s = spec_parse(json, strlen(json), &e);
	if (!s)
		fail_msg("%s", e.text);
	return s;
}

static inline struct data *opened(struct world *w, struct spec *s)
{
	struct err e;
	struct data *d = data_open(w->env->files, "d", s, &e);

	if (!d)
		fail_msg("%s", e.text);
	return d;
}

static inline struct spec_step step_of(const char *json)
{
	const struct place at = { "s" };
	json_t *o = json_loads(json, 0, NULL);
	struct spec_step st = { .ops = step_find(json_string_value(json_object_get(o, "type"))) };
	struct err e;

	assert_non_null(st.ops);
	if (st.ops->read(&st, o, &at, &e) < 0)
		fail_msg("%s", e.text);
	json_decref(o);
	return st;
}

#endif
