/* What the store writes: each typed put becomes one entry of the queue. Nothing here touches SQLite. */
#include "store/int.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define I(x) ((int64_t)(x))

static int64_t wall(struct store *s)
{
	return (int64_t)env_wall(s->env);
}

void store_run_put(struct store *s, const struct store_run *r)
{
	store_push(s, ST_RUN_PUT, "sssssssiiiiii", r->run, r->name, r->author, r->state, r->spec, r->local, r->error,
		I(r->epoch),
		I(r->samples), I(r->params_version), r->created_ms ? I(r->created_ms) : wall(s), wall(s), I(r->resume));
}

void store_run_update(struct store *s, const char *run, const char *state, const char *error, uint64_t epoch,
	uint64_t samples)
{
	store_push(s, ST_RUN_UPDATE, "sssiii", run, state, error, I(epoch), I(samples), wall(s));
}

void store_run_resume(struct store *s, const char *run, bool resume)
{
	store_push(s, ST_RUN_RESUME, "sii", run, I(resume), wall(s));
}

void store_run_rm(struct store *s, const char *run)
{
	static const enum store_stmt all[] = { ST_RUN_RM, ST_RUN_RM_PARAMS, ST_RUN_RM_EPOCHS, ST_RUN_RM_ROUNDS,
		ST_RUN_RM_EVENTS,
		ST_RUN_RM_CKPTS };

	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		store_push(s, all[i], "s", run);
}

void store_param_put(struct store *s, const struct store_param *p)
{
	store_push(s, ST_PARAM, "sissssssii", p->run, I(p->version), p->key, p->old_value, p->new_value, p->author,
		p->state,
		p->note, I(p->epoch), wall(s));
}

void store_param_discard(struct store *s, const char *run, uint64_t from_epoch, uint64_t to_epoch, const char *note)
{
	store_push(s, ST_PARAM_DISCARD, "siis", run, I(from_epoch), I(to_epoch), note);
}

void store_param_settle(struct store *s, const char *run, uint64_t version, const char *key, const char *state,
	const char *note)
{
	store_push(s, ST_PARAM_SETTLE, "sisss", run, I(version), key, state, note);
}

void store_epoch_put(struct store *s, const struct store_epoch *p)
{
	store_push(s, ST_EPOCH, "sissiiiiddddiiis", p->run, I(p->epoch), p->digest ? p->digest : "", p->prev, I(p->samples),
		I(p->members), I(p->took_us), I(p->params_version), p->weight, p->loss, p->val_loss, p->val_accuracy,
		I(p->discarded), I(p->minority), wall(s), p->positions);
}

void store_epoch_validated(struct store *s, const char *run, uint64_t epoch, double loss, double accuracy)
{
	store_push(s, ST_EPOCH_VALIDATED, "sidd", run, I(epoch), loss, accuracy);
}

void store_epoch_discard(struct store *s, const char *run, uint64_t from_epoch, uint64_t to_epoch)
{
	store_push(s, ST_EPOCH_DISCARD, "sii", run, I(from_epoch), I(to_epoch));
}

void store_round_add(struct store *s, const struct store_round *r)
{
	store_push(s, ST_ROUND, "siiissssiiiii", r->run, I(r->epoch), I(r->term), I(r->attempt), r->leader, r->outcome,
		r->reason,
		r->without, I(r->members), I(r->bytes_sent), I(r->bytes_received), I(r->took_us), wall(s));
}

void store_peer_put(struct store *s, const struct store_peer *p)
{
	store_push(s, ST_PEER, "ssssiiiii", p->peer, p->address, p->version, p->state, I(p->rtt_us), I(p->bytes_sent),
		I(p->bytes_received), I(p->failures), wall(s));
}

void store_event(struct store *s, enum log_level level, const char *kind, const char *run, const char *peer,
	json_t *data,
	const char *fmt, ...)
{
	char text[1024], *more = data ? json_dumps(data, JSON_COMPACT) : NULL;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	store_push(s, ST_EVENT, "issssss", wall(s), log_level_name(level), kind, run, peer, text, more);
	free(more);
	json_decref(data);
}

void store_ckpt_put(struct store *s, const struct store_ckpt *c)
{
	store_push(s, ST_CKPT, "ssiissi", c->path, c->run, I(c->epoch), I(c->bytes), c->digest, c->state, wall(s));
}
