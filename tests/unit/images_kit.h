/* For tests of images: a spec that reads them, folders, and the size of the golden ones. */
#ifndef TESTS_IMAGES_KIT_H
#define TESTS_IMAGES_KIT_H
#include "data_kit.h"
#include "images_golden.h"
#include "train/data/decode.h"

#define W 37
#define H 23

#define MODEL3 "\"model\":[{\"type\":\"flatten\"},{\"type\":\"linear\",\"out\":3}],\"loss\":\"cross_entropy\"," \
	"\"target_batch\":8,\"optimizer\":{\"name\":\"sgd\",\"lr\":0.1},\"seed\":5"

static inline struct spec *images_spec(const char *kind, const char *steps, const char *more)
{
	char json[2000];
	struct spec *s;
	struct err e;

	(void)snprintf(json, sizeof(json),
		"{\"name\":\"a\",\"input\":[3,8,8]," MODEL3 ",\"data\":{\"name\":\"d\",\"kind\":\"%s\","
		"\"steps\":[%s]%s}}", kind, steps, more);
	s = spec_parse(json, strlen(json), &e);
	if (!s)
		fail_msg("%s", e.text);
	return s;
}

static inline void folder(struct world *w, const char *path)
{
	struct err e;
	char full[200];

	(void)snprintf(full, sizeof(full), "d/%s", path);
	assert_int_equal(w->env->files->mkdir(w->env->files, full, 0755, &e), 0);
}

#define RESIZE "{\"type\":\"resize\",\"size\":[8,8]}"
#define STEPS "{\"type\":\"resize\",\"size\":10},{\"type\":\"crop\",\"size\":8},{\"type\":\"flip\"}," \
	"{\"type\":\"normalize\",\"mean\":[120,121,122],\"std\":[50,60,70]}"

#endif
