/* events: what happened, from the database, newest first. */
#include "control/cmd.h"

#include "control/control.h"
#include "store/store.h"

static const struct cmd_param params[] = {
	{ "run", CMD_STR, 0, "id of one run (64 digits)" },
	{ "lines", CMD_INT, CMD_OPTION, "this many (default 50)" },
	{ NULL, 0, 0, NULL }
};

static void run(struct cmd_call *c)
{
	const json_t *lines = json_object_get(c->params, "lines");
	json_int_t n = lines ? json_integer_value(lines) : 50;

	if (!c->ctx->store)
		cmd_fail(c, ERR_STATE, "this hivemindd has no database");
	else if (n < 1 || n > CONTROL_LINES_MAX(c))
		cmd_fail(c, ERR_INVALID, "events: lines must be 1 to %d here", CONTROL_LINES_MAX(c));
	else
		reply_ok(c->reply, json_pack("{s:o}", "events", store_list(c->ctx->store, STORE_EVENTS,
			json_string_value(json_object_get(c->params, "run")), (size_t)n)));
}

const struct cmd cmd_events = { "events", "what happened to this peer and its runs", params, CMD_VIEW,
	"events:wall_ms,level,kind,run,peer,text", run };
