/* What of a run lies in the DHT: its specification, put there by its author; and the last word on it, which everybody
 * asks for now and then (ctl.c says what it may be). */
#include <stdio.h>
#include "run/int.h"
#include "run/packed.h"

#define RUN_LIFE_MS (7ull * 86400 * 1000)
#define WATCH_US 15000000
#define WATCH_PAUSED_US 3000000
#define RECORD_MAX 15700                /* with what stands beside it, below JSON_RECORD */

void ctl_key(const char *what, const char *name, char out[160]) { snprintf(out, 160, "%s:%s", what, name); }

void ctl_publish(struct run *r)
{
	char key[160];
	size_t len;
	json_t *shared = spec_packed(r->spec->shared, RECORD_MAX, &len);
	if (!shared) {
		run_log(r, LOG_WARN_, "run.unpublished",
			"the specification takes %zu bytes, and deflated still more than the %d that a DHT record holds: others "
			"can join only with the same file", len, RECORD_MAX);
		return;
	}
	json_t *v = json_pack("{s:s,s:s,s:s,s:o}", "name", r->name, "author", r->author_hex, "run", r->hex, "shared",
		shared);
	ctl_key("run", r->name, key);
	dht_keep(r->rs->ctx.dht, key, r->author_hex, json_incref(v), RUN_LIFE_MS, true);
	ctl_key("run", r->hex, key);
	dht_keep(r->rs->ctx.dht, key, r->author_hex, v, RUN_LIFE_MS, true);
}

void ctl_unpublish(struct run *r)
{
	char key[160];
	ctl_key("run", r->name, key);
	dht_unkeep(r->rs->ctx.dht, key, r->author_hex);
	ctl_key("run", r->hex, key);
	dht_unkeep(r->rs->ctx.dht, key, r->author_hex);
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
	env_after(r->rs->ctx.env, &r->ctl_timer, r->paused ? WATCH_PAUSED_US : WATCH_US);
	struct ask *a = ask_new(r->rs, r, NULL);
	a->open++;
	ctl_key("runctl", r->hex, key);
	dht_get(r->rs->ctx.dht, key, true, r->rs->calls->watched, a);
}
