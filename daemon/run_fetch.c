/* The joiner's side of a state download (run_donor.c is the other): pieces from several donors at once. Up to 8 members
 * list the pieces of a copy with their hashes; the list that most agree on is the state, and a piece may come from
 * whoever has it with that hash, no more than twice its share from one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/hash.h"
#include "common/jrpc.h"
#include "common/mem.h"
#include "run_int.h"

/*   RUN_STATE {run, from}  ->  members: a copy of the first epoch they have that is not before `from`
 *       <-  {epoch, bytes, piece, list}, blob: XXH3-128 of every piece, then the point as JSON
 *   RUN_STATE {run, list, piece, tag}  ->  one of them          then a transfer of that piece under tag
 *   RUN_STATE post  ->  who still sends: no more
 *
 * A donor that dies, or no longer has the copy, is left out; its pieces come from the others. When nobody is left that
 * has the copy, another is asked for; pieces that are the same in both stay. */

#define ASK_US 20000000                 /* a copy waits for the micro-batch under way */
#define OTHERS_US 200000                /* who answers so much later than the first gives its pieces later, too */
#define PIECE_CALL_US 10000000
#define PATIENCE_US 5000000
#define RATE_FLOOR 30000.0              /* bytes/s, until a piece has come (B18) */
#define RETRY_MIN_US 50000              /* also between looks for a live member: they cost nothing */
#define RETRY_MAX_US 1000000
#define DONORS_MAX 8
#define AHEAD 2                         /* pieces asked of one donor at one time */
#define MISSES_MAX 3

enum piece { PIECE_NEEDED, PIECE_FLYING, PIECE_HERE };
struct donor {
	struct fetch *f; struct id id; struct call *call;
	bool out, listed;               /* gives nothing any more; list, hash and point are its answer */
	struct avg_point point;
	uint8_t list[16], *hash;
	unsigned flying, given, misses;
	uint64_t rest_us;               /* it was busy: not asked before */
};
struct flight { struct list link; struct fetch *f; struct donor *d; size_t piece; struct call *call; struct xfer *x; };
struct fetch {
	struct run *r;
	struct donor d[DONORS_MAX]; size_t nd;
	struct donor *ref;              /* whose list is the state; NULL: not agreed yet */
	size_t piece, n, left, bytes;
	uint8_t *hash, *have;           /* of the state; enum piece of each */
	struct list flights;
	struct timer timer;
	bool resting;                   /* the timer asks anew; else it is for answers or for who was busy */
	uint64_t backoff_us;
	unsigned tries;
	char why[sizeof ((struct err *)0)->text];             /* the last refusal */
};

static void take_some(struct fetch *f);
static void choose(struct fetch *f);

/* ---- ends ---- */

static void flight_end(struct flight *l)
{
	struct fetch *f = l->f;
	if (l->call)
		net_cancel(f->r->rs->ctx.net, l->call);
	if (l->x)
		xfer_cancel(l->x);
	l->d->flying--;
	if (f->have[l->piece] == PIECE_FLYING)
		f->have[l->piece] = PIECE_NEEDED;
	list_del(&l->link);
	free(l);
}

/* It gives nothing any more. told: it is asked to stop what it still sends. */
static void out(struct fetch *f, struct donor *d, bool tell)
{
	struct net *net = f->r->rs->ctx.net;
	tell = tell && d->flying;
	if (d->call)
		net_cancel(net, d->call);
	d->call = NULL;
	list_each_safe(it, &f->flights) {
		struct flight *l = list_entry(it, struct flight, link);
		if (l->d == d)
			flight_end(l);
	}
	if (tell)
		net_post(net, &d->id, KIND_RUN_STATE, json_pack("{s:s}", "run", f->r->hex), NO_BLOB, CLASS_weight);
	if (!d->out)
		net_care(net, &d->id, -1);
	d->out = true;
}

