/* run pause: acts on the swarm; only the author of the run or its admins may (run/words.c). */
#include "control/cmd.h"

static const struct cmd_param params[] = {
	{ "run", CMD_STR, CMD_REQUIRED, "name of the run, or its id or the first digits of it" },
	{ NULL, 0, 0, NULL }
};

static void run(struct cmd_call *c)
{
	cmd_forward(c, c->ctx->api ? c->ctx->api->run_pause : NULL);
}

const struct cmd cmd_run_pause = { "run pause", "the whole swarm stops computing; its state stays", params, 0,
	NULL, run };
