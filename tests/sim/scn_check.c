/* Scenarios of what operators ask of the network: net check finds what is wrong, keys are kept and remembered, round
 * trips and bandwidth are what the links are. */
#include <fcntl.h>
#include "common/conf.h"
#include "dht/dht.h"
#include "node/key.h"
#include "net/inner.h"
#include "net_app.h"
#include "node/net.h"
#include "rows.h"

/* A node without runs. */
struct nnode { struct env *env; struct net *net; struct chunks *chunks; struct dht *dht; struct joins *joins;
	struct conf *conf; struct node_net *asked; };
static struct { bool client[8], nat[8], no_bulk[8], other_key[8], private_net; const char *join[8], *allow[8]; } w;
static char events[64][32];
static unsigned nevents;

static void on_event(void *arg, enum log_level level, const char *code, const struct id *peer, const char *text)
{
	if (nevents < 64)
		snprintf(events[nevents++], 32, "%s", code);
}

static bool told(const char *code)
{
	for (unsigned i = 0; i < nevents; i++)
		if (!strcmp(events[i], code))
			return true;
	return false;
}

static void address(int node, struct endpoint *at)
{
	memset(at, 0, sizeof *at);
	at->ip[10] = at->ip[11] = 0xff;
	at->ip[12] = w.private_net ? 10 : 203;
	at->ip[15] = (uint8_t)(node + 1);
	for (int i = 0; i < CHANS; i++)
		at->port[i] = w.client[node] ? 0 : (uint16_t)(4237 + i);
}

static void set(struct conf *c, const char *key, const char *value)
{
	struct err e;

	if (value && conf_set(c, "network", key, value, "--test", &e))
		abort();
}

static void *start(struct env *env, int node, void *arg)
{
	struct nnode *a = xcalloc(1, sizeof *a);
	struct net_conf c = {0};
	const char *const *join;
	struct err e;
	size_t n;

	a->env = env;
	a->conf = conf_new(conf_rows);
	set(a->conf, "swarm_key_file", "/swarm.key");
	set(a->conf, "client", w.client[node] ? "yes" : "no");
	set(a->conf, "join", w.join[node]);
	set(a->conf, "allow", w.allow[node]);
	net_app_seed(node, c.seed);
	env->ops->secure(env, &c.boot_id, sizeof c.boot_id);
	c.has_swarm_key = true;
	c.swarm_key[0] = w.other_key[node];
	c.client = w.client[node];
	address(node, &c.self);
	if (w.nat[node])
		c.self.ip[12] = 10;
	if (w.no_bulk[node])
		c.self.port[CHAN_BULK] = 9;     /* nobody listens there */
	a->net = net_new(env, &c, &e);
	net_events(a->net, on_event, NULL);
	a->chunks = chunks_new(env, a->net);
	a->dht = dht_new(env, a->net, &(struct dht_conf){ .client = c.client }, &e);
	n = conf_list(a->conf, "network", "join", &join);
	a->joins = joins_new(env, a->net, a->dht, join, n, on_event, NULL, &e);
	a->asked = node_net_new(&(struct node_net_ctx){ .env = env, .net = a->net, .joins = a->joins, .conf = a->conf,
		.state_dir = "/state", .event = on_event });
	return a;
}

static void stop(void *app)
{
	struct nnode *a = app;

	a->env->ops->detach(a->env);
	joins_free(a->joins);
	dht_free(a->dht);
	chunks_free(a->chunks);
	net_free(a->net);
	node_net_free(a->asked);
	conf_free(a->conf);
	free(a);
}

static void add(struct sim *s)
{
	struct sim_app app = { start, stop, NULL };
	struct endpoint at;

	address(sim_nodes(s), &at);
	sim_node_add(s, &at, &app);
}

static void begin(struct sim *s, int n)
{
	nevents = 0;
	for (int i = 0; i < n; i++)
		add(s);
	sim_run_for(s, 5000000);
}

/* ---- asking ---- */

struct asked { struct reply r; unsigned times; json_t *result; struct err e; };
static struct asked q;

static void done(struct reply *r, json_t *result, const struct err *e)
{
	q.times++;
	json_decref(q.result);
	q.result = result;
	if (e)
		q.e = *e;
	else
		q.e.code = ERR_NONE;
}

static bool over(struct sim *s, void *arg) { return q.times; }

typedef void ask_fn(struct node_net *nn, const json_t *params, struct reply *r);
static const json_t *ask(struct sim *s, int node, ask_fn *fn, json_t *params)
{
	json_decref(q.result);
	q = (struct asked){ .r = { done } };
	fn(((struct nnode *)sim_app(s, node))->asked, params, &q.r);
	json_decref(params);
	sim_check(s, sim_await(s, over, NULL, 30000000) && q.times == 1);
	return q.result;
}

