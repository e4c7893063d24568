/* A simulated node that has the net room and nothing else, and counts how its calls end: for scenarios of the wire. */
#ifndef TESTS_SIM_NET_APP_H
#define TESTS_SIM_NET_APP_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "net/chunk.h"
#include "net/crypt.h"
#include "net/net.h"
#include "sim.h"

struct net_app {
	int node; struct env *env; struct net *net; struct chunks *chunks;
	uint32_t handled, posted, news[4];
	uint64_t last_handled;                  /* "n" of the last request */
	uint8_t seen[1024], twice;              /* requests by "n"; how often one has run again */
	struct request *held[64]; unsigned nheld; bool hold;    /* keeps requests instead of answering */
};
/* What scenarios ask of all nodes; one per sim, the arg of sim_app. */
struct net_world {
	struct net_conf conf; bool client[64]; uint8_t other_key[64];
	bool behind_nat[64];                    /* its own idea of its address is one that nobody can dial */
	bool twin[64];                          /* has the key of node 0 */
	bool second[64];                        /* has a second address, of IPv6 */
	bool announces[64];                     /* two addresses, of which nobody can dial the first */
	uint16_t version[64];                   /* 0 = this program's */
	unsigned moves[64];                     /* how transfers may come to it */
	char codes[64][32]; unsigned ncodes;    /* events of all nodes, each code once */
};

static inline void net_app_seed(int node, uint8_t seed[32])
{
	memset(seed, 0, 32);
	seed[0] = (uint8_t)node;
	seed[1] = (uint8_t)(node >> 8);
	seed[31] = 7;
}

static inline void net_app_echo(void *arg, struct request *r)
{
	struct net_app *a = arg;
	json_int_t x = json_integer_value(json_object_get(r->f.json, "n"));

	a->last_handled = (uint64_t)x;
	if (!r->wants_reply) {
		a->posted++;
		return;
	}
	a->handled++;
	if (x >= 0 && x < 1024 && a->seen[x]++)
		a->twice++;
	if (a->hold && a->nheld < 64) {
		a->held[a->nheld++] = net_keep(r);
		return;
	}
	net_reply(r, json_pack("{s:I,s:I}", "n", x + 1, "blob", (json_int_t)r->f.blob_len), NO_BLOB);
}

static inline void net_app_event(void *arg, enum log_level level, const char *code, const struct id *peer,
	const char *text)
{
	struct net_world *w = arg;

	for (unsigned i = 0; i < w->ncodes; i++)
		if (!strcmp(w->codes[i], code))
			return;
	if (w->ncodes < 64)
		snprintf(w->codes[w->ncodes++], 32, "%s", code);
}

static inline bool net_app_told(const struct net_world *w, const char *code)
{
	for (unsigned i = 0; i < w->ncodes; i++)
		if (!strcmp(w->codes[i], code))
			return true;
	return false;
}

static inline void net_app_news(void *arg, const struct id *peer, enum net_news what)
{
	((struct net_app *)arg)->news[what]++;
}

static inline struct endpoint net_app_second(int node)
{
	struct endpoint at = { .ip = { 0xfd, [15] = (uint8_t)(node + 1) } };

	for (int i = 0; i < CHANS; i++)
		at.port[i] = (uint16_t)(4237 + i);
	return at;
}

