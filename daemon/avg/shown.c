/* Two histories meet, or two states of one (hivemind-protocol(7), "Samples and histories"). Nobody gives up its own
 * because another says so: SHOW asks for the COMMIT that the other stands on, and those who have signed it are counted.
 * Who stood here last before they signed there are its witnesses; with them the two last stood at one point. Of the
 * members of that point those here, who have signed the COMMIT that this peer stands on, weigh as much or less: then it
 * goes. Who is only behind has nothing signed against the other: then the members here are asked where they stand. */
#include <stdlib.h>
#include <string.h>
#include "avg/fork.h"
#include "avg/proof.h"
#include "avg/seen.h"
#include "avg/shown.h"
#include "avg/witness.h"

#define SHOW_US (2 * SECOND)
/* So young a history may be one of newcomers who met each other first: it goes where more samples are. */
#define YOUNG_EPOCHS 64
#define YOUNG_US (600 * SECOND)
#define DOUBT_US SECOND                         /* who was not believed is not heard for so long; doubled up to */
#define DOUBTS 6                                /* so many times */

static bool in(const struct avg *a)
{
	return a->state == AVG_IN || a->state == AVG_JOINING;
}

/* ---- asked ---- */

static struct call *ask(struct avg *a, const struct id *who, bool full, void (*done)(void *arg, const struct frame *f,
	const struct err *e), void *arg)
{
	json_t *j = hub_json(a);
	json_object_set_new(j, "commit", json_boolean(full));
	json_object_set_new(j, "after", json_integer((json_int_t)a->point.epoch));
	return net_call(a->net, who, KIND_AVG_SHOW, j, NO_BLOB, CLASS_control, net_deadline(a->net, who, SHOW_US), done,
		arg);
}

/* ---- the end ---- */

static void give_up(struct shown *s)
{
	struct avg *a = s->a;
	struct id by = s->by;
	uint64_t epoch = s->epoch;
	enum avg_why why = s->why;
	struct mate *m = mate_find(a, &by);
	if (m)
		m->doubts = 0;
	if (why == AVG_FORK)
		hub_event(a, LOG_WARN_, "fork", &by, "two histories of this run met at epochs %llu and %llu; of the "
			"members of their last common point, who weigh %zu, %zu are there and %zu here: this one is given up",
			(unsigned long long)a->point.epoch, (unsigned long long)epoch, s->of, s->theirs, s->mine);
	shown_drop(a);
	lost(a, why, &by, epoch);
}

static void stay(struct shown *s, const char *why)
{
	struct avg *a = s->a;
	struct mate *m = mate_find(a, &s->by);
	if (m) {
		uint64_t us = DOUBT_US << (m->doubts < DOUBTS ? m->doubts : DOUBTS);
		m->doubt_us = now_of(a) + us;
		m->doubts++;
	}
	hub_event(a, LOG_WARN_, "doubt", &s->by, "epoch %llu: it says that this peer's state is not the swarm's, and is "
		"not believed: %s", (unsigned long long)a->point.epoch, why);
	if (m && s->why != AVG_DIVERGED && s->epoch > a->point.epoch + 1)       /* one ahead: it may only be the first */
		roster_elsewhere(a, m);
	shown_drop(a);
	kick(a);
}

/* It says of itself that this one goes on (parted), or does not answer. */
static void stay_ahead(struct shown *s, bool parted)
{
	struct avg *a = s->a;
	struct mate *m = mate_find(a, &s->by);
	if (m)
		m->doubt_us = now_of(a) + DOUBT_US;
	if (m && parted)
		roster_elsewhere(a, m);
	shown_drop(a);
}

static void stay_by_count(struct shown *s)
{
	char why[160];
	if (s->why == AVG_DIVERGED)
		snprintf(why, sizeof why, "%zu members have other parameters, %zu the same as this one", s->theirs, s->mine);
	else if (s->why == AVG_BEHIND)
		snprintf(why, sizeof why, "of %zu members %zu sign for it, and %zu are here", s->of, s->theirs, s->mine);
	else
		snprintf(why, sizeof why, "of the members' weight, %zu, %zu sign for it and %zu for this one", s->of, s->theirs,
		s->mine);
	stay(s, why);
}

/* ---- asking those who are here ---- */

static void settle(struct shown *s)
{
	bool params = s->why == AVG_DIVERGED, alone = !params && s->mine == 1 && s->of > 1;
	if (s->theirs >= s->mine + s->waiting)
		give_up(s);
	else if (s->waiting)
		return;
	else if (alone)
		give_up(s);                     /* nobody is left here who would lose anything */
	else
		stay_by_count(s);
}

