/* peers: who is in the swarm; the node knows. */
#include "control/cmd.h"

static const struct cmd_param params[] = {
	{ "all", CMD_BOOL, 0, "also those there is no session with" },
	{ NULL, 0, 0, NULL }
};

static void run(struct cmd_call *c)
{
	cmd_forward(c, c->ctx->api ? c->ctx->api->peers : NULL);
}

const struct cmd cmd_peers = { "peers", "who is in the swarm, and whether they take part", params, CMD_VIEW,
	"peers:id,address,state,reachable,participating,seen_s,rtt_us,bandwidth_bytes_per_s,sent_bytes,received_bytes,"
	"samples_per_s,out_of_line,absent",
	run };
