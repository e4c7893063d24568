/* One peer. Read this file to see the house: node_new builds the rooms right to left, each gets what lies to its right
 * and a callback for the news that travels left.
 *
 *   1. net      authenticated frames over env->send; chunks: big things in pieces
 *   2. dht      who is where; joined through the addresses of the configuration, for ever
 *   3. runs     training jobs: each owns a trainer, an averager, checkpoints
 */
#include "node/node.h"
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include "common/jrpc.h"
#include "common/mem.h"
#include "common/text.h"
#include "node/join.h"

#define PRESENCE_KEY "peers"
#define PRESENCE_MS 60000
#define PEERS_MAX 4096

struct node {
	struct env *env;
	struct node_opts o;
	struct net *net;
	struct chunks *chunks;
	struct dht *dht;
	struct runs *runs;
	struct joins *joins;
	struct node_net *asked;                 /* what operators ask of the network */
	struct timer presence, stopping;
	void (*stopped)(void *arg); void *stopped_arg;
	bool draining;
};

/* ---- presence: what `hivectl peers` of others shows of us ---- */

static const struct dht_field presence_fields[] = { { "version", DHT_TEXT, false }, { "address", DHT_TEXT, false },
	{ "runs", DHT_COUNT, false }, { "client", DHT_BOOL, false }, { 0 } };
static const struct dht_schema presence_rule = { "presence", true, PRESENCE_MS, presence_fields };

static void presence(struct timer *t)
{
	struct node *n = container_of(t, struct node, presence);
	char hex[ID_HEX], at[64];
	id_hex(net_self(n->net), hex);
	net_endpoint_text(&n->o.self, CHAN_CTRL, at);
	json_t *v = json_pack("{s:s,s:s,s:i,s:b}", "version", n->o.version, "address", at,
		"runs", (int)runs_active(n->runs), "client", conf_bool(n->o.conf, "network", "client"));
	dht_keep(n->dht, PRESENCE_KEY, hex, v, PRESENCE_MS, true);
	env_after(n->env, &n->presence, PRESENCE_MS * 1000ull / 3);
}

/* ---- events of the lower rooms ---- */

static void node_event(void *arg, enum log_level level, const char *code, const struct id *peer, const char *text)
{
	struct node *n = arg;
	char hex[ID_HEX] = "";
	if (peer)
		id_hex(peer, hex);
	log_write(n->env->log, level, "net", "%s: %s%s%.8s", code, text, peer ? " peer " : "", hex);
	if (n->o.store)
		store_event(n->o.store, level, code, NULL, peer ? hex : NULL, NULL, "%s", text);
	if (n->o.news) {
		json_t *j = json_pack("{s:s,s:s,s:s?,s:s}", "kind", code, "level", log_level_name(level), "peer", peer ? hex :
			NULL, "text", text);
		n->o.news(n->o.news_arg, "event", code, j);
		json_decref(j);
	}
}

static void record_peer(struct node *n, const struct peer_info *p, const char *state)
{
	char hex[ID_HEX], at[64];
	uint64_t out = 0, in = 0;
	if (!n->o.store)
		return;
	id_hex(&p->id, hex);
	for (int c = 0; c < CLASS_COUNT_; c++) {
		out += p->bytes.out[c];
		in += p->bytes.in[c];
	}
	store_peer_put(n->o.store, &(struct store_peer){ .peer = hex, .address = net_endpoint_text(&p->at, CHAN_CTRL, at),
		.version = p->version[0] ? p->version : NULL, .state = state, .rtt_us = p->rtt_us, .bytes_sent = out,
		.bytes_received = in, .failures = p->failures });
}

/* Two that are one member: what either contributes would count for both. */
static void twin(void *arg)
{
	struct node *n = arg;
	if (n->runs)
		runs_twin(n->runs);
}

static void news(void *arg, const struct id *peer, enum net_news what)
{
	static const char *const word[] = { [NEWS_DEAD] = "dead", [NEWS_GOODBYE] = "left", [NEWS_ALIVE] = "live",
		[NEWS_RESTARTED] = "live" };
	struct node *n = arg;
	struct peer_info p;
	if (net_peer(n->net, peer, &p))
		record_peer(n, &p, word[what]);
}

/* ---- birth and death ---- */

