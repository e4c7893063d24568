/* set: live hyperparameters, agreed swarm-wide. */
#include "control/cmd.h"

static const struct cmd_param params[] = {
	{ "run", CMD_STR, CMD_REQUIRED, "name of the run, or its id or the first digits of it" },
	{ "values", CMD_PAIRS, CMD_REQUIRED | CMD_REST, "key=value words, such as lr=0.01" },
	{ "at", CMD_INT, CMD_OPTION, "first epoch that has them (default: the next possible one)" },
	{ NULL, 0, 0, NULL }
};

static void run(struct cmd_call *c)
{
	cmd_forward(c, c->ctx->api ? c->ctx->api->set : NULL);
}

const struct cmd cmd_set = { "set", "change hyperparameters of a run for the whole swarm, from a later epoch on",
	params, 0, NULL, run };
