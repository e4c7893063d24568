/* What a node keeps of what others bring or it has found, and how many signatures wait: each figure of the page's table
 * (hivemind-protocol(7), Bounds) is reached, and no more. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "dht/int.h"
#include "dht_world.h"

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
	sim_check(s, map_len(d->cache) == 1024);
	for (unsigned i = 0; i < 12; i++, k++)
		if (!remembers(s, d, k, 7 * MIB) || d->cache_weight > 64 * MIB)
			sim_fail(s, "large key %u: %zu bytes are remembered", i, d->cache_weight);
	sim_check(s, d->cache_weight >= 9 * 7 * MIB);
	sim_check(s, remembers(s, d, k, 8 * MIB) && !remembers(s, d, k, 8 * MIB + 1));
	for (unsigned i = 0; i < 10 * 40; i++) {
		struct rec *r = found(s, 1000000 + i, 10, 1 + i / 40);
		copy_put(d, r);
		size_t most = (i / 40) * 32 + (i % 40 < 32 ? i % 40 + 1 : 32);
		rec_free(r);
		if (d->copies != (most < 256 ? most : 256))
			sim_fail(s, "%zu copies after %u", d->copies, i + 1);
	}
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

int main(int argc, char **argv)
{
	static const struct scn list[] = { SCN(found), SCN(on_loop), SCN(line_of_one), SCN(frames_of_all),
		SCN(signs_of_all), SCN(bytes_of_all), { 0 } };
	return scn_main(list, argc, argv);
}
