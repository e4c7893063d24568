/* Other names of settings: those of the systems that this program makes, as papers and other programs write them
 * (hivemind-spec(5), OTHER NAMES). They are read from what an operator gives and from nowhere else, into our own names,
 * before anything is checked or hashed: a spec has one digest, however it was written. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "train/spec/int.h"
#include "train/strategy.h"

/* The object at key of o; a new one when there is none, NULL when something else is there: its reader will say so. */
static json_t *inside(json_t *o, const char *key)
{
	json_t *v = json_object_get(o, key);

	if (v)
		return json_is_object(v) ? v : NULL;
	(void)json_object_set_new(o, key, v = json_object());
	return v;
}

/* v, which was said as `said`, becomes section.key of whole (key, without a section). Takes v. */
static int put(json_t *whole, const char *said, const char *section, const char *key, json_t *v, struct err *e)
{
	const struct place at = { "" }, here = place_key(&at, said);
	json_t *o = section ? inside(whole, section) : whole, *old = json_object_get(o, key);
	char *a, *b;

	if (!o || (old && !json_equal(old, v))) {
		a = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
		b = json_dumps(old ? old : json_object_get(whole, section), JSON_ENCODE_ANY | JSON_COMPACT);
		(void)place_err(&here, e, "is %.40s, and %s%s%s is %.40s: they are one setting; give one of them", a,
			section ? section : "", section ? "." : "", key, b);
		free(a);
		free(b);
		json_decref(v);
		return -1;
	}
	(void)json_object_set_new(o, key, v);
	return 0;
}

/* Takes key out of o; NULL when it is not there. */
static json_t *taken(json_t *o, const char *key)
{
	json_t *v = json_incref(json_object_get(o, key));

	(void)json_object_del(o, key);
	return v;
}

/* Words that mean others: pairs, NULL at the end. Takes v and returns what it means. */
static json_t *meant(json_t *v, const char *const *pairs)
{
	const char *word = json_string_value(v);

	for (; word && pairs && *pairs; pairs += 2)
		if (!strcmp(word, pairs[0])) {
			json_decref(v);
			return json_string(pairs[1]);
		}
	return v;
}

/* key of the object `from` of whole (of whole itself when NULL) as section.to. */
static int move(json_t *whole, const char *from, const char *key, const char *section, const char *to,
	const char *const *pairs, struct err *e)
{
	json_t *o = from ? json_object_get(whole, from) : whole, *v = json_is_object(o) ? taken(o, key) : NULL;
	char said[240];

	(void)snprintf(said, sizeof said, "%s%s%s", from ? from : "", from ? "." : "", key);
	return v ? put(whole, said, section, to, meant(v, pairs), e) : 0;
}

/* What is always so here: key may say it, and nothing else. */
static int always(json_t *o, const struct place *at, const char *key, const char *words, const char *why,
	struct err *e)
{
	const struct place p = place_key(at, key);
	json_t *v = json_is_object(o) ? taken(o, key) : NULL;
	const char *word = json_string_value(v);
	bool good = !v;

	for (const char *w = words; word && *w; w += strcspn(w, " "), w += *w == ' ')
		good |= strlen(word) == strcspn(w, " ") && !strncmp(w, word, strlen(word));
	if (!good)
		(void)place_err(&p, e, "may be %s and nothing else here: %s", words, why);
	json_decref(v);
	return good ? 0 : -1;
}

