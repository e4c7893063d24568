/* Data, validation and the local part of a spec. */
#include <stdlib.h>
#include <string.h>
#include "common/text.h"
#include "train/data/data.h"
#include "train/spec/int.h"
#include "train/strategy.h"

static int read_validation(struct spec *s, const json_t *shared, struct err *e)
{
	static const char *const known[] = { "split", "every", NULL };
	const struct place top = { "" }, at = place_key(&top, "validation");
	const json_t *o = json_object_get(shared, "validation");

	s->validation_every = SPEC_VALIDATION_AUTO;
	if (!o)
		return 0;
	return read_object(o, &at, e) < 0 || read_known(o, &at, known, e) < 0 ||
		read_real(o, &at, "split", 0, 0.9, &s->validation_split, e) < 0 ||
		read_u64(o, &at, "every", 0, 1ull << 40, &s->validation_every, e) < 0 ? -1 : 0;
}

/* "digest" of o: what the author's files hold, filled in by the author's daemon. */
static int read_digest(const json_t *o, const struct place *at, uint8_t ret[32], bool *ret_has, struct err *e)
{
	const struct place p = place_key(at, "digest");
	const json_t *v = json_object_get(o, "digest");
	struct err why;
	struct id id;

	if (!v)
		return 0;
	if (!json_is_string(v) || id_parse(&id, json_string_value(v), &why) < 0)
		return place_err(&p, e, "must be 64 hex digits (leave it out: it is filled in)");
	memcpy(ret, id.b, 32);
	*ret_has = true;
	return 0;
}

int spec_read_weights(struct spec *s, const json_t *shared, struct err *e)
{
	static const char *const known[] = { "digest", NULL };
	const struct place top = { "" }, at = place_key(&top, "weights");
	const json_t *o = json_object_get(shared, "weights");

	s->has_weights = o != NULL;
	return !o ? 0 : read_object(o, &at, e) < 0 || read_known(o, &at, known, e) < 0 ? -1 :
		read_digest(o, &at, s->weights_digest, &s->has_weights_digest, e);
}

static int read_order(struct spec *s, const json_t *data, const struct place *data_at, struct err *e)
{
	const struct place at = place_key(data_at, "order");
	char order[32] = "ledger";

	if (read_text(data, data_at, "order", order, sizeof(order), e) < 0)
		return -1;
	s->independent = !strcmp(order, "independent");
	if (!s->independent && strcmp(order, "ledger"))
		return place_unknown(&at, "order", order, "ledger independent", e);
	if (s->independent && !strategy_find(s->strategy)->needs_swarm)
		return place_err(&at, e, "\"independent\" is for peers that average, and strategy %s has one peer, whose order "
			"is its own anyway: leave it out", s->strategy);
	return 0;
}

int spec_read_data(struct spec *s, const json_t *shared, struct err *e)
{
	static const char *const known[] = { "name", "kind", "digest", "samples", "count", "steps",
		"broken_max", "materialize_after", "order", NULL };
	const struct place top = { "" }, at = place_key(&top, "data"), nm = place_key(&at, "name");
	const struct place kd = place_key(&at, "kind");
	const json_t *o = json_object_get(shared, "data");
	char names[200];

	if (read_object(o, &at, e) < 0 || read_known(o, &at, known, e) < 0 ||
	    read_text(o, &at, "name", s->data_name, sizeof(s->data_name), e) < 0)
		return -1;
	if (!text_name_ok(s->data_name))
		return place_err(&nm, e, "must be a name of letters, digits, - _ . (at most %d); the path is local.data",
			SPEC_NAME - 1);
	memcpy(s->data_kind, "idx", 4);
	if (read_text(o, &at, "kind", s->data_kind, sizeof(s->data_kind), e) < 0)
		return -1;
	if (!data_find(s->data_kind))
		return place_unknown(&kd, "kind of data", s->data_kind, data_names(names, sizeof(names)), e);
	s->data_count = 4096;
	s->broken_max = 100;
	if (read_u64(o, &at, "broken_max", 0, 1ull << 40, &s->broken_max, e) < 0)
		return -1;
	if (read_u64(o, &at, "count", 1, 1ull << 40, &s->data_count, e) < 0 ||
	    read_u64(o, &at, "samples", 1, 1ull << 40, &s->data_samples, e) < 0)
		return -1;
	if (json_object_get(o, "count") && strcmp(s->data_kind, "synthetic"))
		return place_err(&at, e, "\"count\" is for synthetic data; %s files know their own", s->data_kind);
	return read_order(s, o, &at, e) < 0 || read_digest(o, &at, s->data_digest, &s->has_data_digest, e) < 0 ||
		spec_read_steps(s, o, &at, e) < 0 ? -1 :
		read_validation(s, shared, e);
}

