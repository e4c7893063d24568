/* What operators ask of the distributed hash table: get, put, one key or many, and the trace of a search. */
#include "node/node.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/buf.h"
#include "common/mem.h"
#include "dht/dht.h"

struct dht_ask { struct reply *r; char *key; size_t n; const char **keys; json_t *params; };

static struct dht_ask *ask_new(struct reply *r, const char *key)
{
	struct dht_ask *a = xcalloc(1, sizeof *a);
	a->r = r;
	a->key = xstrdup(key ? key : "");
	return a;
}

static void ask_free(struct dht_ask *a)
{
	json_decref(a->params);
	free(a->keys);
	free(a->key);
	free(a);
}

/* ---- get ---- */

static json_t *records_json(const char *key, const struct record *rec, size_t nrec)
{
	json_t *subkeys = json_object(), *out = json_pack("{s:s,s:I}", "key", key, "records", (json_int_t)nrec);
	for (size_t i = 0; i < nrec; i++) {
		char hex[ID_HEX];
		id_hex(&rec[i].owner, hex);
		json_t *v = json_pack("{s:O,s:f,s:I,s:s,s:b}", "value", rec[i].value, "expires_s", (double)rec[i].life_ms / 1e3,
			"rank", (json_int_t)rec[i].rank, "owner", hex, "signed", rec[i].is_signed);
		if (rec[i].subkey[0]) {
			json_object_set_new(subkeys, rec[i].subkey, v);
		} else {
			json_object_update(out, v);
			json_decref(v);
		}
	}
	if (json_object_size(subkeys))
		json_object_set(out, "subkeys", subkeys);
	json_decref(subkeys);
	return out;
}

static void got(void *arg, const struct record *rec, size_t nrec, const struct err *e)
{
	struct dht_ask *a = arg;
	struct err none;
	if (!e && !nrec)
		err_set(&none, ERR_NOT_FOUND, "dht: nobody has a record under \"%s\"", a->key);
	if (e || !nrec)
		reply_fail(a->r, e ? e : &none);
	else
		reply_ok(a->r, records_json(a->key, rec, nrec));
	ask_free(a);
}

static void got_many(void *arg, const struct dht_many *v, size_t n, const struct err *e)
{
	struct dht_ask *a = arg;
	json_t *list = json_array();
	size_t found = 0;
	for (size_t i = 0; i < n; i++) {
		json_t *one = records_json(a->keys[i], v[i].r, v[i].n);
		found += v[i].n > 0;
		if (v[i].silent)
			json_object_set_new(one, "silent", json_integer(v[i].silent));
		if (v[i].over)
			json_object_set_new(one, "over", json_true());
		json_array_append_new(list, one);
	}
	json_t *out = json_pack("{s:o,s:I,s:I}", "keys", list, "asked", (json_int_t)n, "found", (json_int_t)found);
	if (e) {
		reply_fail(a->r, e);
		json_decref(out);
	} else {
		reply_ok(a->r, out);
	}
	ask_free(a);
}

static void get_many(struct dht *d, struct dht_ask *a, const json_t *keys, bool latest)
{
	struct err e;
	int rc = 0;
	a->n = json_array_size(keys);
	a->keys = xcalloc(a->n + 1, sizeof *a->keys);
	a->params = json_incref((json_t *)(uintptr_t)keys);
	for (size_t i = 0; i < a->n && !rc; i++)
		if (!(a->keys[i] = json_string_value(json_array_get(keys, i))))
			rc = err_set(&e, ERR_INVALID, "keys[%zu] is not a text", i);
	if (!rc && !json_is_array(keys))
		rc = err_set(&e, ERR_INVALID, "keys: expected an array of texts, such as '[\"a\",\"b\"]'");
	if (!rc)
		rc = dht_get_many(d, a->keys, a->n, latest, got_many, a, &e);
	if (!rc)
		return;
	reply_fail(a->r, &e);
	ask_free(a);
}

void node_dht_get(void *arg, const json_t *params, struct reply *r)
{
	const char *key = json_string_value(json_object_get(params, "key"));
	const json_t *keys = json_object_get(params, "keys");
	bool latest = json_is_true(json_object_get(params, "latest"));
	struct err e;
	if (!key == !keys) {
		err_set(&e, ERR_INVALID, "dht get takes one KEY, or --keys with an array of them");
		reply_fail(r, &e);
		return;
	}
	struct dht_ask *a = ask_new(r, key);
	if (keys)
		get_many(node_dht(arg), a, keys, latest);
	else
		dht_get_patient(node_dht(arg), key, latest, got, a);
}

/* ---- put ---- */

static void stored(void *arg, uint32_t accepted, uint32_t wanted, const struct err *e)
{
	struct reply *r = arg;
	if (e)
		reply_fail(r, e);
	else
		reply_ok(r, json_pack("{s:i,s:i}", "accepted", (int)accepted, "replicas", (int)wanted));
}

static void stored_many(void *arg, const struct dht_item_end *v, size_t n, const struct err *e)
{
	struct dht_ask *a = arg;
	json_t *refused = json_object();
	uint32_t least = UINT32_MAX;
	for (size_t i = 0; i < n; i++) {
		least = v[i].accepted < least ? v[i].accepted : least;
		if (v[i].error.code)
			json_object_set_new(refused, a->keys[i], json_string(v[i].error.text));
	}
	if (e)
		reply_fail(a->r, e);
	else
		reply_ok(a->r, json_pack("{s:I,s:I,s:O}", "records", (json_int_t)n, "accepted_at_least", (json_int_t)least,
			"refused", refused));
	json_decref(refused);
	ask_free(a);
}

