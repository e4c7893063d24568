/* The spec of a run, as an operator writes it and as a peer publishes it: what is accepted can be taken apart and put
 * together again with the same run id, and its model can be laid out. */
#include <stdlib.h>
#include <string.h>
#include "kernels/model.h"
#include "train/spec/spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static void again(const struct spec *s)
{
	static const struct id author = {{ 7 }};
	struct err e;
	json_t *local = spec_local_json(s);
	struct spec *t = spec_of(s->name, s->shared, local, &e);
	struct id a, b;

	check(t != NULL);
	spec_run_id(s, &author, &a);
	spec_run_id(t, &author, &b);
	check(id_eq(&a, &b));
	json_decref(local);
	spec_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err e = { .code = ERR_NONE };
	struct spec *s = spec_parse((const char *)data, size, &e);
	struct model *m;
	json_t *live;

	if (!s) {
		check(e.code != ERR_NONE && e.text[0]);
		return 0;
	}
	again(s);
	live = spec_live(s);
	check(live && spec_live_check(s, live, &e) == 0);
	json_decref(live);
	m = spec_model(s, NULL, &e);
	check(m || e.text[0]);
	model_free(m);
	spec_free(s);
	return 0;
}