/* Returns NULL, or what net check has said. */
static const char *missed(struct sim *s, int node, bool ok, const char *level, const char *what, const char *text)
{
	const json_t *r = ask(s, node, node_net_net_check, json_object()), *f;
	const char *all;
	bool there = false;
	size_t i;

	json_array_foreach(json_object_get(r, "findings"), i, f)
		there |= !strcmp(json_string_value(json_object_get(f, "level")), level) &&
			!strcmp(json_string_value(json_object_get(f, "what")), what) &&
			strstr(json_string_value(json_object_get(f, "text")), text);
	if (there && json_is_true(json_object_get(r, "ok")) == ok)
		return NULL;
	all = json_string_value(json_object_get(r, "text"));
	return all ? all : "nothing";
}

/* Net check of the node finds that, and is all well otherwise as said. What is not so yet is asked for again. */
static void finds(struct sim *s, int node, bool ok, const char *level, const char *what, const char *text)
{
	const char *said = missed(s, node, ok, level, what, text);
	uint64_t end = sim_now(s) + SIM_NEVER_US;
	char first[1024];

	if (!said)
		return;
	snprintf(first, sizeof first, "expected %s %s \"%s\" and %d in:\n%s", level, what, text, ok, said);
	while (said && sim_now(s) < end && !sim_failed(s)) {
		sim_run_for(s, 1000000);
		said = missed(s, node, ok, level, what, text);
	}
	if (said)
		sim_fail(s, "%s", first);
	else
		sim_late(s, "%s", first);
}

static void scn_well(struct sim *s)
{
	memset(&w, 0, sizeof w);
	w.join[1] = w.join[2] = "203.0.0.1:4237";
	begin(s, 3);
	finds(s, 2, true, "ok", "reach", "dialled at 203.0.0.3:4237 by 2 of 2 peers");
	finds(s, 2, true, "ok", "clock", "agrees");
	finds(s, 2, true, "ok", "join", "203.0.0.1:4237: joined");
	finds(s, 2, true, "ok", "peers", "2 of 2 peers answered");
	sim_kill(s, 0);
	sim_kill(s, 1);
	sim_run_for(s, 60000000);
	finds(s, 2, false, "error", "join", "If one runs there, its firewall");
	finds(s, 2, false, "error", "peers", "there is a session with none of them");
}

static void scn_clock(struct sim *s)
{
	memset(&w, 0, sizeof w);
	for (int i = 1; i < 5; i++)
		w.join[i] = "203.0.0.1:4237";
	begin(s, 5);
	finds(s, 1, true, "ok", "clock", "agrees");
	sim_wall_jump(s, 1, 300000);
	finds(s, 1, true, "warning", "clock", "this machine's clock is 300 s ahead of most peers'");
	finds(s, 2, true, "warning", "clock", "is 300 s ahead of the others'");
	finds(s, 2, true, "ok", "clock", "this machine's clock agrees");
	sim_wall_jump(s, 1, -600000);
	finds(s, 1, true, "warning", "clock", "this machine's clock is 300 s behind of most peers'");
}

static void scn_nat(struct sim *s)
{
	memset(&w, 0, sizeof w);
	w.join[1] = w.join[2] = "203.0.0.1:4237";
	w.nat[1] = true;
	w.client[2] = true;
	begin(s, 3);
	sim_run_for(s, 30000000);
	finds(s, 1, false, "error", "reach", "no peer can dial this daemon at 10.0.0.2:4237");
	finds(s, 1, false, "error", "reach", "behind a NAT");
	finds(s, 2, true, "ok", "listen", "only dials out");
	finds(s, 0, true, "ok", "peers", "answered");
	finds(s, 0, true, "warning", "reach", "nobody could try");     /* both that it knows only dial out */
}

/* A router that forwards the first port only. */
static void scn_bulk(struct sim *s)
{
	memset(&w, 0, sizeof w);
	w.join[1] = w.join[2] = "203.0.0.1:4237";
	w.no_bulk[1] = true;
	begin(s, 3);
	finds(s, 1, false, "ok", "reach", "dialled at 203.0.0.2:4237 by 2 of 2 peers");
	finds(s, 1, false, "error", "reach", "2 of 2 peers that reach tcp port 4237 do not reach port 9");
	finds(s, 0, true, "ok", "reach", "dialled at 203.0.0.1:4237 by 2 of 2 peers");
	sim_run_for(s, 60000000);
	finds(s, 1, false, "error", "reach", "do not reach port 9");
	for (int i = 0; i < 3; i += 2) {        /* and nobody takes it for dead */
		struct peer_info p;

		sim_check(s, net_peer(((struct nnode *)sim_app(s, i))->net, net_self(((struct nnode *)sim_app(s, 1))->net),
			&p) && p.session && !p.maybe_dead);
	}
}

