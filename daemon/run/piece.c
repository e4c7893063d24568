/* The pieces of a state download (fetch.c): asked of whoever has them with the hash that the agreed list says, a
 * few at a time of each, and looked at before they become part of the state. */
#include <stdio.h>
#include <string.h>
#include "common/jrpc.h"
#include "common/mem.h"
#include "run/fetch.h"

#define PIECE_CALL_US 10000000
#define PATIENCE_US 5000000
#define RATE_FLOOR 30000.0              /* bytes/s, until a piece has come */
#define AHEAD 2                         /* pieces asked of one donor at one time */
#define MISSES_MAX 3

/* No memory for both: what has come takes the place of what was here. */
static void in_place(struct fetch *f)
{
	pieces_put(&f->aside, trainer_shard(f->r->trainer));
	pieces_drop(&f->aside);
	sync_let_go(f->r);
}

/* ---- on its way ---- */

static void missed(struct fetch *f, struct donor *d, const struct err *e)
{
	snprintf(f->why, sizeof f->why, "%s", e->text);
	if (e->code == ERR_BUSY)
		d->rest_us = env_now(f->r->rs->ctx.env) + RETRY_MIN_US;
	else if (e->code == ERR_NOT_FOUND || e->code == ERR_CORRUPT || ++d->misses >= MISSES_MAX)
		fetch_drop(f, d, true);
}

static void landed(struct flight *l, const struct err *error)
{
	struct fetch *f = l->f;
	struct donor *d = l->d;
	size_t piece = l->piece, bytes;
	struct err e = { 0 };
	if (!error)
		sync_heard(f->r);
	if (error)
		e = *error;
	else if (memcmp(l->hash, f->hash + TREE256 * piece, TREE256))
		err_set(&e, ERR_CORRUPT, "piece %zu from %.8s has another hash than its list says", piece,
			id_short(&d->id, (char[9]){ 0 }));
	else if (f->aside.v) {
		f->aside.v[piece] = l->data;
		l->data = NULL;
	} else
		memcpy((char *)trainer_state(f->r->trainer, &bytes) + piece * f->piece, l->data, l->len);
	flight_end(l);
	if (e.code) {
		missed(f, d, &e);
	} else {
		f->have[piece] = PIECE_HERE;
		f->left--;
		d->given++;
		d->misses = 0;
	}
	pieces_take(f);
}

static void hash_run(struct job *j)
{
	struct flight *l = container_of(j, struct flight, job);
	tree256_of(l->hashes, l->data, l->len, l->hash);
}

static void hash_done(struct job *j)
{
	struct flight *l = container_of(j, struct flight, job);
	l->hashing = false;
	if (l->over)
		flight_free(l);
	else
		landed(l, NULL);
}

static void received(void *arg, struct xfer *x, const struct err *error)
{
	struct flight *l = arg;
	struct env *env = l->f->r->rs->ctx.env;
	l->x = NULL;
	if (error) {
		landed(l, error);
		return;
	}
	l->hashing = true;
	l->job = (struct job){ .name = "run.piece", .lane = env_lane(env, "hash"), .run = hash_run, .done = hash_done,
		.cost_us = 1 + l->len / 2000 };
	env_work(env, &l->job);
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
	pieces_take(f);
}

static void fly(struct fetch *f, struct donor *d, size_t piece)
{
	struct runs_ctx *c = &f->r->rs->ctx;
	size_t off = piece * f->piece, len = f->bytes - off < f->piece ? f->bytes - off : f->piece;
	struct id tag;
	void *data = FAILPOINT(c->env, "run.piece") < 0 ? NULL : big_alloc(len);
	if (!data && f->aside.v) {
		in_place(f);
		data = big_alloc(len);
	}
	if (!data) {
		snprintf(f->why, sizeof f->why, "no memory for a piece of %zu bytes", len);
		d->rest_us = env_now(c->env) + RETRY_MIN_US;
		return;
	}
	struct flight *l = xcalloc(1, sizeof *l);
	*l = (struct flight){ .f = f, .d = d, .piece = piece, .len = len, .data = data, .hashes = d->hashes };
	list_push(&f->flights, &l->link);
	f->have[piece] = PIECE_FLYING;
	d->flying++;
	c->env->ops->secure(c->env, tag.b, 32);
	uint64_t deadline = env_now(c->env) + PATIENCE_US +
		(uint64_t)((double)len * (double)list_len(&f->flights) / RATE_FLOOR * 1e6);
	l->x = xfer_recv(c->chunks, &d->id, &tag, l->data, len, deadline, received, l);
	l->call = net_call(c->net, &d->id, KIND_RUN_STATE, json_pack("{s:s,s:o,s:I,s:o}", "run", f->r->hex, "list",
		json_hex(d->list, TREE256), "piece", (json_int_t)piece, "tag", json_hex(tag.b, 32)), NO_BLOB, CLASS_weight,
		PIECE_CALL_US, promised, l);
}

/* The next piece that d has as the state has it; n: there is none. */
static size_t next_of(const struct fetch *f, const struct donor *d)
{
	size_t i = 0;
	while (i < f->n && (f->have[i] != PIECE_NEEDED || memcmp(d->hash + TREE256 * i, f->hash + TREE256 * i, TREE256)))
		i++;
	return i;
}

/* Twice the share of each: no more of one donor, as long as there are others. */
static size_t quota(const struct fetch *f)
{
	size_t same = 0;
	for (size_t i = 0; i < f->nd; i++)
		same += fetch_same_list(&f->d[i], f->ref) && fetch_usable(f, &f->d[i]);
	return same > 1 ? 2 * ((f->n + same - 1) / same) : f->n;
}

/* All of it is here. */
static void finish(struct fetch *f)
{
	struct avg_point p;
	unsigned donors = 0;
	for (size_t i = 0; i < f->nd; i++)
		donors += f->d[i].given > 0;
	avg_point_init(&p);
	avg_point_copy(&p, &f->ref->point);
	fetch_forget_donors(f);
	env_timer(f->r->rs->ctx.env, &f->timer, 0);
	struct pieces *aside = f->aside.v ? xmemdup(&f->aside, sizeof f->aside) : NULL;
	f->aside = (struct pieces){ 0 };
	sync_fetched(f->r, &p, donors, aside);
	avg_point_done(&p);
}

void pieces_take(struct fetch *f)
{
	uint64_t now = env_now(f->r->rs->ctx.env);
	bool rests = false;
	size_t piece;
	if (!f->left) {
		finish(f);
		return;
	}
	for (unsigned ahead = 1; ahead <= AHEAD; ahead++)
		for (size_t i = 0; i < f->nd; i++) {
			struct donor *d = &f->d[i];
			if (!fetch_usable(f, d) || d->flying >= ahead || d->given + d->flying >= quota(f))
				continue;
			rests |= d->rest_us > now;
			if (d->rest_us <= now && (piece = next_of(f, d)) < f->n)
				fly(f, d, piece);
			rests |= d->rest_us > now;
		}
	if (rests)
		env_after(f->r->rs->ctx.env, &f->timer, RETRY_MIN_US);
	else if (list_empty(&f->flights) && fetch_all_answered(f))
		fetch_again(f, f->why[0] ? f->why : "nobody has that copy any more");
}
