/* With a robust mean a member moves the result by little through what it contributes; not so through the parts that it
 * sums. So of every owner's parts one, which the COMMIT's digest draws, is summed again by another member that it
 * draws, too: the owner gives what it was sent, each piece signed (sent.c), and the sum must be the mean that all got
 * from it. A wrong one is a proof for all who were in the round: they ask for the same pieces, look for themselves, and
 * ban the owner. Who does not show what was signed is no liar for that, but three times in a row, and it sums no more.
 *
 *   auditor  AUDIT {round, part, tag}  ->  owner     then by contributor a transfer: list of hashes, signature, piece
 *   auditor  WRONG {epoch, round, part}  ->  all     who were there: AUDIT to the auditor, with the mean behind it */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "avg/held.h"
#include "avg/sent.h"
#include "common/hash.h"
#include "common/jrpc.h"

#define AGAIN_US (100 * MS)
#define EARLY_US SECOND                         /* it may not have applied that COMMIT yet */
#define SILENT_US SECOND                        /* after one that was not answered */
#define PACE 19                                 /* times as long as an audit took there is none */
#define ROUNDING 2e-5                           /* of the greatest number: sums of other CPUs differ in the last bits */

struct term { struct id id; uint64_t weight; uint8_t *data; struct xfer *x; };
enum verdict { AUDIT_NOTHING, AUDIT_RIGHT, AUDIT_WRONG };
/* self: who is asked sums; else it accuses owner. */
struct audit {
	struct avg *a; struct id run; struct job job; struct timer timer, again; struct call *call; uint64_t begun_us;
	uint8_t round[DIGEST], hash[TREE256], tag[32]; uint64_t epoch, off, len, total; size_t part, parts, n, left;
	struct term *t; float *mean; struct xfer *mean_x; bool mean_here, over, working;
	struct id owner, from; enum hashes hashes; enum robust robust; enum verdict verdict;
};

/* ---- looking ---- */

static void audit_free(struct audit *u)
{
	for (size_t i = 0; i < u->n; i++)
		big_free(u->t[i].data, held_bytes(u->parts, u->len));
	big_free(u->mean, u->len * sizeof(float));
	free(u->t);
	free(u);
}

static void stop(struct audit *u)
{
	struct audits *s = u->a->audits;
	if (u->call)
		net_cancel(u->a->net, u->call);
	for (size_t i = 0; i < u->n; i++)
		if (u->t[i].x)
			xfer_cancel(u->t[i].x);
	if (u->mean_x)
		xfer_cancel(u->mean_x);
	env_timer(u->a->env, &u->timer, 0);
	env_timer(u->a->env, &u->again, 0);
	if (s->one == u)
		s->one = NULL;
	u->over = true;
	if (!u->working)
		audit_free(u);
}

/* The same sum, as the owner would make it; which CPU makes it is seen in the last bits. */
static bool same_mean(const struct audit *u, const float *sum)
{
	double most = 0, apart = 0;
	for (size_t k = 0; k < u->len; k++) {
		double d = fabs((double)sum[k] - (double)u->mean[k]);
		for (size_t i = 0; i < u->n; i++) {
			const float *x = (const void *)(u->t[i].data + u->parts * TREE256 + SIG_BYTES);
			most = fmax(most, fabs((double)x[k]));
		}
		if (!(d <= apart))
			apart = d;
	}
	return apart <= ROUNDING * most;
}

static void look_run(struct job *j)
{
	struct audit *u = container_of(j, struct audit, job);
	struct coding c;
	struct err e;
	uint8_t hash[TREE256];
	u->verdict = AUDIT_NOTHING;
	tree256_of(u->hashes, u->mean, u->len * sizeof(float), hash);
	if (memcmp(hash, u->hash, TREE256))
		return;
	for (size_t i = 0; i < u->n; i++) {
		const uint8_t *d = u->t[i].data;
		tree256_of(u->hashes, d + u->parts * TREE256 + SIG_BYTES, u->len * sizeof(float), hash);
		if (memcmp(hash, d + u->part * TREE256, TREE256) ||
				!sent_verify(&u->run, u->round, &u->t[i].id, d, u->parts, d + u->parts * TREE256))
			return;
	}
	struct reduce_term *t = xcalloc(u->n + 1, sizeof *t);
	float *sum = big_alloc(u->len * sizeof *sum);
	if (sum && !coding_make(&c, NULL, NULL, 0, u->off + u->len, &e)) {
		for (size_t i = 0; i < u->n; i++)
			t[i] = (struct reduce_term){ .weight = u->t[i].weight,
				.x = (const void *)(u->t[i].data + u->parts * TREE256 + SIG_BYTES) };
		int rc = reduce_part(&c, u->off, u->len, t, u->n, u->total, u->robust, sum);
		u->verdict = !rc && same_mean(u, sum) ? AUDIT_RIGHT : AUDIT_WRONG;
		coding_free(&c);
	}
	big_free(sum, u->len * sizeof *sum);
	free(t);
}

