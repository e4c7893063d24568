/* model profile: how long each layer of a model takes on this machine, and its bytes. */
#include "control/cmd.h"

static const struct cmd_param params[] = {
	{ "model", CMD_STR, 0, "a model of the zoo (hivectl model list)" },
	{ "with", CMD_PAIRS, CMD_REST, "its parameters as key=value words, such as classes=10" },
	{ "spec", CMD_FILE, CMD_OPTION, "a run's spec instead, for its input and model" },
	{ "batch", CMD_INT, CMD_OPTION, "samples of a pass (default: 1)" },
	{ "passes", CMD_INT, CMD_OPTION, "passes that the medians are of, 1 to 1000 (default: 5)" },
	{ NULL, 0, 0, NULL }
};

static void run(struct cmd_call *c)
{
	cmd_forward(c, c->ctx->api ? c->ctx->api->model_profile : NULL);
}

const struct cmd cmd_model_profile = { "model profile", "times of a model's layers, measured here, and their bytes",
	params, 0, "text", run };
