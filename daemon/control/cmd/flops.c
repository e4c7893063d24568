/* flops: how many operations a model takes. */
#include "control/cmd.h"

static const struct cmd_param params[] = {
	{ "model", CMD_STR, 0, "a model of the zoo (hivectl model list)" },
	{ "with", CMD_PAIRS, CMD_REST, "its parameters as key=value words, such as classes=10" },
	{ "spec", CMD_FILE, CMD_OPTION, "a run's spec instead, for its input and model" },
	{ "batch", CMD_INT, CMD_OPTION, "samples that they are for (default: 1)" },
	{ NULL, 0, 0, NULL }
};

static void run(struct cmd_call *c)
{
	cmd_forward(c, c->ctx->api ? c->ctx->api->flops : NULL);
}

const struct cmd cmd_flops = { "flops", "operations of a model, forward and backward, by layer",
	params, CMD_VIEW, "text", run };
