/* key show: the identity of this peer and the swarm key by its fingerprint. */
#include "control/cmd.h"

static const struct cmd_param params[] = {
	{ NULL, 0, 0, NULL }
};

static void run(struct cmd_call *c)
{
	cmd_forward(c, c->ctx->api ? c->ctx->api->key_show : NULL);
}

const struct cmd cmd_key_show = { "key show",
	"this peer's id, the swarm key's fingerprint, and who still has an old key", params,
	CMD_VIEW, NULL, run };
