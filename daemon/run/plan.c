/* `run plan`: the plan of a run that is here; or, of a spec or a model of the zoo, what so many members would do,
 * without a swarm and without data (train/rehearse.h). That takes its time, off the loop. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/text.h"
#include "run/int.h"
#include "train/rehearse.h"
#include "train/spec/draft.h"

#define MEMBERS_MAX 256
#define TARGET 256                      /* samples of an epoch of a model of which nothing else is said */

struct drawing { struct job job; struct spec *spec; struct rehearse_conf conf; struct reply *reply; json_t *out;
	json_t *measured; struct err e; };

static void draw(struct job *j)
{
	struct drawing *d = container_of(j, struct drawing, job);
	d->out = rehearse(&d->conf, &d->e);
}

static void drawn(struct job *j)
{
	struct drawing *d = container_of(j, struct drawing, job);
	if (d->out)
		reply_ok(d->reply, d->out);
	else
		reply_fail(d->reply, &d->e);
	spec_free(d->spec);
	json_decref(d->measured);
	free(d);
}

static int conf_of(const json_t *params, const struct runs *rs, struct rehearse_conf *c, struct err *e)
{
	const struct compute *compute = &rs->ctx.compute;
	const json_t *members = json_object_get(params, "members"), *mbit = json_object_get(params, "mbit");
	const char *memory = json_string_value(json_object_get(params, "memory"));
	const struct par *par = compute->par(compute->arg, 0, e);
	if (!par)
		return -1;
	*c = (struct rehearse_conf){ .parts = par->n, .macs_per_us = run_macs_per_us(compute), .members = 1,
		.draw = json_is_true(json_object_get(params, "draw")),
		.link.latency_us = (uint64_t)(json_number_value(json_object_get(params, "latency")) * 1e6) };
	if (members && (json_integer_value(members) < 1 || json_integer_value(members) > MEMBERS_MAX))
		return err_set(e, ERR_INVALID, "--members: must be 1 to %d", MEMBERS_MAX);
	if (members)
		c->members = (uint32_t)json_integer_value(members);
	if (mbit && !(json_number_value(mbit) > 0 && json_number_value(mbit) <= 1e9))
		return err_set(e, ERR_INVALID, "--mbit: must be more than 0 megabits a second");
	if (mbit)
		c->link.us_per_byte = 8 / json_number_value(mbit);
	return memory && text_size(memory, &c->memory_bytes, e) < 0 ? err_wrap(e, "--memory") : 0;
}

/* The spec that is looked at; data do not matter. */
static struct spec *spec_of_words(const json_t *params, struct err *e)
{
	json_t *words = json_copy((json_t *)params), *w;
	struct spec *s;
	if (json_is_object(json_object_get(params, "run")))
		json_object_set(words, "spec", json_object_get(params, "run"));
	w = runs_whole(words, e);
	json_decref(words);
	if (!w)
		return NULL;
	if (!json_object_get(w, "target_batch"))
		json_object_set_new(w, "target_batch", json_integer(TARGET));
	draft_over(w, params);
	s = spec_of_json(w, e);
	json_decref(w);
	return s;
}

static void imagine(struct runs *rs, const json_t *params, struct reply *reply)
{
	struct rehearse_conf c;
	struct err e;
	struct spec *s = conf_of(params, rs, &c, &e) ? NULL : spec_of_words(params, &e);
	if (!s) {
		reply_fail(reply, &e);
		return;
	}
	struct drawing *d = xcalloc(1, sizeof *d);
	c.spec = d->spec = s;
	c.measured = d->measured = json_deep_copy(json_object_get(params, "profile"));  /* a lane reads it */
	d->conf = c;
	if (!c.memory_bytes)
		d->conf.memory_bytes = s->local.memory_bytes;
	d->reply = reply;
	d->job = (struct job){ .name = "run.plan", .lane = env_lane(rs->ctx.env, "data"), .run = draw, .done = drawn,
		.cost_us = 2000 };
	env_work(rs->ctx.env, &d->job);
}

void runs_plan(struct runs *rs, const json_t *params, struct reply *reply)
{
	if (json_is_object(json_object_get(params, "run")) || json_object_get(params, "model")) {
		imagine(rs, params, reply);
		return;
	}
	struct run *r = runs_find(rs, params, reply);
	struct err e;
	const char *key;
	json_t *v;
	if (!r)
		return;
	json_object_foreach((json_t *)params, key, v)
		if (strcmp(key, "run") && strcmp(key, "draw")) {
			err_set(&e, ERR_INVALID, "--%s is of a spec or a model that does not run: run %s is here, and has its plan",
				key, r->name);
			reply_fail(reply, &e);
			return;
		}
	json_t *plan = r->trainer ? trainer_plan_json(r->trainer, json_is_true(json_object_get(params, "draw")), &e) : NULL;
	if (!r->trainer)
		err_set(&e, ERR_STATE, "run %s is %s: it has no plan now", r->name, run_state_name(r));
	if (plan)
		reply_ok(reply, plan);
	else
		reply_fail(reply, &e);
}
