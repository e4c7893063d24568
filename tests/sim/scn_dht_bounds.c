/* What a node keeps of what others bring or it has found, and how many signatures wait: each figure of the page's table
 * (hivemind-protocol(7), Bounds) is reached, and no more. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "dht/int.h"
#include "dht_world.h"
#include "net/inner.h"

/* ---- what was found, and copies that others bring: bounded in number and weight ---- */

#define MIB (1u << 20)

static struct rec *found(struct sim *s, unsigned k, uint32_t weight, unsigned from)
{
	char value[] = "1";
	struct rec r = { .value = value, .vlen = 1, .weight = weight, .ends_us = sim_now(s) + 600 * SEC };
	memcpy(r.key.b, &k, sizeof k);
	memcpy(r.from.b, &from, sizeof from);
	return rec_copy(&r);
}

/* It was found under key k; is it remembered? */
static bool remembers(struct sim *s, struct dht *d, unsigned k, uint32_t weight)
{
	struct list recs = LIST_INIT(recs);
	struct rec *r = found(s, k, weight, 0);
	struct id key = r->key;
	list_push(&recs, &r->link);
	found_put(d, &key, &recs);
	recs_free(&recs);
	return map_get(d->cache, key.b, sizeof key.b) != NULL;
}

static void scn_found(struct sim *s)
{
	struct dht_world w = { .conf = { .k = 2 } };
	dht_add(s, &w, 2);
	dht_joined(s);
	struct dht *d = dht_of(s, 0);
	unsigned k = 0;
	for (; k < 1100; k++)
		if (!remembers(s, d, k, 10) || map_len(d->cache) > 1024)
			sim_fail(s, "key %u: %zu are remembered", k, map_len(d->cache));
	struct id gone = { 0 }, oldest = { 0 };
	memcpy(gone.b, &(unsigned){ k - 1025 }, sizeof k);
	memcpy(oldest.b, &(unsigned){ k - 1024 }, sizeof k);
	sim_check(s, map_len(d->cache) == 1024 && !map_get(d->cache, gone.b, 32) && map_get(d->cache, oldest.b, 32));
	for (unsigned i = 0; i < 12; i++, k++)
		if (!remembers(s, d, k, 7 * MIB) || d->cache_weight > 64 * MIB)
			sim_fail(s, "large key %u: %zu bytes are remembered", i, d->cache_weight);
	sim_check(s, d->cache_weight >= 9 * 7 * MIB);
	sim_check(s, remembers(s, d, k, 8 * MIB) && !remembers(s, d, k, 8 * MIB + 1));
}

/* The i-th copy that this peer brings. */
static void copy(struct sim *s, unsigned i, unsigned from)
{
	struct rec *r = found(s, 1000000 + i, 10, from);
	copy_put(dht_of(s, 0), r);
	rec_free(r);
}

static bool has_copy(struct sim *s, unsigned i)
{
	struct id key = { 0 };
	memcpy(key.b, &(unsigned){ 1000000 + i }, sizeof i);
	return map_get(dht_of(s, 0)->cache, key.b, 32) != NULL;
}

static void scn_copies(struct sim *s)
{
	struct dht_world w = { .conf = { .k = 2 } };
	dht_add(s, &w, 2);
	dht_joined(s);
	const struct dht *d = dht_of(s, 0);
	for (unsigned i = 0; i < 10 * 40; i++) {
		size_t most = (i / 40) * 32 + (i % 40 < 32 ? i % 40 + 1 : 32);
		copy(s, i, 1 + i / 40);
		if (d->copies != (most < 256 ? most : 256))
			sim_fail(s, "%zu copies after %u", d->copies, i + 1);
	}
	sim_check(s, !has_copy(s, 40 + 31) && has_copy(s, 80) && has_copy(s, 360 + 31));        /* the oldest went */
}

/* They count as records of who has brought them, beside those that are held for it. */
static void scn_copies_count(struct sim *s)
{
	struct dht_world w = { .conf = { .k = 2, .per_peer_max = 20 } };
	dht_add(s, &w, 2);
	dht_joined(s);
	for (unsigned i = 0; i < 40; i++)
		copy(s, i, 1);
	if (dht_of(s, 0)->copies != 20)
		sim_fail(s, "%zu copies, of 20 records", dht_of(s, 0)->copies);
	copy(s, 40, 2);
	sim_check(s, has_copy(s, 40));
}

/* ---- signatures: on the loop, and in line for their lane ---- */

struct line { struct sim *s; struct dht *d, *signer; unsigned keys, done; size_t frames, signs, bytes; };

static void verified(void *arg, struct list *good, size_t bad)
{
	struct line *l = arg;
	l->done++;
	if (bad)
		sim_fail(l->s, "%zu honest records are refused", bad);
}