static inline void *net_app_start(struct env *env, int node, void *arg)
{
	struct net_world *w = arg;
	struct net_app *a = xcalloc(1, sizeof *a);
	struct net_conf c = w->conf;
	struct err e;

	a->env = env;
	a->node = node;
	net_app_seed(w->twin[node] ? 0 : node, c.seed);
	env->ops->secure(env, &c.boot_id, sizeof c.boot_id);
	c.has_swarm_key = true;
	memset(c.swarm_key, 0x5a + w->other_key[node], 32);
	c.client = w->client[node];
	c.moves = w->moves[node];
	c.version_min = c.version_max = w->version[node];
	/* the endpoint of a node that is just being added */
	memset(c.self.ip, 0, 16);
	c.self.ip[10] = c.self.ip[11] = 0xff;
	c.self.ip[12] = 10;
	c.self.ip[14] = (uint8_t)(node >> 8);
	c.self.ip[15] = w->behind_nat[node] ? 250 : (uint8_t)(node + 1);
	for (int i = 0; i < CHANS; i++)
		c.self.port[i] = c.client ? 0 : (uint16_t)(4237 + i);
	if (w->second[node])
		c.also[c.nalso++] = net_app_second(node);
	if (w->announces[node]) {
		c.also[c.nalso++] = c.self;
		c.self.ip[13] = 9;
	}
	a->net = net_new(env, &c, &e);
	if (!a->net) {
		fprintf(stderr, "net_new: %s\n", e.text);
		abort();
	}
	net_events(a->net, net_app_event, w);
	net_on(a->net, KIND_DHT_FIND, net_app_echo, a);
	net_on(a->net, KIND_RUN_STATE, net_app_echo, a);
	net_watch(a->net, net_app_news, a);
	a->chunks = chunks_new(env, a->net);
	return a;
}

static inline void net_app_stop(void *app)
{
	struct net_app *a = app;

	a->env->ops->detach(a->env);
	chunks_free(a->chunks);
	net_free(a->net);
	free(a);
}

static inline struct net_app *net_app_add(struct sim *s, struct net_world *w)
{
	struct sim_app app = { net_app_start, net_app_stop, w };
	struct endpoint at = { .ip = { [10] = 0xff, [11] = 0xff, [12] = 10 } };
	int node = sim_nodes(s);

	at.ip[14] = (uint8_t)(node >> 8);
	at.ip[15] = (uint8_t)(node + 1);
	for (int i = 0; i < CHANS; i++)
		at.port[i] = w->client[node] ? 0 : (uint16_t)(4237 + i);
	node = sim_node_add(s, &at, &app);
	if (w->second[node]) {
		at = net_app_second(node);
		sim_address(s, node, &at, true);
	}
	return sim_app(s, node);
}

/* a is told where b is. */
static inline void net_app_know(struct sim *s, int a, int b)
{
	struct net_app *x = sim_app(s, a), *y = sim_app(s, b);

	net_learn(x->net, net_self(y->net), sim_endpoint(s, b));
}

/* One call with its end. */
struct ended { unsigned times; bool ok; enum err_code code; uint64_t n; char text[320]; uint64_t at_us;
	struct sim *sim; };
static inline void net_app_ended(void *arg, const struct frame *f, const struct err *e)
{
	struct ended *d = arg;

	d->times++;
	d->ok = f;
	d->code = e ? e->code : ERR_NONE;
	if (d->sim)
		d->at_us = sim_now(d->sim);
	if (f)
		d->n = (uint64_t)json_integer_value(json_object_get(f->json, "n"));
	else
		snprintf(d->text, sizeof d->text, "%s", e->text);
}

static inline struct call *net_app_call(struct net_app *a, const struct id *to, uint64_t n, struct blob blob,
	uint64_t timeout_us, struct ended *d)
{
	return net_call(a->net, to, KIND_DHT_FIND, json_pack("{s:I}", "n", (json_int_t)n), blob, CLASS_control, timeout_us,
		net_app_ended, d);
}

struct moved { unsigned times; bool ok; enum err_code code; char text[320]; uint64_t at_us; struct sim *sim; };
static inline void net_app_moved(void *arg, struct xfer *x, const struct err *e)
{
	struct moved *m = arg;

	m->times++;
	m->ok = !e;
	m->code = e ? e->code : ERR_NONE;
	snprintf(m->text, sizeof m->text, "%s", e ? e->text : "");
	if (m->sim)
		m->at_us = sim_now(m->sim);
}

