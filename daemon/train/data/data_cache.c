/* Materialization: the first steps' result of every sample in a cache, made beside training by small jobs of the data
 * lane. Whatever goes wrong with it, training goes on from the source, and somebody hears of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/hash.h"
#include "common/mem.h"
#include "common/rng.h"
#include "train/data/cache_int.h"
#include "train/data/data_int.h"

#define AT_ONCE 8                               /* samples of one job */
#define LOOK_EVERY 256                          /* samples, until it is looked whether another daemon was quicker */

static uint64_t entries(const struct data *d)
{
	return d->source->count[DATA_TRAIN] + d->source->count[DATA_VALIDATION];
}

static void told(struct data *d, enum cache_state state, const struct err *e)
{
	data_lock(d);
	d->cache_error = e ? *e : (struct err){ .code = ERR_NONE };
	data_unlock(d);
	atomic_store(&d->cache_state, state);
}

/* What the samples of a cache depend on: where the source is and what is done with it; and the source itself. */
static void identify(struct data *d, const char *path, const struct spec *s)
{
	json_t *steps = json_object_get(json_object_get(s->shared, "data"), "steps"), *first = json_array();
	uint64_t way[] = { sizeof(real), s->input.nd == 3 ? s->input.d[0] : 0, (uint64_t)d->materialize };
	uint64_t number[] = { d->source->stamp, d->source->count[DATA_TRAIN], d->source->count[DATA_VALIDATION] };
	struct sha256 h;
	char *text;

	for (size_t i = 0; i < s->materialize_listed; i++)
		(void)json_array_append(first, json_array_get(steps, i));
	text = spec_canonical(first);
	sha256_init(&h);
	sha256_add(&h, path, strlen(path) + 1);
	sha256_add(&h, d->source->ops->name, strlen(d->source->ops->name) + 1);
	sha256_add(&h, way, sizeof(way));
	sha256_add(&h, text, strlen(text));
	sha256_end(&h, d->cache_id.name);
	sha256_init(&h);
	sha256_add(&h, d->cache_id.name, sizeof(d->cache_id.name));
	sha256_add(&h, d->source->digest, sizeof(d->source->digest));
	sha256_add(&h, number, sizeof(number));
	sha256_end(&h, d->cache_id.key);
	free(text);
	json_decref(first);
}

static bool adopt(struct data *d, struct err *e)
{
	struct cache *c;

	if (d->ncaches == DATA_CACHES_MAX) {
		(void)err_set(e, ERR_LIMIT, "the cache was damaged %d times: the disk is not to be trusted", DATA_CACHES_MAX);
		return false;
	}
	c = cache_open(d->f, d->cache_dir, &d->cache_id, entries(d), data_source_y_bytes(d), e);
	if (!c)
		return false;
	d->caches[d->ncaches++] = c;
	atomic_store(&d->cache, c);
	told(d, CACHE_READY, NULL);
	return true;
}

void data_cache_open(struct data *d, const char *path, const struct spec *s)
{
	const char *dir = s->local.cache[0] ? s->local.cache : s->cache_dir;
	struct err e = { .code = ERR_NONE };

	d->materialize = s->materialize;
	d->cache_max = s->cache_max;
	if (s->materialize < 0)
		return;
	if (!d->source->ops->read && !d->source->ops->image) {
		(void)err_set(&e, ERR_INVALID, "%s data are not kept prepared: leave data.materialize_after out",
			d->source->ops->name);
		told(d, CACHE_FAILED, &e);
		return;
	}
	if (!dir[0]) {
		(void)err_set(&e, ERR_NOT_FOUND, "there is no folder for prepared data: set local.cache or data.cache");
		told(d, CACHE_FAILED, &e);
		return;
	}
	(void)snprintf(d->cache_dir, sizeof(d->cache_dir), "%s", dir);
	identify(d, path, s);
	if (adopt(d, &e))
		return;
	told(d, CACHE_MAKING, e.code == ERR_NOT_FOUND ? NULL : &e);     /* damaged: made again, and said */
}

void data_cache_close(struct data *d)
{
	cache_drop(d->maker);
	for (int i = 0; i < d->ncaches; i++)
		cache_close(d->caches[i]);
}

/* A sample that was good once is not: the source has it still. The cache goes; a new one is made. */
void data_cache_damaged(struct data *d, struct cache *c, const struct err *e)
{
	struct cache *now = c;

	if (!atomic_compare_exchange_strong(&d->cache, &now, NULL))
		return;                         /* another worker has seen it, too */
	cache_remove(d->f, d->cache_dir, &d->cache_id);
	d->made = 0;
	told(d, CACHE_MAKING, e);
}

static int prepare(struct data *d, enum data_part part, uint64_t index, struct sample *s, void *y, struct err *e)
{
	memset(y, 0, data_source_y_bytes(d));
	if (data_source_one(d, part, index, s, y, e) < 0)
		return e->code == ERR_CORRUPT ? 1 : -1;
	return data_steps(d, DATA_VALIDATION, 0, s, 0, d->materialize, e);
}

