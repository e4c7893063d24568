/* The DHT in the simulator: joining, exact lookups, replicas, lives, signatures, deaths, restarts, partitions.
 * Row C01 of the systems, semantics S1-S21 of Hivemind's tests. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "dht/dht.h"
#include "dht/values.h"
#include "sim.h"

#define SEC 1000000ull

struct world { struct dht_conf conf; struct endpoint boot; bool no_boot; };
struct peer_app { struct env *env; struct net *net; struct dht *dht; };

static struct endpoint where(int node)
{
	struct endpoint at = { .ip = { [10] = 0xff, [11] = 0xff, [12] = 10 }, .port = { 4237, 4238, 4239 } };
	at.ip[14] = (uint8_t)(node >> 8);
	at.ip[15] = (uint8_t)(node + 1);
	return at;
}

static void *start(struct env *env, int node, void *arg)
{
	struct world *w = arg;
	struct peer_app *a = xcalloc(1, sizeof *a);
	struct net_conf c = { .has_swarm_key = true, .self = where(node) };
	struct err e;
	struct rng r;
	rng_seed(&r, 1000 + (uint64_t)node);
	for (int i = 0; i < 32; i++)
		c.seed[i] = (uint8_t)rng_u64(&r);
	env->ops->secure(env, &c.boot_id, sizeof c.boot_id);
	a->env = env;
	a->net = net_new(env, &c, &e);
	a->dht = dht_new(env, a->net, &w->conf, &e);
	if (!a->dht)
		abort();
	if (node > 0 && !w->no_boot)
		dht_join(a->dht, &w->boot, 1);
	return a;
}

static void stop(void *app)
{
	struct peer_app *a = app;
	a->env->ops->detach(a->env);
	dht_free(a->dht);
	net_free(a->net);
	free(a);
}

static void add(struct sim *s, struct world *w, int n)
{
	struct sim_app app = { start, stop, w };
	w->boot = where(0);
	for (int i = 0; i < n; i++) {
		struct endpoint at = where(sim_nodes(s));
		sim_node_add(s, &at, &app);
	}
}

static struct dht *dht_of(struct sim *s, int node)
{
	return ((struct peer_app *)sim_app(s, node))->dht;
}

static int any_alive(struct sim *s)
{
	for (;;) {
		int i = (int)rng_below(sim_rng(s), (uint64_t)sim_nodes(s));
		if (sim_alive(s, i))
			return i;
	}
}

static bool all_joined(struct sim *s, void *arg)
{
	for (int i = 0; i < sim_nodes(s); i++) {
		struct dht_state d;
		if (!sim_alive(s, i))
			continue;
		dht_state(dht_of(s, i), &d);
		if (!d.joined || d.lookups_open)
			return false;
	}
	return true;
}

/* ---- asking and waiting ---- */

struct stored { bool done; uint32_t accepted, wanted; enum err_code code; };
static void on_stored(void *arg, uint32_t accepted, uint32_t wanted, const struct err *e)
{
	*(struct stored *)arg = (struct stored){ true, accepted, wanted, e ? e->code : ERR_NONE };
}

struct got { bool done; size_t n; char value[64]; uint64_t life_ms; struct id owner; };
static void on_got(void *arg, const struct record *r, size_t n, const struct err *e)
{
	struct got *g = arg;
	g->done = true;
	g->n = n;
	if (!n)
		return;
	char *t = json_dumps(r[0].value, JSON_ENCODE_ANY);
	snprintf(g->value, sizeof g->value, "%s", t);
	free(t);
	g->life_ms = r[0].life_ms;
	g->owner = r[0].owner;
}

static bool flag(struct sim *s, void *arg)
{
	return *(bool *)arg;
}

static struct stored put(struct sim *s, int node, const char *key, const char *sub, int value, uint64_t life_ms,
	bool sign)
{
	struct stored *st = xcalloc(1, sizeof *st), ret;        /* not on the stack: after a failure the end comes later */
	dht_put(dht_of(s, node), key, sub, json_integer(value), life_ms, sign, on_stored, st);
	sim_check(s, sim_run_until(s, flag, &st->done, 60 * SEC));
	ret = *st;
	if (ret.done)
		free(st);
	return ret;
}

