/* key new-swarm-key: makes a key; it is in force nowhere until files say so. */
#include "control/cmd.h"

static const struct cmd_param params[] = {
	{ NULL, 0, 0, NULL }
};

static void run(struct cmd_call *c)
{
	cmd_forward(c, c->ctx->api ? c->ctx->api->key_new_swarm_key : NULL);
}

const struct cmd cmd_key_new_swarm_key = { "key new-swarm-key", "make a new swarm key and print it", params, 0,
	"key", run };
