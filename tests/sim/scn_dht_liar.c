/* One member of three tells the others what is not so: what does it cost them? */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "dht/int.h"
#include "dht_world.h"
#include "net/inner.h"

enum { READER, LIAR, OWNER, NODES };
static struct rec *tale;                        /* what it answers whoever asks for a record */
static unsigned asked; static int step;         /* the next page begins so many further; 0: there is none */
static enum { ONE, JUNK, HEAVY, MANY } page;    /* what a page is: JUNK fills its frame with nothing */

static void on_get(void *arg, struct request *req)
{
	struct dht *d = arg;
	struct buf b = { 0 };
	uint64_t at = json_integer_value(json_object_get(req->f.json, "at"));
	unsigned n = page == JUNK || !tale ? 0 : page == HEAVY ? 20 : page == MANY ? STORE_RECS_MAX : 1;
	asked++;
	buf_u8(&b, 0);
	buf_u16(&b, (uint16_t)n);
	for (unsigned i = 0; i < n; i++) {
		if (page != ONE)
			snprintf(tale->subkey, sizeof tale->subkey, "%u", (unsigned)at + i);
		rec_write(&b, tale, env_now(d->env));
	}
	if (page == JUNK)
		memset(buf_grow(&b, GET_BYTES_MAX), 7, GET_BYTES_MAX);
	net_reply(req, step ? json_pack("{s:I}", "next", (json_int_t)at + step) : NULL,
		(struct blob){ .data = b.p, .len = b.len, .release = free, .arg = b.p });
}

static uint32_t many;                   /* that have been named to nobody before */
static unsigned keys;

static void begin(struct sim *s, struct dht_world *w)
{
	many = keys = 0;
	dht_add(s, w, NODES);
	dht_joined(s);
	asked = 0;
	step = 0;
	page = ONE;
	tale = NULL;
	net_on(dht_net(s, LIAR), KIND_DHT_GET, on_get, dht_of(s, LIAR));
}

/* A record of the owner's, signed by it, `old` ms ago. */
static struct rec *told(struct sim *s, const char *key, uint64_t old)
{
	char hex[ID_HEX];
	struct err e;
	id_hex(net_self(dht_net(s, OWNER)), hex);
	json_t *one = json_integer(1);
	struct rec *r = rec_make(dht_of(s, OWNER), key, hex, one, 60000, true, &e);
	json_decref(one);
	r->rank -= old;
	rec_sign(dht_of(s, OWNER), r);
	return r;
}

/* What a peer said of itself an hour ago, for a minute, is no record any more, although its signature is good. */
static void scn_old_record(struct sim *s)
{
	struct dht_world w = { 0 };
	begin(s, &w);
	tale = told(s, "who", 0);
	struct dht_get_end g = dht_get_wait(s, READER, "who", true);
	sim_check(s, g.n == 1);
	rec_free(tale);
	tale = told(s, "who then", 3600000);
	g = dht_get_wait(s, READER, "who then", true);
	if (g.n)
		sim_fail(s, "a record of an hour ago counts");
	sim_in_time(s, asked >= 2);
	rec_free(tale);
}

/* It says that there is more, and more: a question is answered by as many pages as a dictionary can have, full ones. */
static void scn_pages(struct sim *s)
{
	struct dht_world w = { 0 };
	begin(s, &w);
	tale = told(s, "who", 0);
	for (step = 1; step <= 3 && !sim_failed(s); step++) {
		asked = 0;
		struct dht_get_end g = dht_get_wait(s, READER, "who", true);
		sim_check(s, g.done);
		if (asked > 3)
			sim_fail(s, "it was asked %u times", asked);
	}
	rec_free(tale);
}

static struct rec *plain(struct sim *s, const char *key, const char *sub, json_t *value)
{
	struct err e;
	struct rec *r = rec_make(dht_of(s, OWNER), key, sub, value, 60000, false, &e);
	json_decref(value);
	sim_check(s, r);
	return r;
}

/* Pages as full as can be, of which each says that there is one more: of records that are a hundred times as large once
 * they are read, of many, of none at all. Its share is what one key may have, and who is honest is heard beside it. */