static struct got get(struct sim *s, int node, const char *key, bool latest)
{
	struct got *g = xcalloc(1, sizeof *g), ret;
	dht_get(dht_of(s, node), key, latest, on_got, g);
	sim_check(s, sim_run_until(s, flag, &g->done, 60 * SEC));
	ret = *g;
	if (ret.done)
		free(g);
	return ret;
}

static void expect(struct sim *s, int node, const char *key, int value)
{
	char text[16];
	snprintf(text, sizeof text, "%d", value);
	struct got g = get(s, node, key, true);
	if (g.n != 1 || strcmp(g.value, text))
		sim_fail(s, "key %s from node %d: %zu records, value %s instead of %s", key, node, g.n, g.value, text);
}

/* ---- scenarios ---- */

struct found { bool done; size_t n; struct id id[32]; };
static void on_found(void *arg, const struct id *peers, size_t n, const struct err *e)
{
	struct found *f = arg;
	f->done = true;
	f->n = n;
	memcpy(f->id, peers, n * sizeof *peers);
}

static const struct id *sort_target(const struct id *set) { static const struct id *t; if (set) t = set; return t; }
static int nearer(const void *a, const void *b) { return id_closer(sort_target(NULL), a, b); }

/* S14, S15: the k nearest that a search finds are the k nearest that exist. */
static void scn_exact(struct sim *s)
{
	struct world w = { 0 };
	add(s, &w, 32);
	sim_check(s, sim_run_until(s, all_joined, NULL, 60 * SEC));
	sim_run_for(s, 5 * SEC);
	struct id all[32];
	for (int q = 0; q < 10 && !sim_failed(s); q++) {
		struct id target;
		int from = any_alive(s);
		size_t n = 0;
		for (int i = 0; i < 32; i++)
			target.b[i] = (uint8_t)rng_u64(sim_rng(s));
		for (int i = 0; i < sim_nodes(s); i++)
			if (i != from)
				all[n++] = *net_self(((struct peer_app *)sim_app(s, i))->net);
		sort_target(&target);
		qsort(all, n, sizeof *all, nearer);
		struct found f = { 0 };
		dht_find(dht_of(s, from), &target, on_found, &f);
		sim_check(s, sim_run_until(s, flag, &f.done, 60 * SEC));
		sim_check(s, f.n == 8);
		for (size_t i = 0; i < f.n; i++)
			sim_check(s, id_eq(&f.id[i], &all[i]));
	}
}

/* C01: every key is found from any node; with k = 8 at least 99 % after 30 % of the nodes were killed at once. */
static void scn_kill_third(struct sim *s)
{
	struct world w = { 0 };
	char key[32];
	int found = 0;
	add(s, &w, 30);
	sim_check(s, sim_run_until(s, all_joined, NULL, 60 * SEC));
	for (int i = 0; i < 40 && !sim_failed(s); i++) {
		snprintf(key, sizeof key, "key%d", i);
		struct stored st = put(s, any_alive(s), key, NULL, i, 600000, false);
		sim_check(s, st.accepted == 8 && st.wanted == 8);
	}
	for (int i = 0; i < 40; i++) {
		snprintf(key, sizeof key, "key%d", i);
		expect(s, any_alive(s), key, i);
	}
	for (int i = 0; i < 9; i++) {
		int v = any_alive(s);
		sim_kill(s, v);
	}
	for (int i = 0; i < 40 && !sim_failed(s); i++) {
		snprintf(key, sizeof key, "key%d", i);
		found += get(s, any_alive(s), key, i % 2).n == 1;
	}
	sim_check(s, found == 40);
}

