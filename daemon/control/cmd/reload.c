/* reload: reads the configuration again, as SIGHUP does, and says what changed. */
#include "control/cmd.h"

static const struct cmd_param params[] = { { NULL, 0, 0, NULL } };

static void run(struct cmd_call *c)
{
	json_t *changed = NULL;
	struct err e;

	if (!c->ctx->reload)
		cmd_fail(c, ERR_NO_METHOD, "this hivemindd was started without a configuration file");
	else if (c->ctx->reload(c->ctx->main, &changed, &e) < 0)
		reply_fail(c->reply, &e);
	else
		reply_ok(c->reply, json_pack("{s:o}", "changed", changed ? changed : json_array()));
}

const struct cmd cmd_reload = { "reload", "read the configuration file again", params, 0, NULL, run };