static bool accuses(const struct audit *u) { return !id_eq(&u->owner, &u->from); }

/* It is kept for those who want to see it, and they are told. */
static void show(struct audit *u)
{
	struct avg *a = u->a;
	struct held *h = xcalloc(1, sizeof *h);
	*h = (struct held){ .part = u->part, .n = u->n, .bytes = held_bytes(u->parts, u->len), .mean = u->mean,
		.len = u->len, .data = xcalloc(u->n + 1, sizeof *h->data) };
	memcpy(h->round, u->round, DIGEST);
	list_init(&h->link);
	for (size_t i = 0; i < u->n; i++) {
		h->data[i] = u->t[i].data;
		u->t[i].data = NULL;
	}
	u->mean = NULL;
	held_put(a->audits, h);
	list_each(it, &a->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		if (m == a->me || !m->member || !m->live || id_eq(&m->id, &u->owner))
			continue;
		json_t *j = hub_json(a);
		json_object_set_new(j, "epoch", json_integer((json_int_t)u->epoch));
		json_object_set_new(j, "round", json_hex(u->round, DIGEST));
		json_object_set_new(j, "part", json_integer((json_int_t)u->part));
		net_post(a->net, &m->id, KIND_AVG_WRONG, j, NO_BLOB, CLASS_control);
	}
}

static void wrong(struct audit *u)
{
	struct avg *a = u->a;
	struct mate *m = mate_find(a, &u->owner);
	struct id owner = u->owner;
	struct err e;
	a->audits->wrong++;
	hub_event(a, LOG_ERROR_, "wrong sum", &owner, "epoch %llu: what it has summed (part %zu) is not the mean of what "
		"was sent to it: banned here, and by all who were in that round", (unsigned long long)u->epoch, u->part);
	if (!accuses(u))
		show(u);
	if (m)
		mate_gone(a, m, "has summed falsely");
	if (net_ban(a->net, &owner, UINT64_MAX, "what it has summed is not the mean of what was sent to it", &e))
		hub_event(a, LOG_ERROR_, "wrong sum", &owner, "it cannot be banned: %s", e.text);
}

static void silent(struct avg *a, const struct id *owner)
{
	struct mate *m = mate_find(a, owner);
	if (!m || !m->live)
		return;
	m->unaudited_us = now_of(a);
	if (++m->unaudited == TIMES_SILENT)
		hub_event(a, LOG_WARN_, "not audited", owner, "%d times in a row it has not shown what it has summed: where "
			"this peer leads it sums nothing for %d minutes", TIMES_SILENT, (int)(REST_US / SECOND / 60));
}

static void judge(struct audit *u, enum verdict v)
{
	struct avg *a = u->a;
	struct audits *s = a->audits;
	struct mate *m = mate_find(a, &u->owner), *by = mate_find(a, &u->from);
	uint64_t rest = PACE * (now_of(a) - u->begun_us);
	if (!accuses(u))
		s->not_before_us = now_of(a) + (v == AUDIT_NOTHING ? SILENT_US : rest);
	else if (by && v != AUDIT_WRONG)        /* else it could keep this peer from looking at its own sums */
		by->accused_us = now_of(a) + (rest > ACCUSED_US ? rest : ACCUSED_US);
	if (v == AUDIT_WRONG) {
		wrong(u);
	} else if (accuses(u) && v == AUDIT_RIGHT) {
		hub_event(a, LOG_WARN_, "forged", &u->from, "it says of another that it has summed falsely, and it has not");
		net_strike(a->net, &u->from, "an accusation that is none");
	} else if (accuses(u)) {
		hub_event(a, LOG_WARN_, "forged", &u->from, "it says of another that it has summed falsely, and does not "
			"show it");
	} else if (v == AUDIT_RIGHT) {
		s->right++;
		if (m)
			m->unaudited = 0;
	} else {
		silent(a, &u->owner);
	}
}

