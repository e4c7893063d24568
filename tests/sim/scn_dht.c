/* The DHT in the simulator: joining, exact lookups, replicas, lives, signatures, deaths, restarts, partitions.
 * Row C01 of the systems, semantics S1-S21 of Hivemind's tests. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "dht/values.h"
#include "dht_world.h"

/* ---- scenarios ---- */

static const struct id *sort_target(const struct id *set) { static const struct id *t; if (set) t = set; return t; }
static int nearer(const void *a, const void *b) { return id_closer(sort_target(NULL), a, b); }

/* S14, S15: the k nearest that a search finds are the k nearest that exist. */
static void scn_exact(struct sim *s)
{
	struct dht_world w = { 0 };
	dht_add(s, &w, 32);
	sim_await(s, dht_all_joined, NULL, 60 * SEC);
	sim_run_for(s, 5 * SEC);
	struct id all[32];
	for (int q = 0; q < 10 && !sim_failed(s); q++) {
		struct id target;
		int from = dht_any(s);
		size_t n = 0;
		for (int i = 0; i < 32; i++)
			target.b[i] = (uint8_t)rng_u64(sim_rng(s));
		for (int i = 0; i < sim_nodes(s); i++)
			if (i != from)
				all[n++] = *net_self(dht_net(s, i));
		sort_target(&target);
		qsort(all, n, sizeof *all, nearer);
		struct dht_find_end f = dht_find_wait(s, from, &target);
		sim_check(s, f.n == 8);
		for (size_t i = 0; i < f.n; i++)
			sim_check(s, id_eq(&f.id[i], &all[i]));
	}
}

/* C01: every key is found from any node; with k = 8 at least 99 % after 30 % of the nodes were killed at once. */
static void scn_kill_third(struct sim *s)
{
	struct dht_world w = { 0 };
	char key[32];
	int found = 0;
	dht_add(s, &w, 30);
	sim_await(s, dht_all_joined, NULL, 60 * SEC);
	for (int i = 0; i < 40 && !sim_failed(s); i++) {
		snprintf(key, sizeof key, "key%d", i);
		struct dht_put_end st = dht_put_wait(s, dht_any(s), key, NULL, json_integer(i), 600000, false);
		sim_check(s, st.accepted == 8 && st.wanted == 8);
	}
	for (int i = 0; i < 40; i++) {
		snprintf(key, sizeof key, "key%d", i);
		dht_want(s, dht_any(s), key, i);
	}
	for (int i = 0; i < 9; i++) {
		int v = dht_any(s);
		sim_kill(s, v);
	}
	for (int i = 0; i < 40 && !sim_failed(s); i++) {
		snprintf(key, sizeof key, "key%d", i);
		found += dht_get_wait(s, dht_any(s), key, i % 2).n == 1;
	}
	sim_in_time(s, found == 40);
}

/* S1-S7: lives, strictly later, subkeys. */
static void scn_records(struct sim *s)
{
	struct dht_world w = { 0 };
	dht_add(s, &w, 10);
	sim_await(s, dht_all_joined, NULL, 60 * SEC);
	dht_put_wait(s, 3, "short", NULL, json_integer(1), 2000, false);
	dht_want(s, 7, "short", 1);
	sim_run_for(s, 3 * SEC);
	sim_check(s, dht_get_wait(s, 7, "short", true).n == 0);
	sim_check(s, dht_get_wait(s, 7, "short", false).n == 0);
	dht_put_wait(s, 1, "k", NULL, json_integer(1), 100000, false);
	sim_run_for(s, SEC);
	dht_put_wait(s, 2, "k", NULL, json_integer(2), 50000, false);          /* later wins, whatever its life */
	dht_want(s, 8, "k", 2);
	sim_wall_jump(s, 4, -30000);                    /* a clock half a minute slow writes older ranks */
	sim_check(s, dht_put_wait(s, 4, "k", NULL, json_integer(3), 100000, false).accepted == 0);
	dht_want(s, 5, "k", 2);
	for (int i = 0; i < 10; i++) {
		char sub[8];
		snprintf(sub, sizeof sub, "s%d", i);
		dht_put_wait(s, i == 4 ? 5 : i, "dict", sub, json_integer(i), 60000 + 1000 * (uint64_t)i, false);
	}
	sim_check(s, dht_get_wait(s, 0, "dict", true).n == 10);
	struct dht_put_end bad = dht_put_wait(s, 0, "x", NULL, json_integer(1), 8ull * 86400 * 1000, false);
	sim_check(s, bad.code == ERR_INVALID && bad.accepted == 0);
	sim_check(s, dht_get_wait(s, 0, "nobody", true).n == 0);
}

