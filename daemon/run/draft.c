/* run start NAME --model MODEL --data KIND:PATH: looks at the data off the loop, makes a spec of what it sees, and
 * starts that as if it had come from a file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/text.h"
#include "run/int.h"
#include "train/spec/draft.h"
#include "train/zoo.h"

struct drafting { struct job job; struct runs *rs; json_t *params; struct reply *reply; struct files *files;
	char kind[32], path[4096]; struct data_about about; struct err e; int rc; };

static void look(struct job *j)
{
	struct drafting *d = container_of(j, struct drafting, job);
	const char *vocab = json_string_value(json_object_get(d->params, "vocab"));
	d->rc = data_about(d->files, d->kind, d->path, vocab, &d->about, &d->e);
}

static void looked(struct job *j)
{
	struct drafting *d = container_of(j, struct drafting, job);
	json_t *params = json_copy(d->params), *spec = NULL;
	const char *name = json_string_value(json_object_get(params, "spec"));
	if (d->rc)
		err_wrap(&d->e, "data %s", d->path);
	else
		spec = draft_spec(params, &d->about, &d->e);
	if (spec) {
		json_object_set_new(spec, "name", json_string(name));
		json_object_set_new(params, "spec", spec);
		json_object_del(params, "model");
		json_object_del(params, "with");
		json_object_del(params, "optimizer");   /* it is in there, with its other numbers */
		runs_start(d->rs, params, d->reply);
	} else
		runs_refuse(d->rs, "start", name, d->reply, &d->e);
	json_decref(params);
	json_decref(d->params);
	free(d);
}

static int where(struct drafting *d, struct err *e)
{
	const char *word = json_string_value(json_object_get(d->params, "data")), *path;
	const char *name = json_string_value(json_object_get(d->params, "spec"));
	const char *model = json_string_value(json_object_get(d->params, "model"));
	json_t *entry;
	char shown[64];
	snprintf(shown, sizeof shown, "%s", name ? name : "?");
	text_clean(shown);
	if (!model)
		return err_set(e, ERR_INVALID, "there is no file \"%s\", and no --model; give a spec's file, or: "
			"run start NAME --model MODEL --data KIND:PATH", shown);
	entry = zoo_entry_json(model, e);       /* before a long look at the data */
	json_decref(entry);
	if (!entry)
		return -1;
	if (!word)
		return err_set(e, ERR_INVALID, "--data KIND:PATH is missing: a model needs something to learn from");
	int rc = data_place(word, d->kind, sizeof d->kind, &path, e);
	if (rc > 0)
		err_set(e, ERR_INVALID, "--data %.200s: with --model the kind stands in front, such as folder:%.200s", word,
			word);
	return rc || !run_place_path(d->rs, d->kind, word, d->path, sizeof d->path, e) ? -1 : 0;
}

void runs_draft(struct runs *rs, const json_t *params, struct reply *reply)
{
	struct drafting *d = xcalloc(1, sizeof *d);
	struct err e;
	d->rs = rs;
	d->params = json_copy((json_t *)params);
	d->reply = reply;
	d->files = rs->ctx.env->files;
	if (where(d, &e)) {
		runs_refuse(rs, "start", json_string_value(json_object_get(params, "spec")), reply, &e);
		json_decref(d->params);
		free(d);
		return;
	}
	d->job = (struct job){ .name = "run.draft", .lane = env_lane(rs->ctx.env, "data"), .run = look, .done = looked,
		.cost_us = 2000 };
	env_work(rs->ctx.env, &d->job);
}
