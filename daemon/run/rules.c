/* Rules for the records of a run in the DHT: what lies under its keys must look so, as far as its members can tell.
 * They hold and believe nothing else. */
#include <stdio.h>
#include "run/int.h"

static const struct dht_field run_fields[] = { { "name", DHT_TEXT, false }, { "author", DHT_TEXT, false },
	{ "run", DHT_TEXT, false }, { "shared", DHT_OBJECT, false }, { 0 } };
static const struct dht_field word_fields[] = { { "run", DHT_TEXT, false }, { "op", DHT_TEXT, false },
	{ "counter", DHT_COUNT, false }, { "by", DHT_TEXT, false }, { "sig", DHT_TEXT, false }, { 0 } };
static const struct dht_schema run_rule = { "run", true, 0, run_fields },
	word_rule = { "word to a run", true, 0, word_fields };

static void rules(struct run *r, void (*fn)(struct dht *d, const char *key, const struct dht_schema *rule))
{
	struct dht *d = r->rs->ctx.dht;
	char key[160];
	snprintf(key, sizeof key, "run:%s", r->name);
	fn(d, key, &run_rule);
	snprintf(key, sizeof key, "run:%s", r->hex);
	fn(d, key, &run_rule);
	snprintf(key, sizeof key, "runctl:%s", r->hex);
	fn(d, key, &word_rule);
}

void ctl_expect(struct run *r)
{
	if (!r->expects)
		rules(r, dht_expect);
	r->expects = true;
}

void ctl_unexpect(struct run *r)
{
	if (r->expects)
		rules(r, dht_unexpect);
	r->expects = false;
}