static void forget_donors(struct fetch *f)
{
	for (size_t i = 0; i < f->nd; i++) {
		struct donor *d = &f->d[i];
		out(f, d, true);
		free(d->hash);
		avg_point_done(&d->point);
	}
	f->nd = 0;
	f->ref = NULL;
}

void fetch_again(struct fetch *f, const char *why)
{
	struct run *r = f->r;
	bool met = f->nd > 0;
	char text[sizeof f->why];
	snprintf(text, sizeof text, "%s", why); /* why may lie in what goes now */
	forget_donors(f);
	f->backoff_us = f->backoff_us && met ? f->backoff_us * 2 : RETRY_MIN_US;
	if (f->backoff_us > RETRY_MAX_US)
		f->backoff_us = RETRY_MAX_US;
	if (f->tries++ % 5 == 0)
		run_log(r, LOG_WARN_, "sync.retry", "state: %s; asking again", text);
	f->resting = true;
	env_after(r->rs->ctx.env, &f->timer, f->backoff_us);
}

/* ---- asking ---- */

struct candidate { struct id id; bool client; uint64_t rank; };

static int by_rank(const void *x, const void *y)
{
	const struct candidate *a = x, *b = y;
	return a->client != b->client ? a->client - b->client : a->rank < b->rank ? -1 : a->rank > b->rank;
}

/* The members that this peer asks: those that can be dialled first, by a rank that is another for every newcomer, so
 * that a crowd spreads over all of them. */
static void pick(struct fetch *f)
{
	const struct id *self = net_self(f->r->rs->ctx.net);
	struct avg_member m[RUN_PEERS_SHOWN];
	struct candidate v[RUN_PEERS_SHOWN];
	size_t n = avg_members(f->r->avg, m, RUN_PEERS_SHOWN), k = 0;
	uint64_t key;
	memcpy(&key, self->b, sizeof key);
	for (size_t i = 0; i < n && i < RUN_PEERS_SHOWN; i++)
		if (m[i].live && !m[i].follower && !id_eq(&m[i].id, self))
			v[k++] = (struct candidate){ m[i].id, m[i].client, siphash(key, 0, m[i].id.b, sizeof m[i].id.b) };
	qsort(v, k, sizeof *v, by_rank);
	for (f->nd = 0; f->nd < k && f->nd < DONORS_MAX; f->nd++)
		f->d[f->nd] = (struct donor){ .f = f, .id = v[f->nd].id };
}

static bool all_answered(const struct fetch *f)
{
	for (size_t i = 0; i < f->nd; i++)
		if (f->d[i].call)
			return false;
	return true;
}

static int take_list(struct fetch *f, struct donor *d, const struct frame *a, struct err *e)
{
	uint64_t bytes, piece, n;
	if (json_get_u64(a->json, "bytes", &bytes, e) || json_get_u64(a->json, "piece", &piece, e) ||
			json_get_hex(a->json, "list", d->list, sizeof d->list, e))
		return -1;
	if (bytes != f->bytes || piece != state_piece(f->bytes))
		return err_set(e, ERR_MISMATCH, "the donor's state has %llu bytes in pieces of %llu, ours %zu in pieces of %zu",
			(unsigned long long)bytes, (unsigned long long)piece, f->bytes, state_piece(f->bytes));
	n = (bytes + piece - 1) / piece;
	if (a->blob_len < n * 16)
		return err_set(e, ERR_PROTOCOL, "the list of %llu pieces is cut short", (unsigned long long)n);
	uint8_t digest[16];
	xxh128_of(a->blob, n * 16, digest);
	if (memcmp(digest, d->list, 16))
		return err_set(e, ERR_CORRUPT, "the list of pieces has another hash than it should");
	json_t *point = json_read((const char *)a->blob + n * 16, a->blob_len - n * 16, JSON_POINT, e);
	avg_point_init(&d->point);
	int rc = point ? avg_point_parse(&d->point, point, e) : -1;
	json_decref(point);
	if (!rc)
		d->hash = xmemdup(a->blob, n * 16);
	return rc;
}