static void scn_endless(struct sim *s)
{
	static const struct { int page, step; unsigned most; } rows[] = { { JUNK, 0, 2 }, { HEAVY, 20, 4 },
		{ MANY, STORE_RECS_MAX, DICT_MAX / STORE_RECS_MAX } };
	struct dht_world w = { 0 };
	json_t *dear = json_array();
	begin(s, &w);
	for (int i = 0; i < 4090; i++)
		json_array_append_new(dear, json_object());
	for (size_t i = 0; i < sizeof rows / sizeof *rows && !sim_failed(s); i++) {
		char key[16];
		snprintf(key, sizeof key, "key %zu", i);
		sim_check(s, dht_put_wait(s, OWNER, key, "honest", json_integer(4), 60000, false).accepted >= 1);
		page = (int)rows[i].page;
		step = rows[i].step;
		asked = 0;
		tale = plain(s, key, "x", page == HEAVY ? json_incref(dear) : json_integer(1));
		struct dht_get_end g = dht_get_wait(s, READER, key, true);
		size_t dict = page == JUNK ? 0 : page == HEAVY ? DICT_WEIGHT_MAX / tale->weight : DICT_MAX;
		if (asked > rows[i].most)
			sim_fail(s, "%s: it was asked %u times", key, asked);
		if (g.n != dict + 1)
			sim_fail(s, "%s: %zu records instead of %zu", key, g.n, dict + 1);
		rec_free(tale);
	}
	json_decref(dear);
}

/* The largest that a key may have, in number and in weight: it is read whole, and no record more is taken. */
static void scn_largest(struct sim *s)
{
	struct dht_world w = { 0 };
	struct err e;
	char sub[16];
	json_t *value = json_array();
	begin(s, &w);
	for (int i = 0; i < 32; i++)                    /* 8 KiB once it is read */
		json_array_append_new(value, json_integer(0));
	struct dht *d = dht_of(s, OWNER);
	for (unsigned i = 0; i <= DICT_MAX; i++) {
		snprintf(sub, sizeof sub, "%u", i);
		struct rec *r = plain(s, "large", sub, json_incref(value));
		r->from.b[0] = (uint8_t)i;              /* of many peers */
		enum put_result rc = values_put(&d->values, r, sim_now(s), env_wall(d->env), &e);
		sim_check(s, (rc == PUT_NEW) == (i < DICT_MAX));
	}
	for (int i = 0; i < 256; i++)
		json_array_append_new(value, json_integer(0));
	struct rec *r = plain(s, "large", "7", value);  /* instead of what is there, and heavier */
	sim_check(s, values_put(&d->values, r, sim_now(s), env_wall(d->env), &e) == PUT_REFUSED && e.code == ERR_LIMIT);
	struct dht_get_end g = dht_get_wait(s, READER, "large", true);
	if (g.n != DICT_MAX)
		sim_fail(s, "%zu of %d records", g.n, DICT_MAX);
}

/* A page that is all but full, and a record of the largest as the next one: the frame is sent, and the next follows. */
static void scn_full_page(struct sim *s)
{
	struct dht_world w = { 0 };
	struct err e;
	char sub[SUBKEY_MAX + 1], text[VALUE_MAX - 1] = { 0 };
	begin(s, &w);
	struct dht *d = dht_of(s, OWNER);
	for (unsigned i = 0; i < 20; i++) {
		size_t len = i == 14 ? 14150 : sizeof text - 1;
		memset(text, 'x', sizeof text);
		text[len] = 0;
		snprintf(sub, sizeof sub, "%079u", i);
		sim_check(s, values_put(&d->values, plain(s, "large", sub, json_string(text)), sim_now(s), env_wall(d->env),
			&e) == PUT_NEW);
	}
	struct dht_get_end g = dht_get_wait(s, READER, "large", true);
	if (g.n != 20 || dht_shunned(dht_of(s, READER), net_self(d->net)))
		sim_fail(s, "%zu of 20 records, %s", g.n, g.e.text);
}

static void stored(void *arg, const struct frame *f, const struct err *e)
{
	unsigned *good = arg;
	*good += f && store_accepted(f);
}

