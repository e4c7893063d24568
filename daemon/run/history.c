/* What the store keeps of a run's history: each commit with the positions that it took, those of a history that has
 * lost apart, and what came of each change that was agreed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "run/int.h"

#define CHANGES_MAX 1000
#define DISCARDED_MAX 10000

/* ---- commits ---- */

/* JSON text of the positions that a commit took; NULL: nobody knows. */
static char *taken(const struct run *r, const struct avg_point *before, const struct avg_point *at)
{
	struct ranges own = { 0 };
	if (!before || !at || r->spec->independent)
		return NULL;
	ranges_copy(&own, &at->done);
	ranges_sub_all(&own, &before->done);
	json_t *j = ranges_json(&own);
	char *text = json_dumps(j, JSON_COMPACT);
	json_decref(j);
	ranges_free(&own);
	return text;
}

static void hex_of(const uint8_t digest[DIGEST], char out[ID_HEX])
{
	struct id id;
	memcpy(id.b, digest, sizeof id.b);
	id_hex(&id, out);
}

void run_put_epoch(struct run *r, const struct trainer_applied *a, bool discarded)
{
	char digest[ID_HEX] = "", prev[ID_HEX] = "";
	/* a commit may have come while this step was still being made: the point of its own epoch counts */
	const struct avg_point *at = run_point_at(r, a->epoch), *before = a->epoch ? run_point_at(r, a->epoch - 1) : NULL;
	const struct run_commit *commit = &r->commits[a->epoch % RUN_POINTS];
	if (commit->epoch != a->epoch)
		commit = &r->commit;
	if (r->avg) {
		hex_of(at ? at->prev : r->point.prev, digest);
		hex_of(before ? before->prev : r->last_prev, prev);
	}
	char *positions = taken(r, before, at);
	store_epoch_put(r->rs->ctx.store, &(struct store_epoch){ .run = r->hex, .digest = digest, .prev = prev,
		.epoch = a->epoch, .samples = at ? at->samples : r->point.samples, .members = r->avg ? commit->members : 1,
		.took_us = env_now(r->rs->ctx.env) - r->epoch_started_us,
		.params_version = at ? at->params_version : r->point.params_version,
		.weight = r->avg ? (double)commit->weight : (double)a->samples, .loss = a->loss, .val_loss = NAN,
		.val_accuracy = NAN, .minority = commit->minority, .discarded = discarded, .positions = positions });
	free(positions);
}

json_t *run_discarded_json(struct run *r)
{
	json_t *rows = store_list(r->rs->ctx.store, STORE_DISCARDED, r->hex, DISCARDED_MAX), *row, *list;
	struct ranges epochs = { 0 }, all = { 0 }, one = { 0 };
	double samples = 0;
	struct err e;
	size_t i;
	json_array_foreach(rows, i, row) {
		const char *text = json_string_value(json_object_get(row, "positions"));
		uint64_t epoch = (uint64_t)json_integer_value(json_object_get(row, "epoch"));
		list = text ? json_loads(text, 0, NULL) : NULL;
		ranges_add(&epochs, epoch, epoch + 1);
		samples += json_number_value(json_object_get(row, "samples"));
		if (list && !ranges_parse(&one, list, &e))
			ranges_add_all(&all, &one);
		ranges_clear(&one);
		json_decref(list);
	}
	json_decref(rows);
	json_t *o = json_pack("{s:o,s:I,s:o}", "epochs", ranges_json(&epochs), "samples", (json_int_t)samples, "positions",
		ranges_json(&all));
	ranges_free(&epochs);
	ranges_free(&all);
	ranges_free(&one);
	return o;
}

void run_remember(struct run *r)
{
	enum { EPOCHS_MAX = 1024 };
	struct store *s = r->rs->ctx.store;
	struct store_link *v = s && r->point.epoch ? xcalloc(EPOCHS_MAX, sizeof *v) : NULL;
	size_t n = v ? store_history(s, r->hex, r->point.epoch, r->point.prev, v, EPOCHS_MAX) : 0;

	while (n--)
		avg_remember(r->avg, v[n].epoch, v[n].digest);
	free(v);
}

