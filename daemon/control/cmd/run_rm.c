/* run rm: the run must not be active; hivectl asks first. */
#include "control/cmd.h"

static const struct cmd_param params[] = {
	{ "run", CMD_STR, CMD_REQUIRED, "name of the run, or its id or the first digits of it" },
	{ "check", CMD_BOOL, 0, "only say whether it can be done" },
	{ NULL, 0, 0, NULL }
};

static void run(struct cmd_call *c)
{
	cmd_forward(c, c->ctx->api ? c->ctx->api->run_rm : NULL);
}

const struct cmd cmd_run_rm = { "run rm", "remove a run from this peer with its checkpoints and history", params,
	CMD_ASK, NULL, run };
