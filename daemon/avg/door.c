/* The door (amendments C8): members of one run have one specification, since its digest is in the run's name; but
 * another version of this program may make another vector or another epoch of it. What must be equal travels in every
 * JOIN; who differs is refused with the key named, is told so once, and does not go on alone under the run's name. */
#include <stdio.h>
#include <string.h>
#include "avg/int.h"
#include "common/jrpc.h"

#define PATIENCE_US SECOND

struct key { const char *name; uint64_t value; const char *what; };
#define KEYS 4

static void keys_of(const struct avg *a, struct key ret[KEYS])
{
	ret[0] = (struct key){ "len", a->conf.len, "values that are averaged (model, optimizer, running statistics)" };
	ret[1] = (struct key){ "target", a->conf.target_batch, "samples of an epoch (target_batch)" };
	ret[2] = (struct key){ "data", a->conf.data_samples, "training samples (data)" };
	ret[3] = (struct key){ "part", a->conf.part_min, "values of the smallest part" };
}

void door_put(const struct avg *a, json_t *join)
{
	struct key k[KEYS];
	json_t *o = json_object();
	keys_of(a, k);
	for (size_t i = 0; i < KEYS; i++)
		json_object_set_new(o, k[i].name, json_integer((json_int_t)k[i].value));
	json_object_set_new(join, "same", o);
}

/* Keys that an older program does not send are taken for equal: it is held to the same by BEGIN. */
int door_check(const struct avg *a, const json_t *join, struct err *e)
{
	struct key k[KEYS];
	const json_t *o = json_object_get(join, "same");
	keys_of(a, k);
	for (size_t i = 0; i < KEYS; i++) {
		const json_t *v = json_object_get(o, k[i].name);
		if (v && (!json_is_integer(v) || (uint64_t)json_integer_value(v) != k[i].value))
			return err_set(e, ERR_MISMATCH, "%s: %s: the run has %llu, who asks has %lld; is it the same version of "
				"the program?", k[i].name, k[i].what, (unsigned long long)k[i].value, (long long)json_integer_value(v));
	}
	return 0;
}

bool door_refused(struct avg *a, const struct mate *by, const struct err *e)
{
	if (e->code != ERR_MISMATCH)
		return false;
	if (a->state != AVG_JOINING)            /* a leader has asked a stranger: that one is wrong, not the swarm */
		return true;
	a->heard_us = now_of(a);                /* there is a swarm: nobody goes on alone beside it */
	if (!a->turned_away)
		hub_event(a, LOG_ERROR_, "refused", &by->id, "the run's members do not take this peer in: %s", e->text);
	a->turned_away = true;
	return true;
}

/* ---- from follower to member ---- */

void join_caught_up(struct avg *a)
{
	if (a->state == AVG_IN && a->leader && !is_leader(a) && !a->follower && !a->leaving && !a->round &&
			(a->me->flags & MATE_FOLLOWER))
		join_start(a, a->leader);
}

/* An epoch has passed while its JOIN was on the way: as a follower it gets that COMMIT, too, and asks again then. */
bool door_passing(const struct avg *a)
{
	return a->state == AVG_IN && !a->follower && (a->me->flags & MATE_FOLLOWER) && a->leader && !is_leader(a) &&
		now_of(a) - a->commit_us < PATIENCE_US;
}
