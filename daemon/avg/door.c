/* The door: members of one run have one specification, since its digest is in the run's name; but
 * another version of this program may make another vector or another epoch of it. What must be equal travels in every
 * JOIN; who differs is refused with the key named, is told so once, and does not go on alone under the run's name. */
#include <stdlib.h>
#include "avg/int.h"
#include "common/jrpc.h"

#define PATIENCE_US SECOND

#define FULL_US (20 * SECOND)           /* that there was no place; longer than it takes to ask everybody again */

static const struct key { const char *name, *what; } keys[] = {
	{ "len", "values that are averaged (model, optimizer, running statistics)" },
	{ "target", "samples of an epoch (target_batch)" },
	{ "data", "training samples (data)" },
	{ "part", "values of the smallest part" },
	{ "codec", "encoding of the values (averaging.codec)" },
	{ "robust", "kind of mean (averaging.robust)" },
	{ "feedback", "what encoding leaves out comes later (averaging.error_feedback)" },
};
#define KEYS (sizeof keys / sizeof *keys)

static json_t *same_of(const struct avg *a)
{
	const struct avg_conf *c = &a->conf;
	return json_pack("{s:I,s:I,s:I,s:I,s:o,s:s,s:b}", "len", (json_int_t)c->len, "target", (json_int_t)c->target_batch,
		"data", (json_int_t)c->data_samples, "part", (json_int_t)c->part_min, "codec",
		c->codec && !json_is_null(c->codec) ? json_incref(c->codec) : json_string("none"), "robust",
		robust_name(c->robust), "feedback", c->error_feedback);
}

void door_put(const struct avg *a, json_t *join)
{
	json_object_set_new(join, "same", same_of(a));
}

static int differs(const struct key *k, const json_t *here, const json_t *there, struct err *e)
{
	char *x = json_dumps(here, JSON_ENCODE_ANY | JSON_COMPACT | JSON_SORT_KEYS), *y = json_dumps(there,
		JSON_ENCODE_ANY | JSON_COMPACT | JSON_SORT_KEYS);
	err_set(e, ERR_MISMATCH, "%s: %s: the run has %.40s, who asks has %.40s; is it the same version of the program?",
		k->name, k->what, x ? x : "another", y ? y : "another");
	free(x);
	free(y);
	return -1;
}

/* Keys that an older program does not send are taken for equal: it is held to the same by BEGIN. */
int door_check(const struct avg *a, const json_t *join, struct err *e)
{
	const json_t *o = json_object_get(join, "same");
	json_t *mine = same_of(a);
	int rc = 0;
	for (size_t i = 0; i < KEYS && !rc; i++) {
		const json_t *here = json_object_get(mine, keys[i].name), *there = json_object_get(o, keys[i].name);
		if (there && !json_equal(here, there))
			rc = differs(&keys[i], here, there, e);
	}
	json_decref(mine);
	return rc;
}

/* There is no place for it: it waits for one, as long as anybody says so. */
static void no_place(struct avg *a, const struct mate *by, const struct err *e)
{
	uint64_t now = now_of(a);
	a->heard_us = now;
	if (!a->full_us)
		hub_event(a, LOG_WARN_, "full", &by->id, "%s: this peer waits until one of them goes", e->text);
	a->full_us = now;
}

bool door_full(const struct avg *a)
{
	return a->full_us && now_of(a) - a->full_us < FULL_US;
}

bool door_refused(struct avg *a, const struct mate *by, const struct err *e)
{
	if (e->code == ERR_LIMIT && a->state == AVG_JOINING)
		no_place(a, by, e);
	if (e->code != ERR_MISMATCH)
		return e->code == ERR_LIMIT;
	if (a->state != AVG_JOINING)            /* a leader has asked a stranger: that one is wrong, not the swarm */
		return true;
	a->heard_us = now_of(a);                /* there is a swarm: nobody goes on alone beside it */
	if (!a->turned_away)
		hub_event(a, LOG_ERROR_, "refused", &by->id, "the run's members do not take this peer in: %s", e->text);
	a->turned_away = true;
	return true;
}

/* Positions are given by the micro-batch: one that is larger than an epoch would hold all of them. */
uint32_t door_micro(const struct avg *a, uint64_t micro)
{
	uint64_t most = a->conf.each || a->conf.any ? 64 * (uint64_t)a->conf.micro_batch : a->target;
	most = most < a->conf.micro_batch ? a->conf.micro_batch : most;
	return (uint32_t)(micro < most ? micro : most < UINT32_MAX ? most : UINT32_MAX);
}

/* ---- from follower to member ---- */

/* An epoch has passed while its JOIN was on the way: as a follower it gets that COMMIT, too, and asks again then. One
 * that is decided here only waits for its mean, if that is not long ago. */
bool door_passing(const struct avg *a, const struct mate *by)
{
	bool decided = a->round && a->round->commit && now_of(a) - a->round->begun_us < a->conf.round_floor_us;
	return a->state == AVG_IN && by && by->member && !a->follower && a->leader && !is_leader(a) && (decided ||
		((a->me->flags & MATE_FOLLOWER) && now_of(a) - a->commit_us < PATIENCE_US));
}

/* ---- to another leader ---- */

void redirect_to(struct avg *a, struct mate *m, const char *why)
{
	uint64_t now = now_of(a);
	struct mate *to = a->leader && a->leader != m ? a->leader : a->me;
	if (m == a->me || now < m->redirect_us)
		return;
	m->redirect_us = now + 20 * MS;
	json_t *j = hub_json(a);
	json_object_set_new(j, "why", json_string(why));
	json_object_set_new(j, "id", json_hex(to->id.b, 32));
	json_object_set_new(j, "at", json_endpoint(&to->at));
	json_object_set_new(j, "epoch", json_integer((json_int_t)a->point.epoch));
	term_json(a, j);
	net_post(a->net, &m->id, KIND_AVG_REDIRECT, j, NO_BLOB, CLASS_control);
}

/* Who followed this peer follows it into another group at once, not when its next report is redirected. */
struct mate **door_followers(const struct avg *a, size_t *ret_n)
{
	struct mate **v = xcalloc(a->nmates + 1, sizeof(struct mate *));
	*ret_n = 0;
	list_each(it, &a->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		if (is_leader(a) && m != a->me && m->member && m->live)
			v[(*ret_n)++] = m;
	}
	return v;
}

void door_take_along(struct avg *a, struct mate **v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!v[i]->member && v[i]->live)
			redirect_to(a, v[i], "redirect");
	free(v);
}