/* S26, S27: a record under a peer's id belongs to that peer. */
static void scn_owner(struct sim *s)
{
	struct dht_world w = { 0 };
	char hex[ID_HEX];
	dht_add(s, &w, 8);
	sim_await(s, dht_all_joined, NULL, 60 * SEC);
	id_hex(net_self(dht_net(s, 2)), hex);
	sim_in_time(s, dht_put_wait(s, 2, "who", hex, json_integer(2), 60000, false).accepted >= 7);
	sim_run_for(s, SEC);
	struct dht_put_end bad = dht_put_wait(s, 5, "who", hex, json_integer(666), 60000, true);
	sim_check(s, bad.accepted == 0 && bad.code == ERR_AUTH);
	struct dht_get_end g = dht_get_wait(s, 6, "who", true);
	sim_check(s, g.n == 1 && !strcmp(g.value, "2"));
	sim_check(s, id_eq(&g.owner, net_self(dht_net(s, 2))));
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
	struct dht_peer *a = sim_app(s, 5);
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
	struct call *c = net_call(a->net, net_self(dht_net(s, to)), KIND_DHT_STORE, NULL,
		(struct blob){ .data = b.p, .len = b.len }, CLASS_control, 5 * SEC, on_answer, &accepted);
	if (!sim_await_or(s, answered, &accepted, 10 * SEC, "no answer to a forged record"))
		net_cancel(a->net, c);
	buf_free(&b);
	return accepted;
}

static void scn_forged(struct sim *s)
{
	struct dht_world w = { 0 };
	char hex[ID_HEX];
	dht_add(s, &w, 8);
	sim_await(s, dht_all_joined, NULL, 60 * SEC);
	const struct id *owner = net_self(dht_net(s, 2));
	id_hex(owner, hex);
	sim_in_time(s, dht_put_wait(s, 2, "who", hex, json_integer(2), 60000, false).accepted >= 7);
	sim_run_for(s, SEC);
	for (int to = 0; to < 8 && !sim_failed(s); to++) {
		if (to == 5)
			continue;
		sim_check(s, forge(s, to, hex, true, owner) == 0);
		sim_check(s, forge(s, to, hex, false, owner) == 0);
		sim_check(s, forge(s, to, hex, true, net_self(dht_net(s, 5))) == 0);
	}
	struct dht_get_end g = dht_get_wait(s, 6, "who", true);
	sim_check(s, g.n == 1 && !strcmp(g.value, "2") && id_eq(&g.owner, owner));
}

/* Whoever comes late, or finds nobody at first, joins in the end; what lives long survives a restart of everybody. */
static void scn_restart(struct sim *s)
{
	struct dht_world w = { 0 };
	dht_add(s, &w, 1);
	sim_kill(s, 0);
	dht_add(s, &w, 5);
	sim_run_for(s, 20 * SEC);
	struct dht_state d;
	dht_state(dht_of(s, 3), &d);
	sim_check(s, !d.joined);
	sim_in_time(s, d.join_unreachable == 1 && d.join_error[0]);
	sim_restart(s, 0);
	sim_await(s, dht_all_joined, NULL, 60 * SEC);
	dht_put_wait(s, 1, "long", NULL, json_integer(11), 86400000, false);
	sim_run_for(s, 61 * SEC);                       /* nodes are remembered by then */
	for (int i = 0; i < 6; i++)
		sim_kill(s, i);
	w.no_boot = true;                               /* the addresses of the shelf must do */
	for (int i = 0; i < 6; i++)
		sim_restart(s, i);
	sim_await(s, dht_all_joined, NULL, 60 * SEC);
	dht_want(s, 4, "long", 11);
}