static struct id peer(unsigned k)
{
	struct id id = { { 0 } };
	memcpy(id.b, &k, sizeof k);
	id.b[31] = 0x5a;
	return id;
}

/* A frame of n records from that peer, each with a value of so many bytes. True: its signatures were looked at now. */
static bool brings(struct line *l, unsigned from, unsigned n, size_t bytes)
{
	static char text[16001];
	struct list recs = LIST_INIT(recs);
	struct id id = peer(from);
	struct err e = { 0 };
	unsigned before = l->done;
	memset(text, 'x', sizeof text - 1);
	json_t *value = json_stringn(text, bytes);
	l->frames++;
	l->signs += n;
	for (unsigned i = 0; i < n; i++) {
		char key[16];
		snprintf(key, sizeof key, "%u", l->keys++);
		struct rec *r = rec_make(l->signer, key, NULL, value, 600000, true, &e);
		sim_check(l->s, r != NULL);
		l->bytes += r->vlen + sizeof *r;
		list_push(&recs, &r->link);
	}
	json_decref(value);
	dht_verify(l->d, &recs, &id, false, &e, verified, l);
	return l->done > before;
}

static bool full(const struct line *l, unsigned from)
{
	struct id id = peer(from);
	return verify_full(l->d, &id);
}

/* It outlives the scenario, as what waits in it does. */
static struct line *line(struct sim *s)
{
	static struct dht_world w;
	static struct line l;
	w = (struct dht_world){ .conf = { .k = 2 } };
	dht_add(s, &w, 2);
	dht_joined(s);
	sim_lane_slow(s, 0, "verify", 1000000);
	l = (struct line){ .s = s, .d = dht_of(s, 0), .signer = dht_of(s, 1) };
	return &l;
}

static void scn_on_loop(struct sim *s)
{
	struct line *l = line(s);
	sim_run_for(s, 2 * SEC);
	sim_check(s, !brings(l, 1, 9, 1) && brings(l, 2, 8, 1));
	for (unsigned k = 1; k < 8; k++)
		sim_check(s, brings(l, 2, 8, 1));
	sim_check(s, !brings(l, 2, 1, 1));     /* 64 of it in this second */
	unsigned n = 64;
	for (unsigned from = 3; from < 60; from++)      /* some of them share their 64: room is not lost by that */
		for (int k = 0; k < 4; k++)
			n += brings(l, from, 8, 1) ? 8 : 0;
	if (n != 512)
		sim_fail(s, "%u signatures on the loop within a second", n);
	sim_check(s, !brings(l, 60, 1, 1));
	sim_run_for(s, SEC + 1000);
	sim_check(s, brings(l, 61, 8, 1));
}

/* Of one peer: frames, signatures, bytes; the other has room meanwhile. */
static void scn_line_of_one(struct sim *s)
{
	struct { unsigned n; size_t bytes, frames; } rows[] = { { 9, 1, 128 }, { 512, 1, 8 }, { 9, 16000, 0 } };
	struct line *l = line(s);
	for (unsigned k = 0; k < 3; k++) {
		l->frames = l->bytes = 0;
		while (!full(l, 1 + k) && l->frames < 200)
			brings(l, 1 + k, rows[k].n, rows[k].bytes);
		size_t last = l->bytes / l->frames;
		if (rows[k].frames ? l->frames != rows[k].frames : l->bytes < 4 * MIB || l->bytes - last >= 4 * MIB)
			sim_fail(s, "of one peer %zu frames of %u records wait, %zu bytes", l->frames, rows[k].n, l->bytes);
		sim_check(s, !full(l, 100));
	}
}

/* Of all, none of whom has used up its own: so many frames, or 0: 32 MiB. */
static void of_all(struct sim *s, unsigned n, size_t bytes, size_t frames)
{
	struct line *l = line(s);
	while (!full(l, 5000) && l->frames < 2000) {
		unsigned from = 1 + (unsigned)l->frames % 64;
		sim_check(s, !full(l, from));
		brings(l, from, n, bytes);
	}
	size_t last = l->bytes / l->frames;
	if (frames ? l->frames != frames : l->bytes < 32 * MIB || l->bytes - last >= 32 * MIB)
		sim_fail(s, "%zu frames of %u records wait, %zu bytes", l->frames, n, l->bytes);
}

static void scn_frames_of_all(struct sim *s) { of_all(s, 9, 1, 1024); }
static void scn_signs_of_all(struct sim *s) { of_all(s, 512, 1, 32); }
static void scn_bytes_of_all(struct sim *s) { of_all(s, 9, 16000, 0); }

/* ---- answers: of one, of several, for many keys ---- */

enum { READER, LIAR /* the first of them */, NODES = 4 };

static void ended(void *arg, const struct look_end *l)
{
}

