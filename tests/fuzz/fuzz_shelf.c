/* What a node finds on its shelf when it starts, written by an older version or not by it at all: records, good
 * nodes, bans. The input is a list of rows: which table, two lengths (one byte, two), key, value. A node that has
 * read them keeps its counts and bounds, answers from what it holds, and starts once more from what it has written.
 * */
#include <stdlib.h>
#include "common/jrpc.h"
#include "dht/dht.h"
#include "dht/int.h"
#include "net/inner.h"
#include "sim.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SEC 1000000ull
#define ROWS_MAX 64
#define KEYS 5

struct honest { struct net *net; struct dht *dht; struct env *env; struct rd rows; unsigned answers; };

static void check(bool ok)
{
	if (!ok)
		abort();
}

static void fill(struct shelf *s, struct rd *r)
{
	static const char *const table[] = { "dht_records", "dht_nodes", "bans" };
	struct err e;

	for (int i = 0; i < ROWS_MAX && rd_left(r); i++) {
		unsigned what = rd_u8(r);
		size_t klen = rd_u8(r), vlen = rd_u16(r);
		const uint8_t *key, *val;

		klen = klen < rd_left(r) ? klen : rd_left(r);
		key = rd_bytes(r, klen);
		vlen = vlen < rd_left(r) ? vlen : rd_left(r);
		val = rd_bytes(r, vlen);
		if (!r->bad)
			check(!s->put(s, table[what % 3], key, klen, val, vlen, &e));
	}
	*r = rd_of(NULL, 0);                    /* once */
}

static void *start(struct env *env, int node, void *arg)
{
	static const struct dht_field fields[] = { { "n", DHT_COUNT }, { "name", DHT_TEXT, true }, { 0 } };
	static const struct dht_schema rule = { .name = "c", .fields = fields };
	struct honest *o = arg;
	struct dht_conf conf = { .k = 4, .alpha = 2, .records_max = 32, .per_peer_max = 24, .bytes_max = 1 << 16 };
	struct net_conf c = { .seed = { 1 }, .has_swarm_key = true, .boot_id = 1,
		.self = { .ip = { [10] = 0xff, [11] = 0xff, [12] = 10, [15] = 1 }, .port = { 4237, 4238, 4239 } } };
	struct err e;

	o->env = env;
	fill(env->shelf, &o->rows);
	o->net = net_new(env, &c, &e);
	check(o->net != NULL);
	o->dht = dht_new(env, o->net, &conf, &e);
	check(o->dht != NULL);
	dht_expect(o->dht, "c", &rule);
	return o;
}

static void stop(void *app)
{
	struct honest *o = app;

	o->env->ops->detach(o->env);
	dht_free(o->dht);
	net_free(o->net);
}

/* ---- what must hold ---- */

static void whole(struct honest *o)
{
	const struct values *v = &o->dht->values;
	uint64_t now = env_now(o->env);
	struct entry *en;
	size_t records = 0, bans = 0;

	for (size_t i = 0; (en = map_next(v->keys, &i, NULL, NULL)); records += en->n)
		list_each(it, &en->recs) {
			const struct rec *r = list_entry(it, struct rec, link);

			check(r->ends_us <= now + LIFE_MAX_MS * 1000 && r->life_ms <= LIFE_MAX_MS && r->vlen <= VALUE_MAX);
		}
	check(records == v->records && records <= v->conf.records_max && v->bytes <= v->conf.bytes_max);
	list_each(it, &o->net->peer_list) {
		const struct peer *p = list_entry(it, struct peer, link);

		bans += p->banned_until_us != 0;
		check(!p->banned_until_us || (p->banned_until_us > now && p->ban_why));
	}
	check(bans == o->net->count.bans && bans <= NET_BANS_MAX && !table_find(&o->dht->table, net_self(o->net)));
}

static void got(void *arg, const struct record *r, size_t n, const struct err *e)
{
	for (size_t i = 0; i < n; i++)
		check(r[i].value && memchr(r[i].subkey, 0, sizeof r[i].subkey));
	((struct honest *)arg)->answers++;
}

static bool all_answered(struct sim *s, void *arg)
{
	return ((struct honest *)arg)->answers == KEYS;
}

static void ask(struct sim *s, struct honest *o)
{
	static const char *const keys[KEYS] = { "a", "b", "c", "d", "e" };
	json_t *status = dht_status(o->dht);

	check(status != NULL);
	json_decref(status);
	o->answers = 0;
	for (int i = 0; i < KEYS; i++)
		dht_get(o->dht, keys[i], i & 1, got, o);
	check(sim_run_until(s, all_answered, o, 60 * SEC));
	whole(o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sim *s = sim_new(1);
	struct honest o = { .rows = rd_of(data, size) };
	struct sim_app app = { start, stop, &o };

	sim_node_add(s, NULL, &app);
	whole(&o);
	ask(s, &o);
	sim_restart(s, 0);
	whole(&o);
	ask(s, &o);
	sim_free(s);
	return 0;
}
