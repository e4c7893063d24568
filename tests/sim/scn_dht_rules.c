/* The statements S1 to S31 of Hivemind's DHT, each in the scenario that is named after it, as far as a swarm is needed
 * to see it; scn_dht.c has S14, S26 and S27, test_dht_table.c S18 and S19, test_dht_values.c the rules of one store. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "dht/int.h"
#include "dht_world.h"

/* S12: every JSON value, key and subkey comes back as it went in, from another node. */
static void scn_S12_values(struct sim *s)
{
	struct dht_world w = { 0 };
	static const char *const keys[] = { "", "0", "false", "a key", "\xc3\xbc\xe2\x82\xac", "[]" };
	static const char *const subs[] = { NULL, "0", "false", "s b", "\xe2\x82\xac" };
	static const char *const values[] = { "0", "\"\"", "false", "null", "[]", "{}", "-1.5", "\"\xe2\x82\xac\"",
		"{\"a\":[1,2,{\"b\":null}]}" };
	dht_add(s, &w, 4);
	dht_joined(s);
	for (size_t i = 0; i < sizeof values / sizeof *values && !sim_failed(s); i++) {
		const char *key = keys[i % (sizeof keys / sizeof *keys)], *sub = subs[i % (sizeof subs / sizeof *subs)];
		json_t *v = json_loads(values[i], JSON_DECODE_ANY, NULL);
		char name[64];
		snprintf(name, sizeof name, "%s%zu", key, i);
		struct dht_put_end p = dht_put_wait(s, 0, i ? name : "", sub, v, 60000, false);
		sim_check(s, p.accepted == 4 && p.wanted == 4);
		struct dht_get_end g = dht_get_wait(s, 3, i ? name : "", true);
		if (g.n != 1 || strcmp(g.value, values[i]))
			sim_fail(s, "%s came back as %s", values[i], g.value);
	}
}

/* S13: a key lies on exactly k nodes, whatever k; storing it again adds none. S23: the answer counts who took it. */
static void scn_S13_replicas(struct sim *s)
{
	struct dht_world w = { .conf = { .k = 1 + (uint32_t)rng_below(sim_rng(s), 20) } };
	sim_costs(s)->door_drop = 0;            /* who took it and was not heard would make one copy more */
	dht_add(s, &w, 20);
	dht_joined(s);
	for (int i = 0; i < 20; i++)            /* all have met: who seems new gets copies, too */
		for (int j = i % 3; j < 20; j += 3)
			dht_find_wait(s, i, net_self(dht_net(s, j)));
	struct dht_put_end p = dht_put_wait(s, 3, "one", NULL, json_integer(1), 600000, false);
	sim_check(s, p.wanted == w.conf.k && p.accepted == w.conf.k);
	sim_check(s, dht_copies(s) == w.conf.k);
	sim_run_for(s, SEC);
	p = dht_put_wait(s, 11, "one", NULL, json_integer(2), 600000, false);
	sim_check(s, p.accepted == w.conf.k && dht_copies(s) == w.conf.k);
	p = dht_put_wait(s, 5, "two", NULL, json_integer(3), 600000, false);
	if (dht_copies(s) != 2 * w.conf.k)
		sim_fail(s, "%u copies of two keys, k is %u, accepted %u", dht_copies(s), w.conf.k, p.accepted);
	dht_want(s, 17, "one", 2);
}

/* S15: asking for more than there are gives all of them. */
static void scn_S15_few(struct sim *s)
{
	struct dht_world w = { 0 };
	struct id target = { { 1 } };
	dht_add(s, &w, 5);
	dht_joined(s);
	sim_check(s, dht_find_wait(s, 2, &target).n == 4);
}

/* S16: alone, a peer finds nobody and keeps what it stores. */
static void scn_S16_alone(struct sim *s)
{
	struct dht_world w = { 0 };
	struct id target = { { 1 } };
	dht_add(s, &w, 1);
	sim_run_for(s, SEC);
	sim_check(s, dht_find_wait(s, 0, &target).n == 0);
	sim_check(s, dht_get_wait(s, 0, "k", true).n == 0);
	sim_check(s, dht_get_wait(s, 0, "k", false).n == 0);
	struct dht_put_end p = dht_put_wait(s, 0, "k", NULL, json_integer(5), 60000, false);
	sim_check(s, p.accepted == 1 && p.wanted == 1 && !p.code);
	dht_want(s, 0, "k", 5);
}

