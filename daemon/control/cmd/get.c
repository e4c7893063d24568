/* get: hyperparameters and who changed them when. */
#include "control/cmd.h"

static const struct cmd_param params[] = {
	{ "run", CMD_STR, CMD_REQUIRED, "name of the run, or its id or the first digits of it" },
	{ "key", CMD_STR, 0, "only this one" },
	{ NULL, 0, 0, NULL }
};

static void run(struct cmd_call *c)
{
	cmd_forward(c, c->ctx->api ? c->ctx->api->get : NULL);
}

const struct cmd cmd_get = { "get", "hyperparameters of a run and their history", params, CMD_VIEW, NULL, run };
