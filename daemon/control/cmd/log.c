/* log: recent lines of the daemon's log, and with follow every new one. */
#include "control/cmd.h"

#include <stdlib.h>

#include "common/jrpc.h"
#include "common/mem.h"
#include "control/control.h"

#define KEPT 10000                      /* lines that are looked through for a level */

static const struct cmd_param params[] = {
	{ "follow", CMD_BOOL, 0, "go on with every new line" },
	{ "lines", CMD_INT, CMD_OPTION, "this many recent lines (default 50)" },
	{ "level", CMD_STR, CMD_OPTION, "this level and above: debug info warn error" },
	{ NULL, 0, 0, NULL }
};

/* The newest `max` lines at or above min, oldest first. */
static json_t *recent(struct log *log, size_t max, int min)
{
	struct log_line *v = xcalloc(KEPT, sizeof *v);
	size_t n = log_recent(log, 0, v, KEPT), from = n, kept = 0;
	json_t *lines = json_array();

	while (from > 0 && kept < max)
		kept += (int)v[--from].level >= min;
	for (; from < n; from++) {
		json_t *o;

		if ((int)v[from].level < min)
			continue;
		o = json_pack("{s:I, s:I, s:s}", "seq", (json_int_t)v[from].seq, "wall_ms", (json_int_t)v[from].wall_ms,
			"level", log_level_name(v[from].level));
		json_object_set_new(o, "text", json_text(v[from].text));
		json_array_append_new(lines, o);
	}
	free(v);
	return lines;
}

static void run(struct cmd_call *c)
{
	const json_t *lines = json_object_get(c->params, "lines"), *level = json_object_get(c->params, "level");
	int min = level ? log_level_parse(json_string_value(level)) : LOG_DEBUG_;
	json_int_t n = lines ? json_integer_value(lines) : 50;
	json_t *out;
	struct err e;

	if (min < 0) {
		cmd_fail(c, ERR_INVALID, "log: level must be debug, info, warn or error");
		return;
	}
	if (n < 0 || n > CONTROL_LINES_MAX(c)) {
		cmd_fail(c, ERR_INVALID, "log: lines must be 0 to %d here", CONTROL_LINES_MAX(c));
		return;
	}
	out = recent(c->ctx->log, (size_t)n, min);
	if (json_is_true(json_object_get(c->params, "follow")) &&
		control_follow_log(c->ctx->control, c->reply, (enum log_level)min, &e) < 0) {
		json_decref(out);
		reply_fail(c->reply, &e);
		return;
	}
	reply_ok(c->reply, json_pack("{s:o}", "lines", out));
}

const struct cmd cmd_log = { "log", "recent log lines; -f follows", params, CMD_VIEW | CMD_STREAM, "lines", run };
