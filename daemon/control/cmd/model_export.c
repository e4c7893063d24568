/* model export: the weights of a run in one folder that PyTorch reads, whoever holds which part of them. */
#include "control/cmd.h"

static const struct cmd_param params[] = {
	{ "run", CMD_STR, CMD_REQUIRED, "name of the run, or its id or the first digits of it" },
	{ "dir", CMD_PATHS, CMD_REQUIRED, "the folder, which is made; the one above must be writable for the daemon" },
	{ NULL, 0, 0, NULL }
};

static void run(struct cmd_call *c)
{
	cmd_forward(c, c->ctx->api ? c->ctx->api->model_export : NULL);
}

const struct cmd cmd_model_export = { "model export", "write a run's weights into one folder that PyTorch reads",
	params, 0, ":path,epoch,parameters,tensors,bytes,peers", run };
