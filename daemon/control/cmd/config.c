/* config: every key with its value, where it comes from and whether it may change while the daemon runs. */
#include "control/cmd.h"

static const struct cmd_param params[] = { { NULL, 0, 0, NULL } };

/* One line per key for people; programs find the whole in "config". */
static json_t *rows_of(const json_t *config)
{
	json_t *rows = json_array(), *keys, *v;
	const char *section, *key;

	json_object_foreach((json_t *)config, section, keys)
		json_object_foreach(keys, key, v)
			json_array_append_new(rows, json_pack("{s:s, s:s, s:O?, s:O?, s:O?}", "section", section, "key", key,
				"value",
				json_object_get(v, "text"), "origin", json_object_get(v, "origin"), "reload", json_object_get(v,
					"reload")));
	return rows;
}

static void run(struct cmd_call *c)
{
	json_t *config = conf_json(c->ctx->conf);

	reply_ok(c->reply, json_pack("{s:o, s:o}", "rows", rows_of(config), "config", config));
}

const struct cmd cmd_config = { "config", "the settings in force and where they come from", params, CMD_VIEW,
	"rows", run };
