/* peers unban: lifts a ban. */
#include "control/cmd.h"

static const struct cmd_param params[] = {
	{ "peer", CMD_STR, CMD_REQUIRED, "id of the peer, or its first digits" },
	{ NULL, 0, 0, NULL }
};

static void run(struct cmd_call *c)
{
	cmd_forward(c, c->ctx->api ? c->ctx->api->peers_unban : NULL);
}

const struct cmd cmd_peers_unban = { "peers unban", "lift a ban", params, 0,
	NULL, run };
