/* The joiner's side of a state download (donor.c is the other): pieces from several donors at once. Up to 8 members
 * list the pieces of a copy with their hashes; the list that most agree on is the state, and a piece may come from
 * whoever has it with that hash, no more than twice its share from one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/jrpc.h"
#include "common/mem.h"
#include "run/fetch.h"

/*   RUN_STATE {run, from, hashes}  ->  members: a copy of the first epoch they have that is not before `from`
 *       <-  {epoch, bytes, piece, list, hashes}, blob: tree256 of every piece, then the point as JSON
 *   RUN_STATE {run, list, piece, tag}  ->  one of them          then a transfer of that piece under tag
 *   RUN_STATE post  ->  who still sends: no more
 *
 * A donor that dies, or no longer has the copy, is left out; its pieces come from the others. When nobody is left that
 * has the copy, another is asked for; pieces that are the same in both stay. */

#define ASK_US 20000000                 /* a copy waits for the micro-batch under way */
#define OTHERS_US 200000                /* who answers so much later than the first gives its pieces later, too */

static void choose(struct fetch *f);

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
	if (a->blob_len < n * TREE256)
		return err_set(e, ERR_PROTOCOL, "the list of %llu pieces is cut short", (unsigned long long)n);
	uint8_t digest[TREE256];
	sha256_of(a->blob, n * TREE256, digest);
	if (memcmp(digest, d->list, TREE256))
		return err_set(e, ERR_CORRUPT, "the list of pieces has another hash than it should");
	json_t *point = json_read((const char *)a->blob + n * TREE256, a->blob_len - n * TREE256, JSON_POINT, e);
	avg_point_init(&d->point);
	int rc = point ? avg_point_parse(&d->point, point, e) : -1;
	json_decref(point);
	d->hashes = json_get_hashes(a->json, f->hashes);
	if (!rc)
		d->hash = xmemdup(a->blob, n * TREE256);
	return rc;
}

static void listed(void *arg, const struct frame *a, const struct err *e)
{
	struct donor *d = arg;
	struct fetch *f = d->f;
	struct err mine;
	d->call = NULL;
	if (a || (e->code != ERR_TIMEOUT && e->code != ERR_UNREACHABLE))
		sync_heard(f->r);
	if (a && take_list(f, d, a, &mine))
		e = &mine;
	d->listed = !e;
	if (e) {
		snprintf(f->why, sizeof f->why, "%s", e->text);
		fetch_drop(f, d, false);
	}
	if (f->ref)
		pieces_take(f);
	else if (fetch_all_answered(f))
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
	if (sync_holds(f->r) && !f->aside.v)
		f->aside = (struct pieces){ xcalloc(f->n, sizeof *f->aside.v), f->n, f->piece, f->bytes };
	for (size_t i = 0; i < f->nd; i++) {
		json_t *j = json_pack("{s:s,s:I}", "run", f->r->hex, "from", (json_int_t)from);
		json_put_hashes(j, f->hashes);
		f->d[i].call = net_call(c->net, &f->d[i].id, KIND_RUN_STATE, j, NO_BLOB, CLASS_weight, ASK_US, listed,
			&f->d[i]);
	}
}

/* ---- agreeing ---- */

/* Parameters and running statistics are equal after a commit unless the run says otherwise. */
static void tell_different(struct fetch *f, const struct donor *d)
{
	const struct model *m = trainer_model(f->r->trainer);
	size_t n = (m->nparam + m->nbuffer) * sizeof(real) / f->piece;
	char who[9], ours[9];
	if (f->r->spec->mode.local || !memcmp(d->hash, f->ref->hash, n * TREE256))
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
		if (f->have[i] == PIECE_HERE && !memcmp(f->hash + TREE256 * i, f->ref->hash + TREE256 * i, TREE256)) {
			have[i] = PIECE_HERE;
			f->left--;
		}
	for (size_t i = 0; i < f->n && f->aside.v; i++)
		if (have[i] != PIECE_HERE)
			piece_free(&f->aside, i);
	free(f->have);
	free(f->hash);
	f->have = have;
	f->hash = xmemdup(f->ref->hash, f->n * TREE256);
}

/* Lists are compared, so they must be made in one way: the one that all know. */
static bool made_alike(struct fetch *f)
{
	enum hashes least = f->hashes;
	for (size_t i = 0; i < f->nd; i++)
		if (f->d[i].listed && !f->d[i].out)
			least = hashes_both(least, f->d[i].hashes);
	if (least == f->hashes)
		return true;
	f->hashes = least;
	fetch_again(f, "a member is of an older version, and hashes it in another way");
	return false;
}

static void choose(struct fetch *f)
{
	size_t best = 0;
	if (!made_alike(f))
		return;
	for (size_t i = 0; i < f->nd; i++) {
		struct donor *d = &f->d[i];
		size_t n = 0;
		if (d->listed && !d->out && !sync_fits(f->r, &d->point)) {
			snprintf(f->why, sizeof f->why, "the state of epoch %llu is of another history",
				(unsigned long long)d->point.epoch);
			fetch_drop(f, d, false);
		}
		for (size_t k = 0; k < f->nd; k++)
			n += fetch_same_list(d, &f->d[k]);
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
			fetch_drop(f, d, false);
		else
			tell_different(f, d);
	}
	begin_pieces(f);
	pieces_take(f);
}

/* ---- life ---- */

static void fire(struct timer *t)
{
	struct fetch *f = container_of(t, struct fetch, timer);
	if (f->resting)
		ask_all(f);
	else if (f->ref)
		pieces_take(f);
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
			fetch_drop(f, &f->d[i], false);
			snprintf(f->why, sizeof f->why, "a donor has gone");
			hit = true;
		}
	if (hit && f->ref)
		pieces_take(f);
	else if (hit && fetch_all_answered(f))
		choose(f);
}

struct fetch *fetch_new(struct run *r)
{
	struct fetch *f = xcalloc(1, sizeof *f);
	f->r = r;
	f->hashes = r->rs->ctx.hashes;
	f->timer = (struct timer){ .fire = fire, .name = "run.fetch" };
	list_init(&f->flights);
	f->news = news;
	net_watch(r->rs->ctx.net, news, f);
	f->resting = true;
	env_after(r->rs->ctx.env, &f->timer, 1);
	return f;
}
