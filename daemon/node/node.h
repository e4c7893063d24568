/* One peer: the only composition root. node_new builds the rooms right to left (net, dht, runs) on an env and wires
 * their callbacks; main makes one node and a control socket, the simulator makes hundreds and no socket.
 *
 * The functions that take a reply have the shape of control's api table (control/api.h says what goes in and out);
 * main puts them there, so that the node never sees control. */
#ifndef DAEMON_NODE_H
#define DAEMON_NODE_H
#include "common/conf.h"
#include "common/hash.h"
#include "common/id.h"
#include "common/reply.h"
#include "env.h"
#include "node/net.h"
#include "run/run.h"
#include "store/store.h"

struct node_opts {
	const struct conf *conf;                /* rows of rows.h */
	struct store *store;                    /* NULL: nothing is recorded (simulator) */
	const char *state_dir;                  /* checkpoints go to STATE_DIR/runs/ID; NULL: none are written */
	uint8_t seed[32];                       /* identity: Ed25519 private seed (key.h) */
	uint8_t swarm_key[32]; bool has_swarm_key;
	uint8_t old_key[32]; uint64_t old_key_us;       /* the swarm key before, and how long it is good; 0: not at all */
	struct endpoint self;                   /* what others dial, */
	struct endpoint also[NET_ALSO]; unsigned nalso;         /* and what they try when it does not answer */
	const char *const *join; size_t njoin;  /* "host:port" of other daemons; names are resolved, for ever */
	struct compute compute;                 /* the numbers side: run.h */
	const char *version;
	uint16_t version_min, version_max;      /* of the protocol; 0: what this program speaks */
	/* News for followers (control's api_news_fn); key: run id or event kind. May be NULL. */
	void (*news)(void *arg, const char *topic, const char *key, const json_t *news);
	void *news_arg;
	bool (*heard)(void *arg, const char *topic, const char *key);   /* arg: news_arg; NULL: everything is */
	enum hashes hashes;                     /* as runs_ctx has it */
	unsigned moves;                         /* as net_conf has it */
	bool asks_names;                        /* as runs_ctx has it */
	uint64_t memory_bytes;                  /* of this machine: runs that would need more are refused; 0: not known */
};

struct node;
struct node *node_new(struct env *env, const struct node_opts *o, struct err *e);
void node_free(struct node *n);                 /* at once, without goodbye; NULL is fine */
/* SIGTERM: leaves rounds, hands back ranges, checkpoints, says goodbye, then done. Gives up at deadline_us
 * (absolute). */
void node_stop(struct node *n, uint64_t deadline_us, void (*done)(void *arg), void *arg);
void node_reload(struct node *n);               /* the configuration changed: reads what may change */
const struct id *node_id(const struct node *n);
struct runs *node_runs(struct node *n);
struct net *node_net(struct node *n);
struct dht *node_dht(struct node *n);

/* arg is the node. */
void node_status(void *arg, const json_t *params, struct reply *r);
void node_peers(void *arg, const json_t *params, struct reply *r);
void node_dht_get(void *arg, const json_t *params, struct reply *r);
void node_dht_put(void *arg, const json_t *params, struct reply *r);
void node_dht_trace(void *arg, const json_t *params, struct reply *r);
void node_drain(void *arg, const json_t *params, struct reply *r);
/* Runs: the same, with the node as arg. */
#define NODE_RUN_OPS(X) X(run_start) X(run_join) X(run_list) X(run_show) X(run_watch) X(run_pause) X(run_resume) \
	X(run_stop) X(run_leave) X(run_hold) X(run_plan) X(run_layers) X(run_rm) X(memory) X(generate) X(predict) \
	X(set) X(get) X(checkpoint) X(model_export) X(model_profile)
#define X(name) void node_##name(void *arg, const json_t *params, struct reply *r);
NODE_RUN_OPS(X)
#undef X
/* The network: likewise (net.c). */
#define X(name) void node_##name(void *arg, const json_t *params, struct reply *r);
NODE_NET_OPS(X)
#undef X

#endif
