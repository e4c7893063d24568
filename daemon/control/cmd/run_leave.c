/* run leave: acts on this peer alone. */
#include "control/cmd.h"

static const struct cmd_param params[] = {
	{ "run", CMD_STR, CMD_REQUIRED, "name of the run, or its id or the first digits of it" },
	{ NULL, 0, 0, NULL }
};

static void run(struct cmd_call *c)
{
	cmd_forward(c, c->ctx->api ? c->ctx->api->run_leave : NULL);
}

const struct cmd cmd_run_leave = { "run leave", "this peer leaves the run; the others go on", params, 0,
	":run,name,author,state,epoch,samples", run };
