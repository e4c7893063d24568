/* Parts on their way. A member sends piece p of its gradient to p's owner; the owner keeps what it got until COMMIT,
 * sums
 * over C in member order when all of C is there, and sends the same bytes to everybody; it reads its own result from
 * the same buffer. An attempt only changes owners and weights: what is there already is not sent again. */
#include <stdlib.h>
#include <string.h>
#include "avg/int.h"
#include "avg/reduce.h"
#include "common/hash.h"

struct sum_job {
	struct job job; struct round *r; size_t part; uint32_t attempt;
	struct reduce_term *t; size_t terms; uint64_t total; float *out; size_t n; uint8_t hash[16];
};

/* ---- buffers that go from round to round: fresh pages cost more than the sum ---- */

void *spare_get(struct avg *a, size_t bytes)
{
	for (size_t i = 0; i < SPARES; i++)
		if (a->spare[i].p && a->spare[i].bytes == bytes) {
			void *p = a->spare[i].p;
			a->spare[i].p = NULL;
			return p;
		}
	return big_alloc(bytes);
}

void spare_put(struct avg *a, void *p, size_t bytes)
{
	size_t to = SPARES;
	if (!p)
		return;
	for (size_t i = 0; i < SPARES && to == SPARES; i++)
		if (!a->spare[i].p)
			to = i;
	if (to == SPARES) {
		to = bytes % SPARES;
		big_free(a->spare[to].p, a->spare[to].bytes);
	}
	a->spare[to].p = p;
	a->spare[to].bytes = bytes;
}

/* ---- names of transfers ---- */

static void tag_of(const struct round *r, char what, uint32_t attempt, size_t part, const struct id *from,
	const struct id *to, struct id *ret)
{
	struct buf b = { 0 };
	buf_put(&b, r->a->conf.run.b, 32);
	buf_put(&b, r->id, DIGEST);
	buf_u8(&b, (uint8_t)what);
	buf_u32(&b, attempt);
	buf_u32(&b, (uint32_t)part);
	buf_put(&b, from->b, 32);
	buf_put(&b, to->b, 32);
	id_of(ret, b.p, b.len);
	buf_free(&b);
}

static const struct id *who(const struct round *r, size_t i)
{
	return &r->b.m[i].id;
}

static bool may_bring(const struct round *r, size_t i)
{
	return (int)i != r->me && !(r->b.m[i].flags & (MATE_FOLLOWER | MATE_AUX));
}

static bool lives(const struct round *r, size_t i)
{
	const struct mate *m = mate_find(r->a, who(r, i));
	return m && m->live;
}

static uint64_t give_up_at(const struct round *r)
{
	return now_of(r->a) + 8 * r->b.data_us + r->b.ready_us + 2 * SECOND;
}

static void flow_cancel(struct flow *f)
{
	if (f->x)
		xfer_cancel(f->x);
	f->x = NULL;
}

/* ---- what arrives ---- */

static void raw_arrived(void *arg, struct xfer *x, const struct err *e)
{
	struct flow *f = arg;
	struct round *r = f->r;
	f->x = NULL;
	if (e)
		return;                         /* the deadline, or the news of a death, makes it missing */
	f->done = true;
	r->bytes_in += r->part[f->part].len * sizeof(float);
	flow_try(r, f->part);
	flow_missing(r);
}

static int open_raw(struct round *r, size_t p)
{
	struct rpart *rp = &r->part[p];
	rp->raw = xcalloc(r->b.n, sizeof *rp->raw);
	rp->in = xcalloc(r->b.n, sizeof *rp->in);
	for (size_t i = 0; i < r->b.n; i++) {
		struct id tag;
		if (!may_bring(r, i))
			continue;
		rp->raw[i] = spare_get(r->a, rp->len * sizeof(float));
		if (!rp->raw[i])
			return -1;              /* stays missing: the leader gives the part to another */
		rp->in[i] = (struct flow){ .r = r, .part = (uint16_t)p, .member = (uint16_t)i };
		tag_of(r, 'x', 0, p, who(r, i), who(r, (size_t)r->me), &tag);
		rp->in[i].x = xfer_recv(r->a->chunks, who(r, i), &tag, rp->raw[i], rp->len * sizeof(float), 0, raw_arrived,
			&rp->in[i]);
	}
	return 0;
}