static void banned(struct sim *s, const char *for_what)
{
	struct peer *p = peer_find(dht_net(s, READER), net_self(dht_net(s, LIAR)));
	if (!p || !p->banned_until_us)
		sim_fail(s, "it is not banned for %s", for_what);
}

/* Records whose signature is wrong: none is taken, and who goes on with them is banned; the third is served all along.
 * A STORE that wants no answer is not even looked at. */
static void scn_forged(struct sim *s)
{
	struct dht_world w = { 0 };
	unsigned good = 0;
	begin(s, &w);
	tale = told(s, "who", 0);
	struct buf b = { 0 };
	store_add(&b, tale, sim_now(s));
	net_post(dht_net(s, LIAR), net_self(dht_net(s, READER)), KIND_DHT_STORE, json_object(),
		(struct blob){ .data = b.p, .len = b.len, .release = free, .arg = b.p }, CLASS_control);
	sim_run_for(s, SEC);
	sim_check(s, dht_records(s, READER) == 0);
	tale->sig[3] ^= 1;
	for (int i = 0; i < 300; i++) {
		b = (struct buf){ 0 };
		store_add(&b, tale, sim_now(s));
		store_send(dht_of(s, LIAR), net_self(dht_net(s, READER)), &b, stored, &good);
		sim_run_for(s, 10000);
	}
	sim_run_for(s, SEC);
	if (good || dht_records(s, READER))
		sim_fail(s, "%u were taken", good);
	banned(s, "them");
	sim_check(s, dht_put_wait(s, OWNER, "mine", NULL, json_integer(4), 60000, false).accepted >= 2);
	dht_want(s, READER, "mine", 4);
	rec_free(tale);
}

/* The same in answers: nothing of it is found. */
static void scn_forged_answers(struct sim *s)
{
	struct dht_world w = { 0 };
	char key[16];
	begin(s, &w);
	tale = told(s, "who", 0);                       /* signed for another key than is asked */
	for (int i = 0; i < 150; i++) {
		snprintf(key, sizeof key, "key %d", i);
		struct dht_get_end g = dht_get_wait(s, READER, key, true);
		sim_check(s, g.n == 0);
	}
	banned(s, "wrong signatures");
	rec_free(tale);
}

/* Questions that want no answer are none. */
static void scn_posts(struct sim *s)
{
	struct dht_world w = { 0 };
	static const uint8_t key[32];
	begin(s, &w);
	for (int i = 0; i < 300; i++) {
		net_post(dht_net(s, LIAR), net_self(dht_net(s, READER)), i % 2 ? KIND_DHT_FIND : KIND_DHT_GET, json_object(),
			(struct blob){ .data = key, .len = sizeof key }, CLASS_control);
		sim_run_for(s, 10000);
	}
	banned(s, "posts");
}

/* ---- the address book ---- */

static void nothing(void *arg, const struct look_end *l)
{
}

/* Its answer names 200 that nobody has heard of. */
static void crowd(struct sim *s, struct lookup *l)
{
	struct buf b = { 0 };
	struct id key = { 0 };
	buf_u8(&b, 200);
	for (unsigned i = 0; i < 200; i++) {
		struct id id = { .b = { 9 } };
		struct endpoint at = { .ip = { [10] = 0xff, [11] = 0xff, [12] = 77 }, .port = { 1, 2, 3 } };
		many++;
		memcpy(id.b + 20, &many, sizeof many);
		memcpy(at.ip + 13, &many, 3);
		node_write(&b, &id, &at);
	}
	struct rd r = rd_of(b.p, b.len);
	sim_check(s, lookup_take(dht_of(s, READER), l, net_self(dht_net(s, LIAR)), &key, false, &r, NULL));
	buf_free(&b);
}

/* Nodes that it has made up are heard of, as few as an answer may name; they displace each other in a full book, and
 * nobody whom the reader knows from a session. */