/* A search of the reader's that goes no further by itself. */
static struct lookup *search(struct sim *s, const struct id *key)
{
	struct lookup *l = lookup_new(dht_of(s, READER), key, LOOK_VALUE, ended, NULL);
	l->stepping = true;
	return l;
}

static void answers(struct sim *s, struct lookup *l, int liar, struct buf *b)
{
	struct rd r = rd_of(b->p, b->len);
	sim_check(s, lookup_take(dht_of(s, READER), l, net_self(dht_net(s, liar)), &l->target, true, &r, NULL));
	buf_free(b);
}

/* How often it has been struck; the clock stands still meanwhile. */
static unsigned strikes(struct sim *s, int liar)
{
	const struct limit *l = &peer_find(dht_net(s, READER), net_self(dht_net(s, liar)))->guard.strikes;
	return l->at_us ? (unsigned)(100 - l->tokens + 0.5) : 0;
}

static struct id named(unsigned k)
{
	struct id id = { .b = { 9 } };
	memcpy(id.b + 20, &k, sizeof k);
	return id;
}

/* It names n that nobody has heard of, from number k on, each with so many addresses. */
static void names(struct sim *s, struct lookup *l, unsigned k, unsigned n, unsigned addresses)
{
	struct buf b = { 0 };
	buf_u8(&b, (uint8_t)(n * addresses));
	for (unsigned i = 0; i < n * addresses; i++) {
		struct id id = named(k + i / addresses);
		struct endpoint at = { .ip = { [10] = 0xff, [11] = 0xff, [12] = 77 }, .port = { 1, 2, 3 } };
		unsigned no = (k + i / addresses) * 16 + i % addresses;
		memcpy(at.ip + 13, &no, 3);
		node_write(&b, &id, &at);
	}
	buf_u16(&b, 0);
	answers(s, l, LIAR, &b);
}

/* The book is full of peers that have spoken. Whoever was of use within ten minutes makes no room for whom an answer
 * names, and each of the others does. */
static void useful(struct sim *s, struct lookup *l)
{
	struct net *n = dht_net(s, READER);
	uint64_t now = sim_now(s) + 700 * SEC;
	unsigned k = 100000, in = 0;
	sim_run_for(s, 700 * SEC);
	list_each(it, &n->peer_list) {
		struct peer *p = list_entry(it, struct peer, link);
		p->heard_us = now;
		p->used_us = p->used_us > now - 600 * SEC ? p->used_us : now - 600 * SEC;
	}
	names(s, l, k, 20, 1);
	for (unsigned i = 0; i < 20; i++, k++) {
		struct id id = named(k);
		in += peer_find(n, &id) != NULL;
	}
	if (in)
		sim_fail(s, "%u whom an answer names took the place of peers that were of use", in);
	list_each(it, &n->peer_list) {
		struct peer *p = list_entry(it, struct peer, link);
		if (in < 7 && p->used_us == now - 600 * SEC && !peer_busy(p)) {
			p->used_us--;
			in++;
		}
	}
	names(s, l, k, 20, 1);
	for (unsigned i = 0; i < 20; i++, k++) {
		struct id id = named(k);
		in -= peer_find(n, &id) != NULL;
	}
	if (in || map_len(n->peers) != 4096)
		sim_fail(s, "%u of no use have kept their place; the book has %zu", in, map_len(n->peers));
}

static void scn_named(struct sim *s)
{
	struct dht_world w = { .conf = { .k = 2 } };
	dht_add(s, &w, NODES);
	dht_joined(s);
	struct map *book = dht_net(s, READER)->peers;
	struct id key = peer(7);
	struct lookup *l = search(s, &key);
	size_t before = map_len(book);
	names(s, l, 0, 20, 12);
	for (unsigned k = 0; k < 20; k++) {
		struct id id = named(k);
		struct peer *p = peer_find(dht_net(s, READER), &id);
		if (!p || 1 + p->also.n != 8)
			sim_fail(s, "peer %u has %u addresses", k, p ? 1 + p->also.n : 0);
	}
	sim_check(s, map_len(book) == before + 20 && !strikes(s, LIAR));
	names(s, l, 100, 21, 1);
	if (map_len(book) != before + 40 || strikes(s, LIAR) != 1)
		sim_fail(s, "%zu are heard of, %u strikes", map_len(book) - before, strikes(s, LIAR));
	for (unsigned k = 1000; k < 1000 + 210 * 20; k += 20)
		names(s, l, k, 20, 1);
	if (map_len(book) != 4096)
		sim_fail(s, "the book has %zu peers", map_len(book));
	sim_check(s, strikes(s, LIAR) == 1);
	useful(s, l);
}

