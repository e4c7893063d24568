/* A folder of small pictures, and what lies in the folder of prepared data. */
#ifndef TESTS_UNIT_CACHE_KIT_H
#define TESTS_UNIT_CACHE_KIT_H
#include "data_kit.h"
#include "images_golden.h"
#include "train/data/cache.h"

enum { N = 24, FILES = 10, NX = 3 * 8 * 8 };
#define FORM "{\"name\":\"a\",\"input\":[3,8,8],\"model\":[{\"type\":\"flatten\"},{\"type\":\"linear\",\"out\":3}]," \
	"\"loss\":\"cross_entropy\",\"target_batch\":8,\"optimizer\":{\"name\":\"sgd\",\"lr\":0.1},\"seed\":5," \
	"\"data\":{\"name\":\"d\",\"kind\":\"folder\",\"steps\":[%s]%s},\"local\":{\"cache\":\"%s\"}}"
#define KEPT "{\"type\":\"resize\",\"size\":[12,14]},{\"type\":\"center_crop\",\"size\":[11,12]}"
#define NORM "{\"type\":\"normalize\",\"mean\":[120,121,122],\"std\":[50,60,70]}"
#define STEPS KEPT ",{\"type\":\"crop\",\"size\":8,\"padding\":1},\"flip\"," NORM

static inline struct spec *spec_with(const char *steps, const char *more, const char *cache)
{
	char json[1500];
	struct spec *s;
	struct err e;

	(void)snprintf(json, sizeof(json), FORM, steps, more, cache);
	s = spec_parse(json, strlen(json), &e);
	if (!s)
		fail_msg("%s", e.text);
	return s;
}

static inline void fill(struct world *w)
{
	struct err e;

	assert_int_equal(w->env->files->mkdir(w->env->files, "d/cat", 0755, &e), 0);
	assert_int_equal(w->env->files->mkdir(w->env->files, "d/ant", 0755, &e), 0);
	for (int i = 0; i < FILES; i++) {
		char name[32];

		(void)snprintf(name, sizeof(name), "%s/%d.jpg", i % 3 ? "cat" : "ant", i);
		if (i == 4 || i == 7)
			put(w, name, file_jpeg, 300);
		else if (i % 2)
			put(w, name, file_jpeg, sizeof(file_jpeg));
		else
			put(w, name, file_png, sizeof(file_png));
	}
}

struct set { real x[N * NX]; int32_t y[N]; };

static inline void read_set(struct data *d, struct set *r)
{
	uint64_t position[N];
	struct err e;

	for (uint64_t i = 0; i < N; i++)
		position[i] = 3 * i;
	if (data_read(d, DATA_TRAIN, position, N, r->x, r->y, &e) < 0)
		fail_msg("%s", e.text);
}

static inline void plain(struct world *w, const char *steps, struct set *r)
{
	struct spec *s = spec_with(steps, "", "");
	struct data *d = opened(w, s);

	read_set(d, r);
	data_free(d);
	spec_free(s);
}

static inline const char *cache_state(struct data *d, char *out, size_t cap)
{
	json_t *j = data_json(d);
	const json_t *c = json_object_get(j, "cache");

	(void)snprintf(out, cap, "%s %s", json_string_value(json_object_get(c, "state")),
		json_object_get(c, "error") ? json_string_value(json_object_get(c, "error")) : "");
	json_decref(j);
	return out;
}

static inline void make(struct data *d)
{
	for (int i = 0; data_cache_wanted(d); i++) {
		assert_true(i < 1000);
		data_cache_make(d);
	}
}

static inline void state_is(struct data *d, const char *want)
{
	char text[400];

	if (strncmp(cache_state(d, text, sizeof(text)), want, strlen(want)))
		fail_msg("cache: \"%s\", expected \"%s\"", text, want);
}

struct names { char cache[100]; int caches, others; };
static inline int name_row(void *arg, const char *name)
{
	struct names *n = arg;
	size_t len = strlen(name);

	if (len > 6 && !strcmp(name + len - 6, ".cache")) {
		n->caches++;
		(void)snprintf(n->cache, sizeof(n->cache), "c/%.90s", name);
	} else {
		n->others++;
	}
	return 0;
}

static inline struct names listing(struct world *w)
{
	struct names n = { .caches = 0 };
	struct err e;

	(void)w->env->files->list(w->env->files, "c", name_row, &n, &e);
	return n;
}

#endif