/* "STRATEGY": {...}: its settings are those of averaging. */
static int strategy_keys(json_t *whole, struct err *e)
{
	const char *key, *k, *mine = json_string_value(json_object_get(whole, "strategy"));
	json_t *v, *one;
	void *next, *tmp;
	char said[120];

	json_object_foreach_safe(whole, next, key, v) {
		const struct planner_ops *p = strategy_find(key);
		const struct place at = { "" }, here = place_key(&at, key);

		if (!p)
			continue;
		if (!json_is_object(v))
			return place_err(&here, e, "must be an object with settings of that strategy, and is %s: how it sums is "
				"not chosen (every member sums one part for all)", json_kind(v));
		if (strcmp(mine ? mine : strategy_at(0)->name, key))
			return place_err(&here, e, "has settings of that strategy, and this spec's is %s", mine ? mine :
				strategy_at(0)->name);
		json_object_foreach_safe(v, tmp, k, one) {
			bool target = !strcmp(k, "target_batch_size");
			const char *section = target ? NULL : spec_plan_has(p, k) ? "plan" : "averaging";

			(void)snprintf(said, sizeof said, "%s.%s", key, k);
			if (put(whole, said, section, target ? "target_batch" : k, json_incref(one), e) < 0)
				return -1;
		}
		(void)json_object_del(whole, key);
	}
	return 0;
}

/* "stages", "replicas", "micro_batches", "micro_batch_size", "remat" where the strategy has it, and a "schedule" that
 * is a word are of the plan; one that is an object is of lr. */
static int plan_keys(json_t *whole, struct err *e)
{
	static const char *const keys[] = { "stages", "replicas", "micro_batches", "micro_batch_size", "remat", NULL };
	const char *name = json_string_value(json_object_get(whole, "strategy"));
	const struct planner_ops *p = strategy_find(name ? name : strategy_at(0)->name);
	bool remat = p && spec_plan_has(p, "remat");    /* of who does not have it: each peer's own */

	for (size_t i = 0; keys[i]; i++)
		if ((remat || strcmp(keys[i], "remat")) && move(whole, NULL, keys[i], "plan", keys[i], NULL, e) < 0)
			return -1;
	return json_is_string(json_object_get(whole, "schedule")) ?
		move(whole, NULL, "schedule", "plan", "schedule", NULL, e) : 0;
}

/* "layers": "4-7", by number: so many layers, when no stage before it has others. */
static void stage_keys(json_t *whole)
{
	json_t *list = json_object_get(json_object_get(whole, "plan"), "stages"), *o;
	unsigned long long next = 0;
	size_t i;

	json_array_foreach(list, i, o) {
		const char *text = json_string_value(json_object_get(o, "layers"));
		unsigned a, b;
		char shown[40];

		if (!text || sscanf(text, "%9u-%9u", &a, &b) != 2 || a != next || b < a)
			return;
		(void)snprintf(shown, sizeof shown, "%u-%u", a, b);
		if (strcmp(shown, text))
			return;
		next = b + 1ull;
	}
	json_array_foreach(list, i, o) {
		unsigned a = 0, b = 0;

		(void)sscanf(json_string_value(json_object_get(o, "layers")), "%9u-%9u", &a, &b);
		(void)json_object_set_new(o, "layers", json_integer(b - a + 1));
	}
}

/* "lr": {...}: the schedule. */
static int schedule_keys(json_t *whole, struct err *e)
{
	const struct place at = { "lr" };
	json_t *o = json_object_get(whole, "lr"), *warm = json_object_get(o, "warmup"), *v;
	const char *key;
	void *tmp;
	char said[120];

	if (!json_is_object(o))
		return 0;
	/* one epoch is one step of all */
	if (json_is_string(json_object_get(o, "unit")) && always(o, &at, "unit", "step he", "a schedule counts epochs, "
			"each of which is one step of the swarm", e) < 0)
		return -1;
	if (json_object_get(o, "scaling") && !json_object_get(o, "base_batch"))
		return place_err(&at, e, "\"scaling\" needs \"base_batch\", the batch for which the rate was found");
	if (always(o, &at, "scaling", "linear", "no other rule is built", e) < 0 ||
	    move(whole, "lr", "schedule", "schedule", "name", NULL, e) < 0)
		return -1;
	if (json_is_object(warm)) {
		static const char *const to[][2] = { { "epochs", "warmup" }, { "granularity", "granularity" }, { "from",
			"warmup_from" } };

		json_incref(warm);
		(void)json_object_del(o, "warmup");
		for (size_t i = 0; i < sizeof to / sizeof *to; i++) {
			(void)snprintf(said, sizeof said, "lr.warmup.%s", to[i][0]);
			if ((v = taken(warm, to[i][0])) && put(whole, said, "schedule", to[i][1], v, e) < 0) {
				json_decref(warm);
				return -1;
			}
		}
		json_object_foreach(warm, key, v)       /* unknown, and then said to be */
			(void)json_object_set(o, key, v);
		json_decref(warm);
	}
	json_object_foreach_safe(o, tmp, key, v) {      /* key goes with its value */
		(void)snprintf(said, sizeof said, "%s", key);
		if (move(whole, "lr", said, "schedule", said, NULL, e) < 0)
			return -1;
	}
	if (json_object_size(o))
		return place_err(&at, e, "has a key that is longer than any");
	(void)json_object_del(whole, "lr");
	return 0;
}

