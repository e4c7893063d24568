/* What records under the project's own keys must look like. Checked wherever a record enters: our own puts, stores of
 * others, answers to searches (S28 to S30). */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "common/jrpc.h"
#include "common/mem.h"
#include "dht/int.h"

struct schema { struct list link; struct id key; const struct dht_schema *rule; };

void dht_expect(struct dht *d, const char *key, const struct dht_schema *rule)
{
	struct schema *s = xcalloc(1, sizeof *s);
	s->rule = rule;
	id_of(&s->key, key, strlen(key));
	list_push(&d->schemas, &s->link);
	memset(d->verified, 0, sizeof d->verified);     /* by fewer rules */
}

void dht_unexpect(struct dht *d, const char *key, const struct dht_schema *rule)
{
	struct id id;
	id_of(&id, key, strlen(key));
	list_each_safe(it, &d->schemas) {
		struct schema *s = list_entry(it, struct schema, link);
		if (s->rule == rule && id_eq(&s->key, &id)) {
			list_del(&s->link);
			free(s);
			return;
		}
	}
}

static bool type_is(const json_t *v, enum dht_type type)
{
	switch (type) {
	case DHT_TEXT:
		return json_is_string(v);
	case DHT_COUNT:
		return json_is_integer(v) && json_integer_value(v) >= 0;
	case DHT_NUMBER:
		return json_is_number(v);
	case DHT_BOOL:
		return json_is_boolean(v);
	case DHT_OBJECT:
		return json_is_object(v);
	}
	return false;
}

static int fits(const struct dht_schema *rule, const struct rec *r, const json_t *value, struct err *e)
{
	static const char *const name[] = { "a text", "a whole number from 0 on", "a number", "true or false",
		"an object" };
	if (rule->per_peer && !rec_must_sign(r))
		return err_set(e, ERR_INVALID, "%s: the subkey must be the id of the peer whose record it is", rule->name);
	if (rule->life_ms_max && r->life_ms > rule->life_ms_max)
		return err_set(e, ERR_INVALID, "%s: a life of %llu ms, at most %llu", rule->name,
			(unsigned long long)r->life_ms, (unsigned long long)rule->life_ms_max);
	if (!json_is_object(value))
		return err_set(e, ERR_INVALID, "%s: the value must be an object", rule->name);
	for (const struct dht_field *f = rule->fields; f && f->name; f++) {
		const json_t *v = json_object_get(value, f->name);
		if (!v && f->optional)
			continue;
		if (!v || !type_is(v, f->type))
			return err_set(e, ERR_INVALID, "%s: \"%s\" must be %s", rule->name, f->name, name[f->type]);
	}
	return 0;
}

/* Of several rules for one key one must fit (S29). Unknown fields are welcome: they may be a newer version's. */
int schema_check(const struct dht *d, const struct rec *r, struct err *e)
{
	json_t *value = NULL;
	int rc = 0;
	list_each(it, &d->schemas) {
		const struct schema *s = list_entry(it, struct schema, link);
		if (!id_eq(&s->key, &r->key))
			continue;
		if (!value)
			value = json_any(r->value, r->vlen, JSON_RECORD, NULL);
		rc = fits(s->rule, r, value, e);
		if (!rc)
			break;
	}
	json_decref(value);
	return rc;
}

void schemas_free(struct dht *d)
{
	list_each_safe(it, &d->schemas) {
		struct schema *s = list_entry(it, struct schema, link);
		list_del(&s->link);
		free(s);
	}
}
