/* Parts on their way. A member sends piece p of its gradient to p's owner; the owner keeps what it got until COMMIT,
 * sums
 * over C in member order when all of C is there, and sends the same bytes to everybody; it reads its own result from
 * the same buffer. An attempt only changes owners and weights: what is there already is not sent again. */
#include <stdlib.h>
#include <string.h>
#include "avg/int.h"

#define AHEAD 3                                 /* pieces at once on their way to one owner */

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
	r->bytes_in += r->part[f->part].bytes;
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
		rp->raw[i] = spare_get(r->a, rp->bytes);
		if (!rp->raw[i])
			return -1;              /* stays missing: the leader gives the part to another */
		rp->in[i] = (struct flow){ .r = r, .part = (uint16_t)p, .member = (uint16_t)i };
		tag_of(r, 'x', 0, p, who(r, i), who(r, (size_t)r->me), &tag);
		rp->in[i].x = xfer_recv(r->a->chunks, who(r, i), &tag, rp->raw[i], rp->bytes, 0, raw_arrived,
			&rp->in[i]);
	}
	return 0;
}

static void close_raw(struct round *r, size_t p)
{
	struct rpart *rp = &r->part[p];
	for (size_t i = 0; rp->raw && i < r->b.n; i++) {
		flow_cancel(&rp->in[i]);
		spare_put(r->a, rp->raw[i], rp->bytes);
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
	struct rpart *rp = &f->r->part[f->part];
	f->x = NULL;
	f->done = !e;
	rp->x_failed = e != NULL;
	if (!e)
		f->r->bytes_out += rp->bytes;
	if (!f->r->closed)
		flow_send_x(f->r);
}

static void send_piece(struct round *r, size_t p)
{
	struct rpart *rp = &r->part[p];
	struct id tag;
	const void *data = rp->plain ? (const void *)(r->x + rp->off) : rp->x_enc;
	if (!data) {
		sum_encode(r, p);               /* it comes back here */
		return;
	}
	rp->x_out = (struct flow){ .r = r, .part = (uint16_t)p, .member = rp->owner };
	tag_of(r, 'x', 0, p, who(r, (size_t)r->me), who(r, rp->owner), &tag);
	MARK(r->a, "avg.data.before");
	rp->x_out.x = xfer_send(r->a->chunks, who(r, rp->owner), &tag, data, rp->bytes, CLASS_weight_grad,
		give_up_at(r), piece_sent, &rp->x_out);
	MARK(r->a, "avg.data.after");
}

/* A few pieces at a time to each owner, in order, so that the first can be summed while the last are still here; what
 * is on its way or there is not sent again. The owners behind this peer come first: not everybody begins with one. */
void flow_send_x(struct round *r)
{
	if (!r->samples || !r->x || (r->attempted && !r->w[r->me]))
		return;
	uint8_t *busy = xcalloc(r->b.n, sizeof *busy);
	for (size_t p = 0; p < r->b.parts; p++)
		busy[r->part[p].owner] += r->part[p].x_out.x || r->part[p].encoding;
	size_t first = 0;
	while (first < r->b.parts && (int)r->part[first].owner <= r->me)
		first++;
	for (size_t k = 0; k < r->b.parts; k++) {
		size_t p = (first + k) % r->b.parts;
		struct rpart *rp = &r->part[p];
		if (rp->owner == r->me || rp->x_out.x || rp->x_out.done || rp->encoding || rp->x_failed ||
				busy[rp->owner] >= AHEAD)
			continue;
		busy[rp->owner]++;
		send_piece(r, p);
	}
	free(busy);
}

static void result_sent(void *arg, struct xfer *x, const struct err *e)
{
	struct flow *f = arg;
	f->x = NULL;
	f->done = !e;
	if (!e)
		f->r->bytes_out += f->r->part[f->part].bytes;
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
		f->x = xfer_send(r->a->chunks, who(r, i), &tag, rp->plain ? (const void *)(r->mean + rp->off) : rp->r_enc,
			rp->bytes, CLASS_weight_grad, give_up_at(r), result_sent, f);
		MARK(r->a, "avg.result.after");
	}
}

void flow_summed(struct round *r, size_t p)
{
	r->part[p].ready = true;
	send_results(r, p);
	if (PLANTED(OWN_SUM))             /* not the bytes that it sent to the others */
		r->mean[r->part[p].off] += r->mean[r->part[p].off] * 1e-6f;
	member_check(r);
}

