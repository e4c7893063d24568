/* Parts of a state that other members ask for. What is given is copied on the loop, a piece at a time, while nothing
 * changes it: the holders of a generation stand still until its newest member has what it needs. */
#include <stdlib.h>
#include <string.h>
#include "common/jrpc.h"
#include "common/mem.h"
#include "common/planted.h"
#include "run/mover.h"

#define GIFTS_MAX 32                    /* copies on their way; */
#define GIFTS_OF_ONE 8

/* A copy of which somebody wants the digest; m NULL: nobody any more. */
struct look { struct list link; struct mover *m; struct request *req; struct id to; struct shard s; struct job job;
	struct numbers numbers; enum hashes hashes; uint8_t digest[TREE256]; bool sound; };
struct gift { struct list link; struct mover *m; struct id to; struct shard s; struct xfer *x; };

static void gift_free(struct gift *g)
{
	g->m->ngifts--;
	list_del(&g->link);
	shard_free(&g->s);
	free(g);
}

void mover_give_stop(struct mover *m)
{
	list_each_safe(it, &m->gifts) {
		struct gift *g = list_entry(it, struct gift, link);
		xfer_cancel(g->x);
		gift_free(g);
	}
	list_each_safe(it, &m->looks) {
		struct look *l = list_entry(it, struct look, link);
		struct err e;
		err_set(&e, ERR_STATE, "the run ends here");
		net_refuse(l->req, &e);
		list_del(&l->link);
		l->m = NULL;                    /* the job's end frees it */
	}
	m->nlooks = 0;
}

static void sent(void *arg, struct xfer *x, const struct err *e)
{
	struct gift *g = arg;
	if (!e)
		g->m->given_bytes += g->s.bytes;
	gift_free(g);
}

/* ---- giving ---- */

/* All elements of x lie in one shard here. */
static const struct shard *all_in(const struct mover *m, bool stat, struct extent x)
{
	const struct shard *s = mover_shard_at(m, stat, x.lo, run_crew_whole(m->r));
	return s && x.hi <= mover_extent(s, stat).hi ? s : NULL;
}

/* The piece that is asked for, copied. */
static int piece_of(const struct mover *m, const struct request *req, struct shard *ret, struct err *e)
{
	const struct shard *first = trainer_shard(m->r->trainer), *s;
	struct shard_part p;
	if (mover_part_read(&p, first->l, json_object_get(req->f.json, "part"), e))
		return -1;
	uint64_t params = extent_len(p.param), stats = extent_len(p.stat);
	if ((params && stats) || params + stats == 0 || params + stats > MOVER_PIECE)
		return err_set(e, ERR_INVALID, "a piece is of parameters or of running statistics, at most %u", MOVER_PIECE);
	s = all_in(m, stats > 0, stats ? p.stat : p.param);
	if (!s)
		return err_set(e, ERR_NOT_FOUND, "this peer does not hold that piece");
	if (shard_new(ret, first->l, p.param, p.stat, e))
		return -1;
	memset(ret->block, 0, ret->bytes);
	shard_clock_reset(ret);
	(void)shard_copy(ret, s);
	if (stats)
		shard_clock_reset(ret);         /* the same bytes, whatever else lies in that shard */
	return 0;
}

static int busy(struct mover *m, size_t n, size_t of_one, struct err *e)
{
	if (n < GIFTS_MAX && of_one < GIFTS_OF_ONE)
		return 0;
	m->busy++;
	return err_set(e, ERR_BUSY, "%zu pieces are on their way already", n);
}

static int give(struct mover *m, struct request *req, struct err *e)
{
	struct runs_ctx *c = &m->r->rs->ctx;
	struct gift *g;
	struct shard s;
	struct id tag;
	size_t of_one = 0;
	list_each(it, &m->gifts)
		of_one += id_eq(&list_entry(it, struct gift, link)->to, &req->f.from);
	if (FAILPOINT(m->env, "run.shard.give") < 0)
		return err_set(e, ERR_BUSY, "a fail point");
	if (json_get_hex(req->f.json, "tag", tag.b, 32, e) || busy(m, m->ngifts, of_one, e) || piece_of(m, req, &s, e))
		return -1;
	g = xcalloc(1, sizeof *g);
	*g = (struct gift){ .m = m, .to = req->f.from, .s = s };
	list_push(&m->gifts, &g->link);
	m->ngifts++;
	g->x = xfer_send(c->chunks, &g->to, &tag, g->s.block, g->s.bytes, CLASS_weight, env_now(c->env) +
		mover_patience(g->s.bytes, GIFTS_OF_ONE), sent, g);
	net_reply(req, json_object(), NO_BLOB);
	return 0;
}

