/* What the reduce lane does for a round: encode this peer's pieces, sum a part's and encode the mean, decode
 * what others have summed. Small parts stay on the loop. A part whose bytes are the floats' own is never copied. */
#include <stdlib.h>
#include <string.h>
#include "avg/int.h"
#include "avg/robust.h"
#include "common/hash.h"
#include "kernels/vec.h"

#define ODD_ROUNDS 3                            /* as often in a row out of line: somebody should look */

struct sum_job {
	struct job job; struct round *r; size_t part; uint32_t attempt; int rc; uint64_t total;
	struct reduce_term *t; uint16_t *member; size_t terms;
	bool lie, overflows; const float *x; float *out, *was, *now; uint8_t *coded; uint8_t hash[TREE256]; bool owner;
};

/* ---- jobs ---- */

static struct sum_job *job_new(struct round *r, size_t p, const char *name, const char *lane)
{
	struct sum_job *s = xcalloc(1, sizeof *s);
	struct rpart *rp = &r->part[p];
	*s = (struct sum_job){ .r = r, .part = p, .attempt = r->attempt };
	s->job = (struct job){ .name = name, .lane = env_lane(r->a->env, lane), .cost_us = rp->len * sizeof(float) / 2000 };
	r->jobs++;
	return s;
}

static bool few(const struct round *r, size_t p) { return r->part[p].len * sizeof(float) <= FEW; }

static void job_start(struct sum_job *s, void (*run)(struct job *), void (*done)(struct job *))
{
	s->job.run = run;
	s->job.done = done;
	if (!few(s->r, s->part)) {
		env_work(s->r->a->env, &s->job);
		return;
	}
	run(&s->job);
	done(&s->job);
}

/* ---- this peer's pieces ---- */

static void encode_run(struct job *j)
{
	struct sum_job *s = container_of(j, struct sum_job, job);
	const struct rpart *rp = &s->r->part[s->part];
	const struct coding *c = &s->r->coding;
	struct par par = par_serial(CPU_PLAIN, NULL);
	float room[CODEC_BLOCK_MAX];
	struct reduce_term t = { .coded = s->coded };
	struct blocks b;
	if (!s->now) {
		coding_encode(c, rp->off, rp->len, s->x, s->coded);
		return;
	}
	vec_copy(&par, rp->len, s->x, s->now);
	if (s->was)
		vec_axpy(&par, rp->len, 1, s->was, s->now);
	coding_encode(c, rp->off, rp->len, s->now, s->coded);
	blocks_begin(&b, c, rp->off, rp->len);
	while (blocks_next(&b))
		vec_axpy(&par, b.len, -1, blocks_of(&b, &t, room), s->now + b.at);
}

static void encode_done(struct job *j)
{
	struct sum_job *s = container_of(j, struct sum_job, job);
	struct round *r = s->r;
	struct avg *a = r->a;
	struct rpart *rp = &r->part[s->part];
	bool small = few(r, s->part);
	rp->encoding = false;
	rp->x_enc = s->coded;
	r->jobs--;
	a->x_jobs--;
	free(s);
	if (small)
		return;
	if (!r->closed)
		flow_send_x(r);
	avg_job_over(a);
}

void sum_encode(struct round *r, size_t p)
{
	struct rpart *rp = &r->part[p];
	uint8_t *to = spare_get(r->a, rp->bytes);
	if (!to) {
		hub_event(r->a, LOG_ERROR_, "memory", NULL, "no memory to encode a part of %zu bytes", rp->bytes);
		rp->x_failed = true;
		return;
	}
	struct sum_job *s = job_new(r, p, "avg.encode", "reduce");
	s->x = r->x + rp->off;
	s->coded = to;
	residual_begin(r, rp, OF_PIECE, &s->was, &s->now);
	rp->encoding = true;
	r->a->x_jobs++;
	job_start(s, encode_run, encode_done);
}

/* ---- sums ---- */

static void encode_mean(struct sum_job *s, const struct rpart *rp)
{
	struct par par = par_serial(CPU_PLAIN, NULL);
	const struct coding *c = &s->r->coding;
	if (s->was)
		vec_axpy(&par, rp->len, 1, s->was, s->out);
	if (s->now)
		vec_copy(&par, rp->len, s->out, s->now);
	coding_encode(c, rp->off, rp->len, s->out, s->coded);
	coding_decode(c, rp->off, rp->len, s->coded, s->out);
	if (s->now)
		vec_axpy(&par, rp->len, -1, s->out, s->now);
}