static void scn_strangers(struct sim *s)
{
	char hex[ID_HEX];
	struct id self;

	memset(&w, 0, sizeof w);
	w.join[1] = w.join[2] = "203.0.0.1:4237";
	w.other_key[2] = true;
	begin(s, 3);
	finds(s, 2, false, "error", "join", "it has another swarm key than this daemon");
	finds(s, 0, true, "warning", "key", "came under another swarm key");
	self = *net_self(((struct nnode *)sim_app(s, 1))->net);
	id_hex(&self, hex);
	ask(s, 0, node_net_peers_ban, json_pack("{s:s,s:f,s:s}", "peer", hex, "time", 3600.0, "why", "a test"));
	sim_check(s, !q.e.code);
	finds(s, 0, false, "warning", "bans", "banned peers: 1");
	hex[8] = 0;
	ask(s, 0, node_net_peers_unban, json_pack("{s:s}", "peer", hex));
	sim_check(s, !q.e.code && told("peer_unbanned"));
	ask(s, 0, node_net_peers_ban, json_pack("{s:s}", "peer", "zzzz"));
	sim_check(s, q.e.code == ERR_INVALID);
	memset(&w, 0, sizeof w);
	sim_kill(s, 1);
	sim_kill(s, 2);
	add(s);
	finds(s, 3, false, "error", "join", "there is nobody to talk to");
}

static void write_file(struct sim *s, int node, const char *path, const char *text)
{
	struct files *f = sim_env(s, node)->files;
	int fd = f->open(f, path, O_WRONLY | O_CREAT | O_TRUNC, 0600, NULL);

	sim_check(s, fd >= 0 && !f->pwrite(f, fd, text, strlen(text), 0, NULL) && !f->fsync(f, fd, NULL));
	f->close(f, fd, NULL);
}

/* What key rotate writes is what a start reads, and a full disk changes nothing. */
static void scn_keys(struct sim *s)
{
	char text[2][ID_HEX + 1];
	uint8_t key[2][32], k[32], old[32];
	struct env *env;
	uint64_t us;
	bool stale;
	struct err e;

	memset(&w, 0, sizeof w);
	w.join[1] = "203.0.0.1:4237";
	begin(s, 2);
	for (int i = 0; i < 2; i++) {
		struct id id = { { 0 } };

		if (i)
			memset(id.b, 0xcd, sizeof id.b);
		memcpy(key[i], id.b, 32);
		id_hex(&id, text[i]);
		text[i][64] = '\n';
		text[i][65] = '\0';
	}
	env = sim_env(s, 0);
	sim_check(s, !env->files->mkdir(env->files, "/state", 0700, &e));
	write_file(s, 0, "/new.key", text[1]);
	write_file(s, 0, "/bad.key", "1234\n");
	ask(s, 0, node_net_key_rotate, json_pack("{s:[s]}", "file", "/bad.key"));
	sim_check(s, q.e.code == ERR_CORRUPT && strstr(q.e.text, "64 hex digits"));
	sim_files_fail(s, 0, 5, ERR_FULL);
	ask(s, 0, node_net_key_rotate, json_pack("{s:[s]}", "file", "/new.key"));
	sim_check(s, q.e.code == ERR_FULL && !told("key.rotated"));
	sim_files_fail(s, 0, 0, ERR_FULL);
	ask(s, 0, node_net_key_rotate, json_pack("{s:[s],s:f}", "file", "/new.key", "window", 1e9));
	sim_check(s, q.e.code == ERR_INVALID);
	ask(s, 0, node_net_key_rotate, json_pack("{s:[s],s:f}", "file", "/new.key", "window", 600.0));
	sim_check(s, !q.e.code && told("key.rotated"));
	finds(s, 0, true, "warning", "key", "peers that have not changed yet: 1");
	/* The file of the configuration has the old key still, then the new one, then a third one. */
	memcpy(k, key[0], 32);
	sim_check(s, !key_rotation_apply(env, "/state/" KEY_ROTATION_FILE, k, old, &us, &stale, &e));
	sim_check(s, stale && !memcmp(k, key[1], 32) && !memcmp(old, key[0], 32) && us > 500000000 && us <= 600000000);
	sim_check(s, !key_rotation_apply(env, "/state/" KEY_ROTATION_FILE, k, old, &us, &stale, &e));
	sim_check(s, !stale && !memcmp(k, key[1], 32) && us > 0);
	/* Again with the same key: what was before stays before. */
	ask(s, 0, node_net_key_rotate, json_pack("{s:[s],s:f}", "file", "/new.key", "window", 60.0));
	memcpy(k, key[0], 32);
	sim_check(s, !key_rotation_apply(env, "/state/" KEY_ROTATION_FILE, k, old, &us, &stale, &e));
	sim_check(s, stale && !memcmp(old, key[0], 32) && us <= 60000000);
	/* Over, the old key is good no more; but the daemon remembers the new one until the file has it. */
	sim_wall_jump(s, 0, 100000);
	memcpy(k, key[0], 32);
	sim_check(s, !key_rotation_apply(env, "/state/" KEY_ROTATION_FILE, k, old, &us, &stale, &e));
	sim_check(s, stale && !memcmp(k, key[1], 32) && us == 0);
	sim_check(s, !key_rotation_apply(env, "/state/" KEY_ROTATION_FILE, k, old, &us, &stale, &e) && !stale && !us);
	sim_check(s, env->files->size(env->files, "/state/" KEY_ROTATION_FILE, &e) < 0);
	write_file(s, 0, "/state/" KEY_ROTATION_FILE, "what is this\n");
	sim_check(s, key_rotation_apply(env, "/state/" KEY_ROTATION_FILE, k, old, &us, &stale, &e));
	sim_check(s, e.code == ERR_CORRUPT);
}

