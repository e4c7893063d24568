/* model list: the zoo and the parameters of its entries. */
#include "control/cmd.h"

static const struct cmd_param params[] = { { NULL, 0, 0, NULL } };

static void run(struct cmd_call *c)
{
	cmd_forward(c, c->ctx->api ? c->ctx->api->model_list : NULL);
}

const struct cmd cmd_model_list = { "model list", "the models that a spec can name, and their parameters",
	params, CMD_VIEW, "models", run };
