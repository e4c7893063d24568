/* peers ban: a peer may not talk to this daemon any more. */
#include "control/cmd.h"

static const struct cmd_param params[] = {
	{ "peer", CMD_STR, CMD_REQUIRED, "id of the peer, or its first digits" },
	{ "time", CMD_DURATION, CMD_OPTION, "for so long; without it until the ban is lifted" },
	{ "why", CMD_STR, CMD_OPTION, "shown with the peer and in the events" },
	{ NULL, 0, 0, NULL }
};

static void run(struct cmd_call *c)
{
	cmd_forward(c, c->ctx->api ? c->ctx->api->peers_ban : NULL);
}

const struct cmd cmd_peers_ban = { "peers ban", "let a peer talk to this one no more", params, 0,
	NULL, run };
