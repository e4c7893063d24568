/* What a validation has come to is told to those of the run who have no stage, and so no part in it: by the first and
 * the last member, so that one that dies just then keeps it from nobody. It counts here when the commit that it is of
 * has been applied. At the end of the run whoever has no stage waits for it until one of the two has gone, which they
 * do when they have ended it, or for some times what one has taken before: a leader that died tells of nobody's going.
 */
#include <math.h>
#include <string.h>
#include "common/jrpc.h"
#include "common/planted.h"
#include "run/crew_int.h"

#define WAIT_US 10000000                /* they are there, as far as is known, and say nothing */
#define WAIT_TIMES 4

static bool member(const struct run_crew *s, const struct id *id)
{
	for (uint32_t k = 0; k < s->v.nmembers; k++)
		if (id_eq(&s->member[k].id, id))
			return true;
	return false;
}

static json_t *pack(const struct avg_point *at, const struct trainer_validated *v)
{
	json_t *o = json_pack("{s:I,s:o,s:I,s:I}", "epoch", (json_int_t)v->epoch, "prev", json_hex(at->prev, DIGEST),
		"samples", (json_int_t)v->samples, "took_us", (json_int_t)v->took_us);
	if (isfinite(v->loss))                  /* JSON has no other numbers */
		(void)json_object_set_new(o, "loss", json_real(v->loss));
	if (v->accuracy >= 0)                   /* else the loss knows no right answers */
		(void)json_object_set_new(o, "accuracy", json_real(v->accuracy));
	return o;
}

void run_crew_validated(struct run *r, const struct trainer_validated *v)
{
	const struct run_crew *s = r->crew;
	const struct avg_point *at = run_point_at(r, v->epoch);
	if (!s || !at || !run_crew_seated(r) || (s->v.me && s->v.me + 1 < s->v.nmembers))
		return;
	json_t *said = pack(at, v);
	for (uint32_t i = 0; said && i < s->roster.n; i++)
		if (!member(s, &s->ids[i]))
			net_post(r->rs->ctx.net, &s->ids[i], KIND_RUN_SHARD, json_pack("{s:s,s:O}", "run", r->hex, "validated",
				said), NO_BLOB, CLASS_control);
	json_decref(said);
}

static int read(const json_t *j, struct result *ret, struct err *e)
{
	struct trainer_validated *v = &ret->v;
	*ret = (struct result){ .v = { .accuracy = NAN, .loss = NAN } };
	if (json_get_u64(j, "epoch", &v->epoch, e) || json_get_hex(j, "prev", ret->prev, DIGEST, e) ||
			json_get_u64(j, "samples", &v->samples, e) || json_get_u64(j, "took_us", &v->took_us, e) ||
			(json_object_get(j, "loss") && json_get_f64(j, "loss", &v->loss, e)))
		return -1;
	if (json_object_get(j, "accuracy") && (json_get_f64(j, "accuracy", &v->accuracy, e) || !(v->accuracy >= 0 &&
			v->accuracy <= 1)))
		return err_set(e, ERR_INVALID, "accuracy: must be 0 to 1");
	return v->samples ? 0 : err_set(e, ERR_INVALID, "samples: there are none");
}

/* Said by a member, of the history that this peer follows; it may be ahead of what has been applied here. */
void run_crew_hear_result(struct run *r, const struct id *from, const json_t *said)
{
	struct run_crew *s = r->crew;
	struct result x;
	struct err e;
	bool one = s && (run_crew_names(r, from) || PLANTED(RESULT_OF_ANYBODY));
	if (!one || run_crew_seated(r) || read(said, &x, &e) || x.v.epoch > r->point.epoch + 1 || x.v.epoch == r->val_at)
		return;
	s->heard = x;
	run_crew_take_result(r);
}

void run_crew_take_result(struct run *r)
{
	struct run_crew *s = r->crew;
	struct result x;
	if (!s || !s->heard.v.samples || s->heard.v.epoch > r->recorded)
		return;
	x = s->heard;
	s->heard = (struct result){ 0 };
	const struct avg_point *at = run_point_at(r, x.v.epoch);
	if (!at || memcmp(at->prev, x.prev, DIGEST))
		return;
	run_take_result(r, &x.v);
	run_tell(r, true);
}

bool run_crew_awaits_result(struct run *r)
{
	struct run_crew *s = r->crew;
	if (!s || run_crew_seated(r) || r->val_at == r->point.epoch || !data_count(r->data, DATA_VALIDATION))
		return false;
	if (!s->awaits_us)
		s->awaits_us = env_now(r->rs->ctx.env);
	bool there = s->v.nmembers && avg_lives(r->avg, &s->member[0].id) && avg_lives(r->avg,
		&s->member[s->v.nmembers - 1].id);
	return there && env_now(r->rs->ctx.env) - s->awaits_us < WAIT_US + WAIT_TIMES * r->val_took_us;
}
