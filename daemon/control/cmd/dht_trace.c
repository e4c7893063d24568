/* dht trace: a look-up whose every question is shown. */
#include "control/cmd.h"

static const struct cmd_param params[] = {
	{ "key", CMD_STR, CMD_REQUIRED, "text; hashed to the 256-bit key" },
	{ "latest", CMD_BOOL, 0, "ask every replica instead of stopping at the first" },
	{ NULL, 0, 0, NULL }
};

static void run(struct cmd_call *c)
{
	cmd_forward(c, c->ctx->api ? c->ctx->api->dht_trace : NULL);
}

const struct cmd cmd_dht_trace = { "dht trace", "look a record up and show whom that asked, and how long each took",
	params, CMD_VIEW, "text", run };
