/* A table whose only neighbour is hostile: a peer of the swarm asks it anything with any bytes, and answers its
 * questions with any bytes. The input is a list of pieces: what is done, two bytes of length, that many bytes.
 * Everything that was begun must end, once, and the store's counts and bounds must hold. */
#include <stdlib.h>
#include <string.h>
#include "common/jrpc.h"
#include "common/mem.h"
#include "dht/dht.h"
#include "dht/int.h"
#include "sim.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SEC 1000000ull
#define PIECES_MAX 40

struct hostile { struct net *net; struct env *env; struct rd in; bool armed; };
struct honest { struct net *net; struct dht *dht; struct env *env; unsigned begun, ended; };

/* ---- the two of them ---- */

static struct endpoint place(int node)
{
	return (struct endpoint){ .ip = { [10] = 0xff, [11] = 0xff, [12] = 10, [15] = (uint8_t)(node + 1) },
		.port = { 4237, 4238, 4239 } };
}

static struct net *net_of(struct env *env, int node)
{
	struct net_conf c = { .seed = { (uint8_t)(node + 1) }, .has_swarm_key = true, .boot_id = (uint64_t)node + 1,
		.self = place(node) };
	struct err e;
	struct net *n = net_new(env, &c, &e);

	if (!n)
		abort();
	return n;
}

/* The next piece as a blob of its own, and what its first byte says as JSON. */
static struct blob piece(struct hostile *h, uint8_t *ret_what, json_t **ret_json)
{
	uint8_t *copy;
	size_t n;
	const uint8_t *p;

	*ret_what = rd_u8(&h->in);
	*ret_json = NULL;
	n = rd_u16(&h->in);
	if (n > rd_left(&h->in))
		n = rd_left(&h->in);
	p = rd_bytes(&h->in, n);
	if (h->in.bad || !p || n < 2)
		return NO_BLOB;
	if (p[0] & 1)
		*ret_json = json_pack("{s:i,s:b,s:i}", "keys", p[0] >> 4, "many", 1, "accepted", p[0] >> 2);
	else if (p[0] & 2)
		*ret_json = json_pack("{s:i,s:b,s:i}", "next", p[0] >> 2, "client", p[0] & 4 ? 1 : 0, "at", p[0] >> 3);
	copy = xmemdup(p + 1, n - 1);
	return (struct blob){ .data = copy, .len = n - 1, .release = free, .arg = copy };
}

static void answer(void *arg, struct request *req)
{
	struct hostile *h = arg;
	static const uint8_t nobody = 0;
	struct blob none = { .data = &nobody, .len = 1 }, b = NO_BLOB;
	json_t *json = NULL;
	uint8_t what;

	if (!req->wants_reply)
		return;
	if (h->armed)
		b = piece(h, &what, &json);
	net_reply(req, json, b.len ? b : none);
}

static void *hostile_start(struct env *env, int node, void *arg)
{
	struct hostile *h = arg;

	h->env = env;
	h->net = net_of(env, node);
	for (int k = KIND_DHT_FIND; k <= KIND_DHT_GET; k++)
		net_on(h->net, (enum kind)k, answer, h);
	return h;
}

static void hostile_stop(void *app)
{
	struct hostile *h = app;

	h->env->ops->detach(h->env);
	net_free(h->net);
}

static void *honest_start(struct env *env, int node, void *arg)
{
	struct honest *o = arg;
	struct dht_conf conf = { .k = 4, .alpha = 2, .records_max = 32, .per_peer_max = 24, .bytes_max = 1 << 16 };
	struct endpoint boot = place(0);
	struct err e;

	o->env = env;
	o->net = net_of(env, node);
	o->dht = dht_new(env, o->net, &conf, &e);
	if (!o->dht)
		abort();
	dht_join(o->dht, &boot, 1);
	return o;
}

static void honest_stop(void *app)
{
	struct honest *o = app;

	o->env->ops->detach(o->env);
	dht_free(o->dht);
	net_free(o->net);
}

/* ---- what is begun ---- */

static void got(void *arg, const struct record *r, size_t n, const struct err *e)
{
	for (size_t i = 0; i < n; i++)
		if (!r[i].value || !memchr(r[i].subkey, 0, sizeof(r[i].subkey)))
			abort();
	((struct honest *)arg)->ended++;
}

