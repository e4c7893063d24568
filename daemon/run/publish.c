/* What of a run lies in the DHT: its specification, put there by its author; and the last word on it, which everybody
 * asks for now and then (ctl.c says what it may be). */
#include <stdio.h>
#include "common/buf.h"
#include "common/jrpc.h"
#include "common/planted.h"
#include "run/int.h"
#include "run/packed.h"

#define RUN_LIFE_MS (7ull * 86400 * 1000)
#define WATCH_US 15000000
#define WATCH_PAUSED_US 3000000
#define WATCH_ALONE_US 2000000
#define YOUNG_US 60000000
#define RECORD_MAX 15700                /* with what stands beside it, below JSON_RECORD */

void ctl_key(const char *what, const char *name, char out[160]) { snprintf(out, 160, "%s:%s", what, name); }

/* NULL: it is too large, which is said when len is wanted. */
static json_t *record_of(const struct run *r, size_t *ret_len)
{
	json_t *shared = spec_packed(r->spec->shared, RECORD_MAX, ret_len);
	return shared ? json_pack("{s:s,s:s,s:s,s:o}", "name", r->name, "author", r->author_hex, "run", r->hex, "shared",
		shared) : NULL;
}

void ctl_signed(struct buf *b, const struct id *run, const char *op, uint64_t counter)
{
	buf_put(b, "hivemind-run-ctl-1", 18);
	buf_put(b, run->b, 32);
	buf_str(b, op);
	buf_u64(b, counter);
}

json_t *ctl_word(const struct run *r, const char *op, uint64_t counter)
{
	struct net *net = r->rs->ctx.net;
	struct buf b = { 0 };
	uint8_t sig[SIG_BYTES];
	char self[ID_HEX], key[160];
	ctl_signed(&b, &r->id, op, counter);
	net_sign(net, b.p, b.len, sig);
	buf_free(&b);
	id_hex(net_self(net), self);
	json_t *word = json_pack("{s:s,s:s,s:I,s:s,s:o,s:I}", "run", r->hex, "op", op, "counter", (json_int_t)counter, "by",
		self, "sig", json_hex(sig, sizeof sig), "epoch", (json_int_t)r->point.epoch);
	ctl_key("runctl", r->hex, key);
	dht_put(r->rs->ctx.dht, key, self, json_incref(word), RUN_LIFE_MS, true, NULL, NULL);
	return word;
}

void ctl_publish(struct run *r)
{
	char key[160];
	size_t len;
	json_t *v = record_of(r, &len);
	if (!v) {
		run_log(r, LOG_WARN_, "run.unpublished",
			"the specification takes %zu bytes, and deflated still more than the %d that a DHT record holds: others "
			"can join only with the same file", len, RECORD_MAX);
		return;
	}
	ctl_key("run", r->name, key);
	dht_keep(r->rs->ctx.dht, key, r->author_hex, json_incref(v), RUN_LIFE_MS, true);
	ctl_key("run", r->hex, key);
	dht_keep(r->rs->ctx.dht, key, r->author_hex, v, RUN_LIFE_MS, true);
}

/* Nothing keeps its records any more. Its author leaves one that says so, for as long as records live: who comes later
 * is not to begin it from nothing. */
void ctl_unpublish(struct run *r)
{
	const char *names[] = { r->name, r->hex };
	size_t len;
	bool all = r->mine && !id_zero(&r->id) && r->point.params && ended_for_all(r) && !PLANTED(END_UNTOLD);
	json_t *v = all ? record_of(r, &len) : NULL;
	if (v)
		json_object_set_new(v, "ended", ended_of(r));
	for (int k = 0; k < 2; k++) {
		char key[160];
		ctl_key("run", names[k], key);
		dht_unkeep(r->rs->ctx.dht, key, r->author_hex);
		if (v)
			dht_put(r->rs->ctx.dht, key, r->author_hex, json_incref(v), RUN_LIFE_MS, true, NULL, NULL);
	}
	json_decref(v);
}

static void watch_again(struct timer *t)
{
	struct run *r = container_of(t, struct run, ctl_timer);
	if (!run_over(r))
		ctl_watch(r);
}

/* A word goes to the members of the moment; whoever was not reached then, or came back later, hears it from the DHT. */
void ctl_watch(struct run *r)
{
	char key[160];
	r->ctl_timer.fire = watch_again;
	r->ctl_timer.name = "run.ctl";
	uint64_t now = env_now(r->rs->ctx.env);
	r->watched_us = r->watched_us ? r->watched_us : now;
	bool young = now - r->watched_us < YOUNG_US, asks = ended_asks(r, young);
	bool often = r->avg && !r->mine && (r->ended_us || (young && (r->made_last < 2 || !run_has_others(r))));
	env_after(r->rs->ctx.env, &r->ctl_timer, often ? WATCH_ALONE_US : r->paused ? WATCH_PAUSED_US : WATCH_US);
	struct ask *a = ask_new(r->rs, r, NULL);
	a->open++;
	ctl_key("runctl", r->hex, key);
	dht_get(r->rs->ctx.dht, key, true, r->rs->calls->watched, a);
	if (!asks)
		return;
	a = ask_new(r->rs, r, NULL);
	a->open++;
	ctl_key("run", r->hex, key);
	dht_get(r->rs->ctx.dht, key, true, r->rs->calls->ended, a);
}
