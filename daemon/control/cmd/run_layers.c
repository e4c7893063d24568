/* run layers: where the time of training goes, by layer. */
#include "control/cmd.h"

static const struct cmd_param params[] = {
	{ "run", CMD_STR, CMD_REQUIRED, "name of the run, or its id or the first digits of it" },
	{ NULL, 0, 0, NULL }
};

static void run(struct cmd_call *c)
{
	cmd_forward(c, c->ctx->api ? c->ctx->api->run_layers : NULL);
}

const struct cmd cmd_run_layers = { "run layers", "where the time of training goes on this peer, layer by layer",
	params, CMD_VIEW, "text", run };