static void stands(void *arg, const struct frame *f, const struct err *e)
{
	struct poll *p = arg;
	struct shown *s = p->s;
	struct avg *a = s->a;
	uint64_t epoch = 0;
	uint8_t prev[DIGEST], params[16];
	list_del(&p->link);
	free(p);
	s->waiting--;
	bool here = f && !json_get_u64(f->json, "epoch", &epoch, NULL) &&
		!json_get_hex(f->json, "prev", prev, DIGEST, NULL) && same_point(a, epoch, prev);
	if (here && s->why != AVG_DIVERGED)
		s->mine++;
	else if (here && !json_get_hex(f->json, DIGEST_KEY, params, 16, NULL))
		*(memcmp(params, a->digest, 16) ? &s->theirs : &s->mine) += 1;
	if (s->gen != a->gen || !in(a))
		shown_drop(a);
	else
		settle(s);
}

/* Of the members here those who have not signed for the other. */
static void poll(struct shown *s, const struct id *signed_by, size_t n)
{
	struct avg *a = s->a;
	s->mine = 1;
	list_each(it, &a->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		if (m == a->me || !m->member || !m->live || among(signed_by, n, &m->id))
			continue;
		struct poll *p = xcalloc(1, sizeof *p);
		*p = (struct poll){ .s = s };
		list_push(&s->polls, &p->link);
		p->call = ask(a, &m->id, false, stands, p);
		s->waiting++;
	}
	settle(s);
}

/* ---- what was shown ---- */

static bool young(const struct avg *a)
{
	return a->point.epoch < YOUNG_EPOCHS || (a->begun_us && now_of(a) - a->begun_us < YOUNG_US);
}

struct other { uint64_t epoch, samples; uint8_t prev[DIGEST]; const void *past; size_t past_n;
	bool shows; struct body c; const uint8_t *bytes, *next; size_t n, next_n; };

static int read_other(struct avg *a, const struct frame *f, struct other *o, struct err *e)
{
	struct rd r = rd_of(f->blob, f->blob_len);
	uint8_t digest[DIGEST];
	if (json_get_u64(f->json, "epoch", &o->epoch, e) || json_get_hex(f->json, "prev", o->prev, DIGEST, e) ||
			json_get_u64(f->json, "samples", &o->samples, e))
		return -1;
	o->n = rd_u32(&r);
	o->bytes = rd_bytes(&r, o->n);
	o->next_n = rd_u32(&r);
	o->next = rd_bytes(&r, o->next_n);
	if (r.bad)
		return err_set(e, ERR_PROTOCOL, "SHOW: cut short");
	o->past = r.p + r.at;
	o->past_n = rd_left(&r);
	if (!o->n)
		return 0;
	if (body_open(a, &o->c, o->bytes, o->n, e))
		return -1;
	body_digest(o->bytes, o->n, digest);
	o->shows = true;
	if (o->c.what == BODY_COMMIT && o->c.epoch == o->epoch && !memcmp(digest, o->prev, DIGEST))
		return 0;
	body_free(&o->c);
	o->shows = false;
	return err_set(e, ERR_AUTH, "the COMMIT that it shows does not make the point that it says it is at");
}

/* It goes on from where this peer is: those here who have signed for it, against those here who are still here. */
static void judge_ahead(struct shown *s, const struct id *v, size_t n)
{
	struct avg *a = s->a;
	s->of = 1;
	s->theirs = 0;
	list_each(it, &a->mates) {
		const struct mate *m = list_entry(it, struct mate, link);
		if (m == a->me || !stands_here(a, m))
			continue;
		s->of++;
		s->theirs += among(v, n, &m->id);
	}
	if (s->theirs * 2 > s->of) {
		give_up(s);
		return;
	}
	poll(s, v, n);
}

static void judge_fork(struct shown *s, bool loses, bool others, const struct id *v, size_t n, uint64_t common)
{
	struct avg *a = s->a;
	s->of = s->theirs = 0;
	for (size_t i = 0; i < a->point.nseen; i++)
		s->of += weight_at(a, &a->point.seen[i].id, common);
	list_each(it, &a->mates) {
		const struct mate *m = list_entry(it, struct mate, link);
		s->of += seen_find(&a->point, &m->id) ? 0 : weight_at(a, &m->id, common);
	}
	for (size_t i = 0; i < n; i++)
		s->theirs += of_late(a, &v[i]) ? weight_at(a, &v[i], common) : 0;
	s->mine = signers_here(a, common, v, n);
	if (s->theirs > s->mine || (loses && (others || (s->theirs && s->theirs == s->mine))))
		give_up(s);
	else if (!loses)
		stay_ahead(s, true);
	else if (s->theirs)
		stay_by_count(s);
	else
		stay(s, "nobody who was a member here signs for it");
}