static void look_done(struct job *j)
{
	struct audit *u = container_of(j, struct audit, job);
	u->working = false;
	if (u->over) {
		audit_free(u);
		return;
	}
	struct audits *s = u->a->audits;
	judge(u, u->verdict);
	stop(u);
	accusations_next(s);
}

static void given_up(struct timer *t)
{
	struct audit *u = container_of(t, struct audit, timer);
	struct audits *s = u->a->audits;
	judge(u, AUDIT_NOTHING);
	stop(u);
	accusations_next(s);
}

static void here(struct audit *u)
{
	if (u->left || !u->mean_here || u->working)
		return;
	u->working = true;
	u->job = (struct job){ .name = "avg.audit", .lane = env_lane(u->a->env, "hash"), .run = look_run, .done = look_done,
		.cost_us = 1 + u->n * u->len * sizeof(float) / 1000 };
	env_work(u->a->env, &u->job);
}

static void came(void *arg, struct xfer *x, const struct err *e)
{
	struct audit *u = arg;
	bool mean = x == u->mean_x;
	for (size_t i = 0; i < u->n; i++)
		if (u->t[i].x == x)
			u->t[i].x = NULL;
	if (mean)
		u->mean_x = NULL;
	if (e) {
		env_after(u->a->env, &u->timer, 1);
		return;
	}
	u->mean_here = u->mean_here || mean;
	u->left -= !mean;
	here(u);
}

static void answered(void *arg, const struct frame *f, const struct err *e)
{
	struct audit *u = arg;
	u->call = NULL;
	bool early = !f && e->code == ERR_NOT_FOUND && now_of(u->a) - u->begun_us < EARLY_US;
	if (early || (!f && e->code == ERR_BUSY))
		env_after(u->a->env, &u->again, AGAIN_US);
	else if (!f)
		env_after(u->a->env, &u->timer, 1);
}

static void ask(struct timer *t)
{
	struct audit *u = container_of(t, struct audit, again);
	json_t *j = hub_json(u->a);
	json_object_set_new(j, "round", json_hex(u->round, DIGEST));
	json_object_set_new(j, "part", json_integer((json_int_t)u->part));
	json_object_set_new(j, "tag", json_hex(u->tag, 32));
	json_object_set_new(j, "mean", json_boolean(!u->mean_here));
	u->call = net_call(u->a->net, &u->from, KIND_AVG_AUDIT, j, NO_BLOB, CLASS_control,
		net_deadline(u->a->net, &u->from, 2 * SECOND), answered, u);
}

void audit_look(struct avg *a, const struct body *c, size_t p, enum robust robust, const struct id *from,
	const float *mean)
{
	struct audits *s = audits_of(a);
	struct audit *u = xcalloc(1, sizeof *u);
	const struct wire_part *part = &c->part[p];
	bool room = true;
	struct id id;
	*u = (struct audit){ .a = a, .run = a->conf.run, .begun_us = now_of(a), .epoch = c->epoch, .off = part->off,
		.len = part->len, .total = c->weight, .part = p, .parts = c->parts, .owner = c->m[part->owner].id,
		.from = *from, .hashes = c->hashes, .robust = robust, .mean_here = mean != NULL };
	memcpy(u->round, c->round, DIGEST);
	memcpy(u->hash, part->hash, TREE256);
	u->timer = (struct timer){ .fire = given_up, .name = "avg.audit" };
	u->t = xcalloc(c->n + 1, sizeof *u->t);
	u->mean = big_alloc(part->len * sizeof *u->mean);
	s->one = u;
	u->again = (struct timer){ .fire = ask, .name = "avg.audit" };
	a->env->ops->secure(a->env, u->tag, sizeof u->tag);
	for (size_t i = 0; i < c->n; i++) {
		if (!(c->m[i].flags & MATE_IN))
			continue;
		struct term *t = &u->t[u->n++];
		*t = (struct term){ .id = c->m[i].id, .weight = c->m[i].samples, .data = big_alloc(held_bytes(c->parts,
			part->len)) };
		held_tag(u->tag, u->n - 1, &id);
		room = room && t->data;
		if (t->data)
			t->x = xfer_recv(a->chunks, from, &id, t->data, held_bytes(c->parts, part->len), 0, came, u);
	}
	u->left = u->n;
	held_tag(u->tag, u->n, &id);
	if (mean && u->mean)
		memcpy(u->mean, mean, part->len * sizeof *mean);
	else if (u->mean)
		u->mean_x = xfer_recv(a->chunks, from, &id, u->mean, part->len * sizeof *u->mean, 0, came, u);
	if (!room || !u->mean) {                /* nobody's fault but this machine's */
		stop(u);
		return;
	}
	ask(&u->again);
	env_after(a->env, &u->timer, LOOK_US);
}

