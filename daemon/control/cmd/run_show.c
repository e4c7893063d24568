/* run show: everything about one run. */
#include "control/cmd.h"

static const struct cmd_param params[] = {
	{ "run", CMD_STR, CMD_REQUIRED, "name of the run, or its id or the first digits of it" },
	{ "data", CMD_BOOL, 0, "the sample ledger: which ranges each commit holds" },
	{ NULL, 0, 0, NULL }
};

static void run(struct cmd_call *c)
{
	cmd_forward(c, c->ctx->api ? c->ctx->api->run_show : NULL);
}

const struct cmd cmd_run_show = { "run show", "everything about one run", params, CMD_VIEW, NULL, run };
