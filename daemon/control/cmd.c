/* The command table: what there is, and whether given parameters fit a row. */
#include "control/cmd.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/text.h"

#define CMD(name) extern const struct cmd cmd_##name;
#include "control/cmd/list.h"
#undef CMD

static const struct cmd *const table[] = {
#define CMD(name) &cmd_##name,
#include "control/cmd/list.h"
#undef CMD
	NULL
};

const struct cmd *const *cmd_table(void)
{
	return table;
}

/* "run start" and "run.start" are the same. */
static bool same(const char *name, const char *method)
{
	for (; *name && *method; name++, method++)
		if (*name != *method && !(*name == ' ' && *method == '.'))
			return false;
	return *name == *method;
}

const struct cmd *cmd_find(const char *method)
{
	for (size_t i = 0; table[i]; i++)
		if (same(table[i]->name, method))
			return table[i];
	return NULL;
}

static const char *type_name(enum cmd_type t)
{
	static const char *const names[] = { [CMD_STR] = "string", [CMD_INT] = "integer", [CMD_NUM] = "number",
		[CMD_BOOL] = "boolean", [CMD_DURATION] = "duration", [CMD_JSON] = "json", [CMD_FILE] = "file",
			[CMD_SPEC] = "spec", [CMD_PAIRS] = "pairs", [CMD_PATHS] = "paths" };

	return names[t];
}

static bool fits(enum cmd_type t, const json_t *v)
{
	switch (t) {
	case CMD_STR: return json_is_string(v);
	case CMD_INT: return json_is_integer(v);
	case CMD_NUM: return json_is_number(v);
	case CMD_BOOL: return json_is_boolean(v);
	case CMD_DURATION: return json_is_number(v) && json_number_value(v) >= 0;
	case CMD_JSON: return v != NULL;
	case CMD_FILE: case CMD_PAIRS: return json_is_object(v);
	case CMD_PATHS: return json_is_array(v);
	case CMD_SPEC: return json_is_object(v) || json_is_string(v);
	}
	return false;
}

static const char *wanted(enum cmd_type t)
{
	switch (t) {
	case CMD_DURATION: return "a number of seconds, not negative";
	case CMD_FILE: case CMD_PAIRS: return "an object";
	case CMD_SPEC: return "an object or a name";
	case CMD_PATHS: return "an array of absolute paths";
	default: return type_name(t);
	}
}

int cmd_check(const struct cmd *c, const json_t *params, struct err *e)
{
	const char *names[32], *near;
	const char *key;
	json_t *v;
	size_t n = 0;

	if (!json_is_object(params))
		return err_set(e, ERR_INVALID, "%s: params must be an object of named parameters", c->name);
	for (const struct cmd_param *p = c->params; p && p->name && n + 1 < sizeof names / sizeof *names; p++) {
		const json_t *have = json_object_get(params, p->name);

		names[n++] = p->name;
		if (!have && (p->flags & CMD_REQUIRED))
			return err_set(e, ERR_INVALID, "%s: %s is missing (%s)", c->name, p->name, p->help);
		if (have && !fits(p->type, have))
			return err_set(e, ERR_INVALID, "%s: %s must be %s", c->name, p->name, wanted(p->type));
	}
	names[n] = NULL;
	json_object_foreach((json_t *)params, key, v) {
		bool known = false;

		for (size_t i = 0; i < n; i++)
			known = known || strcmp(names[i], key) == 0;
		near = known ? NULL : text_nearest(key, names);
		if (!known)
			return err_set(e, ERR_INVALID, "%s: there is no parameter %.60s%s%s%s", c->name, key,
				near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
	}
	return 0;
}

json_t *cmd_json(const struct cmd *c)
{
	json_t *params = json_array(), *o;
	char method[64];

	for (const struct cmd_param *p = c->params; p && p->name; p++)
		json_array_append_new(params, json_pack("{s:s, s:s, s:b, s:b, s:b, s:s}", "name", p->name, "type",
			type_name(p->type), "required", (p->flags & CMD_REQUIRED) != 0, "rest", (p->flags & CMD_REST) != 0,
			"option", (p->flags & CMD_OPTION) != 0 || p->type == CMD_BOOL, "help", p->help));
	snprintf(method, sizeof method, "%s", c->name);
	for (char *p = method; *p; p++)
		if (*p == ' ')
			*p = '.';
	o = json_pack("{s:s, s:s, s:s, s:b, s:b, s:b, s:o}", "name", c->name, "method", method, "help", c->help,
		"view", (c->flags & CMD_VIEW) != 0, "stream", (c->flags & CMD_STREAM) != 0, "ask", (c->flags & CMD_ASK) != 0,
		"params", params);
	if (c->print)
		json_object_set_new(o, "print", json_string(c->print));
	return o;
}

void cmd_forward(struct cmd_call *c, api_fn *fn)
{
	if (fn)
		fn(c->ctx->api->arg, c->params, c->reply);
	else
		cmd_fail(c, ERR_NO_METHOD, "this hivemindd cannot do that");
}

void cmd_fail(struct cmd_call *c, enum err_code code, const char *fmt, ...)
{
	char text[300];
	struct err e;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	err_set(&e, code, "%s", text);
	reply_fail(c->reply, &e);
}