static void scn_crowd(struct sim *s)
{
	struct dht_world w = { 0 };
	begin(s, &w);
	struct net *net = dht_net(s, READER);
	struct peer *owner = peer_find(net, net_self(dht_net(s, OWNER)));
	struct lookup *l = lookup_new(dht_of(s, READER), net_self(net), LOOK_NODES, nothing, NULL);
	size_t before = map_len(net->peers);
	crowd(s, l);
	if (map_len(net->peers) != before + TABLE_BUCKET)
		sim_fail(s, "%zu peers are heard of", map_len(net->peers) - before);
	net->conf.peers_max = 10;
	sim_check(s, !list_empty(&owner->sessions));
	crowd(s, l);
	if (peer_find(net, net_self(dht_net(s, OWNER))) != owner)
		sim_fail(s, "a peer with a session made room for a stranger");
	if (sim_failed(s))
		return;
	peer_drop_sessions(owner);
	crowd(s, l);
	if (peer_find(net, net_self(dht_net(s, OWNER))) != owner || map_len(net->peers) != before + TABLE_BUCKET)
		sim_fail(s, "a peer that had a session made room for a stranger");
}

/* ---- copies ---- */

struct given { bool done; unsigned records; };

static void saw(void *arg, const struct frame *f, const struct err *e)
{
	struct given *g = arg;
	struct rd r = f ? rd_of(f->blob, f->blob_len) : (struct rd){ .bad = true };
	unsigned nodes = rd_u8(&r);
	rd_bytes(&r, nodes * NODE_BYTES);
	g->done = true;
	g->records = rd_u16(&r);
}

/* How many records the reader gives to who asks it. */
static unsigned gives(struct sim *s, const char *key)
{
	static struct given g;
	static struct id id;
	g = (struct given){ 0 };
	id_of(&id, key, strlen(key));
	net_call(dht_net(s, OWNER), net_self(dht_net(s, READER)), KIND_DHT_GET, NULL,
		(struct blob){ .data = id.b, .len = 32 }, CLASS_control, 2 * SEC, saw, &g);
	sim_await(s, dht_flag, &g.done, 5 * SEC);
	return g.records;
}

static void copy_to_reader(struct sim *s, const char *key, const char *sub, json_t *value)
{
	struct rec *r = plain(s, key, sub, value);
	store_copy(dht_of(s, LIAR), net_self(dht_net(s, READER)), r);
	rec_free(r);
	sim_run_for(s, SEC / 10);
}

/* A copy that it brings hides nothing from who has it, and is given to others only when it can be no part of a
 * dictionary. */
static void scn_copies_hide(struct sim *s)
{
	struct dht_world w = { .conf = { .k = 1 } };
	char key[16];
	struct entry *en = NULL;
	struct id id;
	begin(s, &w);
	for (int i = 0; !en && !sim_failed(s); i++) {   /* one that lies with its owner */
		snprintf(key, sizeof key, "key %d", i);
		for (int k = 0; k < 3; k++)
			dht_put_wait(s, OWNER, key, (const char *[]){ "a", "b", "c" }[k], json_integer(k), 600000, false);
		id_of(&id, key, strlen(key));
		en = values_get(&dht_of(s, OWNER)->values, &id, sim_now(s));
		en = en && en->n == 3 && !values_get(&dht_of(s, READER)->values, &id, sim_now(s)) ? en : NULL;
	}
	copy_to_reader(s, key, "d", json_integer(7));
	if (gives(s, key))
		sim_fail(s, "a part of a dictionary is given to others");
	struct dht_get_end g = dht_get_wait(s, READER, key, false);
	if (g.n != 3)
		sim_fail(s, "%zu of 3 records beside a part", g.n);
	cache_forget(dht_of(s, READER), &id);
	copy_to_reader(s, key, "", json_integer(7));
	sim_in_time(s, gives(s, key) == 1);
	g = dht_get_wait(s, READER, key, false);
	if (g.n != 3)
		sim_fail(s, "%zu of 3 records beside a plain value", g.n);
}

static bool nothing_left(struct sim *s, void *arg)
{
	const struct dht *d = arg;
	return !d->copies && !map_len(d->values.quota) && !d->cache_weight;
}

