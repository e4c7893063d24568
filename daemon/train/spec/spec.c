/* The specification of a run: reads the whole object, key by key. What kernels answer for is in model.c,
 * digests in canon.c, what changes while the run goes in live.c, the local part and data in local.c. */
#include <stdlib.h>
#include <string.h>
#include "common/hash.h"
#include "common/jrpc.h"
#include "common/mem.h"
#include "common/text.h"
#include "train/spec/int.h"
#include "train/strategy.h"
#include "train/zoo.h"

static int read_strategy(struct spec *s, const json_t *shared, struct err *e)
{
	const struct place top = { "" }, at = place_key(&top, "strategy");
	char names[400];

	memcpy(s->strategy, strategy_at(0)->name, strlen(strategy_at(0)->name) + 1);    /* the first of the list */
	if (read_text(shared, &top, "strategy", s->strategy, sizeof(s->strategy), e) < 0)
		return -1;
	if (!strategy_find(s->strategy))
		return place_unknown(&at, "strategy", s->strategy, strategy_names(names, sizeof(names)), e);
	return 0;
}

static int read_stop(struct spec *s, const json_t *shared, struct err *e)
{
	static const char *const known[] = { "epochs", "samples", "accuracy", NULL };
	const struct place top = { "" }, at = place_key(&top, "stop");
	const json_t *o = json_object_get(shared, "stop");

	if (!o)
		return 0;
	if (read_object(o, &at, e) < 0 || read_known(o, &at, known, e) < 0 ||
	    read_u64(o, &at, "epochs", 1, 1ull << 40, &s->stop_epochs, e) < 0 ||
	    read_u64(o, &at, "samples", 1, 1ull << 60, &s->stop_samples, e) < 0 ||
	    read_real(o, &at, "accuracy", 0, 1, &s->stop_accuracy, e) < 0)
		return -1;
	return 0;
}

int spec_admins(const json_t *v, struct id ret[SPEC_ADMINS_MAX], size_t *ret_n, struct err *e)
{
	const struct place top = { "" }, at = place_key(&top, "admins");
	struct err why;
	char hex[ID_HEX];

	*ret_n = 0;
	if (json_is_array(v) && json_array_size(v) > SPEC_ADMINS_MAX)
		return place_err(&at, e, "must be at most %d peer ids", SPEC_ADMINS_MAX);
	for (size_t i = 0; json_is_array(v) && i < json_array_size(v); i++) {
		const struct place p = place_index(&at, i);
		const char *one = json_string_value(json_array_get(v, i));

		if (!one)
			return place_err(&p, e, "must be a peer id (64 hex digits), and is %s", json_kind(json_array_get(v, i)));
		if (id_parse(&ret[(*ret_n)++], one, &why) < 0)
			return place_err(&p, e, "%s", why.text);
	}
	if (json_is_array(v))
		return 0;
	if (!json_is_string(v))
		return place_err(&at, e, "must be peer ids (64 hex digits each), an array or a text with commas between, "
			"and is %s", json_kind(v));
	for (const char *p = json_string_value(v); *p; p += strcspn(p, ","), p += *p == ',') {
		if (*ret_n == SPEC_ADMINS_MAX)
			return place_err(&at, e, "must be at most %d peer ids", SPEC_ADMINS_MAX);
		snprintf(hex, sizeof hex, "%.*s", (int)strcspn(p, ","), p);
		if (strcspn(p, ",") != ID_HEX - 1 || id_parse(&ret[(*ret_n)++], hex, &why) < 0)
			return place_err(&at, e, "\"%.20s%s\" is no peer id: 64 hex digits, as hivectl key show prints them there",
				hex, strlen(hex) > 20 ? "..." : "");
	}
	return 0;
}

static int read_authority(struct spec *s, const json_t *shared, struct err *e)
{
	const json_t *a = json_object_get(shared, "admins");
	const struct place top = { "" };

	if (read_bool(shared, &top, "open", &s->open, e) < 0)
		return -1;
	return a ? spec_admins(a, s->admin, &s->nadmins, e) : 0;
}

