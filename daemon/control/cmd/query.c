/* query: any SELECT over the daemon's history, read-only, off the loop. */
#include "control/cmd.h"

#include "store/store.h"

#define ROWS 1000

static const struct cmd_param params[] = {
	{ "sql", CMD_STR, CMD_REQUIRED | CMD_REST, "one SELECT; tables: runs params epochs rounds peers events "
		"checkpoints shelf" },
	{ "rows", CMD_INT, CMD_OPTION, "at most this many rows (default 1000, at most 10000)" },
	{ NULL, 0, 0, NULL }
};

static void done(void *arg, json_t *result, const struct err *e)
{
	if (e)
		reply_fail(arg, e);
	else
		reply_ok(arg, json_incref(result));
}

static void run(struct cmd_call *c)
{
	const json_t *rows = json_object_get(c->params, "rows");

	if (!c->ctx->store)
		cmd_fail(c, ERR_STATE, "this hivemindd has no database");
	else if (rows && json_integer_value(rows) < 1)
		cmd_fail(c, ERR_INVALID, "query: rows must be at least 1");
	else
		store_query(c->ctx->store, json_string_value(json_object_get(c->params, "sql")),
			rows ? (size_t)json_integer_value(rows) : ROWS, done, c->reply);
}

const struct cmd cmd_query = { "query", "read the daemon's history with SQL", params, CMD_VIEW | CMD_ALONE, "rows",
	run };
