/* Many keys at once: bulk get and store, dictionaries of several frames, a crowd of single gets. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "dht/int.h"
#include "dht_world.h"

struct counted { uint32_t ends; size_t n; };
static void on_counted(void *arg, const struct record *r, size_t n, const struct err *e)
{
	struct counted *c = arg;
	c->ends++;
	c->n += n;
}

static bool thousand_ends(struct sim *s, void *arg) { return ((struct counted *)arg)->ends == 1000; }

#define BULK 150
struct bulk { bool done; size_t n, found, records; uint32_t least; enum err_code code[BULK + 20];
	size_t each[BULK + 20]; uint32_t silent[BULK + 20]; bool over[BULK + 20]; };

static void on_stored_many(void *arg, const struct dht_item_end *v, size_t n, const struct err *e)
{
	struct bulk *b = arg;
	b->done = true;
	b->n = n;
	b->least = UINT32_MAX;
	for (size_t i = 0; i < n; i++) {
		b->code[i] = v[i].error.code;
		if (v[i].accepted < b->least)
			b->least = v[i].accepted;
	}
}

static void on_got_many(void *arg, const struct dht_many *v, size_t n, const struct err *e)
{
	struct bulk *b = arg;
	b->done = true;
	b->n = n;
	for (size_t i = 0; i < n; i++) {
		b->each[i] = v[i].n;
		b->silent[i] = v[i].silent;
		b->over[i] = v[i].over;
		b->found += v[i].n > 0;
		b->records += v[i].n;
		if (v[i].n == 1 && (size_t)json_integer_value(v[i].r[0].value) != i)
			b->found = SIZE_MAX / 2;        /* somebody else's value */
	}
}

static struct bulk get_bulk(struct sim *s, int node, const char *const *keys, size_t n, bool latest)
{
	struct bulk *b = xcalloc(1, sizeof *b), ret;
	struct err e;
	sim_check(s, !dht_get_many(dht_of(s, node), keys, n, latest, on_got_many, b, &e));
	sim_await(s, dht_flag, &b->done, 60 * SEC);
	ret = *b;
	if (ret.done)
		free(b);
	return ret;
}

static struct bulk put_bulk(struct sim *s, int node, const struct dht_item *items, size_t n)
{
	struct bulk *b = xcalloc(1, sizeof *b), ret;
	struct err e;
	sim_check(s, !dht_put_many(dht_of(s, node), items, n, on_stored_many, b, &e));
	sim_await(s, dht_flag, &b->done, 60 * SEC);
	ret = *b;
	if (ret.done)
		free(b);
	return ret;
}

static uint64_t sent(struct sim *s)
{
	struct sim_stats st;
	sim_stats(s, &st);
	return st.sent;
}

/* Many keys: all stored on k nodes, all found, each with its own value, in few frames, also after deaths. */
static void scn_bulk(struct sim *s)
{
	struct dht_world w = { .conf = { .k = 5 } };
	static char name[BULK + 20][16];
	static const char *keys[BULK + 20];
	struct dht_item items[BULK];
	dht_add(s, &w, 16);
	dht_joined(s);
	sim_run_for(s, SEC);
	for (size_t i = 0; i < BULK + 20; i++) {
		snprintf(name[i], sizeof name[i], "bulk%zu", i);
		keys[i] = name[i];
		if (i < BULK)
			items[i] = (struct dht_item){ name[i], NULL, json_integer((json_int_t)i), i == 7 ? 0 : 600000, false };
	}
	struct bulk b = put_bulk(s, 2, items, BULK);
	sim_check(s, b.n == BULK && b.code[7] == ERR_INVALID && !b.code[8] && b.least == 0);
	sim_check(s, dht_copies(s) >= 5 * (BULK - 1));
	sim_in_time(s, dht_copies(s) == 5 * (BULK - 1));        /* who took it and was not heard makes one more */
	uint64_t before = sent(s);
	b = get_bulk(s, 9, keys, BULK + 20, false);
	sim_check(s, b.n == BULK + 20 && b.found == BULK - 1 && b.each[7] == 0 && b.each[BULK] == 0);
	if (sent(s) - before > 300)
		sim_late(s, "%llu messages for %d keys", (unsigned long long)(sent(s) - before), BULK + 20);
	before = sent(s);
	b = get_bulk(s, 9, keys, BULK, false);
	sim_check(s, b.found == BULK - 1);
	sim_in_time(s, sent(s) - before <= 40);         /* from the cache, but for the missing one */
	for (int i = 0; i < 4; i++)
		sim_power_off(s, i);
	b = get_bulk(s, 11, keys, BULK, true);
	if (b.found != BULK - 1)                /* eight have each, and four died */
		sim_fail(s, "%zu of %d found after 4 of 16 died", b.found, BULK - 1);
}

/* What nobody has is told apart from what those may have who did not answer; what was found is found. */
static void want_silent(struct sim *s, int node, const char *missing, uint32_t silent)
{
	const char *keys[] = { "k", missing };
	for (int latest = 0; latest < 2; latest++) {
		struct bulk b = get_bulk(s, node, keys, 2, latest);
		if (b.found != 1 || b.each[0] != 1 || b.silent[0] || b.silent[1] < silent)
			sim_fail(s, "%zu found, silent %u and %u, not 0 and %u", b.found, b.silent[0], b.silent[1], silent);
		if (b.silent[1] > silent)
			sim_late(s, "%u count as silent, and %u are", b.silent[1], silent);
	}
}