static int read_shared(struct spec *s, struct err *e)
{
	static const char *const known[] = { "input", "model", "loss", "optimizer", "clip_norm", "schedule", "target_batch",
		"strategy", "averaging", "data", "validation", "seed", "stop", "nonfinite_max", "redundancy", "admins", "open",
		"weights", "conv", "precision", "loss_scale", "plan", "name", "local", NULL };
	const struct place top = { "" }, tb = place_key(&top, "target_batch");
	const json_t *o = s->shared;

	s->nonfinite_max = 3;
	if (read_known(o, &top, known, e) < 0 || spec_read_model(s, o, e) < 0 || spec_read_optim(s, o, e) < 0 ||
	    read_strategy(s, o, e) < 0 || spec_read_plan(s, o, e) < 0 || spec_read_averaging(s, o, e) < 0 ||
	    spec_read_data(s, o, e) < 0 ||
	    spec_read_weights(s, o, e) < 0 ||
	    read_stop(s, o, e) < 0 || read_authority(s, o, e) < 0 ||
	    read_u64(o, &top, "seed", 0, INT64_MAX, &s->seed, e) < 0 ||
	    read_u64(o, &top, "target_batch", 1, 1ull << 40, &s->target_batch, e) < 0 ||
	    read_u32(o, &top, "nonfinite_max", 1, 1000000, &s->nonfinite_max, e) < 0 ||
	    read_u32(o, &top, "redundancy", 1, 1000, &s->redundancy, e) < 0)
		return -1;
	if (!s->redundancy)
		s->redundancy = strategy_find(s->strategy)->redundancy ? strategy_find(s->strategy)->redundancy : 1;
	if (!s->target_batch)
		return place_err(&tb, e,
		"is missing: the number of samples that the peers process together per step, such as 256");
	return 0;
}

static void digest_shared(struct spec *s)
{
	char *text = spec_canonical(s->shared);

	sha256_of(text, strlen(text), s->digest);
	free(text);
}

struct spec *spec_of(const char *name, const json_t *shared, const json_t *local, struct err *e)
{
	const struct place top = { "" }, nm = place_key(&top, "name");
	struct spec *s;

	if (!name || !text_name_ok(name) || strlen(name) >= SPEC_NAME) {
		(void)place_err(&nm, e, "must be a name of letters, digits, - _ . (at most %d)", SPEC_NAME - 1);
		return NULL;
	}
	if (read_object(shared, &top, e) < 0)
		return NULL;
	s = xcalloc(1, sizeof(*s));
	memcpy(s->name, name, strlen(name) + 1);
	s->shared = json_deep_copy(shared);
	(void)json_object_del(s->shared, "name");
	(void)json_object_del(s->shared, "local");
	if (zoo_resolve(s->shared, e) < 0 || read_shared(s, e) < 0 || spec_read_local(&s->local, s, local, e) < 0) {
		spec_free(s);
		return NULL;
	}
	if (s->local.batch > s->target_batch)
		s->local.batch = (uint32_t)s->target_batch;
	if (spec_one_batch(s, local, e) < 0) {
		spec_free(s);
		return NULL;
	}
	digest_shared(s);
	return s;
}

struct spec *spec_of_json(const json_t *whole, struct err *e)
{
	const struct place top = { "" };
	json_t *ours;
	struct spec *s;

	if (read_object(whole, &top, e) < 0)
		return NULL;
	ours = json_deep_copy(whole);
	s = spec_aliases(ours, e) < 0 ? NULL : spec_of(json_string_value(json_object_get(ours, "name")), ours,
		json_object_get(ours, "local"), e);
	json_decref(ours);
	return s;
}

struct spec *spec_parse(const char *text, size_t n, struct err *e)
{
	json_t *j = json_read(text, n, JSON_FILE, e);
	struct spec *s;

	if (!j)
		return NULL;
	s = spec_of_json(j, e);
	json_decref(j);
	return s;
}

void spec_free(struct spec *s)
{
	if (!s)
		return;
	for (int i = 0; i < s->nlayers; i++) {
		free((void *)s->layer[i].input);
		free((void *)s->layer[i].attr);
		free((void *)s->layer[i].value);
	}
	free(s->layer);
	json_decref(s->shared);
	free(s);
}

int spec_set_local(struct spec *s, const json_t *local, struct err *e)
{
	struct spec_local l;

	if (spec_read_local(&l, s, local, e) < 0)
		return -1;
	if (l.batch > s->target_batch)
		l.batch = (uint32_t)s->target_batch;
	s->local = l;
	return spec_one_batch(s, local, e);
}

/* The digest of what the author's machine has, into the shared part. */
static void fill(struct spec *s, const char *key, const uint8_t digest[32], uint8_t *ret, bool *ret_has)
{
	struct id id;
	char hex[ID_HEX];

	memcpy(id.b, digest, 32);
	id_hex(&id, hex);
	(void)json_object_set_new(json_object_get(s->shared, key), "digest", json_string(hex));
	memcpy(ret, digest, 32);
	*ret_has = true;
	digest_shared(s);
}

void spec_set_data_digest(struct spec *s, const uint8_t digest[32], uint64_t samples)
{
	s->data_samples = samples;
	(void)json_object_set_new(json_object_get(s->shared, "data"), "samples", json_integer((json_int_t)samples));
	fill(s, "data", digest, s->data_digest, &s->has_data_digest);
}

void spec_set_weights_digest(struct spec *s, const uint8_t digest[32])
{
	fill(s, "weights", digest, s->weights_digest, &s->has_weights_digest);
}
