/* SENT on its way: this peer's own list is made and told, others' pieces are held against theirs, on the hash lane
 * (sent.c). */
#include <stdlib.h>
#include <string.h>
#include "avg/sent.h"
#include "common/hash.h"
#include "common/jrpc.h"

/* ---- this peer's ---- */

struct sent_make { struct job job; struct round *r; const float *x; uint8_t *hash; bool lie; };

static void told(void *arg, const struct frame *f, const struct err *e)
{
}

static void make_run(struct job *j)
{
	struct sent_make *m = container_of(j, struct sent_make, job);
	const struct round *r = m->r;
	for (size_t p = 0; p < r->b.parts; p++)
		tree256_of(r->b.hashes, m->x + r->part[p].off, r->part[p].bytes, m->hash + TREE256 * p);
	if (m->lie)
		m->hash[0] ^= 1;
}

static void tell(struct round *r)
{
	struct avg *a = r->a;
	const struct sent_list *own = &r->sent->of[r->me];
	for (size_t i = 0; i < r->b.n; i++) {
		const struct id *to = &r->b.m[i].id;
		if ((int)i == r->me || (r->b.m[i].flags & (MATE_FOLLOWER | MATE_CLIENT)))
			continue;
		struct buf b = { 0 };
		buf_put(&b, own->hash, r->b.parts * TREE256);
		buf_put(&b, own->sig, SIG_BYTES);
		json_t *j = hub_json(a);
		json_object_set_new(j, "round", json_hex(r->id, DIGEST));
		net_call(a->net, to, KIND_AVG_SENT, j, blob_steal(&b), CLASS_control, net_deadline(a->net, to, SECOND), told,
			NULL);
	}
}

static void make_done(struct job *j)
{
	struct sent_make *m = container_of(j, struct sent_make, job);
	struct round *r = m->r;
	struct avg *a = r->a;
	r->jobs--;
	a->x_jobs--;
	struct sent_list *own = &r->sent->of[r->me];
	own->hash = m->hash;
	sent_sign(r, own->hash, own->sig);
	own->known = own->good = true;
	if (!r->closed)
		tell(r);
	for (size_t p = 0; p < r->b.parts && !r->closed; p++)
		flow_try(r, p);
	free(m);
	avg_job_over(a);
}

void sents_make(struct round *r)
{
	struct sents *s = r->sent;
	if (!s || s->hashing || !r->x || !r->samples || r->growing)
		return;
	struct sent_make *m = xcalloc(1, sizeof *m);
	*m = (struct sent_make){ .r = r, .x = r->x, .hash = xcalloc(r->b.parts + 1, TREE256),
		.lie = FAILPOINT(r->a->env, "avg.sent.false") < 0 };
	m->job = (struct job){ .name = "avg.sent", .lane = env_lane(r->a->env, "hash"), .run = make_run,
		.done = make_done, .cost_us = r->b.len * sizeof(float) / 2000 };
	s->hashing = true;
	r->jobs++;
	r->a->x_jobs++;
	env_work(r->a->env, &m->job);
}

/* ---- others' ---- */

static void check_run(struct job *j)
{
	struct sent_check *c = container_of(j, struct sent_check, job);
	const struct round *r = c->r;
	const struct sent_list *l = &r->sent->of[c->member];
	uint8_t hash[TREE256];
	c->good = !c->verify || sent_verify(&r->a->conf.run, r->id, &r->b.m[c->member].id, l->hash, r->b.parts, l->sig);
	if (!c->good)
		return;
	tree256_of(r->b.hashes, c->piece, r->part[c->part].bytes, hash);
	c->good = !memcmp(hash, l->hash + TREE256 * c->part, TREE256);
}

static void check_done(struct job *j)
{
	struct sent_check *c = container_of(j, struct sent_check, job);
	struct round *r = c->r;
	struct avg *a = r->a;
	size_t p = c->part, i = c->member, at = p * r->b.n + i;
	bool orphan = c->orphan, good = c->good;
	r->jobs--;
	if (orphan)
		spare_put(a, c->piece, r->part[p].bytes);
	else
		r->sent->check[at] = NULL;
	free(c);
	if (good)
		r->sent->of[i].good = true;
	else
		r->sent->of[i].wrong = true;
	if (!orphan)
		r->sent->fits[at] = good;
	if (!r->closed && good)
		flow_try(r, p);
	if (!r->closed)
		flow_missing(r);
	avg_job_over(a);
}

void sent_arrived(struct round *r, size_t p, size_t i)
{
	struct sents *s = r->sent;
	struct rpart *rp = &r->part[p];
	size_t at = p * r->b.n + i;
	if (!s || !s->of[i].known || s->fits[at] || s->check[at] || !rp->in || !rp->in[i].done)
		return;
	struct sent_check *c = s->check[at] = xcalloc(1, sizeof *c);
	*c = (struct sent_check){ .r = r, .part = p, .member = i, .piece = rp->raw[i], .verify = !s->of[i].good };
	c->job = (struct job){ .name = "avg.check", .lane = env_lane(r->a->env, "hash"), .run = check_run,
		.done = check_done, .cost_us = 1 + rp->bytes / 2000 };
	r->jobs++;
	env_work(r->a->env, &c->job);
}

static void take(struct round *r, size_t i, const uint8_t *bytes, size_t n)
{
	struct sent_list *l = &r->sent->of[i];
	if (l->known || n != r->b.parts * TREE256 + SIG_BYTES)
		return;
	l->hash = xmemdup(bytes, r->b.parts * TREE256);
	memcpy(l->sig, bytes + r->b.parts * TREE256, SIG_BYTES);
	l->known = true;
	for (size_t p = 0; p < r->b.parts; p++)
		sent_arrived(r, p, i);
}

void sents_stashed(struct round *r)
{
	for (size_t i = 0; r->sent && i < r->b.n; i++) {
		struct mate *m = mate_find(r->a, &r->b.m[i].id);
		struct stash *s = m ? m->stash : NULL;
		if (!s || memcmp(s->round, r->id, DIGEST))
			continue;
		take(r, i, s->bytes, s->n);
		stash_free(m);
	}
}

void sent_on(struct avg *a, struct request *req)
{
	struct err e;
	uint8_t round[DIGEST];
	struct round *r = a->round;
	struct mate *m = mate_find(a, &req->f.from);
	if (json_get_hex(req->f.json, "round", round, DIGEST, &e)) {
		net_refuse(req, &e);
		return;
	}
	int i = r && !memcmp(r->id, round, DIGEST) ? round_member(r, &req->f.from) : -1;
	if (i >= 0 && r->sent && !r->closed) {
		take(r, (size_t)i, req->f.blob, req->f.blob_len);
	} else if (i < 0 && m && m->member && req->f.blob_len <= WIRE_MEMBERS_MAX * TREE256 + SIG_BYTES) {
		stash_free(m);
		m->stash = xcalloc(1, sizeof *m->stash);
		*m->stash = (struct stash){ .bytes = xmemdup(req->f.blob, req->f.blob_len), .n = req->f.blob_len };
		memcpy(m->stash->round, round, DIGEST);
	}
	net_reply(req, NULL, NO_BLOB);
}