/* S17: a client stores and gets, is in nobody's table and holds nothing for others. */
static void scn_S17_client(struct sim *s)
{
	struct dht_world w = { .clients = 6 };
	dht_add(s, &w, 8);
	dht_joined(s);
	struct dht_put_end p = dht_put_wait(s, 7, "mine", NULL, json_integer(7), 60000, false);
	sim_check(s, p.accepted == 6);
	dht_want(s, 2, "mine", 7);
	dht_want(s, 6, "mine", 7);
	for (int i = 0; i < 6; i++)
		for (int c = 6; c < 8; c++)
			sim_check(s, !table_find(&dht_of(s, i)->table, net_self(dht_net(s, c))));
	sim_check(s, !dht_records(s, 6) && !dht_records(s, 7));
}

struct traced { bool done; uint32_t hops, failed, here, found; uint64_t longest_us, took_us; bool asked[64];
	struct sim *s; };
static void on_traced(void *arg, const struct dht_trace *t, const struct err *e)
{
	struct traced *r = arg;
	r->done = true;
	for (size_t i = 0; t && i < t->nhop; i++) {
		const struct dht_hop *h = &t->hop[i];
		r->hops++;
		r->failed += h->state == DHT_HOP_FAILED;
		r->longest_us = h->took_us > r->longest_us ? h->took_us : r->longest_us;
		for (int k = 0; k < sim_nodes(r->s); k++)
			if (sim_alive(r->s, k) ? id_eq(&h->id, net_self(dht_net(r->s, k))) :
					!memcmp(&h->at, sim_endpoint(r->s, k), sizeof h->at))
				r->asked[k] = true;
	}
	r->here = t ? (uint32_t)t->here : 0;
	r->found = t ? (uint32_t)t->nfound : 0;
	r->took_us = t ? t->took_us : 0;
}

static struct traced trace(struct sim *s, int node, const char *key)
{
	struct traced *t = xcalloc(1, sizeof *t), ret;
	t->s = s;
	dht_trace(dht_of(s, node), key, true, on_traced, t);
	sim_await(s, dht_flag, &t->done, 60 * SEC);
	ret = *t;
	if (ret.done)
		free(t);
	return ret;
}

/* Nobody has that key, as far as can be known: so many of the nearest did not answer. */
static void want_none(struct sim *s, int node, unsigned silent)
{
	char text[32];
	snprintf(text, sizeof text, "but %u of the peers", silent);
	for (int latest = 0; latest < 2; latest++) {
		struct dht_get_end g = dht_get_wait(s, node, "missing", latest);
		if (g.n || (g.e.code != ERR_TIMEOUT && (silent || g.e.code)))
			sim_fail(s, "%u silent: %zu records, %s", silent, g.n, g.e.code ? g.e.text : "nobody has it");
		else if (silent ? !strstr(g.e.text, text) : g.e.code != 0)
			sim_late(s, "%u are silent, and it says: %s", silent, g.e.text);
	}
}

/* S20: exactly those who died are left out, longer each time, until they are heard again. */
static void scn_S20_silent(struct sim *s)
{
	struct dht_world w = { 0 };
	struct dht_state d;
	dht_add(s, &w, 5);
	dht_joined(s);
	sim_power_off(s, 3);
	sim_power_off(s, 4);
	dht_put_wait(s, 0, "k", NULL, json_integer(1), 600000, false);
	dht_state(dht_of(s, 0), &d);
	sim_in_time(s, d.silent == 2);
	want_none(s, 0, 2);
	want_none(s, 1, 2);                     /* who did not know it yet: asked in vain */
	struct traced t = trace(s, 0, "k");
	sim_check(s, t.found == 1);
	sim_in_time(s, !t.asked[3] && !t.asked[4] && t.asked[1] && t.asked[2] && !t.failed);
	sim_restart(s, 3);
	sim_run_for(s, 2 * SEC);                /* it joins by asking: then it is back at once */
	t = trace(s, 0, "k");
	sim_in_time(s, t.asked[3] && !t.asked[4]);
	dht_state(dht_of(s, 0), &d);
	sim_in_time(s, d.silent == 1);
	sim_run_for(s, 4 * SEC);                /* five seconds are over: tried again, in vain */
	t = trace(s, 0, "k");
	sim_in_time(s, t.asked[4] && t.failed == 1);
	sim_run_for(s, 6 * SEC);                /* now it is ten */
	t = trace(s, 0, "k");
	sim_in_time(s, !t.asked[4]);
	want_none(s, 0, 1);
	sim_restart(s, 4);
	sim_run_for(s, 2 * SEC);
	want_none(s, 0, 0);
}