static void listed(void *arg, const struct frame *a, const struct err *e)
{
	struct donor *d = arg;
	struct fetch *f = d->f;
	struct err mine;
	d->call = NULL;
	if (a && take_list(f, d, a, &mine))
		e = &mine;
	d->listed = !e;
	if (e) {
		snprintf(f->why, sizeof f->why, "%s", e->text);
		out(f, d, false);
	}
	if (f->ref)
		take_some(f);
	else if (all_answered(f))
		choose(f);
	else if (d->listed)
		env_after(f->r->rs->ctx.env, &f->timer, OTHERS_US);
}

static void ask_all(struct fetch *f)
{
	struct runs_ctx *c = &f->r->rs->ctx;
	uint64_t from;
	if (sync_alone(f->r))                   /* f is gone */
		return;
	f->resting = false;
	if (!sync_follows(f->r, &from)) {
		f->resting = true;              /* not taken along yet: a commit would be missing */
		env_after(c->env, &f->timer, RETRY_MIN_US / 5);
		return;
	}
	pick(f);
	if (!f->nd) {
		fetch_again(f, "no live member to ask");
		return;
	}
	for (size_t i = 0; i < f->nd; i++)
		net_care(c->net, &f->d[i].id, 1);
	if (FAILPOINT(c->env, "run.state.ask") < 0) {
		fetch_again(f, "a fail point");
		return;
	}
	trainer_state(f->r->trainer, &f->bytes);
	f->piece = state_piece(f->bytes);
	f->n = (f->bytes + f->piece - 1) / f->piece;
	for (size_t i = 0; i < f->nd; i++)
		f->d[i].call = net_call(c->net, &f->d[i].id, KIND_RUN_STATE, json_pack("{s:s,s:I}", "run", f->r->hex, "from",
			(json_int_t)from), NO_BLOB, CLASS_weight, ASK_US, listed, &f->d[i]);
}

/* ---- agreeing ---- */

static bool same_list(const struct donor *a, const struct donor *b)
{
	return a->listed && b->listed && !a->out && !b->out && a->point.epoch == b->point.epoch &&
		!memcmp(a->point.prev, b->point.prev, DIGEST) && !memcmp(a->list, b->list, sizeof a->list);
}

/* Parameters and running statistics are equal after a commit unless the run says otherwise. */
static void tell_different(struct fetch *f, const struct donor *d)
{
	const struct model *m = trainer_model(f->r->trainer);
	size_t n = (m->nparam + m->nbuffer) * sizeof(real) / f->piece;
	char who[9], ours[9];
	if (f->r->spec->mode.local || !memcmp(d->hash, f->ref->hash, n * 16))
		return;
	run_log(f->r, LOG_WARN_, "sync.differs", "parameters of epoch %llu at %s are not those at %s and the others that "
		"were asked", (unsigned long long)d->point.epoch, id_short(&d->id, who), id_short(&f->ref->id, ours));
}

/* Pieces that were here of another copy stay when they are the same in this one. */
static void begin_pieces(struct fetch *f)
{
	uint8_t *have = xcalloc(f->n, 1);
	f->left = f->n;
	for (size_t i = 0; f->have && i < f->n; i++)
		if (f->have[i] == PIECE_HERE && !memcmp(f->hash + 16 * i, f->ref->hash + 16 * i, 16)) {
			have[i] = PIECE_HERE;
			f->left--;
		}
	free(f->have);
	free(f->hash);
	f->have = have;
	f->hash = xmemdup(f->ref->hash, f->n * 16);
}