/* The COMMIT that the other has made on top of this very point, by who may: then this one only has to follow. */
static bool follows(struct shown *s, const struct other *o)
{
	struct avg *a = s->a;
	struct body c;
	struct err e;
	if (!o->next_n || body_open(a, &c, o->next, o->next_n, &e))
		return false;
	bool ok = c.what == BODY_COMMIT && c.epoch == a->point.epoch + 1 && !memcmp(c.prev, a->point.prev, DIGEST) &&
		!commit_lawful(a, &c, o->next, o->next_n, NULL, &e);
	bool last = o->epoch == a->point.epoch + 1;     /* else nobody has its mean any more */
	if (ok && last && a->round && !member_commit(a, &c, o->next, o->next_n, &e))
		shown_drop(a);
	else if (ok)
		give_up(s);
	body_free(&c);
	return ok;
}

static void judge(struct shown *s, const struct other *o)
{
	struct avg *a = s->a;
	size_t n = 0;
	enum relation rel = past_compare(a, o->epoch, o->prev, o->samples, o->past, o->past_n);
	if (rel == REL_SAME || rel == REL_BEHIND) {
		shown_drop(a);
		return;
	}
	s->epoch = o->epoch;
	s->why = AVG_BEHIND;
	if (rel == REL_AHEAD && follows(s, o))
		return;
	if (!o->shows) {
		if (rel == REL_FORK_WON)
			stay_ahead(s, true);
		else
			stay(s, "it shows no COMMIT for it");
		return;
	}
	bool others;
	struct id *v = witnesses_of(a, &o->c, o->bytes, o->n, &n, &others);
	uint64_t told = past_common(a, o->past, o->past_n), common = last_common(a, v, n, told);
	bool here = past_leads_here(a, o->past, o->past_n);
	bool ahead = rel == REL_AHEAD && (!n || common == a->point.epoch || here);
	s->why = ahead && here ? AVG_BEHIND : AVG_FORK;
	if (ahead)
		judge_ahead(s, v, n);
	else {
		proof_ask(a, &s->by, told + 1); /* has one leader told them different things? */
		judge_fork(s, rel == REL_FORK_LOST || rel == REL_AHEAD, others && young(a), v, n, common);
	}
	free(v);
}

static void showed(void *arg, const struct frame *f, const struct err *e)
{
	struct shown *s = arg;
	struct avg *a = s->a;
	struct other o = { 0 };
	struct err mine;
	s->call = NULL;
	s->gen = a->gen;                        /* epochs may have passed; what counts is where both are */
	if (!in(a) || a->follower) {
		shown_drop(a);
	} else if (!f) {
		stay_ahead(s, false);           /* others may be able to show it */
	} else if (read_other(a, f, &o, &mine)) {
		stay(s, mine.text);
	} else {
		judge(s, &o);
		if (o.shows)
			body_free(&o.c);
	}
}

/* ---- who says so ---- */

bool shown_needed(const struct avg *a)
{
	return a->last_commit.len && in(a) && !a->follower && !PLANTED(TOLD_AND_BELIEVED);
}

void shown_start(struct avg *a, struct mate *by, enum avg_why why, const struct id *donor, uint64_t epoch)
{
	if (!shown_needed(a)) {
		lost(a, why, donor, epoch);
		return;
	}
	bool params = why == AVG_DIVERGED;
	if (!by || now_of(a) < by->doubt_us || (params && a->digest_epoch != a->point.epoch))
		return;
	if (a->shown || now_of(a) < a->shown_us) {      /* its turn comes, not only when its back-off is over */
		by->probe_us = now_of(a) + PAUSE_US;
		by->backoff_us = 0;
		return;
	}
	struct shown *s = a->shown = xcalloc(1, sizeof *s);
	*s = (struct shown){ .a = a, .by = by->id, .gen = a->gen, .why = why, .epoch = epoch };
	list_init(&s->polls);
	if (params)
		poll(s, NULL, 0);
	else
		s->call = ask(a, &by->id, true, showed, s);
}
