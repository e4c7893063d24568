/* memory: bytes to train a model and to use it. */
#include "control/cmd.h"

static const struct cmd_param params[] = {
	{ "model", CMD_STR, 0, "a model of the zoo (hivectl model list)" },
	{ "with", CMD_PAIRS, CMD_REST, "its parameters as key=value words, such as classes=10" },
	{ "spec", CMD_FILE, CMD_OPTION, "a run's spec instead" },
	{ "batch", CMD_INT, CMD_OPTION, "samples per micro-batch (default: the spec's, else 1)" },
	{ "remat", CMD_STR, CMD_OPTION, "activations that are computed twice, not kept, such as periodic:8" },
	{ "optimizer", CMD_STR, CMD_OPTION, "such as adam (default: the spec's, else sgd)" },
	{ "parameters", CMD_NUM, CMD_OPTION, "only a number of parameters, such as 530e9" },
	{ NULL, 0, 0, NULL }
};

static void run(struct cmd_call *c)
{
	cmd_forward(c, c->ctx->api ? c->ctx->api->memory : NULL);
}

const struct cmd cmd_memory = { "memory", "bytes that a model needs to be trained and to be used", params,
	CMD_VIEW, "text",
	run };