static void scn_bulk_silent(struct sim *s)
{
	struct dht_world w = { 0 };
	dht_add(s, &w, 5);
	dht_joined(s);
	dht_put_wait(s, 0, "k", NULL, json_integer(0), 600000, false);
	want_silent(s, 1, "missing", 0);
	sim_power_off(s, 3);
	sim_power_off(s, 4);
	want_silent(s, 1, "other", 2);          /* that nobody has the first is known there */
	want_silent(s, 0, "other", 2);
	sim_restart(s, 3);
	sim_restart(s, 4);
	sim_run_for(s, 2 * SEC);                /* they join by asking: then they are back at once */
	want_silent(s, 1, "other", 0);
}

/* A dictionary that takes several frames comes whole, and beside it small ones. */
static void scn_bulk_dictionary(struct sim *s)
{
	struct dht_world w = { .conf = { .k = 2 } };
	static char sub[BULK][16];
	struct dht_item items[BULK];
	static const char *keys[] = { "small", "large" };
	char text[4000];
	dht_add(s, &w, 6);
	dht_joined(s);
	memset(text, 'x', sizeof text - 1);
	text[sizeof text - 1] = 0;
	dht_put_wait(s, 1, "small", NULL, json_integer(0), 600000, false);
	for (size_t i = 0; i < BULK; i++) {
		snprintf(sub[i], sizeof sub[i], "s%zu", i);
		items[i] = (struct dht_item){ "large", sub[i], json_string(text), 600000, false };
	}
	sim_check(s, put_bulk(s, 1, items, BULK).least == 2);
	for (int i = 0; i < 6; i++) {
		struct bulk b = get_bulk(s, i, keys, 2, i % 2);
		if (b.each[0] != 1 || b.each[1] != BULK)
			sim_fail(s, "node %d: %zu and %zu records", i, b.each[0], b.each[1]);
		sim_check(s, dht_get_wait(s, i, "large", true).n == BULK);
	}
}

/* Whoever asks for a thousand keys at once gets all of them, a few at a time. */
static void scn_crowd(struct sim *s)
{
	struct dht_world w = { .conf = { .k = 2 } };
	static struct counted c;                /* outlives a failed run */
	char key[16];
	dht_add(s, &w, 10);
	dht_joined(s);
	memset(&c, 0, sizeof c);
	for (int i = 0; i < 1000; i++) {
		snprintf(key, sizeof key, "crowd%d", i);
		dht_put(dht_of(s, i % 3), key, NULL, json_integer(i), 600000, false, NULL, NULL);
	}
	sim_run_for(s, 10 * SEC);
	for (int i = 0; i < 1000; i++) {
		snprintf(key, sizeof key, "crowd%d", i);
		dht_get(dht_of(s, 5), key, true, on_counted, &c);
	}
	sim_run_for(s, 1000);
	size_t asked = 0;
	list_each(it, &dht_of(s, 5)->lookups)
		asked++;
	sim_check(s, asked <= SEARCHES_MAX);
	sim_run_for(s, 20 * SEC);
	sim_await(s, thousand_ends, &c, 0);
	if (c.ends != 1000 || c.n != 1000)
		sim_fail(s, "%u answers with %zu records", c.ends, c.n);
}

/* What the keys of one call find together is bounded, as it is read: five keys of 22 MiB each make more than it may
 * have. Those that found room are whole, the others are said to be over, and whole when they are asked for alone. */
static void scn_bulk_heavy(struct sim *s)
{
	struct dht_world w = { .conf = { .k = 2 } };
	static const char *keys[] = { "heavy0", "heavy1", "light", "heavy2", "heavy3", "heavy4" };
	enum { EACH = 24, KEYS = 6 };
	static char sub[EACH][8];
	struct dht_item items[EACH];
	json_t *dear = json_array();
	dht_add(s, &w, 4);
	dht_joined(s);
	for (int i = 0; i < 4090; i++)
		json_array_append_new(dear, json_object());
	for (int k = 0; k < KEYS && !sim_failed(s); k++) {
		int each = k == 2 ? 1 : EACH;
		for (int i = 0; i < each; i++) {
			snprintf(sub[i], sizeof sub[i], "%d", i);
			items[i] = (struct dht_item){ .key = keys[k], .subkey = sub[i], .life_ms = 600000,
				.value = k == 2 ? json_integer(2) : json_incref(dear) };
		}
		struct bulk p = put_bulk(s, k % 4, items, (size_t)each);
		sim_check(s, p.least >= 1);
	}
	json_decref(dear);
	for (int turn = 0; turn < 2 && !sim_failed(s); turn++) {
		int alone = 0;
		struct bulk b = get_bulk(s, turn, keys, KEYS, true);
		size_t over = 0, whole = 0;
		for (int k = 0; k < KEYS; k++) {
			size_t want = k == 2 ? 1 : EACH;
			over += b.over[k];
			whole += b.each[k] == want;
			alone = b.over[k] ? k : alone;
			if (b.each[k] != (b.over[k] ? 0 : want))
				sim_fail(s, "%s: %zu records", keys[k], b.each[k]);
		}
		if (over < 2 || over + whole != KEYS || b.over[2])
			sim_fail(s, "%zu keys are over, %zu whole", over, whole);
		b = get_bulk(s, turn, &keys[alone], 1, true);
		sim_check(s, b.each[0] == EACH && !b.over[0]);
	}
}

int main(int argc, char **argv)
{
	static const struct scn list[] = { SCN(bulk), SCN(bulk_silent), SCN(bulk_dictionary), SCN(bulk_heavy),
		SCN(crowd), { 0 } };
	return scn_main(list, argc, argv);
}
