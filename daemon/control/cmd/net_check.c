/* net check: what is wrong with connectivity, in plain words. */
#include "control/cmd.h"

static const struct cmd_param params[] = {
	{ NULL, 0, 0, NULL }
};

static void run(struct cmd_call *c)
{
	cmd_forward(c, c->ctx->api ? c->ctx->api->net_check : NULL);
}

const struct cmd cmd_net_check = { "net check", "what is wrong with connectivity, and what to do about it", params,
	CMD_VIEW, "text", run };
