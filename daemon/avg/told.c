/* A COMMIT on its way to the others. Who has written it applies it when another member of its BEGIN is known to hold
 * it, or none is left that could: a leader that dies, or is cut off, before that leaves no trace, and its successor
 * commits what it likes. Whoever answers that it holds another, or follows another leader, does not count; when all
 * have said so, or the COMMIT of such a leader comes, this one is not applied. Who stands elsewhere, is banned or has
 * not been heard for long holds nobody up; nor does who refuses it again and again. */
#include <stdlib.h>
#include <string.h>
#include "avg/fork.h"
#include "avg/lead.h"

#define COMMIT_US (5 * SECOND)
#define AGAIN_US (50 * MS)
#define REFUSED_MOST 2                          /* COMMITs at one point that are dropped for nothing but refusals */

/* TOLD_NOT: it holds another, or follows another. TOLD_REFUSED: it says only that it does not take it. TOLD_AWAY: it
 * stands elsewhere in the history, or this peer and it do not talk to each other: it decides nothing here. */
enum told_as { TOLD_NOT_ASKED, TOLD_ASKED, TOLD_HOLDS, TOLD_NOT, TOLD_REFUSED, TOLD_AWAY, TOLD_SILENT };
struct told {
	struct round *r; uint8_t digest[DIGEST];
	struct term_claim t;                    /* the highest that was answered */
	struct timer again; bool armed; uint64_t since_us;
	uint8_t as[];                           /* by member of the BEGIN */
};
/* The calls outlive the averager. */
struct sent { struct list link; struct avg *a; struct id who; uint64_t epoch; uint8_t digest[DIGEST]; };

bool told_waits(const struct round *r)
{
	return r && r->told;
}

void told_free(struct round *r)
{
	if (r->told)
		env_timer(r->a->env, &r->told->again, 0);
	free(r->told);
	r->told = NULL;
}

static bool is_of(const struct round *r, const uint8_t *digest)
{
	return told_waits(r) && !memcmp(r->told->digest, digest, DIGEST);
}

/* ---- sending ---- */

static enum told_as refused_as(const struct err *e)
{
	switch (e->code) {
	case ERR_TIMEOUT: case ERR_UNREACHABLE: case ERR_CANCELLED: case ERR_BUSY: case ERR_FULL:
		return TOLD_SILENT;
	case ERR_STATE: case ERR_REFUSED:
		return TOLD_AWAY;
	default:
		return TOLD_REFUSED;
	}
}

static void answer(struct sent *s, const struct frame *f, const struct err *e)
{
	struct avg *a = s->a;
	struct round *r = a->round;
	struct term_claim t;
	struct mate *m = mate_find(a, &s->who);
	int i = is_of(r, s->digest) ? round_member(r, &s->who) : -1;
	bool other = f && (json_object_get(f->json, "term") || json_object_get(f->json, "other"));
	bool needs = f ? other : e->code != ERR_NOT_FOUND;      /* it is not in this run any more */
	if (!needs && m && m->holds < s->epoch)
		m->holds = s->epoch;
	if (i < 0)
		return;
	r->told->as[i] = !f ? refused_as(e) : other ? TOLD_NOT : TOLD_HOLDS;
	if (other && !term_read(a, f->json, &t, NULL) && t.term > r->told->t.term)
		r->told->t = t;
}

/* Only a goodbye waits for all answers: who has not got the COMMIT from a leader that stays finds out by its next
 * report or JOIN. */
static void told(void *arg, const struct frame *f, const struct err *e)
{
	struct sent *s = arg;
	if (s->a) {
		list_del(&s->link);
		answer(s, f, e);
		kick(s->a);
	}
	free(s);
}

bool commit_owed(const struct avg *a, const struct id *who)
{
	list_each(it, &a->commits)
		if (id_eq(&list_entry(it, struct sent, link)->who, who))
			return true;
	return false;
}

bool commit_missed(const struct avg *a, const struct mate *m)
{
	return a->told_epoch == a->point.epoch && m->holds < a->point.epoch && m->epoch < a->point.epoch;
}

size_t commits_missed(const struct avg *a)
{
	size_t n = 0;
	if (a->state != AVG_IN || !a->last_commit.len || PLANTED(LEAVES_BEHIND))
		return 0;
	list_each(it, &a->mates) {
		const struct mate *m = list_entry(it, struct mate, link);
		n += m != a->me && m->member && m->live && !m->elsewhere && !(m->flags & MATE_FOLLOWER) && commit_missed(a, m);
	}
	return n;
}

void commits_forget(struct avg *a)
{
	list_each_safe(it, &a->commits) {
		struct sent *s = list_entry(it, struct sent, link);
		list_del(&s->link);
		s->a = NULL;
	}
}

static void send_to(struct avg *a, const struct id *who, const uint8_t *digest, const struct buf *bytes)
{
	struct sent *s = xcalloc(1, sizeof *s);
	*s = (struct sent){ .a = a, .who = *who, .epoch = a->told_epoch };
	memcpy(s->digest, digest, DIGEST);
	list_push(&a->commits, &s->link);
	json_t *j = term_json(a, hub_json(a));
	MARK(a, "avg.commit.before");
	net_call(a->net, who, KIND_AVG_COMMIT, j, blob_copy(bytes->p, bytes->len), CLASS_control,
		net_deadline(a->net, who, COMMIT_US), told, s);
	MARK(a, "avg.commit.after");
}