static uint64_t all_sent(struct sim *s)
{
	struct sim_stats st;
	sim_stats(s, &st);
	return st.sent;
}

static bool newcomer_has_three(struct sim *s, void *arg) { return dht_records(s, 4) == 3; }

/* Where records lie with everybody, a put only stores, once a search has lately found nobody else; who comes gets what
 * is its, who goes is found missing. */
static void scn_known(struct sim *s)
{
	struct dht_world w = { 0 };
	dht_add(s, &w, 4);
	dht_joined(s);
	sim_check(s, dht_put_wait(s, 0, "a", NULL, json_integer(1), 600000, false).accepted == 4);
	sim_run_for(s, 11 * SEC);               /* nobody has come or gone meanwhile */
	sim_check(s, dht_put_wait(s, 0, "a", NULL, json_integer(2), 600000, false).accepted == 4);
	uint64_t before = all_sent(s);
	sim_check(s, dht_put_wait(s, 0, "b", NULL, json_integer(3), 600000, false).accepted == 4);
	if (all_sent(s) - before > 6)
		sim_late(s, "%llu messages to store with three others", (unsigned long long)(all_sent(s) - before));
	dht_add(s, &w, 1);
	dht_joined(s);
	dht_put_wait(s, 0, "c", NULL, json_integer(4), 600000, false);
	sim_run_for(s, 30 * SEC);
	sim_await(s, newcomer_has_three, NULL, 0);
	sim_power_off(s, 1);
	struct dht_put_end e = dht_put_wait(s, 0, "d", NULL, json_integer(5), 600000, false);
	if (e.accepted != 4)
		sim_fail(s, "%u of the four that are left have it", e.accepted);
}

static bool nobody_silent(struct sim *s, void *arg)
{
	struct dht_state d;
	dht_state(arg, &d);
	return !d.silent;
}

/* Who was taken for dead and is heard again, of whatever it speaks, is left out no longer. */
static void scn_alive_again(struct sim *s)
{
	struct dht_world w = { .conf = { .k = 1 } };
	struct dht_state d;
	dht_add(s, &w, 2);
	dht_joined(s);
	const struct id *self = net_self(dht_net(s, 0)), *other = net_self(dht_net(s, 1));
	for (int i = 0; i < 40; i++) {
		char key[16];
		snprintf(key, sizeof key, "k%d", i);
		dht_put_wait(s, 1, key, NULL, json_integer(i), 600000, false);
	}
	net_care(dht_net(s, 0), other, 1);
	sim_cut_both(s, 0, 1);
	sim_run_for(s, 2 * SEC);
	dht_state(dht_of(s, 0), &d);
	sim_in_time(s, d.silent == 1);
	sim_heal(s);
	net_post(dht_net(s, 1), self, KIND_PING, NULL, NO_BLOB, CLASS_control);
	sim_await(s, nobody_silent, dht_of(s, 0), 3 * SEC);
	for (int i = 0; i < 40; i++) {
		char key[16];
		snprintf(key, sizeof key, "k%d", i);
		struct dht_get_end g = dht_get_wait(s, 0, key, true);
		sim_check(s, g.n == 1 || g.e.code == ERR_TIMEOUT);
		sim_in_time(s, g.n == 1);
	}
}

static int patient_ends;

static void on_patient(void *arg, const struct record *r, size_t n, const struct err *e)
{
	struct dht_get_end *g = arg;
	patient_ends++;
	g->done = true;
	g->n = n;
	if (e)
		g->e = *e;
}

static bool patient_end(struct sim *s, void *arg) { return patient_ends == 20; }