static void choose(struct fetch *f)
{
	size_t best = 0;
	for (size_t i = 0; i < f->nd; i++) {
		struct donor *d = &f->d[i];
		size_t n = 0;
		if (d->listed && !d->out && !sync_fits(f->r, &d->point)) {
			snprintf(f->why, sizeof f->why, "the state of epoch %llu is of another history",
				(unsigned long long)d->point.epoch);
			out(f, d, false);
		}
		for (size_t k = 0; k < f->nd; k++)
			n += same_list(d, &f->d[k]);
		if (n > best || (n && n == best && d->point.epoch > f->ref->point.epoch)) {
			best = n;
			f->ref = d;
		}
	}
	if (!f->ref) {
		fetch_again(f, f->why[0] ? f->why : "no member has answered");
		return;
	}
	for (size_t i = 0; i < f->nd; i++) {
		struct donor *d = &f->d[i];
		if (!d->listed || d->out)
			continue;
		if (d->point.epoch != f->ref->point.epoch || memcmp(d->point.prev, f->ref->point.prev, DIGEST))
			out(f, d, false);
		else
			tell_different(f, d);
	}
	begin_pieces(f);
	take_some(f);
}

/* ---- pieces ---- */

static bool usable(const struct fetch *f, const struct donor *d)
{
	return d->listed && !d->out && d->point.epoch == f->ref->point.epoch &&
		!memcmp(d->point.prev, f->ref->point.prev, DIGEST);
}

static void missed(struct fetch *f, struct donor *d, const struct err *e)
{
	snprintf(f->why, sizeof f->why, "%s", e->text);
	if (e->code == ERR_BUSY)
		d->rest_us = env_now(f->r->rs->ctx.env) + RETRY_MIN_US;
	else if (e->code == ERR_NOT_FOUND || e->code == ERR_CORRUPT || ++d->misses >= MISSES_MAX)
		out(f, d, true);
}

static void finished(struct fetch *f)
{
	struct avg_point p;
	unsigned donors = 0;
	for (size_t i = 0; i < f->nd; i++)
		donors += f->d[i].given > 0;
	avg_point_init(&p);
	avg_point_copy(&p, &f->ref->point);
	forget_donors(f);
	env_timer(f->r->rs->ctx.env, &f->timer, 0);
	sync_fetched(f->r, &p, donors);
	avg_point_done(&p);
}

static void received(void *arg, struct xfer *x, const struct err *error)
{
	struct flight *l = arg;
	struct fetch *f = l->f;
	struct donor *d = l->d;
	size_t piece = l->piece, off = piece * f->piece, len = f->bytes - off < f->piece ? f->bytes - off : f->piece;
	struct err e = { 0 };
	uint8_t hash[16];
	l->x = NULL;
	flight_end(l);
	if (error) {
		e = *error;
	} else {
		size_t bytes;
		xxh128_of((const char *)trainer_state(f->r->trainer, &bytes) + off, len, hash);
		if (memcmp(hash, f->hash + 16 * piece, 16))
			err_set(&e, ERR_CORRUPT, "piece %zu from %.8s has another hash than its list says", piece,
				id_short(&d->id, (char[9]){ 0 }));
	}
	if (e.code) {
		missed(f, d, &e);
	} else {
		f->have[piece] = PIECE_HERE;
		f->left--;
		d->given++;
		d->misses = 0;
	}
	take_some(f);
}

static void promised(void *arg, const struct frame *a, const struct err *e)
{
	struct flight *l = arg;
	struct fetch *f = l->f;
	struct donor *d = l->d;
	l->call = NULL;
	if (a)
		return;
	flight_end(l);
	missed(f, d, e);
	take_some(f);
}

