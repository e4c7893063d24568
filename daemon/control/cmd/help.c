/* help: the command table itself; hivectl builds its parsing, its help and its completion from it. */
#include "control/cmd.h"

static const struct cmd_param params[] = {
	{ "command", CMD_STR, CMD_REST, "one command; else all of them" },
	{ NULL, 0, 0, NULL }
};

static void run(struct cmd_call *c)
{
	const char *name = json_string_value(json_object_get(c->params, "command"));
	json_t *commands = json_array();

	for (const struct cmd *const *p = cmd_table(); *p; p++)
		if (!name || cmd_find(name) == *p)
			json_array_append_new(commands, cmd_json(*p));
	if (name && json_array_size(commands) == 0) {
		json_decref(commands);
		cmd_fail(c, ERR_NOT_FOUND, "there is no command %.60s", name);
		return;
	}
	reply_ok(c->reply, json_pack("{s:s, s:o}", "version", c->ctx->version, "commands", commands));
}

const struct cmd cmd_help = { "help", "what can be asked", params, CMD_VIEW, "commands", run };