/* A patient question that begins while the holder is silent has what it holds, when it is heard soon enough. */
static void scn_patient(struct sim *s)
{
	struct dht_world w = { .conf = { .k = 1 } };
	static struct dht_get_end g[20];        /* outlives a failed run */
	char key[16];
	memset(g, 0, sizeof g);
	patient_ends = 0;
	dht_add(s, &w, 3);
	dht_joined(s);
	for (int i = 0; i < 20; i++) {
		snprintf(key, sizeof key, "k%d", i);
		dht_put_wait(s, 2, key, NULL, json_integer(i), 600000, false);
	}
	net_care(dht_net(s, 0), net_self(dht_net(s, 1)), 1);
	sim_cut_both(s, 0, 1);
	sim_run_for(s, 2 * SEC);
	for (int i = 0; i < 20; i++) {
		snprintf(key, sizeof key, "k%d", i);
		dht_get_patient(dht_of(s, 0), key, true, on_patient, &g[i]);
	}
	sim_run_for(s, SEC / 5);
	sim_heal(s);
	sim_break(s, 0, 1);
	net_post(dht_net(s, 1), net_self(dht_net(s, 0)), KIND_PING, NULL, NO_BLOB, CLASS_control);
	sim_run_for(s, 5 * SEC);
	sim_await(s, patient_end, NULL, 0);
	for (int i = 0; i < 20; i++)
		if (g[i].n != 1 && g[i].e.code != ERR_TIMEOUT)
			sim_fail(s, "k%d: %s, %zu records", i, g[i].done ? "answered" : "no answer", g[i].n);
		else if (g[i].n != 1)
			sim_late(s, "k%d: the holder was not heard soon enough: %s", i, g[i].e.text);
}

/* A trace says whom it asked, in what time, and what lies here. */
static void scn_trace(struct sim *s)
{
	struct dht_world w = { .conf = { .k = 3 } };
	dht_add(s, &w, 30);
	dht_joined(s);
	dht_put_wait(s, 3, "k", NULL, json_integer(1), 600000, false);
	int with = -1, without = -1;
	for (int i = 0; i < 30; i++)
		*(dht_records(s, i) ? &with : &without) = i;
	struct traced t = trace(s, with, "k");
	sim_check(s, t.here == 1);
	sim_in_time(s, t.hops >= 3);
	t = trace(s, without, "k");
	sim_check(s, t.here == 0 && t.found == 1 && t.longest_us <= t.took_us);
	sim_in_time(s, t.hops >= 3 && t.longest_us > 0);
	sim_check(s, trace(s, 2, "nowhere").found == 0);
}

struct counted { uint32_t ends; size_t n; };
static void on_counted(void *arg, const struct record *r, size_t n, const struct err *e)
{
	struct counted *c = arg;
	c->ends++;
	c->n += n;
}

static bool five_end(struct sim *s, void *arg) { return ((struct counted *)arg)->ends == 5; }

/* S21: those who ask for one key at one time share one search. */
static void scn_S21_together(struct sim *s)
{
	struct dht_world w = { 0 };
	static struct counted c;                /* outlives a failed run */
	struct dht_state d;
	dht_add(s, &w, 12);
	dht_joined(s);
	dht_put_wait(s, 3, "k", NULL, json_integer(1), 600000, false);
	int i = 0;
	while (dht_records(s, i))
		i++;
	memset(&c, 0, sizeof c);
	for (int k = 0; k < 5; k++)
		dht_get(dht_of(s, i), "k", false, on_counted, &c);
	sim_run_for(s, 10);
	dht_state(dht_of(s, i), &d);
	sim_in_time(s, d.lookups_open == 1 && !c.ends);
	sim_run_for(s, 10 * SEC);
	sim_await(s, five_end, &c, 0);
	sim_check(s, c.ends == 5 && c.n == 5);
}

static bool forgotten(struct sim *s, void *arg) { return map_len(((struct dht *)arg)->cache) == 0; }

