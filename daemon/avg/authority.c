/* Who may say what (hivemind-protocol(7), "Authority"). Bodies are signed by their author, whoever passes them on. A
 * COMMIT counts when its author led this epoch as this peer saw it and the BEGIN that it ends is held here; or when a
 * majority of those that this peer knows have signed that they hold its parts; or one half, in which is who is first of
 * all: so two halves that refuse each other decide (here.c). */
#include <stdlib.h>
#include <string.h>
#include "avg/proof.h"

/* ---- COMMIT ---- */

/* Who may vote on what comes after a point: the members of its COMMIT that have not left since. */
struct voters { const struct id **id; size_t n; const struct mate *first; };        /* first: NULL: not known here */

static void voters_here(const struct avg *a, struct voters *v)
{
	v->id = xcalloc(a->nmates + 1, sizeof *v->id);
	list_each(it, &a->mates) {
		const struct mate *m = list_entry(it, struct mate, link);
		if (!m->member || m->fresh || (m->flags & MATE_FOLLOWER))
			continue;
		v->id[v->n++] = &m->id;
		if (!v->first || memcmp(m->order, v->first->order, 32) < 0)
			v->first = m;
	}
}

static void voters_of(const struct body *c, struct voters *v)
{
	v->id = xcalloc(c->n + 1, sizeof *v->id);
	for (size_t i = 0; i < c->n; i++)
		if (!(c->m[i].flags & (MATE_FOLLOWER | MATE_GONE)))
			v->id[v->n++] = &c->m[i].id;
}

static bool votes(const struct voters *v, const struct id *id)
{
	for (size_t i = 0; i < v->n; i++)
		if (id_eq(v->id[i], id))
			return true;
	return false;
}

/* More than half of the voters say that they hold what c names, or just half and the first of them; its author has said
 * so by signing it. */
static bool majority(const struct avg *a, const struct body *c, const uint8_t *bytes, size_t n, const struct voters *v)
{
	size_t said = votes(v, &c->leader);
	bool first = v->first && id_eq(&v->first->id, &c->leader);
	const struct id *id;
	struct acks x;
	acks_begin(&x, a, c, bytes, n);
	while (said * 2 <= v->n && (id = acks_next(&x)))
		if (votes(v, id) && acks_signed(&x)) {
			said++;
			first = first || (v->first && id_eq(&v->first->id, id));
		}
	acks_end(&x);
	return said * 2 > v->n || (said && said * 2 == v->n && first && !PLANTED(HALF_UNHEARD));
}

int body_open(struct avg *a, struct body *ret, const void *p, size_t n, struct err *e)
{
	struct body_head h;
	if (body_read(ret, p, n, e))
		return -1;
	body_head_of(ret, p, n, &h);
	if (!id_eq(&ret->run, &a->conf.run) || ret->len != a->conf.len)
		err_set(e, ERR_MISMATCH, "a round of another run or length (%llu, here %zu)", (unsigned long long)ret->len,
			a->conf.len);
	else if (!body_head_verify(&a->conf.run, &h))
		err_set(e, ERR_AUTH, "the signature is not its author's");
	else {
		proof_look(a, &h);
		return 0;
	}
	body_free(ret);
	return -1;
}

/* The BEGIN with that digest, when it is held. */
struct began { struct id by; uint32_t term; uint64_t life; };

static bool holds(const struct avg *a, const uint8_t *round, struct began *ret)
{
	struct body b;
	const struct round *r = a->round;
	if (r && !r->from_commit && !memcmp(r->id, round, DIGEST)) {
		*ret = (struct began){ r->b.leader, r->b.term, r->b.life };
		return true;
	}
	if (!a->begin_bytes.len)
		return false;
	uint8_t id[DIGEST];
	body_digest(a->begin_bytes.p, a->begin_bytes.len, id);
	if (memcmp(id, round, DIGEST) || body_read(&b, a->begin_bytes.p, a->begin_bytes.len, NULL))
		return false;
	*ret = (struct began){ b.leader, b.term, b.life };
	body_free(&b);
	return true;
}