/* ---- who looks at what ---- */

static uint64_t draw(const uint8_t digest[DIGEST], size_t owner, char what, uint64_t below)
{
	uint8_t b[DIGEST + 3], h[32];
	uint64_t v = 0;
	memcpy(b, digest, DIGEST);
	b[DIGEST] = (uint8_t)owner;
	b[DIGEST + 1] = (uint8_t)(owner >> 8);
	b[DIGEST + 2] = (uint8_t)what;
	sha256_of(b, sizeof b, h);
	memcpy(&v, h, sizeof v);
	return v % below;
}

/* One of the owner's parts, and a member that is not the owner and was in the round to its end; false: none. */
static bool drawn(const struct body *c, const uint8_t digest[DIGEST], size_t owner, size_t *ret_part, size_t *ret_who)
{
	size_t parts = 0, who = 0;
	for (size_t p = 0; p < c->parts; p++)
		parts += c->part[p].owner == owner;
	for (size_t i = 0; i < c->n; i++)
		who += i != owner && (c->m[i].flags & (MATE_IN | MATE_CLIENT)) == MATE_IN;
	if (!parts || !who)
		return false;
	uint64_t p = draw(digest, owner, 'p', parts), w = draw(digest, owner, 'w', who);
	for (*ret_part = 0; c->part[*ret_part].owner != owner || p--; ++*ret_part)
		;
	for (*ret_who = 0; *ret_who == owner || (c->m[*ret_who].flags & (MATE_IN | MATE_CLIENT)) != MATE_IN || w--;
			++*ret_who)
		;
	return true;
}

void audit_committed(struct round *r)
{
	struct avg *a = r->a;
	const struct body *c = r->commit;
	size_t p, who;
	if (!r->sent || r->me < 0)
		return;
	struct audits *s = audits_of(a);
	if (drawn(c, a->point.prev, (size_t)r->me, &p, &who) && r->part[p].owner == r->me)
		held_own(r, p);
	for (size_t o = 0; o < r->b.n && !s->one && now_of(a) >= s->not_before_us; o++)
		if ((int)o != r->me && drawn(c, a->point.prev, o, &p, &who) && (int)who == r->me && flow_lives(r, o))
			audit_look(a, c, p, r->robust, &c->m[o].id, r->mean + r->part[p].off);
	accusations_next(s);
}

bool audit_for(const struct audits *s, const struct id *accuser)
{
	return s->one && accuses(s->one) && id_eq(&s->one->from, accuser);
}

void audit_yield(struct audits *s)
{
	if (s->one && !s->one->working && !accuses(s->one))
		stop(s->one);
}

uint64_t audits_done(const struct avg *a, bool right)
{
	return !a->audits ? 0 : right ? a->audits->right : a->audits->wrong;
}

/* ---- life ---- */

void audits_free(struct avg *a)
{
	struct audits *s = a->audits;
	if (!s)
		return;
	if (s->one)
		stop(s->one);
	while (!list_empty(&s->held))
		held_free(s, list_entry(s->held.next, struct held, link));
	accusations_free(s);
	env_timer(a->env, &s->sweep, 0);
	a->audits = NULL;
	free(s);
}