static int build(struct node *n, struct err *e)
{
	const struct conf *c = n->o.conf;
	struct net_conf nc = { .self = n->o.self, .has_swarm_key = n->o.has_swarm_key, .client = conf_bool(c, "network",
		"client"), .version_min = n->o.version_min, .version_max = n->o.version_max, .moves = n->o.moves };
	memcpy(nc.also, n->o.also, sizeof nc.also);
	nc.nalso = n->o.nalso;
	memcpy(nc.seed, n->o.seed, 32);
	memcpy(nc.swarm_key, n->o.swarm_key, 32);
	memcpy(nc.old_key, n->o.old_key, 32);
	nc.old_key_us = n->o.old_key_us;
	snprintf(nc.software, sizeof nc.software, "%s", n->o.version ? n->o.version : "");
	n->env->ops->secure(n->env, &nc.boot_id, sizeof nc.boot_id);
	n->net = net_new(n->env, &nc, e);
	if (!n->net)
		return -1;
	net_events(n->net, node_event, n);
	net_watch(n->net, news, n);
	net_on_twin(n->net, twin, n);
	n->chunks = chunks_new(n->env, n->net);
	n->dht = dht_new(n->env, n->net, &(struct dht_conf){ .client = nc.client, .k = (uint32_t)conf_int(c, "dht",
		"replicas"),
		.records_max = (uint32_t)conf_int(c, "dht", "records_max") }, e);
	if (n->dht)
		dht_expect(n->dht, PRESENCE_KEY, &presence_rule);
	n->joins = n->dht ? joins_new(n->env, n->net, n->dht, n->o.join, n->o.njoin, node_event, n, e) : NULL;
	if (!n->joins)
		return -1;
	n->asked = node_net_new(&(struct node_net_ctx){ .env = n->env, .net = n->net, .joins = n->joins,
		.store = n->o.store, .conf = c, .state_dir = n->o.state_dir, .event = node_event, .event_arg = n });
	n->runs = runs_new(&(struct runs_ctx){ .env = n->env, .net = n->net, .chunks = n->chunks, .dht = n->dht,
		.store = n->o.store, .conf = c, .state_dir = n->o.state_dir, .compute = n->o.compute, .version = n->o.version,
		.news = n->o.news, .news_arg = n->o.news_arg, .heard = n->o.heard,
		.memory_bytes = n->o.memory_bytes, .hashes = n->o.hashes, .asks_names = n->o.asks_names }, e);
	return n->runs ? 0 : -1;
}

struct node *node_new(struct env *env, const struct node_opts *o, struct err *e)
{
	struct node *n = xcalloc(1, sizeof *n);
	n->env = env;
	n->o = *o;
	n->presence = (struct timer){ .fire = presence, .name = "node.presence" };
	if (build(n, e)) {
		node_free(n);
		return NULL;
	}
	env_after(env, &n->presence, 1);
	return n;
}

void node_free(struct node *n)
{
	if (!n)
		return;
	if (n->runs)
		runs_wake(n->runs);
	n->env->ops->detach(n->env);            /* no job runs and nothing arrives from here on */
	env_timer(n->env, &n->presence, 0);
	env_timer(n->env, &n->stopping, 0);
	runs_free(n->runs);
	joins_free(n->joins);
	dht_free(n->dht);
	chunks_free(n->chunks);
	if (n->net)
		net_unwatch(n->net, news, n);
	net_free(n->net);
	node_net_free(n->asked);
	free(n);
}

static void goodbye_sent(struct timer *t)
{
	struct node *n = container_of(t, struct node, stopping);
	n->stopped(n->stopped_arg);
}

#define GOODBYE_US 50000        /* accepted is not delivered: the transport gets this long to write it out */

static void drained(void *arg)
{
	struct node *n = arg;
	size_t known = net_peers(n->net, NULL, 0);
	struct peer_info *p = xcalloc(known + 1, sizeof *p);
	char hex[ID_HEX];
	id_hex(net_self(n->net), hex);
	dht_unkeep(n->dht, PRESENCE_KEY, hex);
	known = net_peers(n->net, p, known);
	size_t told = 0;
	for (size_t i = 0; i < known; i++)
		if (p[i].session && !net_post(n->net, &p[i].id, KIND_GOODBYE, NULL, NO_BLOB, CLASS_control))
			told++;
	free(p);
	n->stopping = (struct timer){ .fire = goodbye_sent, .name = "node.stopping" };
	env_after(n->env, &n->stopping, told ? GOODBYE_US : 1);
}