static bool all_there(const struct round *r, const struct rpart *rp)
{
	for (size_t i = 0; i < r->b.n; i++) {
		if (!r->w[i])
			continue;
		if (r->bad[i] || ((int)i == r->me ? !r->x : !rp->in || !rp->in[i].done))
			return false;
	}
	return true;
}

void flow_try(struct round *r, size_t p)
{
	struct rpart *rp = &r->part[p];
	if (!r->attempted || r->closed || rp->owner != r->me || rp->ready || rp->summing || !all_there(r, rp))
		return;
	sum_start(r, p);
}

/* ---- results ---- */

static void result_arrived(void *arg, struct xfer *x, const struct err *e)
{
	struct flow *f = arg;
	struct round *r = f->r;
	struct rpart *rp = &r->part[f->part];
	f->x = NULL;
	if (e || r->closed)
		return;
	f->done = true;
	r->bytes_in += rp->bytes;
	sum_take(r, f->part);
}

static void want_result(struct round *r, size_t p)
{
	struct rpart *rp = &r->part[p];
	struct id tag;
	rp->result_in = (struct flow){ .r = r, .part = (uint16_t)p, .member = rp->owner };
	tag_of(r, 'r', r->attempt, p, who(r, rp->owner), who(r, (size_t)r->me), &tag);
	if (!rp->plain && !rp->in_enc)
		rp->in_enc = spare_get(r->a, rp->bytes);
	if (!rp->plain && !rp->in_enc)
		return;                         /* no memory: the leader finds this peer late */
	rp->result_in.x = xfer_recv(r->a->chunks, who(r, rp->owner), &tag, rp->plain ? (void *)(r->mean + rp->off) :
		rp->in_enc, rp->bytes, 0, result_arrived, &rp->result_in);
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
			rp->x_out.done = rp->x_failed = false;
			if (rp->owner == r->me)
				close_raw(r, p);
			rp->owner = owner[p];
			if (rp->owner == r->me)
				open_raw(r, p);
		}
		if (!r->w[r->me])
			flow_cancel(&rp->x_out);
		if (rp->owner != r->me)
			want_result(r, p);
	}
	flow_send_x(r);
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

/* Ids of who keeps us from going on, then of those whose contributions are no numbers. */
static size_t complaint(const struct round *r, struct buf *b, size_t *ret_bad)
{
	bool *bad = xcalloc(r->b.n, sizeof *bad);
	size_t n = culprits(r, bad);
	*ret_bad = 0;
	for (size_t i = 0; i < r->b.n; i++)
		if (bad[i])
			buf_put(b, who(r, i)->b, 32);
	for (size_t i = 0; i < r->b.n; i++)
		if (r->bad[i] && r->w[i]) {
			buf_put(b, who(r, i)->b, 32);
			++*ret_bad;
		}
	free(bad);
	return n + *ret_bad;
}

void flow_missing(struct round *r)
{
	struct avg *a = r->a;
	struct buf b = { 0 };
	size_t nonfinite, n;
	if (!r->attempted || r->closed || r->commit || r->fail || r->acked || r->mean_is_x)
		return;
	n = complaint(r, &b, &nonfinite);
	if (n > r->missing_told) {
		r->missing_told = (unsigned)n;
		MARK(a, "avg.missing.before");
		if (r->lead) {
			r->lead->missing_self = true;
			kick(a);
		} else if (r->ack_req) {
			net_reply(r->ack_req, json_pack("{s:b,s:I}", "missing", 1, "nonfinite", (json_int_t)nonfinite),
				blob_steal(&b));
			r->ack_req = NULL;
		} else if (a->leader) {
			json_t *j = hub_json(a);
			json_object_set_new(j, "attempt", json_integer(r->attempt));
			json_object_set_new(j, "round", json_hex(r->id, DIGEST));
			json_object_set_new(j, "nonfinite", json_integer((json_int_t)nonfinite));
			net_post(a->net, &a->leader->id, KIND_AVG_MISSING, j, blob_steal(&b), CLASS_control);
		}
		MARK(a, "avg.missing.after");
	}
	buf_free(&b);
}

/* The leader's own report, from the kick so that it does not run inside a callback of what it changes. */
void flow_missing_self(struct round *r)
{
	struct buf b = { 0 };
	size_t nonfinite;
	if (r->closed || !r->lead || !r->lead->missing_self)
		return;
	r->lead->missing_self = false;
	complaint(r, &b, &nonfinite);
	if (b.len && !r->acked)
		lead_missing(r, (size_t)r->me, b.p, b.len, nonfinite);
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
		sum_free(r, p);
	}
}