static void sum_run(struct job *j)
{
	struct sum_job *s = container_of(j, struct sum_job, job);
	const struct round *r = s->r;
	const struct rpart *rp = &r->part[s->part];
	s->rc = reduce_part(&r->coding, rp->off, rp->len, s->t, s->terms, s->total, r->robust, s->out);
	if (s->rc && !s->overflows)
		return;
	s->rc = 0;                              /* what is not finite stays in a plain sum, and is meant to */
	if (s->lie)
		s->out[0] += 1;
	if (s->coded)
		encode_mean(s, rp);
}

static void judge(struct round *r, const struct sum_job *s)
{
	bool any = false;
	for (size_t k = 0; k < s->terms; k++) {
		any = any || s->t[k].bad;
		bool *bad = s->t[k].row ? r->broken : r->bad;
		bad[s->member[k]] = bad[s->member[k]] || s->t[k].bad;
		r->odd[s->member[k]] += s->t[k].odd;
	}
	r->judged += !any && r->robust != ROBUST_NONE && s->terms > 2;
}

static void sum_done(struct job *j)
{
	struct sum_job *s = container_of(j, struct sum_job, job);
	struct round *r = s->r;
	struct avg *a = r->a;
	struct rpart *rp = &r->part[s->part];
	size_t p = s->part;
	int rc = s->rc;
	bool current = !r->closed && s->attempt == r->attempt;
	r->jobs--;
	a->x_jobs--;
	rp->summing = false;
	if (current && !s->overflows)
		judge(r, s);
	free(s->t);
	free(s->member);
	free(s);
	if (current && rc)
		flow_missing(r);                /* the leader leaves them out, and another attempt comes */
	else if (current)
		flow_summed(r, p);
	else if (!r->closed)
		flow_again(r, p);
	avg_job_over(a);
}

/* ---- hashes: what is sent goes out meanwhile ---- */

static void hash_run(struct job *j)
{
	struct sum_job *s = container_of(j, struct sum_job, job);
	tree256_of(s->r->b.hashes, s->coded ? (const void *)s->coded : s->out, s->r->part[s->part].bytes, s->hash);
}

bool sum_hashed(struct job *j, struct round **ret_round, size_t *ret_part)
{
	struct sum_job *s = container_of(j, struct sum_job, job);
	struct round *r = *ret_round = s->r;
	struct rpart *rp = &r->part[s->part];
	bool current = !r->closed && s->attempt == r->attempt;
	*ret_part = s->part;
	r->jobs--;
	rp->summing = false;
	if (current) {
		memcpy(rp->hash, s->hash, TREE256);
		rp->ready = true;
		if (s->owner && (r->flow ? PLANTED(GRID_OWN) : PLANTED(OWN_SUM)))  /* not the bytes that the others got */
			r->mean[rp->off] += r->mean[rp->off] * 1e-6f;
	}
	free(s);
	return current;
}

static void hash_done(struct job *j)
{
	struct round *r;
	size_t p;
	bool current = sum_hashed(j, &r, &p);
	struct avg *a = r->a;
	if (current)
		member_check(r);
	else if (!r->closed)
		flow_again(r, p);
	avg_job_over(a);
}

/* Of the mean of a part, which this peer has summed (own) or got as it is: the hash that it says it holds. */
static struct sum_job *hash_new(struct round *r, size_t p, bool own)
{
	struct rpart *rp = &r->part[p];
	struct sum_job *s = job_new(r, p, "avg.hash", "hash");
	s->out = r->mean + rp->off;
	s->coded = rp->plain ? NULL : rp->r_enc;
	s->owner = own;
	rp->summing = true;
	return s;
}

void sum_hash(struct round *r, size_t p, bool own)
{
	job_start(hash_new(r, p, own), hash_run, hash_done);
}

/* Whoever asks goes on with what must not end meanwhile. */
void sum_hash_later(struct round *r, size_t p, bool own, void (*done)(struct job *))
{
	struct sum_job *s = hash_new(r, p, own);
	s->job.run = hash_run;
	s->job.done = done;
	env_work(r->a->env, &s->job);
}