static void close_raw(struct round *r, size_t p)
{
	struct rpart *rp = &r->part[p];
	for (size_t i = 0; rp->raw && i < r->b.n; i++) {
		flow_cancel(&rp->in[i]);
		spare_put(r->a, rp->raw[i], rp->len * sizeof(float));
	}
	free(rp->raw);
	free(rp->in);
	rp->raw = NULL;
	rp->in = NULL;
}

void flow_open(struct round *r)
{
	for (size_t p = 0; p < r->b.parts; p++)
		if (r->part[p].owner == r->me && open_raw(r, p))
			hub_event(r->a, LOG_ERROR_, "memory", NULL, "no memory for the %zu contributions of a part", r->b.n);
}

/* ---- what leaves ---- */

static void piece_sent(void *arg, struct xfer *x, const struct err *e)
{
	struct flow *f = arg;
	f->x = NULL;
	f->done = !e;
	if (!e)
		f->r->bytes_out += f->r->part[f->part].len * sizeof(float);
}

static void send_piece(struct round *r, size_t p)
{
	struct rpart *rp = &r->part[p];
	struct id tag;
	if (rp->owner == r->me || !r->samples || !r->x || rp->x_out.x || rp->x_out.done)
		return;                         /* a successor asks again for what is on its way or there */
	rp->x_out = (struct flow){ .r = r, .part = (uint16_t)p, .member = rp->owner };
	tag_of(r, 'x', 0, p, who(r, (size_t)r->me), who(r, rp->owner), &tag);
	MARK(r->a, "avg.data.before");
	rp->x_out.x = xfer_send(r->a->chunks, who(r, rp->owner), &tag, r->x + rp->off, rp->len * sizeof(float),
		CLASS_weight_grad,
		give_up_at(r), piece_sent, &rp->x_out);
	MARK(r->a, "avg.data.after");
}

void flow_send_x(struct round *r)
{
	for (size_t p = 0; p < r->b.parts; p++)
		send_piece(r, p);
}

static void result_sent(void *arg, struct xfer *x, const struct err *e)
{
	struct flow *f = arg;
	f->x = NULL;
	f->done = !e;
	if (!e)
		f->r->bytes_out += f->r->part[f->part].len * sizeof(float);
	if (f->r->closed)
		kick(f->r->a);                  /* perhaps the last thing that kept the round */
}

static void send_results(struct round *r, size_t p)
{
	struct rpart *rp = &r->part[p];
	if (!rp->result_out)
		rp->result_out = xcalloc(r->b.n, sizeof *rp->result_out);
	for (size_t i = 0; i < r->b.n; i++) {
		struct flow *f = &rp->result_out[i];
		struct id tag;
		/* Who counts in this attempt is alive by the leader's word: ours may be news of its earlier life. */
		if ((int)i == r->me || (!lives(r, i) && !r->w[i]) || f->x)
			continue;
		*f = (struct flow){ .r = r, .part = (uint16_t)p, .member = (uint16_t)i };
		tag_of(r, 'r', r->attempt, p, who(r, (size_t)r->me), who(r, i), &tag);
		MARK(r->a, "avg.result.before");
		f->x = xfer_send(r->a->chunks, who(r, i), &tag, r->mean + rp->off, rp->len * sizeof(float), CLASS_weight_grad,
			give_up_at(r), result_sent, f);
		MARK(r->a, "avg.result.after");
	}
}

/* ---- sums ---- */

static void summed(struct round *r, size_t p, const uint8_t *hash)
{
	struct rpart *rp = &r->part[p];
	rp->ready = true;
	memcpy(rp->hash, hash, 16);
	send_results(r, p);
	if (PLANTED(OWN_SUM))             /* not the bytes that it sent to the others */
		r->mean[rp->off] += r->mean[rp->off] * 1e-6f;
	member_check(r);
}

static void sum_run(struct job *j)
{
	struct sum_job *s = container_of(j, struct sum_job, job);
	reduce_mean(s->out, s->n, s->t, s->terms, s->total, s->hash);
}

static void sum_done(struct job *j)
{
	struct sum_job *s = container_of(j, struct sum_job, job);
	struct round *r = s->r;
	struct avg *a = r->a;
	bool current = !r->closed && s->attempt == r->attempt;
	r->jobs--;
	a->x_jobs--;
	r->part[s->part].summing = false;
	if (current)
		summed(r, s->part, s->hash);
	else if (!r->closed)
		flow_try(r, s->part);
	free(s->t);
	free(s);
	avg_job_over(a);
}

