/* run plan: what the strategy planned, printed. */
#include "control/cmd.h"

static const struct cmd_param params[] = {
	{ "run", CMD_STR, CMD_REQUIRED, "name of the run, or its id or the first digits of it" },
	{ NULL, 0, 0, NULL }
};

static void run(struct cmd_call *c)
{
	cmd_forward(c, c->ctx->api ? c->ctx->api->run_plan : NULL);
}

const struct cmd cmd_run_plan = { "run plan", "the instructions of the next step, as the planner gave them",
	params, CMD_VIEW, "text", run };