static void terms(const struct round *r, size_t p, struct sum_job *s)
{
	const struct rpart *rp = &r->part[p];
	s->total = tree_weight(&r->tree, p, (size_t)r->me, r->w);
	s->t = xcalloc(r->b.n, sizeof *s->t);
	s->member = xcalloc(r->b.n, sizeof *s->member);
	for (size_t i = 0; i < r->b.n; i++) {
		bool own = (int)i == r->me, row = !own && tree_sums(&r->tree, p, i);
		if ((!own && tree_up(&r->tree, p, i) != (size_t)r->me) || !tree_brings(&r->tree, p, i))
			continue;
		uint64_t w = row ? tree_weight(&r->tree, p, i, r->w) : r->w[i];
		if (!w)
			continue;
		s->member[s->terms] = (uint16_t)i;
		s->t[s->terms++] = (struct reduce_term){ .weight = w, .row = row,
			.x = own ? r->x + rp->off : rp->plain ? rp->raw[i] : NULL, .coded = own ? NULL : rp->raw[i] };
	}
}

void sum_start(struct round *r, size_t p)
{
	struct rpart *rp = &r->part[p];
	bool owner = rp->owner == r->me;
	uint8_t **enc = owner ? &rp->r_enc : &rp->p_enc;
	if ((!owner || !rp->plain) && !*enc && !(*enc = spare_get(r->a, rp->bytes))) {
		hub_event(r->a, LOG_ERROR_, "memory", NULL, "no memory to encode a mean of %zu bytes", rp->bytes);
		return;                         /* the others find this reducer late */
	}
	struct sum_job *s = job_new(r, p, "avg.sum", "reduce");
	s->owner = owner;
	s->overflows = hub_overflows(r->a) && r->robust == ROBUST_NONE;
	s->lie = FAILPOINT(r->a->env, "avg.sum.false") < 0;
	/* A row's sum has its own bytes; encoded, the mean's place is room to make it in: no result comes before it has
	 * gone. */
	s->out = owner || !rp->plain ? r->mean + rp->off : (float *)rp->p_enc;
	s->coded = rp->plain ? NULL : *enc;
	terms(r, p, s);
	s->job.cost_us *= s->terms;
	residual_begin(r, rp, residual_role(r, rp), &s->was, &s->now);
	rp->summing = true;
	r->a->x_jobs++;
	job_start(s, sum_run, sum_done);
}

/* Every reducer judges by the parts that it sums; what it says of a member is its own observation. */
void sum_odd(struct round *r)
{
	for (size_t i = 0; r->judged && i < r->b.n; i++) {
		struct mate *m = r->w[i] ? mate_find(r->a, &r->b.m[i].id) : NULL;
		if (!m)
			continue;
		m->odd = 2 * r->odd[i] > r->judged ? m->odd + 1 : 0;
		if (m->odd == ODD_ROUNDS)
			hub_event(r->a, LOG_WARN_, "out of line", &m->id,
				"in %d rounds its contribution was more than %g times as far from the median as most", ODD_ROUNDS,
				REDUCE_ODD);
	}
}

/* ---- what others have summed ---- */

static void take_run(struct job *j)
{
	struct sum_job *s = container_of(j, struct sum_job, job);
	const struct rpart *rp = &s->r->part[s->part];
	coding_decode(&s->r->coding, rp->off, rp->len, s->coded, s->out);
	hash_run(j);
}

static void take_done(struct job *j)
{
	struct sum_job *s = container_of(j, struct sum_job, job);
	struct round *r = s->r;
	struct avg *a = r->a;
	struct rpart *rp = &r->part[s->part];
	bool current = !r->closed && s->attempt == r->attempt, keep = current && rp->sums;
	r->jobs--;
	rp->summing = false;
	if (keep) {                             /* others wait for these bytes */
		spare_put(a, rp->r_enc, rp->bytes);
		rp->r_enc = s->coded;
	} else {
		spare_put(a, s->coded, rp->bytes);
	}
	if (current) {
		rp->ready = true;
		memcpy(rp->hash, s->hash, TREE256);
		if (keep)
			flow_pass_on(r, s->part);
		round_touch(r);
		member_check(r);
	} else if (!r->closed) {
		flow_again(r, s->part);
	}
	free(s);
	avg_job_over(a);
}

/* Floats that came as they are are where they belong already; who waits for them gets them at once. */
void sum_take(struct round *r, size_t p)
{
	struct rpart *rp = &r->part[p];
	round_touch(r);
	if (rp->plain) {
		if (rp->sums)
			flow_pass_on(r, p);
		sum_hash(r, p, false);
		return;
	}
	struct sum_job *s = job_new(r, p, "avg.take", "hash");
	s->out = r->mean + rp->off;
	s->coded = rp->in_enc;
	rp->in_enc = NULL;
	rp->summing = true;
	job_start(s, take_run, take_done);
}