/* S22: what was found, and what was found nowhere, is remembered; entries in use are fetched again before they go. */
static void scn_S22_cache(struct sim *s)
{
	struct dht_world w = { .conf = { .k = 2 } };
	dht_add(s, &w, 12);
	dht_joined(s);
	dht_put_wait(s, 3, "k", NULL, json_integer(1), 600000, false);
	int i = 0;
	while (dht_records(s, i))
		i++;
	sim_check(s, dht_get_wait(s, i, "k", false).n == 1);
	sim_check(s, map_len(dht_of(s, i)->cache) == 1);
	uint64_t at = sim_now(s);
	sim_check(s, dht_get_wait(s, i, "k", false).n == 1);
	sim_in_time(s, sim_now(s) - at < 100);  /* nobody was asked */
	sim_run_for(s, SEC);
	dht_put_wait(s, 3, "k", NULL, json_integer(2), 600000, false);
	sim_in_time(s, !strcmp(dht_get_wait(s, i, "k", false).value, "1"));
	sim_run_for(s, 27 * SEC);               /* now it has been fetched again, because it was used */
	at = sim_now(s);
	sim_in_time(s, !strcmp(dht_get_wait(s, i, "k", false).value, "2") && sim_now(s) - at < 100);
	sim_run_for(s, 70 * SEC);               /* once more because of that, then no more */
	sim_await(s, forgotten, dht_of(s, i), 0);

	sim_check(s, dht_get_wait(s, i, "none", false).n == 0);
	at = sim_now(s);
	sim_check(s, dht_get_wait(s, i, "none", false).n == 0);
	sim_in_time(s, sim_now(s) - at < 100);
	dht_put_wait(s, 3, "none", NULL, json_integer(3), 600000, false);
	sim_run_for(s, 1500000);                /* not for long */
	sim_in_time(s, dht_get_wait(s, i, "none", false).n == 1);
}

/* S25 improved: clocks up to ten minutes apart hinder nobody, and every record ends after its life by any clock. */
static void scn_S25_clocks(struct sim *s)
{
	struct dht_world w = { .clock_ms = { 0, 290000, -290000, 0, 120000, -120000 } };
	char key[16];
	dht_add(s, &w, 8);
	dht_joined(s);
	for (int i = 0; i < 8 && !sim_failed(s); i++) {
		snprintf(key, sizeof key, "clock%d", i);
		struct dht_put_end p = dht_put_wait(s, i, key, NULL, json_integer(i), 30000, false);
		if (p.accepted != 8)
			sim_fail(s, "the record of node %d was taken by %u: %s", i, p.accepted, p.text);
		dht_want(s, (i + 3) % 8, key, i);
	}
	/* a clock that is set back does not make the peer's own next record older */
	dht_put_wait(s, 3, "step", NULL, json_integer(1), 600000, false);
	sim_wall_jump(s, 3, -200000);
	sim_check(s, dht_put_wait(s, 3, "step", NULL, json_integer(2), 600000, false).accepted == 8);
	sim_check(s, dht_put_wait(s, 3, "step", NULL, json_integer(3), 600000, false).accepted == 8);
	dht_want(s, 6, "step", 3);
	sim_run_for(s, 31 * SEC);
	for (int i = 0; i < 8 && !sim_failed(s); i++) {
		snprintf(key, sizeof key, "clock%d", i);
		sim_check(s, dht_get_wait(s, (i + 5) % 8, key, true).n == 0);
	}
}

/* S26 improved: a plain value takes the place of a dictionary (S9), but not of records that belong to peers; and one
 * that came before them, with whatever rank, does not keep them out. */
static void scn_S26_plain(struct sim *s)
{
	struct dht_world w = { 0 };
	char hex[2][ID_HEX];
	dht_add(s, &w, 6);
	dht_joined(s);
	for (int i = 0; i < 2; i++) {
		id_hex(net_self(dht_net(s, i)), hex[i]);
		sim_check(s, dht_put_wait(s, i, "who", hex[i], json_integer(i), 60000, true).accepted == 6);
	}
	sim_run_for(s, SEC);
	sim_check(s, dht_put_wait(s, 4, "who", NULL, json_integer(666), 60000, false).accepted == 0);
	sim_check(s, dht_get_wait(s, 3, "who", true).n == 2);

	sim_wall_jump(s, 5, 3000000);           /* ranks as late as allowed; by its clock others are too old */
	sim_check(s, dht_put_wait(s, 5, "early", NULL, json_integer(666), 60000, false).accepted == 6);
	sim_check(s, dht_put_wait(s, 0, "early", hex[0], json_integer(7), 60000, true).accepted == 5);
	struct dht_get_end g = dht_get_wait(s, 2, "early", true);
	sim_check(s, g.n == 1 && !strcmp(g.value, "7"));
	sim_check(s, dht_put_wait(s, 0, "early", "other", json_integer(8), 60000, false).accepted == 5);
}

/* S28: what does not fit a key's rule is refused by those who know it, put by themselves or stored by others, and
 * not believed when found; unknown fields are welcome. S29: of two rules one must fit. S30: rules come and go at any
 * time. */
