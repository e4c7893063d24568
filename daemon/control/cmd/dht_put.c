/* dht put: says how many replicas accepted. */
#include "control/cmd.h"

static const struct cmd_param params[] = {
	{ "key", CMD_STR, 0, "text; hashed to the 256-bit key" },
	{ "value", CMD_JSON, 0, "any JSON value, or a word" },
	{ "records", CMD_JSON, CMD_OPTION, "instead: an object of up to 1024 keys and values, stored together" },
	{ "subkey", CMD_STR, CMD_OPTION, "entry of a dictionary record" },
	{ "life_s", CMD_DURATION, CMD_OPTION, "how long it lives (default 1h)" },
	{ NULL, 0, 0, NULL }
};

static void run(struct cmd_call *c)
{
	cmd_forward(c, c->ctx->api ? c->ctx->api->dht_put : NULL);
}

const struct cmd cmd_dht_put = { "dht put", "store a record in the swarm", params, 0, NULL, run };