/* A spec that somebody else has written may ask for any size. */
static int within(const struct data *d, uint64_t bytes, struct err *e)
{
	if (!d->cache_max || bytes <= d->cache_max)
		return 0;
	return err_set(e, ERR_LIMIT, "the prepared data of this run, which is another peer's, takes %llu MB or more, and "
		"%llu MB is the most: raise data.cache_max to keep it", (unsigned long long)bytes / 1000000,
		(unsigned long long)d->cache_max / 1000000);
}

static int begin(struct data *d, const struct sample *s, struct err *e)
{
	size_t each = sample_count(s) * sample_unit(s) + data_source_y_bytes(d) + 96;

	if (within(d, entries(d) * each / 2, e) < 0)            /* by the first sample; far too much is not even begun */
		return -1;
	d->maker = cache_begin(d->f, d->cache_dir, &d->cache_id, entries(d), data_source_y_bytes(d), entries(d) * each, e);
	return d->maker ? 0 : -1;
}

static int some(struct data *d, struct sample *s, void *y, struct err *e)
{
	for (int i = 0; i < AT_ONCE && d->made < entries(d); i++, d->made++) {
		bool train = d->made < d->source->count[DATA_TRAIN];
		uint64_t index = train ? d->made : d->made - d->source->count[DATA_TRAIN];
		int rc = prepare(d, train ? DATA_TRAIN : DATA_VALIDATION, index, s, y, e);
		struct err why = *e;

		if (rc > 0)
			s->c = s->h = s->w = 0;
		if (rc < 0 || (!d->maker && begin(d, s, e) < 0) ||
		    cache_put(d->maker, rc ? NULL : s, y, why.text, e) < 0 ||
		    within(d, cache_making(d->maker), e) < 0)
			return -1;
	}
	return 0;
}

/* One job's worth. */
void data_cache_make(struct data *d)
{
	struct sample s = { .first = d->nsteps ? &d->step[0] : NULL };
	void *y = xcalloc(1, data_source_y_bytes(d) + 1);
	struct err e = { .code = ERR_NONE };
	int rc;

	if (d->made % LOOK_EVERY < AT_ONCE && adopt(d, &e)) {   /* another daemon has made it meanwhile */
		rc = 0;
	} else {
		rc = some(d, &s, y, &e);
		if (!rc && d->made < entries(d)) {
			sample_free(&s);
			free(y);
			return;
		}
		if (!rc)
			rc = cache_finish(d->maker, &e) < 0 || !adopt(d, &e) ? -1 : 0;
	}
	cache_drop(d->maker);
	d->maker = NULL;
	d->made = 0;
	if (rc < 0)
		told(d, CACHE_FAILED, &e);
	sample_free(&s);
	free(y);
}

bool data_cache_wanted(const struct data *d)
{
	return d->materialize >= 0 && atomic_load(&((struct data *)(uintptr_t)d)->cache_state) == CACHE_MAKING;
}

bool data_cache_news(struct data *d, char *out, size_t cap)
{
	enum cache_state state = (enum cache_state)atomic_load(&d->cache_state);
	struct cache *c = atomic_load(&d->cache);
	struct err e;

	if (d->materialize < 0 || state == d->cache_state_told)
		return false;
	d->cache_state_told = state;
	data_lock(d);
	e = d->cache_error;
	data_unlock(d);
	if (state == CACHE_READY)
		(void)snprintf(out, cap, "prepared data is read from %s (%llu bytes)", d->cache_dir,
			(unsigned long long)(c ? cache_bytes(c) : 0));
	else if (state == CACHE_FAILED)
		(void)snprintf(out, cap, "no prepared data, training goes on from the source: %.300s", e.text);
	else
		(void)snprintf(out, cap, "prepared data is being made in %s%s%.250s", d->cache_dir, e.code ? ": " : "",
			e.code ? e.text : "");
	return true;
}

json_t *data_cache_json(struct data *d)
{
	static const char *const names[] = { "off", "making", "ready", "failed" };
	enum cache_state state = (enum cache_state)atomic_load(&d->cache_state);
	char *file;
	json_t *o;

	if (d->materialize < 0)
		return NULL;
	o = json_pack("{s:s,s:I,s:I,s:s}", "state", names[state], "made", (json_int_t)(state == CACHE_READY ? entries(d) :
		atomic_load(&d->made)), "samples", (json_int_t)entries(d), "folder", d->cache_dir);
	file = cache_path("", &d->cache_id, ".cache");
	(void)json_object_set_new(o, "file", json_string(file + 1));
	free(file);
	data_lock(d);
	if (d->cache_error.code)
		(void)json_object_set_new(o, "error", json_string(d->cache_error.text));
	data_unlock(d);
	return o;
}