int spec_read_local(struct spec_local *l, const struct spec *s, const json_t *o, struct err *e)
{
	static const char *const known[] = { "data", "batch", "threads", "workers", "prefetch", "memory", "deterministic",
		"checkpoint_every", "checkpoint_keep", "log", "vocab", "weights", "cache", "aux", "hold", "remat", NULL };
	const struct place top = { "" }, at = place_key(&top, "local");

	*l = (struct spec_local){ .remat.policy = "none", .batch = 32, .workers = 1, .checkpoint_every = 20,
		.checkpoint_keep = 3 };
	if (!o)
		return 0;
	return read_object(o, &at, e) < 0 || read_known(o, &at, known, e) < 0 ||
		read_text(o, &at, "data", l->data, sizeof(l->data), e) < 0 ||
		read_text(o, &at, "weights", l->weights, sizeof(l->weights), e) < 0 ||
		read_text(o, &at, "vocab", l->vocab, sizeof(l->vocab), e) < 0 ||
		read_text(o, &at, "cache", l->cache, sizeof(l->cache), e) < 0 ||
		read_u32(o, &at, "batch", 1, 1 << 20, &l->batch, e) < 0 ||
		read_u32(o, &at, "threads", 0, 1024, &l->threads, e) < 0 ||
		read_u32(o, &at, "workers", 1, 64, &l->workers, e) < 0 ||
		read_u32(o, &at, "prefetch", 0, 64, &l->prefetch, e) < 0 ||
		read_size(o, &at, "memory", &l->memory_bytes, e) < 0 ||
		read_bool(o, &at, "deterministic", &l->deterministic, e) < 0 ||
		read_bool(o, &at, "aux", &l->aux, e) < 0 || read_bool(o, &at, "hold", &l->hold, e) < 0 ||
		read_u32(o, &at, "checkpoint_every", 0, UINT32_MAX, &l->checkpoint_every, e) < 0 ||
		read_u32(o, &at, "checkpoint_keep", 1, 1000, &l->checkpoint_keep, e) < 0 ||
		read_size(o, &at, "log", &l->log_bytes, e) < 0 || spec_read_remat(l, s, o, e) < 0 ? -1 : 0;
}

json_t *spec_local_json(const struct spec *s)
{
	const struct spec_local *l = &s->local;
	json_t *o = json_object();

	if (l->data[0])
		(void)json_object_set_new(o, "data", json_string(l->data));
	if (l->weights[0])
		(void)json_object_set_new(o, "weights", json_string(l->weights));
	if (l->cache[0])
		(void)json_object_set_new(o, "cache", json_string(l->cache));
	if (l->vocab[0])
		(void)json_object_set_new(o, "vocab", json_string(l->vocab));
	(void)json_object_set_new(o, "batch", json_integer(l->batch));
	(void)json_object_set_new(o, "threads", json_integer(l->threads));
	(void)json_object_set_new(o, "workers", json_integer(l->workers));
	(void)json_object_set_new(o, "prefetch", json_integer(l->prefetch));
	(void)json_object_set_new(o, "memory", json_integer((json_int_t)l->memory_bytes));
	(void)json_object_set_new(o, "deterministic", json_boolean(l->deterministic));
	(void)json_object_set_new(o, "aux", json_boolean(l->aux));
	(void)json_object_set_new(o, "hold", json_boolean(l->hold));
	(void)json_object_set_new(o, "checkpoint_every", json_integer(l->checkpoint_every));
	(void)json_object_set_new(o, "checkpoint_keep", json_integer(l->checkpoint_keep));
	(void)json_object_set_new(o, "log", json_integer((json_int_t)l->log_bytes));
	(void)json_object_set_new(o, "remat", spec_remat_json(s));
	return o;
}
