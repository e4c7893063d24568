/* The states of a run by name, and what is written down of it: its row in the store, and what it says to the log. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "common/text.h"
#include "run/int.h"

static const struct { const char *name; bool over, resume; } statetab[RUN_STATES] = {
	[RUN_OPEN] = { "open", false, true },
	[RUN_RESTORE] = { "restore", false, true },
	[RUN_ENTER] = { "join", false, true },
	[RUN_SYNC] = { "sync", false, true },
	[RUN_TRAIN] = { "train", false, true },
	[RUN_FINISH] = { "finish", false, true },
	[RUN_LEAVE] = { "leave", false, true },
	[RUN_AGAIN] = { "again", false, true },
	[RUN_DONE] = { "done", true, false },
	[RUN_LEFT] = { "left", true, false },
	[RUN_STOPPED] = { "stopped", true, false },
	[RUN_FAILED] = { "failed", true, false },
};

const char *run_state_word(enum run_state s) { return statetab[s].name; }

const char *run_state_name(const struct run *r)
{
	if (r->state == RUN_TRAIN && r->paused)
		return "paused";
	if (r->state == RUN_TRAIN && r->held)
		return "held";
	return statetab[r->state].name;
}

bool run_over(const struct run *r)
{
	return statetab[r->state].over;
}

void run_log(struct run *r, enum log_level level, const char *kind, const char *fmt, ...)
{
	char text[400];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	text_clean(text);                       /* perhaps some of it is another peer's */
	log_write(r->rs->ctx.env->log, level, r->name, "%s", text);
	if (r->rs->ctx.store)
		store_event(r->rs->ctx.store, level, kind, r->hex, NULL, NULL, "%s%s%s", r->hex[0] ? "" : r->name,
			r->hex[0] ? "" : ": ", text);     /* without an id yet: at least its name */
	if (r->rs->ctx.news && level >= LOG_WARN_) {
		json_t *j = json_pack("{s:s,s:s,s:s,s:s}", "kind", kind, "run", r->hex, "level", log_level_name(level), "text",
			text);
		r->rs->ctx.news(r->rs->ctx.news_arg, "event", kind, j);
		json_decref(j);
	}
}

void run_record(struct run *r)
{
	struct store *s = r->rs->ctx.store;
	if (!s || id_zero(&r->id))
		return;
	char *spec = json_dumps(r->spec->shared, JSON_COMPACT);
	json_t *local = spec_local_json(r->spec);
	char *ltext = json_dumps(local, JSON_COMPACT);
	store_run_put(s, &(struct store_run){ .run = r->hex, .name = r->name, .author = r->author_hex,
		.state = run_state_name(r),
		.spec = spec, .local = ltext, .error = r->error.code ? r->error.text : NULL, .epoch = r->point.epoch,
		.samples = r->point.samples, .params_version = r->point.params_version, .created_ms = r->created_ms,
		.resume = statetab[r->state].resume || (r->state == RUN_LEFT && r->drain) ||
			(r->state == RUN_FAILED && r->resumes) });
	json_decref(local);
	free(spec);
	free(ltext);
}

enum run_event run_broken(struct run *r, const struct err *e)
{
	if (run_over(r))
		return EV_NONE;
	r->error = *e;
	run_log(r, LOG_ERROR_, "run.failed", "%s", e->text);
	if (r->start_reply) {
		reply_fail(r->start_reply, e);
		r->start_reply = NULL;
	}
	return EV_BROKEN;
}
