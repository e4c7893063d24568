/* What operators ask of the network besides status: bans, the swarm's key, and what is wrong with connectivity. Belongs
 * to the node, which hands the questions on. */
#ifndef DAEMON_NODE_NET_H
#define DAEMON_NODE_NET_H
#include "common/conf.h"
#include "common/reply.h"
#include "net/net.h"
#include "node/join.h"
#include "store/store.h"

struct node_net;
/* Everything is borrowed. state_dir and store may be NULL: then nothing is kept. */
struct node_net_ctx {
	struct env *env; struct net *net; struct joins *joins; struct store *store; const struct conf *conf;
	const char *state_dir;
	void (*event)(void *arg, enum log_level level, const char *code, const struct id *peer, const char *text);
	void *event_arg;
};
struct node_net *node_net_new(const struct node_net_ctx *x);    /* and takes over [network] allow, peer_frames_max */
void node_net_free(struct node_net *nn);        /* after net_free: answers what it still owes; NULL is fine */
void node_net_reload(struct node_net *nn);
/* [network] allow: whole ids. */
int node_net_check_conf(const struct conf *c, struct err *e);

/* The questions (control/api.h says what goes in and out). */
#define NODE_NET_OPS(X) X(peers_ban) X(peers_unban) X(key_show) X(key_new_swarm_key) X(key_rotate) X(net_check)
#define X(name) void node_net_##name(struct node_net *nn, const json_t *params, struct reply *r);
NODE_NET_OPS(X)
#undef X

#endif
