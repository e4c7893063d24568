/* checkpoint: answered when the files are on the disk. */
#include "control/cmd.h"

static const struct cmd_param params[] = {
	{ "run", CMD_STR, 0, "one run; else every active one" },
	{ NULL, 0, 0, NULL }
};

static void run(struct cmd_call *c)
{
	cmd_forward(c, c->ctx->api ? c->ctx->api->checkpoint : NULL);
}

const struct cmd cmd_checkpoint = { "checkpoint", "write a checkpoint now; answers when it is on the disk", params,
	0, "checkpoints", run };