/* It answers with n records of its own. */
static void tells(struct sim *s, struct lookup *l, int liar, unsigned n, json_t *value)
{
	struct buf b = { 0 };
	struct err e;
	buf_u8(&b, 0);
	buf_u16(&b, (uint16_t)n);
	for (unsigned i = 0; i < n; i++) {
		char sub[16];
		snprintf(sub, sizeof sub, "%d.%u", liar, i);
		struct rec *r = rec_make(dht_of(s, liar), "key", sub, value, 600000, false, &e);
		rec_write(&b, r, sim_now(s));
		rec_free(r);
	}
	answers(s, l, liar, &b);
}

/* What is found of those that all have told, and what is dropped. */
static void want(struct sim *s, const struct lookup *l, size_t found, uint64_t surplus, const unsigned struck[3])
{
	const struct dht *d = dht_of(s, READER);
	if (list_len(&l->found) != found || d->surplus != surplus)
		sim_fail(s, "%zu found, not %zu, and %llu dropped, not %llu", list_len(&l->found), found,
			(unsigned long long)d->surplus, (unsigned long long)surplus);
	for (int k = 0; k < 3; k++)
		if (strikes(s, LIAR + k) != struck[k])
			sim_fail(s, "liar %d: %u strikes, not %u", k, strikes(s, LIAR + k), struck[k]);
}

/* Three liars: the first has more than a key may have, the two others as much, and the third finds no room. */
static void scn_told(struct sim *s)
{
	struct dht_world w = { .conf = { .k = 2 } };
	struct id key;
	struct err e;
	dht_add(s, &w, NODES);
	dht_joined(s);
	id_of(&key, "key", 3);
	json_t *one = json_integer(1), *dear = json_array();
	struct lookup *l = search(s, &key);
	tells(s, l, LIAR, 5000, one);
	want(s, l, 4096, 904, (unsigned[]){ 1, 0, 0 });
	tells(s, l, LIAR + 1, 4096, one);
	want(s, l, 8192, 904, (unsigned[]){ 1, 0, 0 });
	tells(s, l, LIAR + 2, 4096, one);
	want(s, l, 8192, 5000, (unsigned[]){ 1, 0, 0 });
	for (int i = 0; i < 4090; i++)
		json_array_append_new(dear, json_object());
	struct rec *r = rec_make(dht_of(s, LIAR), "key", "x", dear, 600000, false, &e);
	unsigned each = 32 * MIB / r->weight, all = 64 * MIB / r->weight;
	rec_free(r);
	l = search(s, &key);
	tells(s, l, LIAR, each + 3, dear);
	want(s, l, each, 5003, (unsigned[]){ 2, 0, 0 });
	tells(s, l, LIAR + 1, each, dear);
	tells(s, l, LIAR + 2, each, dear);
	want(s, l, all, 5003 + 3 * each - all, (unsigned[]){ 2, 0, 0 });
	json_decref(one);
	json_decref(dear);
}

/* Of the keys of one call: whose records find no room has none, for good; what others give back is room again. */
static void scn_many(struct sim *s)
{
	struct budget b = { 0 };
	struct portion p[18];
	struct list recs = LIST_INIT(recs), one = LIST_INIT(one);
	for (unsigned i = 0; i < 18; i++)
		p[i] = (struct portion){ .of = &b };
	for (unsigned i = 0; i < 4096; i++)
		list_push(&recs, &found(s, i, 10, 0)->link);
	list_push(&one, &found(s, 0, 10, 0)->link);
	for (unsigned i = 0; i < 16; i++)
		sim_check(s, portion_take(&p[i], &recs));
	sim_check(s, b.n == 65536 && !portion_take(&p[16], &one) && p[16].cut && b.n == 65536);
	sim_check(s, portion_take(&p[0], &one) && b.n == 15 * 4096 + 1);
	sim_check(s, !portion_take(&p[16], &one) && portion_take(&p[17], &one) && b.n == 15 * 4096 + 2);
	recs_free(&recs);
	b = (struct budget){ 0 };
	for (unsigned i = 0; i < 10; i++)
		p[i] = (struct portion){ .of = &b };
	list_push(&recs, &found(s, 0, 8 * MIB, 0)->link);
	for (unsigned i = 0; i < 8; i++)
		sim_check(s, portion_take(&p[i], &recs));
	sim_check(s, b.weight == 64 * MIB && !portion_take(&p[8], &one) && b.weight == 64 * MIB);
	recs_free(&recs);
	recs_free(&one);
}

int main(int argc, char **argv)
{
	static const struct scn list[] = { SCN(found), SCN(copies), SCN(copies_count), SCN(named), SCN(told), SCN(many),
		SCN(on_loop), SCN(line_of_one), SCN(frames_of_all), SCN(signs_of_all), SCN(bytes_of_all), { 0 } };
	return scn_main(list, argc, argv);
}