void commit_send(struct avg *a, const struct body *c, const struct buf *bytes)
{
	uint8_t digest[DIGEST];
	body_digest(bytes->p, bytes->len, digest);
	a->told_epoch = c->epoch;
	for (size_t i = 0; i < c->n; i++)
		if (!id_eq(&c->m[i].id, &a->me->id) && !(c->m[i].flags & MATE_GONE))
			send_to(a, &c->m[i].id, digest, bytes);
}

/* ---- waiting ---- */

/* Asked again: those who live and have not answered. */
static void again_fire(struct timer *t)
{
	struct told *w = container_of(t, struct told, again);
	struct round *r = w->r;
	w->armed = false;
	for (size_t i = 0; i < r->b.n; i++) {
		const struct mate *m = w->as[i] == TOLD_SILENT ? mate_find(r->a, &r->b.m[i].id) : NULL;
		if (!m || !m->live)
			continue;
		w->as[i] = TOLD_ASKED;
		send_to(r->a, &m->id, w->digest, &r->commit_bytes);
	}
	kick(r->a);
}

void told_wait(struct round *r)
{
	struct avg *a = r->a;
	size_t asked = 0;
	if (!r->commit || PLANTED(COMMIT_UNTOLD))
		return;
	r->told = xcalloc(1, sizeof *r->told + r->b.n);
	r->told->r = r;
	r->told->again = (struct timer){ .fire = again_fire, .name = "avg.told" };
	r->told->since_us = now_of(a);
	body_digest(r->commit_bytes.p, r->commit_bytes.len, r->told->digest);
	list_each(it, &a->commits) {
		const struct sent *s = list_entry(it, struct sent, link);
		int i = is_of(r, s->digest) ? round_member(r, &s->who) : -1;
		if (i < 0)
			continue;
		r->told->as[i] = TOLD_ASKED;
		asked++;
	}
	if (!asked)
		told_free(r);
}

void told_seen(struct avg *a, const uint8_t *digest)
{
	if (!is_of(a->round, digest))
		return;
	told_free(a->round);
	kick(a);
}

void told_drop(struct round *r)
{
	struct avg *a = r->a;
	struct term_claim t = r->told->t;
	struct mate *m = mate_find(a, &t.by);
	hub_event(a, LOG_INFO_, "untold", NULL, "epoch %llu: nobody else holds the COMMIT that this peer has written: it "
		"is not applied", (unsigned long long)r->b.epoch);
	told_free(r);
	a->told_epoch = 0;
	body_free(r->commit);
	free(r->commit);
	r->commit = NULL;
	buf_clear(&r->commit_bytes);
	early_drop(a);
	early_begin_drop(a);
	if (t.term > a->term && m && m != a->me)
		recover_follow(a, m, &t);
}

/* Believed to live, but since this COMMIT, and since this daemon runs again, nothing has come from it for long. */
static bool unheard(const struct round *r, const struct mate *m)
{
	const struct avg *a = r->a;
	struct peer_info info;
	uint64_t now = now_of(a), since = r->told->since_us > a->woke_us ? r->told->since_us : a->woke_us;
	return now - a->awake_us <= SLEPT_US && now >= since + COMMIT_US &&
		(!net_peer(a->net, &m->id, &info) || info.last_seen_us + COMMIT_US < now);
}

static void await(struct told *w)
{
	if (!w->armed)
		env_after(w->r->a->env, &w->again, AGAIN_US);
	w->armed = true;
}

struct mate *told_step(struct round *r)
{
	size_t n[TOLD_SILENT + 1] = { 0 };
	if (!told_waits(r))
		return NULL;
	for (size_t i = 0; i < r->b.n; i++) {
		struct mate *m = mate_find(r->a, &r->b.m[i].id);
		enum told_as as = r->told->as[i];
		if (as == TOLD_SILENT && m && m->live && unheard(r, m))
			return m;
		n[as] += as == TOLD_HOLDS || (m && m->live);
	}
	if (n[TOLD_SILENT] && !n[TOLD_HOLDS])
		await(r->told);
	if ((n[TOLD_ASKED] || n[TOLD_SILENT]) && !n[TOLD_HOLDS])
		return NULL;
	bool only_refused = n[TOLD_REFUSED] && !n[TOLD_NOT];
	if (n[TOLD_HOLDS] || !(n[TOLD_NOT] || n[TOLD_REFUSED]) || (only_refused && r->a->untold >= REFUSED_MOST)) {
		told_free(r);                   /* somebody holds it, or nobody is left that may decide another */
		return NULL;
	}
	r->a->untold += only_refused;
	told_drop(r);
	if (r->lead)
		lead_give_up(r, "nobody takes its COMMIT");
	return NULL;
}

/* ---- answering ---- */

/* Does this peer hold that very COMMIT, as its state or decided? */
bool told_holds(const struct avg *a, const struct body *c, const uint8_t *digest)
{
	const struct round *r = a->round;
	const struct past *p = past_of(a, c->epoch);
	const struct buf *decided = early_commit(a, c->epoch, c->prev);
	uint8_t mine[DIGEST];
	if (p)
		return !memcmp(p->mark, digest, PAST_MARK);
	if (c->epoch <= a->point.epoch)         /* nobody knows any more */
		return false;
	if (!decided && r && r->commit)
		decided = &r->commit_bytes;
	if (!decided)
		return false;
	body_digest(decided->p, decided->len, mine);
	return !memcmp(mine, digest, DIGEST);
}