/* "model": {"layers": [...]}, {"type": "gpt", "hidden": ...}, or a name with "stem" and "classes" beside it. */
static int model_keys(json_t *whole, struct err *e)
{
	static const char *const kinds[] = { "gpt", "gpt2", NULL }, *const orders[] = { "megatron", "pre", NULL };
	static const char *const to[][2] = { { "hidden", "width" }, { "ln", "norm" }, { "type", "zoo" } };
	static const char *const beside[] = { "stem", "classes" };
	json_t *m = json_object_get(whole, "model"), *seq;

	for (size_t i = 0; json_is_string(m) && i < 2; i++)
		if (json_object_get(whole, beside[i])) {
			(void)json_object_set_new(whole, "model", m = json_pack("{s:O}", "zoo", m));
			break;
		}
	for (size_t i = 0; json_is_object(m) && i < 2; i++)
		if (move(whole, NULL, beside[i], "model", beside[i], NULL, e) < 0)
			return -1;
	if (json_is_object(m) && json_object_size(m) == 1 && json_is_array(json_object_get(m, "layers"))) {
		(void)json_object_set(whole, "model", json_object_get(m, "layers"));
		return 0;
	}
	if (!json_is_object(m) || !json_object_get(m, "type"))  /* models of the zoo have parameters of these names, too */
		return 0;
	for (size_t i = 0; i < sizeof to / sizeof *to; i++)
		if (move(whole, "model", to[i][0], "model", to[i][1], i ? i == 1 ? orders : kinds : NULL, e) < 0)
			return -1;
	seq = taken(m, "seq");          /* as long as a sequence can be */
	if (seq && !json_object_get(m, "positions"))
		(void)json_object_set(m, "positions", seq);
	return seq ? put(whole, "model.seq", "model", "context", seq, e) : 0;
}

/* "source": "KIND:PATH". */
static int source_keys(json_t *whole, struct err *e)
{
	json_t *o = json_object_get(whole, "data"), *v = json_is_object(o) ? taken(o, "source") : NULL;
	const char *text = json_string_value(v), *colon = text && *text != '/' ? strchr(text, ':') : NULL;
	int rc = !v ? 0 : !text ? put(whole, "data.source", "local", "data", json_incref(v), e) :
		put(whole, "data.source", "local", "data", json_string(colon ? colon + 1 : text), e);

	if (rc == 0 && colon)
		rc = put(whole, "data.source", "data", "kind", json_stringn(text, (size_t)(colon - text)), e);
	json_decref(v);
	return rc;
}

/* Short names of losses, alone or as the type of an object. */
static void loss_keys(json_t *whole)
{
	static const char *const names[] = { "ce", "cross_entropy", "bce", "bce_with_logits", NULL };
	json_t *v = json_object_get(whole, "loss"), *o = json_is_object(v) ? v : whole;
	const char *key = o == v ? "type" : "loss";
	json_t *name = taken(o, key);

	if (name)
		(void)json_object_set_new(o, key, meant(name, names));
}

/* What is so without a word needs none: a spec has one digest. */
static void precision_key(json_t *whole)
{
	const char *word = json_string_value(json_object_get(whole, "precision"));

	if (word && !strcmp(word, "fp32"))
		(void)json_object_del(whole, "precision");
}