/* S1-S7: lives, strictly later, subkeys. */
static void scn_records(struct sim *s)
{
	struct world w = { 0 };
	add(s, &w, 10);
	sim_check(s, sim_run_until(s, all_joined, NULL, 60 * SEC));
	put(s, 3, "short", NULL, 1, 2000, false);
	expect(s, 7, "short", 1);
	sim_run_for(s, 3 * SEC);
	sim_check(s, get(s, 7, "short", true).n == 0);
	sim_check(s, get(s, 7, "short", false).n == 0);
	put(s, 1, "k", NULL, 1, 100000, false);
	sim_run_for(s, SEC);
	put(s, 2, "k", NULL, 2, 50000, false);          /* later wins, whatever its life */
	expect(s, 8, "k", 2);
	sim_wall_jump(s, 4, -30000);                    /* a clock half a minute slow writes older ranks */
	sim_check(s, put(s, 4, "k", NULL, 3, 100000, false).accepted == 0);
	expect(s, 5, "k", 2);
	for (int i = 0; i < 10; i++) {
		char sub[8];
		snprintf(sub, sizeof sub, "s%d", i);
		put(s, i == 4 ? 5 : i, "dict", sub, i, 60000 + 1000 * (uint64_t)i, false);
	}
	sim_check(s, get(s, 0, "dict", true).n == 10);
	struct stored bad = put(s, 0, "x", NULL, 1, 8ull * 86400 * 1000, false);
	sim_check(s, bad.code == ERR_INVALID && bad.accepted == 0);
	sim_check(s, get(s, 0, "nobody", true).n == 0);
}

/* S26, S27: a record under a peer's id belongs to that peer. */
static void scn_owner(struct sim *s)
{
	struct world w = { 0 };
	char hex[ID_HEX];
	add(s, &w, 8);
	sim_check(s, sim_run_until(s, all_joined, NULL, 60 * SEC));
	id_hex(net_self(((struct peer_app *)sim_app(s, 2))->net), hex);
	sim_check(s, put(s, 2, "who", hex, 2, 60000, false).accepted >= 7);
	sim_run_for(s, SEC);
	struct stored bad = put(s, 5, "who", hex, 666, 60000, true);
	sim_check(s, bad.accepted == 0 && bad.code == ERR_AUTH);
	struct got g = get(s, 6, "who", true);
	sim_check(s, g.n == 1 && !strcmp(g.value, "2"));
	sim_check(s, id_eq(&g.owner, net_self(((struct peer_app *)sim_app(s, 2))->net)));
}

/* Records under a peer's id that somebody else sends, as a hostile member could: signed by itself in the owner's name,
 * not signed at all, signed and owned by itself. */
static void on_answer(void *arg, const struct frame *f, const struct err *e)
{
	*(uint64_t *)arg = f ? (uint64_t)json_integer_value(json_object_get(f->json, "accepted")) : 1000;
}

static bool answered(struct sim *s, void *arg) { return *(uint64_t *)arg != UINT64_MAX; }

static uint64_t forge(struct sim *s, int to, const char *hex, bool is_signed, const struct id *owner)
{
	struct peer_app *a = sim_app(s, 5);
	const char *value = "666";
	struct rec r = { .value = (char *)value, .vlen = 3, .rank = env_wall(a->env), .life_ms = 60000, .owner = *owner,
		.is_signed = is_signed, .ends_us = env_now(a->env) + 60000000 };
	struct buf b = { 0 }, text = { 0 };
	uint64_t accepted = UINT64_MAX;
	id_of(&r.key, "who", 3);
	snprintf(r.subkey, sizeof r.subkey, "%s", hex);
	rec_signed_bytes(&text, &r);
	net_sign(a->net, text.p, text.len, r.sig);
	buf_free(&text);
	buf_u16(&b, 1);
	buf_put(&b, r.key.b, 32);
	rec_write(&b, &r, env_now(a->env));
	struct call *c = net_call(a->net, net_self(((struct peer_app *)sim_app(s, to))->net), KIND_DHT_STORE, NULL,
		(struct blob){ .data = b.p, .len = b.len }, CLASS_control, 5 * SEC, on_answer, &accepted);
	if (!sim_run_until(s, answered, &accepted, 10 * SEC)) {
		net_cancel(a->net, c);
		sim_fail(s, "no answer to a forged record");
	}
	buf_free(&b);
	return accepted;
}

static void scn_forged(struct sim *s)
{
	struct world w = { 0 };
	char hex[ID_HEX];
	add(s, &w, 8);
	sim_check(s, sim_run_until(s, all_joined, NULL, 60 * SEC));
	const struct id *owner = net_self(((struct peer_app *)sim_app(s, 2))->net);
	id_hex(owner, hex);
	sim_check(s, put(s, 2, "who", hex, 2, 60000, false).accepted >= 7);
	sim_run_for(s, SEC);
	for (int to = 0; to < 8 && !sim_failed(s); to++) {
		if (to == 5)
			continue;
		sim_check(s, forge(s, to, hex, true, owner) == 0);
		sim_check(s, forge(s, to, hex, false, owner) == 0);
		sim_check(s, forge(s, to, hex, true, net_self(((struct peer_app *)sim_app(s, 5))->net)) == 0);
	}
	struct got g = get(s, 6, "who", true);
	sim_check(s, g.n == 1 && !strcmp(g.value, "2") && id_eq(&g.owner, owner));
}

