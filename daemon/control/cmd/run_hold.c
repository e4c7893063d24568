/* run hold: acts on this peer alone. */
#include "control/cmd.h"

static const struct cmd_param params[] = {
	{ "run", CMD_STR, CMD_REQUIRED, "name of the run, or its id or the first digits of it" },
	{ "off", CMD_BOOL, 0, "compute again" },
	{ NULL, 0, 0, NULL }
};

static void run(struct cmd_call *c)
{
	cmd_forward(c, c->ctx->api ? c->ctx->api->run_hold : NULL);
}

const struct cmd cmd_run_hold = { "run hold", "this peer stops computing and stays a member", params, 0,
	":run,name,author,state,epoch,samples", run };