void node_stop(struct node *n, uint64_t deadline_us, void (*done)(void *arg), void *arg)
{
	n->stopped = done;
	n->stopped_arg = arg;
	n->draining = true;
	runs_drain(n->runs, deadline_us, drained, n);
}

void node_reload(struct node *n)
{
	node_net_reload(n->asked);
	log_write(n->env->log, LOG_INFO_, "node", "configuration reloaded");
}

const struct id *node_id(const struct node *n) { return net_self(n->net); }
struct runs *node_runs(struct node *n) { return n->runs; }
struct net *node_net(struct node *n) { return n->net; }
struct dht *node_dht(struct node *n) { return n->dht; }

/* ---- what operators ask ---- */

static json_t *peer_counts(struct node *n)
{
	size_t known = net_peers(n->net, NULL, 0), live = 0, client = 0;
	struct peer_info *p = xcalloc(known + 1, sizeof *p);
	known = net_peers(n->net, p, known);
	for (size_t i = 0; i < known; i++) {
		live += p[i].session && !p[i].maybe_dead;
		client += p[i].client;
	}
	free(p);
	return json_pack("{s:I,s:I,s:I}", "live", (json_int_t)live, "known", (json_int_t)known, "client",
		(json_int_t)client);
}

void node_status(void *arg, const json_t *params, struct reply *r)
{
	struct node *n = arg;
	char hex[ID_HEX], at[3][64];
	json_t *listen = json_array();
	id_hex(net_self(n->net), hex);
	for (int c = 0; c < CHANS; c++)
		if (n->o.self.port[c])
			json_array_append_new(listen, json_string(net_endpoint_text(&n->o.self, c, at[c])));
	json_t *j = json_pack("{s:s,s:s,s:b,s:o,s:o,s:o,s:o,s:o,s:o}", "id", hex,
		"mode", n->draining ? "draining" : conf_bool(n->o.conf, "network", "client") ? "client" : "peer", "swarm_key",
		n->o.has_swarm_key,
		"listen", listen, "peers", peer_counts(n), "join", joins_json(n->joins), "dht", dht_status(n->dht),
		"runs", runs_json(n->runs), "network", net_status(n->net));
	if (n->o.compute.describe)
		json_object_set_new(j, "blas", n->o.compute.describe(n->o.compute.arg));
	reply_ok(r, j);
}

/* Only who was dialled and has dialled back counts; who has been spoken to through a door only has not been tried. */
static json_t *reachable(const struct peer_info *p)
{
	return p->proven && !p->maybe_dead ? json_true() : p->client || p->maybe_dead || !p->session ? json_false() :
		json_null();
}

static void describe_ban(json_t *o, const struct peer_info *p, uint64_t now)
{
	char left[32];

	if (p->banned_until_us == UINT64_MAX) {
		json_object_set_new(o, "absent", json_sprintf("banned: %s", p->ban_why));
		return;
	}
	json_object_set_new(o, "banned_s", json_real((double)(p->banned_until_us - now) / 1e6));
	text_print_duration(p->banned_until_us - now, left, sizeof left);
	json_object_set_new(o, "absent", json_sprintf("banned for %s more: %s", left, p->ban_why));
}

/* T4: what the wire has carried to and from a peer. */
static json_t *bytes_json(const struct net_bytes *b)
{
	static const char *const classes[] = {
#define X(name) #name,
		NET_CLASSES(X)
#undef X
	}, *const links[CHANS] = { [CHAN_CTRL] = "ctrl", [CHAN_BULK] = "bulk", [CHAN_DOOR] = "door" };
	json_t *of = json_object(), *on = json_object();

	for (int c = 0; c < CLASS_COUNT_; c++)
		if (b->out[c] || b->in[c])
			json_object_set_new(of, classes[c], json_pack("{s:I,s:I}", "sent", (json_int_t)b->out[c], "received",
				(json_int_t)b->in[c]));
	for (int c = 0; c < CHANS; c++)
		if (b->link_out[c] || b->link_in[c])
			json_object_set_new(on, links[c], json_pack("{s:I,s:I}", "sent", (json_int_t)b->link_out[c], "received",
				(json_int_t)b->link_in[c]));
	return json_pack("{s:o,s:o}", "classes", of, "links", on);
}