static const struct dht_field person[] = { { "name", DHT_TEXT, false }, { "age", DHT_COUNT, true }, { 0 } };
static const struct dht_field place[] = { { "at", DHT_NUMBER, false }, { "there", DHT_BOOL, false },
	{ "more", DHT_OBJECT, true }, { 0 } };
static const struct dht_schema person_rule = { "person", false, 60000, person },
	place_rule = { "place", false, 0, place }, mine_rule = { "mine", true, 0, NULL };

static struct dht_put_end put_text(struct sim *s, int node, const char *key, const char *value, uint64_t life_ms)
{
	return dht_put_wait(s, node, key, NULL, json_loads(value, JSON_DECODE_ANY, NULL), life_ms, false);
}

static void scn_S28_schema(struct sim *s)
{
	struct dht_world w = { 0 };
	static const char *const bad[] = { "779.0", "[]", "{}", "{\"name\":1}", "{\"name\":\"x\",\"age\":1.5}",
		"{\"name\":\"x\",\"age\":-1}", "{\"name\":\"x\",\"age\":\"1\"}", "\"\"", "null" };
	dht_add(s, &w, 6);
	dht_joined(s);
	for (int i = 1; i < 6; i++)             /* 0 does not know it */
		dht_expect(dht_of(s, i), "who", &person_rule);
	for (size_t i = 0; i < sizeof bad / sizeof *bad && !sim_failed(s); i++) {
		struct dht_put_end p = put_text(s, 3, "who", bad[i], 30000);
		if (p.accepted || p.code != ERR_INVALID || !strstr(p.text, "person: "))
			sim_fail(s, "%s was taken by %u: %s", bad[i], p.accepted, p.text);
	}
	sim_check(s, put_text(s, 3, "who", "{\"name\":\"x\"}", 90000).code == ERR_INVALID);     /* too long a life */
	struct dht_put_end p = put_text(s, 0, "who", "5", 30000);
	sim_check(s, p.accepted == 1 && p.wanted == 6);         /* by itself */
	sim_check(s, dht_get_wait(s, 4, "who", true).n == 0);
	sim_run_for(s, SEC);
	sim_check(s, put_text(s, 0, "who", "{\"name\":\"x\",\"age\":3,\"new\":[1]}", 30000).accepted == 6);
	sim_check(s, dht_get_wait(s, 4, "who", true).n == 1);
	sim_check(s, put_text(s, 3, "who else", "5", 30000).accepted == 6);

	for (int i = 0; i < 6; i++)
		dht_expect(dht_of(s, i), "who", &place_rule);
	sim_run_for(s, SEC);
	sim_check(s, put_text(s, 2, "who", "{\"at\":1.5,\"there\":true,\"more\":{}}", 30000).accepted == 6);
	sim_check(s, put_text(s, 2, "who", "{\"at\":1.5}", 30000).code == ERR_INVALID);
	sim_run_for(s, SEC);
	sim_check(s, put_text(s, 2, "who", "{\"name\":\"y\"}", 30000).accepted == 5);       /* 0 knows places only */
	for (int i = 0; i < 6; i++) {
		dht_unexpect(dht_of(s, i), "who", &person_rule);
		dht_unexpect(dht_of(s, i), "who", &place_rule);
	}
	sim_run_for(s, SEC);
	sim_check(s, put_text(s, 2, "who", "5", 30000).accepted == 6);
	dht_expect(dht_of(s, 1), "mine", &mine_rule);
	sim_check(s, dht_put_wait(s, 1, "mine", "a", json_object(), 30000, true).code == ERR_INVALID);
	char hex[ID_HEX];
	id_hex(net_self(dht_net(s, 1)), hex);
	sim_check(s, dht_put_wait(s, 1, "mine", hex, json_object(), 30000, true).accepted == 6);
}

int main(int argc, char **argv)
{
	static const struct scn list[] = { SCN(S12_values), SCN(S13_replicas), SCN(S15_few), SCN(S16_alone),
		SCN(S17_client), SCN(S20_silent), SCN(known), SCN(alive_again), SCN(patient), SCN(trace),
		SCN(S21_together), SCN(S22_cache), SCN(S25_clocks),
		SCN(S26_plain), SCN(S28_schema), { 0 } };
	return scn_main(list, argc, argv);
}