static void put_many(struct dht *d, struct dht_ask *a, const json_t *records, const char *subkey, uint64_t life_ms)
{
	struct err e;
	const char *key;
	json_t *v;
	size_t n = 0;
	a->n = json_object_size(records);
	a->keys = xcalloc(a->n + 1, sizeof *a->keys);
	a->params = json_incref((json_t *)(uintptr_t)records);
	struct dht_item *items = xcalloc(a->n + 1, sizeof *items);
	json_object_foreach(a->params, key, v) {
		a->keys[n] = key;
		items[n++] = (struct dht_item){ .key = key, .subkey = subkey, .value = json_incref(v), .life_ms = life_ms };
	}
	int rc = json_is_object(records) ? dht_put_many(d, items, n, stored_many, a, &e) :
		err_set(&e, ERR_INVALID, "records: expected an object of keys and values, such as '{\"a\":1}'");
	free(items);
	if (!rc)
		return;
	reply_fail(a->r, &e);
	ask_free(a);
}

void node_dht_put(void *arg, const json_t *params, struct reply *r)
{
	double life_s = 3600;
	struct err e = { 0 };
	const json_t *life = json_object_get(params, "life_s"), *records = json_object_get(params, "records");
	const char *key = json_string_value(json_object_get(params, "key"));
	const char *subkey = json_string_value(json_object_get(params, "subkey"));
	json_t *value = json_object_get(params, "value");
	if (life)
		life_s = json_number_value(life);
	if (!(life_s > 0 && life_s <= 7 * 86400.0))
		err_set(&e, ERR_INVALID, "life_s = %g: a record lives more than 0 s and at most 7 days", life_s);
	else if (records ? key || value : !key || !value)
		err_set(&e, ERR_INVALID, "dht put takes KEY and VALUE, or --records with an object of them");
	if (e.code)
		reply_fail(r, &e);
	else if (records)
		put_many(node_dht(arg), ask_new(r, NULL), records, subkey, (uint64_t)(life_s * 1e3));
	else
		dht_put(node_dht(arg), key, subkey, json_incref(value), (uint64_t)(life_s * 1e3), false, stored, r);
}

/* ---- trace ---- */

static const char *answer_text(const struct dht_hop *h, char out[64])
{
	if (h->state == DHT_HOP_FAILED)
		return "no answer";
	if (h->state == DHT_HOP_OPEN)
		return "not waited for";
	if (h->records)
		snprintf(out, 64, "%u record%s", h->records, h->records == 1 ? "" : "s");
	else
		snprintf(out, 64, "%u nodes, no record", h->nodes);
	return out;
}

static void hop_text(struct buf *b, const struct dht_hop *h)
{
	char at[64], answer[64], peer[9], took[24] = "-";
	if (h->state != DHT_HOP_OPEN)
		snprintf(took, sizeof took, "%.3f", (double)h->took_us / 1e3);
	buf_printf(b, "%3u %10.3f %10s  %s  %-21s %s\n", h->hop, (double)h->asked_us / 1e3, took, id_short(&h->id, peer),
		net_endpoint_text(&h->at, CHAN_CTRL, at), answer_text(h, answer));
}

static json_t *hop_json(const struct dht_hop *h)
{
	static const char *const state[] = { "open", "answered", "failed" };
	char hex[ID_HEX], at[64];
	id_hex(&h->id, hex);
	json_t *j = json_pack("{s:i,s:s,s:s,s:I,s:s,s:i,s:i}", "hop", (int)h->hop, "peer", hex, "address",
		net_endpoint_text(&h->at, CHAN_CTRL, at), "asked_us", (json_int_t)h->asked_us, "state", state[h->state],
		"nodes", (int)h->nodes, "records", (int)h->records);
	if (h->state != DHT_HOP_OPEN)
		json_object_set_new(j, "took_us", json_integer((json_int_t)h->took_us));
	return j;
}

static void traced(void *arg, const struct dht_trace *t, const struct err *e)
{
	struct dht_ask *a = arg;
	struct buf b = { 0 };
	char hex[ID_HEX];
	uint32_t hops = 0;
	if (e) {
		reply_fail(a->r, e);
		ask_free(a);
		return;
	}
	id_hex(&t->key, hex);
	json_t *steps = json_array();
	buf_printf(&b, "key %s\nhop   asked ms    took ms  peer      address               answer\n", hex);
	for (size_t i = 0; i < t->nhop; i++) {
		json_array_append_new(steps, hop_json(&t->hop[i]));
		hop_text(&b, &t->hop[i]);
		if (t->hop[i].records && (!hops || t->hop[i].hop < hops))
			hops = t->hop[i].hop;
	}
	buf_printf(&b, "%zu record%s found", t->nfound, t->nfound == 1 ? "" : "s");
	if (hops)
		buf_printf(&b, " %u hop%s away", hops, hops == 1 ? "" : "s");
	buf_printf(&b, " in %.3f ms; this peer holds %zu itself", (double)t->took_us / 1e3, t->here);
	json_t *out = json_pack("{s:s,s:s,s:I,s:I,s:I,s:i,s:o,s:s}", "key", a->key, "id", hex, "took_us",
		(json_int_t)t->took_us, "found", (json_int_t)t->nfound, "here", (json_int_t)t->here, "hops", (int)hops, "steps",
		steps, "text", (char *)b.p);
	buf_free(&b);
	reply_ok(a->r, out);
	ask_free(a);
}

void node_dht_trace(void *arg, const json_t *params, struct reply *r)
{
	const char *key = json_string_value(json_object_get(params, "key"));
	dht_trace(node_dht(arg), key, json_is_true(json_object_get(params, "latest")), traced, ask_new(r, key));
}