/* What scenarios wait for: arg is an array of struct ended, behind which one without sim stands. */
static inline bool net_app_all_ended(struct sim *s, void *arg)
{
	for (struct ended *d = arg; d->sim; d++)
		if (!d->times)
			return false;
	return true;
}

/* arg: two struct moved, of the sender and the taker. */
static inline bool net_app_both_moved(struct sim *s, void *arg)
{
	struct moved *m = arg;

	return m[0].times && m[1].times;
}

/* Who heard no answer, or did not reach the other, may only have had too little time. */
static inline bool net_app_in_vain(enum err_code code) { return code == ERR_TIMEOUT || code == ERR_UNREACHABLE; }

/* Has d, a call of a node to another that is over, ended with this code? When it was in vain it is made again: late
 * when one ends so within SIM_NEVER_US, failed when none does, or with another code. */
static inline bool net_app_expect(struct sim *s, int from, int to, const struct ended *d, enum err_code code,
	const char *what)
{
	static struct ended again[2];
	uint64_t end = sim_now(s) + SIM_NEVER_US;
	uint8_t seed[32];
	struct signer k;
	char text[512];

	if (d->times && d->code == code)
		return true;
	net_app_seed(to, seed);
	signer_init(&k, seed);
	again[0] = *d;
	while (net_app_in_vain(again[0].code) && again[0].code != code && sim_now(s) < end && sim_alive(s, from) &&
	       !sim_failed(s)) {
		sim_run_for(s, 200000);
		again[0] = (struct ended){ .sim = s };
		net_app_call(sim_app(s, from), &k.id, 5000, NO_BLOB, 10000000, &again[0]);     /* 5000: not in seen */
		sim_await(s, net_app_all_ended, again, 11000000);
	}
	signer_done(&k);
	snprintf(text, sizeof text, "%s%d to %d: %s (%s), expected %s", what, from, to, err_name(d->code), d->text,
		err_name(code));
	if (again[0].times && again[0].code == code)
		sim_late(s, "%s", text);
	else
		sim_fail(s, "%s", text);
	return false;
}

/* The call ends within that time, and is answered. d: as for net_app_all_ended. */
static inline bool net_app_answers(struct sim *s, int from, int to, struct ended *d, uint64_t limit_us,
	const char *what)
{

	sim_await_or(s, net_app_all_ended, d, limit_us, "%s%d to %d: the call does not end", what, from, to);
	return net_app_expect(s, from, to, d, ERR_NONE, what);
}

/* Both sides of a transfer have ended: well, and with the bytes that were sent; or in vain, which is late. */
static inline bool net_app_arrived(struct sim *s, const struct moved *m, const void *data, const void *out, size_t n,
	const char *what)
{
	if (m[0].ok && m[1].ok && !memcmp(data, out, n))
		return true;
	if (m[0].ok && m[1].ok)
		sim_fail(s, "%s of %zu bytes: others have come than were sent", what, n);
	else if ((m[0].ok || net_app_in_vain(m[0].code)) && (m[1].ok || net_app_in_vain(m[1].code)))
		sim_late(s, "%s of %zu bytes: %s / %s", what, n, m[0].text, m[1].text);
	else
		sim_fail(s, "%s of %zu bytes: %s / %s", what, n, m[0].text, m[1].text);
	return false;
}

/* The same, within that time. */
static inline bool net_app_arrives(struct sim *s, struct moved *m, const void *data, const void *out, size_t n,
	uint64_t limit_us, const char *what)
{

	sim_await_or(s, net_app_both_moved, m, limit_us, "%s of %zu bytes does not end", what, n);
	return net_app_arrived(s, m, data, out, n, what);
}

static inline uint8_t *net_app_noise(struct sim *s, size_t n)
{
	uint8_t *p = xmalloc(n ? n : 1);

	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(rng_u64(sim_rng(s)) >> 24);
	return p;
}
#endif