static bool all_there(const struct round *r, const struct rpart *rp)
{
	for (size_t i = 0; i < r->b.n; i++) {
		if (!r->w[i])
			continue;
		if ((int)i == r->me ? !r->x : !rp->in || !rp->in[i].done)
			return false;
	}
	return true;
}

void flow_try(struct round *r, size_t p)
{
	struct rpart *rp = &r->part[p];
	if (!r->attempted || r->closed || rp->owner != r->me || rp->ready || rp->summing || !all_there(r, rp))
		return;
	struct sum_job *s = xcalloc(1, sizeof *s);
	*s = (struct sum_job){ .r = r, .part = p, .attempt = r->attempt, .total = r->total, .out = r->mean + rp->off,
		.n = rp->len,
		.t = xcalloc(r->b.n, sizeof *s->t) };
	for (size_t i = 0; i < r->b.n; i++)
		if (r->w[i])
			s->t[s->terms++] = (struct reduce_term){ .x = (int)i == r->me ? r->x + rp->off : rp->raw[i],
			.weight = r->w[i] };
	rp->summing = true;
	r->jobs++;
	r->a->x_jobs++;
	s->job = (struct job){ .name = "avg.sum", .lane = env_lane(r->a->env, "reduce"), .run = sum_run, .done = sum_done,
		.cost_us = rp->len * sizeof(float) * s->terms / 2000 };
	if (rp->len * sizeof(float) > FEW) {
		env_work(r->a->env, &s->job);
		return;
	}
	sum_run(&s->job);
	sum_done(&s->job);
}

/* ---- results ---- */

/* The hash of a large part is a job: nothing on the loop is as long as the vector. */
struct hash_job { struct job job; struct round *r; size_t part; uint32_t attempt; const float *p; size_t bytes;
	uint8_t hash[16]; };

static void hash_run(struct job *j)
{
	struct hash_job *h = container_of(j, struct hash_job, job);
	xxh128_of(h->p, h->bytes, h->hash);
}

static void hash_done(struct job *j)
{
	struct hash_job *h = container_of(j, struct hash_job, job);
	struct round *r = h->r;
	struct avg *a = r->a;
	struct rpart *rp = &r->part[h->part];
	r->jobs--;
	if (!r->closed && h->attempt == r->attempt) {
		rp->ready = true;
		memcpy(rp->hash, h->hash, 16);
		round_touch(r);
		member_check(r);
	}
	free(h);
	avg_job_over(a);
}

static void result_arrived(void *arg, struct xfer *x, const struct err *e)
{
	struct flow *f = arg;
	struct round *r = f->r;
	struct rpart *rp = &r->part[f->part];
	f->x = NULL;
	if (e || r->closed)
		return;
	f->done = true;
	r->bytes_in += rp->len * sizeof(float);
	struct hash_job *h = xcalloc(1, sizeof *h);
	*h = (struct hash_job){ .r = r, .part = f->part, .attempt = r->attempt, .p = r->mean + rp->off,
		.bytes = rp->len * sizeof(float) };
	h->job = (struct job){ .name = "avg.hash", .lane = env_lane(r->a->env, "reduce"), .run = hash_run,
		.done = hash_done,
		.cost_us = h->bytes / 8000 };
	r->jobs++;
	if (h->bytes > FEW) {
		env_work(r->a->env, &h->job);
		return;
	}
	hash_run(&h->job);
	hash_done(&h->job);
}

static void want_result(struct round *r, size_t p)
{
	struct rpart *rp = &r->part[p];
	struct id tag;
	rp->result_in = (struct flow){ .r = r, .part = (uint16_t)p, .member = rp->owner };
	tag_of(r, 'r', r->attempt, p, who(r, rp->owner), who(r, (size_t)r->me), &tag);
	rp->result_in.x = xfer_recv(r->a->chunks, who(r, rp->owner), &tag, r->mean + rp->off, rp->len * sizeof(float), 0,
		result_arrived, &rp->result_in);
}

/* Weights, attempt number and total are set; the owners change here. */
void flow_attempt(struct round *r, const uint16_t *owner)
{
	for (size_t p = 0; p < r->b.parts; p++) {
		struct rpart *rp = &r->part[p];
		bool moved = rp->owner != owner[p];
		rp->ready = PLANTED(OLD_RESULT) && rp->ready;
		flow_cancel(&rp->result_in);
		for (size_t i = 0; rp->result_out && i < r->b.n; i++)
			flow_cancel(&rp->result_out[i]);
		if (moved) {
			flow_cancel(&rp->x_out);
			rp->x_out.done = false;
			if (rp->owner == r->me)
				close_raw(r, p);
			rp->owner = owner[p];
			if (rp->owner == r->me)
				open_raw(r, p);
			else if (r->w[r->me])
				send_piece(r, p);
		}
		if (!r->w[r->me])
			flow_cancel(&rp->x_out);
		if (rp->owner != r->me)
			want_result(r, p);
	}
	for (size_t p = 0; p < r->b.parts && !r->closed; p++)
		flow_try(r, p);
}