/* "every": "he", "20 steps". */
static void validation_keys(json_t *whole)
{
	json_t *o = json_object_get(whole, "validation");
	const char *text = json_string_value(json_object_get(o, "every"));
	char *end = NULL;
	unsigned long long n = text ? strtoull(text, &end, 10) : 0;

	if (text && (!strcmp(text, "he") || (n && n < 1ull << 40 && (!strcmp(end, " steps") || !strcmp(end, " step")))))
		(void)json_object_set_new(o, "every", json_integer(n ? (json_int_t)n : 1));
}

/* "remat" is of the local part, and so are layers with "checkpoint": true: they become their names there. */
static int remat_keys(json_t *whole, struct err *e)
{
	json_t *model = json_object_get(whole, "model"), *names = json_array(), *o, *v, *r;
	size_t i;
	char number[24];
	int rc = move(whole, NULL, "remat", "local", "remat", NULL, e);

	for (i = 0; rc == 0 && json_is_array(model) && i < json_array_size(model); i++) {
		o = json_array_get(model, i);
		v = json_is_object(o) ? taken(o, "checkpoint") : NULL;
		(void)snprintf(number, sizeof number, "%zu", i);
		if (v && !json_is_boolean(v)) {
			const struct place top = { "model" }, at = place_index(&top, i), here = place_key(&at, "checkpoint");

			rc = place_err(&here, e, "must be true or false, and is %s", json_kind(v));
		} else if (json_is_true(v)) {
			const char *name = json_string_value(json_object_get(o, "name"));

			(void)json_array_append_new(names, json_string(name ? name : number));
		}
		json_decref(v);
	}
	if (rc == 0 && json_array_size(names)) {
		o = inside(whole, "local");
		r = json_object_get(o, "remat");
		if (o && (!r || json_is_string(r)))
			(void)json_object_set_new(o, "remat", r ? json_pack("{s:O}", "policy", r) : json_object());
		r = json_object_get(o, "remat");
		if (json_is_object(r) && json_object_get(r, "checkpoints"))
			rc = put(r, "\"checkpoint\": true", NULL, "checkpoints", json_incref(names), e);
		else if (json_is_object(r))
			(void)json_object_set(r, "checkpoints", names);
	}
	json_decref(names);
	return rc;
}

int spec_aliases(json_t *whole, struct err *e)
{
	static const char *const bytes[] = { "uint8-uniform", "uniform8", "uint8-quantile", "quantile8", NULL };
	const struct place top = { "" }, optimizer = { "optimizer" };

	loss_keys(whole);
	validation_keys(whole);
	precision_key(whole);
	if (strategy_keys(whole, e) < 0 || plan_keys(whole, e) < 0)
		return -1;
	stage_keys(whole);
	return schedule_keys(whole, e) < 0 || model_keys(whole, e) < 0 ||
		remat_keys(whole, e) < 0 || source_keys(whole, e) < 0 ||
		move(whole, NULL, "sync_every", "averaging", "sync_every", NULL, e) < 0 ||
		move(whole, NULL, "async", "averaging", "async", NULL, e) < 0 ||
		move(whole, NULL, "wire", "averaging", "codec", bytes, e) < 0 ||
		move(whole, NULL, "error_feedback", "averaging", "error_feedback", NULL, e) < 0 ||
		move(whole, NULL, "batch", "local", "batch", NULL, e) < 0 ||
		move(whole, NULL, "vcpus", "local", "threads", NULL, e) < 0 ||
		move(whole, "data", "workers", "local", "workers", NULL, e) < 0 ||
		move(whole, "data", "prefetch", "local", "prefetch", NULL, e) < 0 ||
		always(json_object_get(whole, "optimizer"), &optimizer, "impl", "plain fused host",
			"a step is one vectorised pass over all tensors, with the bits of any other", e) < 0 ||
		always(whole, &top, "compression", "none", "what travels is encoded by averaging.codec", e) < 0 ? -1 : 0;
}