static void got_many(void *arg, const struct dht_many *v, size_t n, const struct err *e)
{
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < v[i].n; k++)
			if (!v[i].r[k].value)
				abort();
	((struct honest *)arg)->ended++;
}

static void stored(void *arg, uint32_t accepted, uint32_t wanted, const struct err *e)
{
	if (accepted > wanted)
		abort();
	((struct honest *)arg)->ended++;
}

static void stored_many(void *arg, const struct dht_item_end *v, size_t n, const struct err *e)
{
	for (size_t i = 0; i < n; i++)
		if (v[i].accepted > v[i].wanted)
			abort();
	((struct honest *)arg)->ended++;
}

static void traced(void *arg, const struct dht_trace *t, const struct err *e) { ((struct honest *)arg)->ended++; }
static void found(void *arg, const struct id *p, size_t n, const struct err *e) { ((struct honest *)arg)->ended++; }
static void answered(void *arg, const struct frame *f, const struct err *e) { ++*(unsigned *)arg; }

static void begin(struct honest *o, unsigned what)
{
	static const char *const keys[] = { "a", "b", "c", "d", "e" };
	struct dht_item items[3] = { { .key = "a", .value = json_integer(1), .life_ms = 60000 },
		{ .key = "b", .subkey = "s", .value = json_string("x"), .life_ms = 60000, .sign = true },
		{ .key = "b", .subkey = "t", .value = json_true(), .life_ms = 60000 } };
	struct id target = { .b = { (uint8_t)what } };
	struct err e;

	o->begun++;
	if (what % 6 == 0)
		dht_get(o->dht, keys[what % 5], what & 64, got, o);
	else if (what % 6 == 1)
		dht_put(o->dht, keys[what % 5], NULL, json_integer(what), 60000, what & 64, stored, o);
	else if (what % 6 == 2)
		dht_find(o->dht, &target, found, o);
	else if (what % 6 == 3)
		dht_trace(o->dht, keys[what % 5], what & 64, traced, o);
	else if (what % 6 == 4 && dht_get_many(o->dht, keys, 5, what & 64, got_many, o, &e) < 0)
		abort();
	if (what % 6 == 5) {
		if (dht_put_many(o->dht, items, 3, stored_many, o, &e) < 0)
			abort();
	} else {
		for (int i = 0; i < 3; i++)
			json_decref(items[i].value);
	}
}

static void whole(struct honest *o)
{
	const struct values *v = &o->dht->values;
	struct entry *en;
	size_t records = 0;

	for (size_t i = 0; (en = map_next(v->keys, &i, NULL, NULL));)
		records += en->n;
	if (records != v->records || records > v->conf.records_max || v->bytes > v->conf.bytes_max)
		abort();
}

static bool joined(struct sim *s, void *arg)
{
	struct dht_state d;

	dht_state(((struct honest *)arg)->dht, &d);
	return d.joined;
}

static bool all_ended(struct sim *s, void *arg)
{
	return ((struct honest *)arg)->ended == ((struct honest *)arg)->begun;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sim *s = sim_new(1);
	struct hostile h = { .in = rd_of(data, size) };
	struct honest o = { 0 };
	struct sim_app bad = { hostile_start, hostile_stop, &h }, good = { honest_start, honest_stop, &o };
	struct endpoint at[2] = { place(0), place(1) };
	unsigned calls = 0, replies = 0;

	sim_node_add(s, &at[0], &bad);
	sim_node_add(s, &at[1], &good);
	if (!sim_run_until(s, joined, &o, 5 * SEC))
		abort();
	h.armed = true;
	for (unsigned i = 0; i < PIECES_MAX && rd_left(&h.in) && !h.in.bad; i++) {
		json_t *json;
		uint8_t what;
		struct blob b = piece(&h, &what, &json);

		if (what & 128) {
			calls++;
			net_call(h.net, net_self(o.net), (enum kind)(KIND_DHT_FIND + what % 3), json, b, CLASS_control, SEC,
				answered, &replies);
		} else {
			json_decref(json);
			if (b.release)
				b.release(b.arg);
			begin(&o, what);
		}
		sim_run_for(s, what & 32 ? 100 : 2000);
		whole(&o);
	}
	if (!sim_run_until(s, all_ended, &o, 600 * SEC))
		abort();
	sim_run_for(s, 2 * SEC);
	if (replies != calls || o.ended != o.begun)
		abort();
	whole(&o);
	sim_free(s);
	return 0;
}