/* Whoever comes late, or finds nobody at first, joins in the end; what lives long survives a restart of everybody. */
static void scn_restart(struct sim *s)
{
	struct world w = { 0 };
	add(s, &w, 1);
	sim_kill(s, 0);
	add(s, &w, 5);
	sim_run_for(s, 20 * SEC);
	struct dht_state d;
	dht_state(dht_of(s, 3), &d);
	sim_check(s, !d.joined && d.join_unreachable == 1 && d.join_error[0]);
	sim_restart(s, 0);
	sim_check(s, sim_run_until(s, all_joined, NULL, 60 * SEC));
	put(s, 1, "long", NULL, 11, 86400000, false);
	sim_run_for(s, 61 * SEC);                       /* nodes are remembered by then */
	for (int i = 0; i < 6; i++)
		sim_kill(s, i);
	w.no_boot = true;                               /* the addresses of the shelf must do */
	for (int i = 0; i < 6; i++)
		sim_restart(s, i);
	sim_check(s, sim_run_until(s, all_joined, NULL, 60 * SEC));
	expect(s, 4, "long", 11);
}

/* A kept record is there from every side after a partition has healed, and ends when it is kept no longer. */
static void scn_partition(struct sim *s)
{
	struct world w = { 0 };
	int side[12];
	add(s, &w, 12);
	sim_check(s, sim_run_until(s, all_joined, NULL, 60 * SEC));
	for (int i = 0; i < 12; i++)
		side[i] = i % 2;
	sim_partition(s, side, 12);
	dht_keep(dht_of(s, 1), "kept", "a", json_integer(1), 9000, false);
	dht_keep(dht_of(s, 2), "kept", "b", json_integer(2), 9000, false);
	sim_run_for(s, 40 * SEC);
	sim_heal(s);
	sim_run_for(s, 90 * SEC);
	sim_check(s, get(s, 5, "kept", true).n == 2);
	sim_check(s, get(s, 6, "kept", true).n == 2);
	dht_unkeep(dht_of(s, 1), "kept", "a");
	sim_run_for(s, 15 * SEC);
	sim_check(s, get(s, 6, "kept", true).n == 1);
}

/* A newcomer that is now among the nearest gets the records; the key outlives all who held it first. */
static void scn_handover(struct sim *s)
{
	struct world w = { .conf = { .k = 2 } };
	add(s, &w, 4);
	sim_check(s, sim_run_until(s, all_joined, NULL, 60 * SEC));
	for (int i = 0; i < 10; i++) {
		char key[16];
		snprintf(key, sizeof key, "h%d", i);
		put(s, i % 4, key, NULL, i, 600000, false);
	}
	for (int i = 0; i < 6; i++) {
		char sub[8];
		snprintf(sub, sizeof sub, "s%d", i);
		put(s, i % 4, "dict", sub, i, 600000, false);
	}
	add(s, &w, 8);
	sim_check(s, sim_run_until(s, all_joined, NULL, 60 * SEC));
	sim_run_for(s, 10 * SEC);
	for (int i = 0; i < 10 && !sim_failed(s); i++) {
		char key[16];
		snprintf(key, sizeof key, "h%d", i);
		expect(s, 4 + (i % 8), key, i);
	}
	for (int i = 0; i < 4; i++)             /* the newcomers have all of it */
		sim_kill(s, i);
	sim_run_for(s, 5 * SEC);
	sim_check(s, get(s, 4, "dict", true).n == 6);
}

int main(int argc, char **argv)
{
	static const struct scn list[] = { SCN(exact), SCN(kill_third), SCN(records), SCN(owner), SCN(forged), SCN(restart),
		SCN(partition), SCN(handover), { 0 } };
	return scn_main(list, argc, argv);
}
