/* run stop: acts on the swarm; only the author of the run or its admins may (run/words.c). */
#include "control/cmd.h"

static const struct cmd_param params[] = {
	{ "run", CMD_STR, CMD_REQUIRED, "name of the run, or its id or the first digits of it" },
	{ "check", CMD_BOOL, 0, "only say whether it can be done" },
	{ NULL, 0, 0, NULL }
};

static void run(struct cmd_call *c)
{
	cmd_forward(c, c->ctx->api ? c->ctx->api->run_stop : NULL);
}

const struct cmd cmd_run_stop = { "run stop", "the run ends for the whole swarm, with a last checkpoint", params,
	CMD_ASK, NULL, run };