int commit_lawful(const struct avg *a, const struct body *c, const void *bytes, size_t n, const struct body *on,
	struct err *e)
{
	struct voters v = { 0 };
	struct began b;
	if (PLANTED(COMMIT_FROM_ANYBODY) || id_eq(&c->leader, &a->me->id))
		return 0;
	if (on)
		voters_of(on, &v);
	else
		voters_here(a, &v);
	const struct mate *m = mate_find(a, &c->leader);
	bool known = on ? votes(&v, &c->leader) : (m && m->member) || led_by(a, &c->leader, c->term);
	bool ok = holds(a, c->round, &b) && ((id_eq(&b.by, &c->leader) && b.term == c->term && b.life == c->life) ||
		(!on && led_by(a, &c->leader, c->term)));
	ok = known && (ok || majority(a, c, bytes, n, &v));
	free(v.id);
	return ok ? 0 : err_set(e, ERR_AUTH, "a COMMIT of epoch %llu by one who does not lead it here, and no majority of "
		"the members has signed that it holds it", (unsigned long long)c->epoch);
}

/* ---- BEGIN and ATTEMPT ---- */

/* Its sender leads in that term: it is whom this peer follows, it has taken a higher term, or nobody comes before it.
 * The BEGIN is its own, of that term or of one in which it led before, or passed on from a member that led in a lower
 * one. */
int begin_lawful(const struct avg *a, const struct mate *from, const struct body *b, const json_t *j,
	struct term_claim *ret, struct err *e)
{
	const struct mate *author = mate_find(a, &b->leader), *led = a->leader;
	if (term_read(a, j, ret, e))
		return -1;
	if (from->unfit == a->gen)
		return err_set(e, ERR_STATE, "it has led this epoch, and not well");
	if (ret->term < a->term && !PLANTED(TERM_IGNORED))
		return err_set(e, ERR_STATE, "term %u is over, this is %u", ret->term, a->term);
	if (ret->term && !id_eq(&ret->by, &from->id))
		return err_set(e, ERR_AUTH, "a BEGIN in term %u by one who has not taken it", ret->term);
	if (ret->term > a->term && recover_seizes(a, from))
		return err_set(e, ERR_AUTH, "it takes the lead from one that lives, for the %u. time", from->seized + 1);
	if (ret->term == a->term && led && led != from && !roster_rather(a, from, led))
		return err_set(e, ERR_STATE, "another leads this epoch here");
	bool known = (author && author->member) || led_by(a, &b->leader, b->term);      /* it may have left since */
	if (author == from ? b->term > ret->term : b->term >= ret->term || !known)
		return err_set(e, ERR_AUTH, "a BEGIN of term %u in term %u, by another than leads", b->term, ret->term);
	return 0;
}

/* It names fewer than half of the last epoch's members, and half of them were heard a moment ago: whoever began it has
 * lost sight of the others, or wants to. In its round this peer would wait for nobody, and decide without them. */
int begin_leaves_out(const struct avg *a, const struct body *b, struct err *e)
{
	size_t named = 0, here = 1;
	struct peer_info info;
	for (size_t i = 0; i < b->n; i++) {
		const struct mate *m = mate_find(a, &b->m[i].id);
		named += m && m->member && !(b->m[i].flags & MATE_FOLLOWER);
	}
	if (named * 2 >= a->n_last || PLANTED(LEFT_OUT_FOLLOWED))
		return 0;
	list_each(it, &a->mates) {
		const struct mate *m = list_entry(it, struct mate, link);
		here += m != a->me && m->member && m->live && !(m->flags & MATE_FOLLOWER) && net_peer(a->net, &m->id, &info) &&
			info.last_seen_us + HEARD_US >= now_of(a);
	}
	if (here * 2 < a->n_last)
		return 0;
	return err_set(e, ERR_AUTH, "a BEGIN with %zu of the last %u members, of whom %zu are here", named, a->n_last,
		here);
}

/* Of whom this peer follows in its term, or of whoever began the round and has not been succeeded. */
bool attempt_lawful(const struct avg *a, const struct round *r, const struct attempt *at, const struct id *from)
{
	const struct mate *m = mate_find(a, from);
	if (m && m->unfit == a->gen)
		return false;
	bool leads = a->leader && id_eq(&a->leader->id, from) && at->term == a->term;
	bool began = id_eq(&r->b.leader, from) && at->term == r->b.term && at->term >= a->term;
	return leads || began || PLANTED(TERMS_UNSIGNED) || PLANTED(TERM_IGNORED);
}