/* Round trip and bandwidth are the link's, of each peer its own, and deadlines follow them. */
static void scn_measured(struct sim *s)
{
	static const struct sim_link links[2] = { { 500, 50, 40000000, 0 }, { 50000, 1000, 5000000, 0 } };
	struct nnode *a;
	struct peer_info p[2];

	memset(&w, 0, sizeof w);
	w.join[1] = w.join[2] = "203.0.0.1:4237";
	begin(s, 3);
	a = sim_app(s, 0);
	for (int i = 0; i < 2; i++) {
		struct nnode *b = sim_app(s, i + 1);
		uint8_t *data = xcalloc(1, 8000000), *out = xcalloc(1, 8000000);
		struct moved m[2] = { { .sim = s }, { .sim = s } };
		struct id tag = { .b = { (uint8_t)i } };
		uint64_t deadline = sim_now(s) + 60000000;

		sim_link(s, 0, i + 1, &links[i]);
		sim_link(s, i + 1, 0, &links[i]);
		xfer_recv(b->chunks, net_self(a->net), &tag, out, 8000000, deadline, net_app_moved, &m[1]);
		xfer_send(a->chunks, net_self(b->net), &tag, data, 8000000, CLASS_weight, deadline, net_app_moved, &m[0]);
		net_app_arrives(s, m, data, out, 8000000, 60000000, i ? "far, a transfer" : "near, a transfer");
		for (int k = 0; k < 40; k++)            /* the old round trip is forgotten */
			finds(s, 0, true, "ok", "peers", "2 of 2");
		sim_check(s, net_peer(a->net, net_self(b->net), &p[i]));
		free(data);
		free(out);
	}
	sim_check(s, net_peer(a->net, &p[0].id, &p[0]) && net_peer(a->net, &p[1].id, &p[1]));
	sim_in_time(s, p[0].rtt_us >= 1000 && p[0].rtt_us < 5000);
	sim_in_time(s, p[1].rtt_us >= 100000 && p[1].rtt_us < 150000);
	if (p[0].bandwidth_bps < 10000000 || p[0].bandwidth_bps > 42000000)
		sim_late(s, "40 MB/s measured as %llu", (unsigned long long)p[0].bandwidth_bps);
	if (p[1].bandwidth_bps < 2000000 || p[1].bandwidth_bps > 5250000)
		sim_late(s, "5 MB/s measured as %llu", (unsigned long long)p[1].bandwidth_bps);
	sim_check(s, net_deadline(a->net, &p[0].id, 1000) == 3 * p[0].rtt_us);
	sim_check(s, net_deadline(a->net, &p[1].id, 1000) == 3 * p[1].rtt_us);
}

static const struct scn list[] = { SCN(well), SCN(clock), SCN(nat), SCN(bulk), SCN(strangers), SCN(keys),
	SCN(measured), {0} };
int main(int argc, char **argv)
{
	int rc = scn_main(list, argc, argv);

	json_decref(q.result);
	return rc;
}