bool flow_complete(const struct round *r)
{
	if (r->mean_is_x)
		return r->x != NULL;
	if (!r->attempted)
		return false;
	for (size_t p = 0; p < r->b.parts; p++)
		if (!r->part[p].ready)
			return false;
	return true;
}

/* Who keeps us from going on: dead, or past the deadline. A reducer waits one deadline for contributions, a receiver
 * two for results. */
static size_t culprits(const struct round *r, bool *bad)
{
	size_t n = 0;
	for (size_t p = 0; p < r->b.parts; p++) {
		const struct rpart *rp = &r->part[p];
		if (rp->ready || rp->summing)
			continue;
		if (rp->owner != r->me) {
			if (!lives(r, rp->owner) || r->lateness >= 2)
				bad[rp->owner] = true;
			continue;
		}
		for (size_t i = 0; i < r->b.n; i++)
			if (r->w[i] && (int)i != r->me && (!rp->in || !rp->in[i].done) && (!lives(r, i) || r->lateness >= 1))
				bad[i] = true;
	}
	for (size_t i = 0; i < r->b.n; i++)
		n += bad[i];
	return n;
}

void flow_missing(struct round *r)
{
	struct avg *a = r->a;
	struct buf b = { 0 };
	if (!r->attempted || r->closed || r->commit || r->fail || r->acked || r->mean_is_x)
		return;
	bool *bad = xcalloc(r->b.n, sizeof *bad);
	size_t n = culprits(r, bad);
	if (n > r->missing_told) {
		r->missing_told = (unsigned)n;
		for (size_t i = 0; i < r->b.n; i++)
			if (bad[i])
				buf_put(&b, who(r, i)->b, 32);
		MARK(a, "avg.missing.before");
		if (r->lead) {
			r->lead->missing_self = true;
			kick(a);
		} else if (r->ack_req) {
			net_reply(r->ack_req, json_pack("{s:b}", "missing", 1), blob_steal(&b));
			r->ack_req = NULL;
		} else if (a->leader) {
			json_t *j = hub_json(a);
			json_object_set_new(j, "attempt", json_integer(r->attempt));
			json_object_set_new(j, "round", json_hex(r->id, DIGEST));
			net_post(a->net, &a->leader->id, KIND_AVG_MISSING, j, blob_steal(&b), CLASS_control);
		}
		MARK(a, "avg.missing.after");
		buf_free(&b);
	}
	free(bad);
}

/* The leader's own report, from the kick so that it does not run inside a callback of what it changes. */
void flow_missing_self(struct round *r)
{
	struct buf b = { 0 };
	if (r->closed || !r->lead || !r->lead->missing_self)
		return;
	r->lead->missing_self = false;
	bool *bad = xcalloc(r->b.n, sizeof *bad);
	culprits(r, bad);
	for (size_t i = 0; i < r->b.n; i++)
		if (bad[i])
			buf_put(&b, who(r, i)->b, 32);
	free(bad);
	if (b.len && !r->acked)
		lead_missing(r, (size_t)r->me, b.p, b.len);
	buf_free(&b);
}

void flow_stop(struct round *r, bool results_too)
{
	for (size_t p = 0; p < r->b.parts; p++) {
		struct rpart *rp = &r->part[p];
		flow_cancel(&rp->x_out);
		flow_cancel(&rp->result_in);
		for (size_t i = 0; rp->in && i < r->b.n; i++)
			flow_cancel(&rp->in[i]);
		for (size_t i = 0; results_too && rp->result_out && i < r->b.n; i++)
			flow_cancel(&rp->result_out[i]);
	}
}

bool flow_idle(const struct round *r)
{
	for (size_t p = 0; p < r->b.parts; p++)
		for (size_t i = 0; r->part[p].result_out && i < r->b.n; i++)
			if (r->part[p].result_out[i].x)
				return false;
	return r->jobs == 0;
}

void flow_free(struct round *r)
{
	for (size_t p = 0; p < r->b.parts; p++) {
		close_raw(r, p);
		free(r->part[p].result_out);
	}
}