static json_t *peer_json(struct node *n, const struct peer_info *p)
{
	char hex[ID_HEX], at[64];
	uint64_t out = 0, in = 0, now = env_now(n->env);
	id_hex(&p->id, hex);
	for (int c = 0; c < CLASS_COUNT_; c++) {
		out += p->bytes.out[c];
		in += p->bytes.in[c];
	}
	const char *state = p->banned_until_us > now ? "banned" : p->maybe_dead ? "dead" : p->session ? "live" : "known";
	json_t *o = json_pack("{s:s,s:s,s:s,s:b,s:o,s:f,s:o,s:I,s:I,s:i}", "id", hex, "address",
		p->at.port[CHAN_CTRL] ? net_endpoint_text(&p->at, CHAN_CTRL, at) : "", "state", state, "client", p->client,
		"reachable", reachable(p), "seen_s", p->last_seen_us ? (double)(now - p->last_seen_us) / 1e6 : -1.0,
		"rtt_us", p->rtt_us ? json_integer((json_int_t)p->rtt_us) : json_null(), "sent_bytes", (json_int_t)out,
		"received_bytes", (json_int_t)in, "failures", (int)p->failures);
	json_object_set_new(o, "bytes", bytes_json(&p->bytes));
	if (p->nalso) {
		json_t *others = json_array();

		for (unsigned i = 0; i < p->nalso; i++)
			json_array_append_new(others, json_string(net_endpoint_text(&p->also[i], CHAN_CTRL, at)));
		json_object_set_new(o, "other_addresses", others);
	}
	if (p->version[0])
		json_object_set_new(o, "version", json_string(p->version));
	if (p->bandwidth_bps)
		json_object_set_new(o, "bandwidth_bytes_per_s", json_integer((json_int_t)p->bandwidth_bps));
	if (p->old_key)
		json_object_set_new(o, "old_swarm_key", json_true());
	runs_describe_peer(n->runs, &p->id, o);
	if (p->banned_until_us > now)
		describe_ban(o, p, now);
	return o;
}

#define LOOKED_AT 64                            /* peers that are asked at once whether they are there */

void node_peers(void *arg, const json_t *params, struct reply *r)
{
	struct node *n = arg;
	bool all = json_is_true(json_object_get(params, "all"));
	json_t *list = json_array();
	size_t known = net_peers(n->net, NULL, 0), looked = 0;
	struct peer_info *p = xcalloc(known + 1, sizeof *p);
	known = net_peers(n->net, p, known);
	for (size_t i = 0; i < known && i < PEERS_MAX; i++)
		if (all || p[i].banned_until_us || (p[i].session && !p[i].maybe_dead)) {
			json_array_append_new(list, peer_json(n, &p[i]));
			if (p[i].session && looked++ < LOOKED_AT)
				net_look(n->net, &p[i].id);     /* who is gone is not listed the next time */
		}
	free(p);
	reply_ok(r, json_pack("{s:o,s:I}", "peers", list, "known", (json_int_t)known));
}

static void drain_done(void *arg)
{
	reply_ok(arg, json_object());
}

void node_drain(void *arg, const json_t *params, struct reply *r)
{
	struct node *n = arg;
	const json_t *in = json_object_get(params, "in_s");
	double s = in ? json_number_value(in) : 30;
	runs_drain(n->runs, env_now(n->env) + (uint64_t)((s > 0 ? s : 0.001) * 1e6), drain_done, r);
}

#define X(name) \
	void node_##name(void *arg, const json_t *params, struct reply *r) \
	{ \
		runs_##name(((struct node *)arg)->runs, params, r); \
	}
#define runs_run_start runs_start
#define runs_run_join runs_join
#define runs_run_list runs_list
#define runs_run_show runs_show
#define runs_run_watch runs_watch
#define runs_run_pause runs_pause
#define runs_run_resume runs_resume
#define runs_run_stop runs_stop
#define runs_run_leave runs_leave
#define runs_run_hold runs_hold
#define runs_run_plan runs_plan
#define runs_run_layers runs_layers
#define runs_run_rm runs_rm
#define runs_model_export runs_export
NODE_RUN_OPS(X)
#undef X

#define X(name) \
	void node_##name(void *arg, const json_t *params, struct reply *r) \
	{ \
		node_net_##name(((struct node *)arg)->asked, params, r); \
	}
NODE_NET_OPS(X)
#undef X