char *run_point_text(const struct run *r, const struct avg_point *p, size_t max)
{
	struct avg_point told;
	json_t *j;
	char *text;
	avg_point_init(&told);
	avg_point_copy(&told, p);
	if (r->avg)
		avg_past_of(r->avg, &told);
	j = avg_point_json(&told);
	avg_point_done(&told);
	text = json_dumps(j, JSON_COMPACT | JSON_REAL_PRECISION(17));
	if (strlen(text) > max) {               /* the ledger has many holes: a welcome will tell it */
		free(text);
		json_object_del(j, "past");
		text = json_dumps(j, JSON_COMPACT | JSON_REAL_PRECISION(17));
	}
	json_decref(j);
	return text;
}

/* ---- changes ---- */

static const char *text_of(const json_t *row, const char *key)
{
	const char *v = json_string_value(json_object_get(row, key));
	return v ? v : "";
}

static uint64_t epoch_of(const json_t *row)
{
	return (uint64_t)json_integer_value(json_object_get(row, "epoch"));
}

/* The first change of the key that came into force when this one should have, or later; NULL: none. */
static const json_t *in_place_of(const json_t *rows, const json_t *agreed)
{
	const json_t *row, *ret = NULL;
	size_t i;
	json_array_foreach((json_t *)rows, i, row)
		if (!strcmp(text_of(row, "state"), "applied") && !strcmp(text_of(row, "key"), text_of(agreed, "key")) &&
				epoch_of(row) >= epoch_of(agreed) && (!ret || epoch_of(row) < epoch_of(ret)))
			ret = row;
	return ret;
}

static bool holds(const struct run *r, const json_t *row)
{
	json_t *v = json_loads(text_of(row, "new_value"), JSON_DECODE_ANY, NULL);
	bool ret = v && json_equal(v, json_object_get(r->point.params, text_of(row, "key")));
	json_decref(v);
	return ret;
}

/* The epoch of a change has passed, and the commit that should have had it did not say so. */
static void settle(struct run *r, const json_t *rows, const json_t *row)
{
	const json_t *other = in_place_of(rows, row);
	const char *state = "applied", *value = text_of(row, "new_value"), *key = text_of(row, "key");
	char note[160];
	if (other && !strcmp(text_of(other, "new_value"), value)) {
		snprintf(note, sizeof note, "with version %lld", (long long)json_integer_value(json_object_get(other,
			"version")));
	} else if (other) {
		state = "superseded";
		snprintf(note, sizeof note, "%s: superseded by %.8s at epoch %llu", key, text_of(other, "author"),
			(unsigned long long)epoch_of(other));
	} else if (holds(r, row)) {
		snprintf(note, sizeof note, "it had that value already");
	} else {
		state = "discarded";
		snprintf(note, sizeof note, "agreed in a history that lost a fork");
	}
	if (*state != 'a')
		run_log(r, LOG_WARN_, *state == 's' ? "set.superseded" : "set.discarded", "%s=%s from epoch %llu on: %s", key,
			value, (unsigned long long)epoch_of(row), note);
	store_param_settle(r->rs->ctx.store, r->hex, (uint64_t)json_integer_value(json_object_get(row, "version")), key,
		state, note);
}

void run_settle(struct run *r)
{
	struct store *s = r->rs->ctx.store;
	json_t *rows = s ? store_list(s, STORE_PARAMS, r->hex, CHANGES_MAX) : NULL, *row;
	size_t i;
	r->unsettled = UINT64_MAX;
	json_array_foreach(rows, i, row) {
		uint64_t epoch = epoch_of(row);
		if (strcmp(text_of(row, "state"), "proposed"))
			continue;
		if (epoch <= r->point.epoch)
			settle(r, rows, row);
		else if (epoch < r->unsettled)
			r->unsettled = epoch;
	}
	json_decref(rows);
}

void run_record_params(struct run *r, const struct avg_point *before, const struct avg_point *after,
	const struct id *author)
{
	const char *key;
	json_t *v;
	char who[ID_HEX];
	id_hex(author && !id_zero(author) ? author : &r->author, who);
	if (!r->rs->ctx.store)
		return;
	json_object_foreach(after->params, key, v) {
		json_t *old = before->params ? json_object_get(before->params, key) : NULL;
		if (old && json_equal(old, v))
			continue;
		char *a = old ? json_dumps(old, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15)) : NULL, *b = json_dumps(v,
			JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
		store_param_put(r->rs->ctx.store, &(struct store_param){ .run = r->hex, .key = key, .old_value = a,
			.new_value = b,
			.author = who, .state = "applied", .version = after->params_version, .epoch = after->epoch });
		free(a);
		free(b);
	}
}
