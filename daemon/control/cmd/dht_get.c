/* dht get: records of one key, or of many at once. */
#include "control/cmd.h"

static const struct cmd_param params[] = {
	{ "key", CMD_STR, 0, "text; hashed to the 256-bit key" },
	{ "keys", CMD_JSON, CMD_OPTION, "instead: an array of up to 1024 keys, asked for together" },
	{ "latest", CMD_BOOL, 0, "ask every replica and take the newest" },
	{ NULL, 0, 0, NULL }
};

static void run(struct cmd_call *c)
{
	cmd_forward(c, c->ctx->api ? c->ctx->api->dht_get : NULL);
}

const struct cmd cmd_dht_get = { "dht get", "look a record up in the swarm", params, 0, NULL, run };