static void both_there(struct sim *s, int node)
{
	if (dht_get_wait(s, node, "kept", true).n == 2)
		return;
	sim_late(s, "node %d does not find what both sides keep", node);
	sim_run_for(s, SIM_NEVER_US);
	if (dht_get_wait(s, node, "kept", true).n != 2)
		sim_fail(s, "node %d never finds what both sides keep", node);
}

/* A kept record is there from every side after a partition has healed, and ends when it is kept no longer. */
static void scn_partition(struct sim *s)
{
	struct dht_world w = { 0 };
	int side[12];
	dht_add(s, &w, 12);
	sim_await(s, dht_all_joined, NULL, 60 * SEC);
	for (int i = 0; i < 12; i++)
		side[i] = i % 2;
	sim_partition(s, side, 12);
	dht_keep(dht_of(s, 1), "kept", "a", json_integer(1), 9000, false);
	dht_keep(dht_of(s, 2), "kept", "b", json_integer(2), 9000, false);
	sim_run_for(s, 40 * SEC);
	sim_heal(s);
	sim_run_for(s, 90 * SEC);
	both_there(s, 5);
	both_there(s, 6);
	dht_unkeep(dht_of(s, 1), "kept", "a");
	sim_run_for(s, 15 * SEC);
	sim_check(s, dht_get_wait(s, 6, "kept", true).n == 1);
}

/* A newcomer that is now among the nearest gets the records; the key outlives all who held it first. */
static void scn_handover(struct sim *s)
{
	struct dht_world w = { .conf = { .k = 2 } };
	dht_add(s, &w, 4);
	sim_await(s, dht_all_joined, NULL, 60 * SEC);
	for (int i = 0; i < 10; i++) {
		char key[16];
		snprintf(key, sizeof key, "h%d", i);
		dht_put_wait(s, i % 4, key, NULL, json_integer(i), 600000, false);
	}
	for (int i = 0; i < 6; i++) {
		char sub[8];
		snprintf(sub, sizeof sub, "s%d", i);
		dht_put_wait(s, i % 4, "dict", sub, json_integer(i), 600000, false);
	}
	dht_add(s, &w, 8);
	sim_await(s, dht_all_joined, NULL, 60 * SEC);
	sim_run_for(s, 10 * SEC);
	for (int i = 0; i < 10 && !sim_failed(s); i++) {
		char key[16];
		snprintf(key, sizeof key, "h%d", i);
		dht_want(s, 4 + (i % 8), key, i);
	}
	for (int i = 0; i < 4; i++)             /* the newcomers have all of it */
		sim_kill(s, i);
	sim_run_for(s, 5 * SEC);
	sim_check(s, dht_get_wait(s, 4, "dict", true).n == 6);
}

static bool knows(struct sim *s, void *arg)
{
	const int *pair = arg;
	struct peer_info p;
	return net_peer(dht_net(s, pair[0]), net_self(dht_net(s, pair[1])), &p) && p.session;
}

static void reaches(struct sim *s, uint64_t limit_us, const char *who)
{
	sim_await_or(s, knows, (int[]){ 3, 2 }, limit_us, "%s does not reach it", who);
}

/* What others tell of a peer is all of its addresses: who only hears of it reaches it at the second when the first is
 * unreachable; from the shelf as well. */
static void scn_second_address(struct sim *s)
{
	struct dht_world w = { .second = { [2] = true } };
	struct endpoint second = dht_second(2);
	struct peer_info p;
	dht_add(s, &w, 3);
	dht_joined(s);
	sim_run_for(s, 5 * SEC);
	sim_address(s, 2, sim_endpoint(s, 2), false);
	dht_add(s, &w, 1);
	reaches(s, 10 * SEC, "who came later");
	sim_check(s, net_peer(dht_net(s, 3), net_self(dht_net(s, 2)), &p));
	sim_check(s, p.nalso == 1 && !memcmp(&p.at, &second, sizeof second));
	sim_run_for(s, 20 * SEC);               /* the shelf has it */
	sim_power_off(s, 0);
	sim_restart(s, 3);
	reaches(s, 20 * SEC, "who was started again");
}

int main(int argc, char **argv)
{
	static const struct scn list[] = { SCN(exact), SCN(kill_third), SCN(records), SCN(owner), SCN(forged), SCN(restart),
		SCN(partition), SCN(handover), SCN(second_address), { 0 } };
	return scn_main(list, argc, argv);
}