/* ---- digests ---- */

static void digest_run(struct job *j)
{
	struct look *l = container_of(j, struct look, job);
	tree256_of(l->hashes, l->s.block, l->s.bytes, l->digest);
	l->sound = mover_sound(&l->s, &l->numbers);
}

static void digest_done(struct job *j)
{
	struct look *l = container_of(j, struct look, job);
	struct err e;
	if (l->m) {
		if (l->sound) {
			net_reply(l->req, json_pack("{s:o}", "digest", json_hex(l->digest, TREE256)), NO_BLOB);
		} else {
			err_set(&e, ERR_CORRUPT, "what this peer holds of that are no numbers that a state can have");
			net_refuse(l->req, &e);
		}
		l->m->nlooks--;
		list_del(&l->link);
	}
	shard_free(&l->s);
	free(l);
}

static int look(struct mover *m, struct request *req, struct err *e)
{
	struct shard s;
	size_t of_one = 0;
	list_each(it, &m->looks)
		of_one += id_eq(&list_entry(it, struct look, link)->to, &req->f.from);
	if (busy(m, m->nlooks, of_one, e) || piece_of(m, req, &s, e))
		return -1;
	struct look *l = xcalloc(1, sizeof *l);
	*l = (struct look){ .m = m, .to = req->f.from, .s = s, .req = net_keep(req),
		.numbers = mover_numbers(&s), .hashes = json_get_hashes(req->f.json, m->r->rs->ctx.hashes) };
	list_push(&m->looks, &l->link);
	m->nlooks++;
	l->job = (struct job){ .name = "run.shard", .lane = env_lane(m->env, "hash"), .run = digest_run,
		.done = digest_done, .cost_us = 1 + s.bytes / 2000 };
	env_work(m->env, &l->job);
	return 0;
}

/* ---- what is asked ---- */

/* The state is the members': a stranger, who needs none of it, could keep them all busy with its pieces. Whoever is in
 * a generation that has not been heard of here yet asks again. */
static int here(const struct mover *m, const struct request *req, struct err *e)
{
	const struct run *r = m->r;
	uint64_t epoch;
	uint8_t prev[DIGEST];
	if (!run_crew_names(r, &req->f.from) && !PLANTED(SHARD_TO_ANYBODY))
		return err_set(e, ERR_AUTH, "parts of the state are for members of a generation, and this peer knows of none "
			"that %.8s is in", id_short(&req->f.from, (char[9]){ 0 }));
	if (json_get_u64(req->f.json, "epoch", &epoch, e) || json_get_hex(req->f.json, "prev", prev, DIGEST, e))
		return -1;
	if (epoch != r->point.epoch || memcmp(prev, r->point.prev, DIGEST))
		return err_set(e, ERR_BUSY, "this peer is at epoch %llu of its history", (unsigned long long)r->point.epoch);
	if (!trainer_lies_still(r->trainer))
		return err_set(e, ERR_BUSY, "a step is being made");
	return 0;
}

static void tell_held(const struct mover *m, struct request *req)
{
	json_t *j = json_pack("{s:o}", "held", mover_held(m));
	json_put_hashes(j, m->r->rs->ctx.hashes);
	net_reply(req, j, NO_BLOB);
}

void mover_hand(struct mover *m, struct request *req)
{
	struct err e;
	if (here(m, req, &e))
		net_refuse(req, &e);
	else if (!json_object_get(req->f.json, "part"))
		tell_held(m, req);
	else if (json_is_true(json_object_get(req->f.json, "look")) ? look(m, req, &e) : give(m, req, &e))
		net_refuse(req, &e);
}