static void fly(struct fetch *f, struct donor *d, size_t piece)
{
	struct runs_ctx *c = &f->r->rs->ctx;
	struct flight *l = xcalloc(1, sizeof *l);
	size_t off = piece * f->piece, len = f->bytes - off < f->piece ? f->bytes - off : f->piece, bytes;
	struct id tag;
	*l = (struct flight){ .f = f, .d = d, .piece = piece };
	list_push(&f->flights, &l->link);
	f->have[piece] = PIECE_FLYING;
	d->flying++;
	c->env->ops->secure(c->env, tag.b, 32);
	uint64_t deadline = env_now(c->env) + PATIENCE_US +
		(uint64_t)((double)len * (double)list_len(&f->flights) / RATE_FLOOR * 1e6);
	l->x = xfer_recv(c->chunks, &d->id, &tag, (char *)trainer_state(f->r->trainer, &bytes) + off, len, deadline,
		received, l);
	l->call = net_call(c->net, &d->id, KIND_RUN_STATE, json_pack("{s:s,s:o,s:I,s:o}", "run", f->r->hex, "list",
		json_hex(d->list, 16), "piece", (json_int_t)piece, "tag", json_hex(tag.b, 32)), NO_BLOB, CLASS_weight,
		PIECE_CALL_US, promised, l);
}

/* The next piece that d has as the state has it; n: there is none. */
static size_t next_of(const struct fetch *f, const struct donor *d)
{
	size_t i = 0;
	while (i < f->n && (f->have[i] != PIECE_NEEDED || memcmp(d->hash + 16 * i, f->hash + 16 * i, 16)))
		i++;
	return i;
}

/* Twice the share of each: no more of one donor, as long as there are others. */
static size_t quota(const struct fetch *f)
{
	size_t same = 0;
	for (size_t i = 0; i < f->nd; i++)
		same += same_list(&f->d[i], f->ref) && usable(f, &f->d[i]);
	return same > 1 ? 2 * ((f->n + same - 1) / same) : f->n;
}

static void take_some(struct fetch *f)
{
	uint64_t now = env_now(f->r->rs->ctx.env);
	bool rests = false;
	size_t piece;
	if (!f->left) {
		finished(f);
		return;
	}
	for (unsigned ahead = 1; ahead <= AHEAD; ahead++)
		for (size_t i = 0; i < f->nd; i++) {
			struct donor *d = &f->d[i];
			if (!usable(f, d) || d->flying >= ahead || d->given + d->flying >= quota(f))
				continue;
			rests |= d->rest_us > now;
			if (d->rest_us <= now && (piece = next_of(f, d)) < f->n)
				fly(f, d, piece);
		}
	if (rests)
		env_after(f->r->rs->ctx.env, &f->timer, RETRY_MIN_US);
	else if (list_empty(&f->flights) && all_answered(f))
		fetch_again(f, f->why[0] ? f->why : "nobody has that copy any more");
}

/* ---- life ---- */

static void fire(struct timer *t)
{
	struct fetch *f = container_of(t, struct fetch, timer);
	if (f->resting)
		ask_all(f);
	else if (f->ref)
		take_some(f);
	else
		choose(f);
}

static void news(void *arg, const struct id *peer, enum net_news what)
{
	struct fetch *f = arg;
	bool hit = false;
	if (what == NEWS_ALIVE)
		return;
	for (size_t i = 0; i < f->nd; i++)
		if (id_eq(&f->d[i].id, peer) && !f->d[i].out) {
			out(f, &f->d[i], false);
			snprintf(f->why, sizeof f->why, "a donor has gone");
			hit = true;
		}
	if (hit && f->ref)
		take_some(f);
	else if (hit && all_answered(f))
		choose(f);
}

uint64_t fetch_epoch(const struct fetch *f)
{
	return f->ref ? f->ref->point.epoch : UINT64_MAX;
}

struct fetch *fetch_new(struct run *r)
{
	struct fetch *f = xcalloc(1, sizeof *f);
	f->r = r;
	f->timer = (struct timer){ .fire = fire, .name = "run.fetch" };
	list_init(&f->flights);
	net_watch(r->rs->ctx.net, news, f);
	f->resting = true;
	env_after(r->rs->ctx.env, &f->timer, 1);
	return f;
}

void fetch_free(struct fetch *f)
{
	if (!f)
		return;
	net_unwatch(f->r->rs->ctx.net, news, f);
	forget_donors(f);
	env_timer(f->r->rs->ctx.env, &f->timer, 0);
	free(f->have);
	free(f->hash);
	free(f);
}