/* Copies are its own records: a few, and no more than its share of the bytes. They end with nothing left. */
static void scn_copies_share(struct sim *s)
{
	struct dht_world w = { .conf = { .bytes_max = 400000 } };
	char key[16], text[16001] = { 0 };
	begin(s, &w);
	struct dht *d = dht_of(s, READER);
	memset(text, 'x', sizeof text - 1);
	for (int i = 0; i < 20; i++) {
		snprintf(key, sizeof key, "large %d", i);
		copy_to_reader(s, key, "", json_string(text));
	}
	if (d->copies != 6)                             /* 16 202 bytes each, of 100 000 */
		sim_fail(s, "%zu large copies", d->copies);
	struct rec *r = plain(s, "mine", NULL, json_string(text));
	struct buf b = { 0 };
	unsigned good = 0;
	store_add(&b, r, sim_now(s));
	store_send(dht_of(s, LIAR), net_self(dht_net(s, READER)), &b, stored, &good);
	rec_free(r);
	sim_run_for(s, SEC);
	if (good)
		sim_fail(s, "a record of who has used up its share is taken");
	sim_run_for(s, 40 * SEC);
	sim_await(s, nothing_left, d, 0);
	for (int i = 0; i < 100; i++) {
		snprintf(key, sizeof key, "small %d", i);
		copy_to_reader(s, key, "", json_integer(i));
	}
	if (d->copies != 32)
		sim_fail(s, "%zu small copies", d->copies);
}

/* ---- signatures, as good as can be, and too many ---- */

struct count { unsigned good, busy; };

static void counted(void *arg, const struct frame *f, const struct err *e)
{
	struct count *c = arg;
	c->good += f && store_accepted(f);
	c->busy += !f && e->code == ERR_BUSY;
}

/* A frame of n records under keys that nobody has had, each signed by who sends it. */
static void store_signed(struct sim *s, int from, unsigned n, struct count *c)
{
	struct dht *d = dht_of(s, from);
	struct buf b = { 0 };
	struct err e;
	json_t *one = json_integer(1);
	for (unsigned i = 0; i < n; i++) {
		char key[16];
		snprintf(key, sizeof key, "%u", keys++);
		struct rec *r = rec_make(d, key, NULL, one, 60000, true, &e);
		sim_check(s, r && store_add(&b, r, sim_now(s)));
		rec_free(r);
	}
	json_decref(one);
	store_send(d, net_self(dht_net(s, READER)), &b, counted, c);
}

/* What one brings waits for a lane of its own, no more than has a place there; others are served meanwhile. */
static void scn_signatures(struct sim *s)
{
	struct dht_world w = { 0 };
	static struct count lots, few, other;   /* outlive a run that is late */
	lots = few = other = (struct count){ 0 };
	begin(s, &w);
	sim_lane_slow(s, READER, "reduce", 100000);
	store_signed(s, OWNER, 40, &other);
	sim_run_for(s, SEC / 2);
	sim_in_time(s, other.good == 1);
	sim_lane_slow(s, READER, "verify", 1000);
	for (int i = 0; i < 200; i++)
		store_signed(s, LIAR, 1, &few);
	sim_run_for(s, SEC / 2);
	if (few.good < 8 || few.good > 64 + 8)
		sim_late(s, "%u of 200 were checked on the loop", few.good);
	store_signed(s, OWNER, 2, &other);
	sim_run_for(s, SEC / 2);
	sim_in_time(s, other.good == 2);
	sim_lane_slow(s, READER, "verify", 1);
	sim_run_for(s, 20 * SEC);
	for (int i = 0; i < 12; i++)
		store_signed(s, LIAR, 400, &lots);
	sim_run_for(s, SEC / 20);
	store_signed(s, OWNER, 2, &other);
	sim_run_for(s, 2 * SEC);
	if (lots.good < 10 || !lots.busy || lots.good + lots.busy != 12)
		sim_late(s, "%u frames are taken and %u refused", lots.good, lots.busy);
	if (other.good != 3)
		sim_late(s, "%u frames of the other are taken while many wait", other.good);
	sim_check(s, !peer_find(dht_net(s, READER), net_self(dht_net(s, LIAR)))->banned_until_us);
}

int main(int argc, char **argv)
{
	static const struct scn list[] = { SCN(old_record), SCN(pages), SCN(endless), SCN(largest),
		SCN(full_page), SCN(forged), SCN(forged_answers), SCN(posts), SCN(signatures), SCN(copies_hide),
		SCN(copies_share), SCN(crowd), { 0 } };
	return scn_main(list, argc, argv);
}
