/* The configuration file: a load either changes nothing or leaves every key readable. */
#include <stdlib.h>
#include <string.h>
#include "common/conf.h"
#include "common/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct conf_row rows[] = {
	{ "node", "name", CONF_STR, "me", 0, 0, true, "" },
	{ "node", "threads", CONF_INT, "2", 1, 64, false, "" },
	{ "net", "join", CONF_LIST, "", 0, 0, true, "" },
	{ "net", "timeout", CONF_DURATION, "2s", 1000, 60e6, true, "" },
	{ "net", "buffer", CONF_SIZE, "2MiB", 4096, 64 << 20, true, "" },
	{ "net", "encrypt", CONF_BOOL, "yes", 0, 0, true, "" },
	{ "run", "loss", CONF_DOUBLE, "0.5", 0, 1, true, "" },
	{ "data", "*", CONF_STR, NULL, 0, 0, true, "" },
	{ NULL },
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct conf *c = conf_new(rows);
	json_t *before = conf_json(c), *after;
	const char *const *items;
	struct err e = {0};
	int rc = conf_load_text(c, "f", (const char *)data, size, &e);

	after = conf_json(c);
	if (!before || !after || (rc && (!json_equal(before, after) || !e.text[0])))
		abort();
	if (conf_int(c, "node", "threads") < 1 || conf_int(c, "node", "threads") > 64 || conf_double(c, "run", "loss") > 1)
		abort();
	for (size_t i = 0, n = conf_list(c, "net", "join", &items); i < n; i++)
		if (!items[i][0] || !text_utf8_ok(items[i], strlen(items[i])))
			abort();
	json_decref(before);
	json_decref(after);
	conf_free(c);
	return 0;
}
