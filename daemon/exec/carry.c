/* One haul is one instruction under way: its transfers (pieces), and for SUM the collective of avg/coll.h. All end
 * well, or the first that fails ends it. Work over 64 KiB is done in the reduce lane; a cancel waits for that alone. */
#include "exec/carry.h"
#include <stdlib.h>
#include <string.h>
#include "avg/coll.h"
#include "common/buf.h"
#include "common/list.h"
#include "common/mem.h"

#define FEW 65536                               /* bytes: below it the loop does it at once (B11) */
#define PATIENCE_US 60000000ull

struct carry { struct carry_conf c; struct coll *coll; struct list hauls; size_t nhauls; };
struct piece { struct haul *h; struct xfer *x; const struct id *peer; };
struct haul {
	struct list link;
	struct carry *c;
	struct exec_wait *w;
	struct exec_net n;
	struct exec_span in, out;
	const struct id **member; uint32_t nmembers, me;       /* of the group, each peer once */
	struct piece *piece; uint32_t npieces, left;
	uint64_t deadline_us;
	int64_t version;                        /* what came, or goes */
	struct token_from from;
	struct job job;
	float *raw; size_t raw_bytes;           /* SCATTER: what the others sent of my part */
	bool working, summing, cancelled;       /* a job runs; coll is under way; nobody listens */
	bool cared;                             /* the members' sockets are watched for the collective's sake */
	struct err error;
};

struct carry *carry_new(const struct carry_conf *conf)
{
	struct carry *c = xcalloc(1, sizeof(*c));

	c->c = *conf;
	c->coll = coll_new(conf->env, conf->net, conf->chunks);
	list_init(&c->hauls);
	return c;
}

size_t carry_open(const struct carry *c)
{
	return c->nhauls;
}

/* --- ending */

static void pieces_cancel(struct haul *h)
{
	for (uint32_t k = 0; k < h->npieces; k++) {
		if (h->piece[k].x)
			xfer_cancel(h->piece[k].x);
		h->piece[k].x = NULL;
		if (h->piece[k].peer)
			net_care(h->c->c.net, h->piece[k].peer, -1);
		h->piece[k].peer = NULL;
	}
}

static void care(struct haul *h, int delta)
{
	for (uint32_t k = 0; k < h->nmembers; k++)
		if (k != h->me)
			net_care(h->c->c.net, h->member[k], delta);
	h->cared = delta > 0;
}

static void haul_free(struct haul *h)
{
	pieces_cancel(h);
	if (h->cared)
		care(h, -1);
	list_del(&h->link);
	h->c->nhauls--;
	big_free(h->raw, h->raw_bytes);
	free(h->piece);
	free(h->member);
	free(h);
}

static void settle(struct haul *h, const struct err *e)
{
	struct token_news news = { .version = h->version, .nfrom = 1, .from = &h->from };
	struct exec_wait *w = h->w;
	bool received = h->n.instr->kind == PLAN_RECV;
	struct token_from from = h->from;
	struct err why;

	if (e && !h->error.code)
		h->error = *e;
	pieces_cancel(h);
	if (h->working || h->summing)
		return;                         /* the lane still has the memory; its end comes back here */
	why = h->error;
	news.from = &from;
	haul_free(h);
	exec_done(w, received && !why.code ? &news : NULL, why.code ? &why : NULL);
}

static void one_less(struct haul *h);

static void piece_over(void *arg, struct xfer *x, const struct err *e)
{
	struct piece *p = arg;
	struct haul *h = p->h;
	struct err why;
	char who[9];

	p->x = NULL;
	if (e) {
		why = *e;
		(void)err_wrap(&why, "%s of %s (index %lld) with peer %s", plan_kind_name(h->n.instr->kind), h->n.tag,
			(long long)h->n.index, p->peer ? id_short(p->peer, who) : "?");
		settle(h, &why);
		return;
	}
	net_care(h->c->c.net, p->peer, -1);
	p->peer = NULL;
	one_less(h);
}

/* --- names and transfers */

static void tag_of(const struct haul *h, char what, const struct id *from, const struct id *to, struct id *ret)
{
	const char *group = h->n.instr->with == PLAN_IN_GROUP ? h->n.group->name : "";
	struct buf b = { 0 };

	buf_put(&b, h->c->c.run.b, 32);
	buf_u64(&b, h->n.generation);
	buf_u8(&b, (uint8_t)what);
	buf_u8(&b, h->n.instr->kind == PLAN_RECV ? PLAN_SEND : (uint8_t)h->n.instr->kind);
	buf_str(&b, group);
	buf_str(&b, h->n.tag);
	buf_u32(&b, h->n.stream);
	buf_u64(&b, (uint64_t)h->n.index);
	if (from) {
		buf_put(&b, from->b, 32);
		buf_put(&b, to->b, 32);
	}
	id_of(ret, b.p, b.len);
	buf_free(&b);
}

static enum net_class class_of(const struct haul *h)
{
	const struct plan_instr *i = h->n.instr;

	switch (h->n.plan->buf[i->nin ? i->in[0].buf : i->out[0].buf].class) {
	case PLAN_WEIGHT: return CLASS_weight;
	case PLAN_WEIGHT_GRAD: return CLASS_weight_grad;
	case PLAN_ACTIVATION_GRAD: return CLASS_activation_grad;
	case PLAN_OPTIMIZER: return CLASS_optimizer;
	case PLAN_BATCH: return CLASS_batch;
	case PLAN_ACTIVATION: return CLASS_activation;
	default: return CLASS_control;
	}
}

static void move(struct haul *h, bool send, const struct id *peer, char what, void *p, size_t len)
{
	const struct id *self = net_self(h->c->c.net);
	struct piece *q = &h->piece[h->npieces++];
	struct id tag;

	tag_of(h, what, send ? self : peer, send ? peer : self, &tag);
	*q = (struct piece){ .h = h, .peer = peer };
	net_care(h->c->c.net, peer, 1);
	h->left++;
	q->x = send ? xfer_send(h->c->c.chunks, peer, &tag, p, len, class_of(h), h->deadline_us, piece_over, q) :
		xfer_recv(h->c->c.chunks, peer, &tag, p, len, h->deadline_us, piece_over, q);
}

/* --- groups */

/* The members of the group in its order, each peer once. */
static int members(struct haul *h, struct err *e)
{
	const struct id *self = net_self(h->c->c.net);
	const struct plan_group *g = h->n.group;

	h->me = PLAN_NONE;
	h->member = xcalloc(g->n + 1, sizeof(*h->member));
	for (uint32_t k = 0; k < g->n; k++) {
		const struct id *id = &h->n.plan->member[g->member[k].peer];
		uint32_t j = 0;

		while (j < h->nmembers && !id_eq(h->member[j], id))
			j++;
		if (j < h->nmembers)
			continue;
		if (id_eq(id, self))
			h->me = h->nmembers;
		h->member[h->nmembers++] = id;
	}
	return h->me != PLAN_NONE ? 0 : err_set(e, ERR_INVALID, "this peer is not in group %s", g->name);
}

static size_t part_lo(const struct haul *h, size_t floats, uint32_t i)
{
	return floats / h->nmembers * i + (i < floats % h->nmembers ? i : floats % h->nmembers);
}

/* Whole and part of GATHER (out, in) and SCATTER (in, out) fit together? */
static int parts_fit(const struct haul *h, const struct exec_span *whole, const struct exec_span *part, struct err *e)
{
	size_t n = whole->bytes / sizeof(float), mine = part_lo(h, n, h->me + 1) - part_lo(h, n, h->me);

	if (whole->bytes % sizeof(float) == 0 && part->bytes == mine * sizeof(float))
		return 0;
	return err_set(e, ERR_INVALID, "%s has %zu bytes; part %u of %u of %s (%zu bytes) has %zu", part->buffer,
		part->bytes, h->me, h->nmembers, whole->buffer, whole->bytes, mine * sizeof(float));
}

/* --- the lane's work: copies and sums */

static void work_run(struct job *j)
{
	struct haul *h = container_of(j, struct haul, job);
	size_t n = h->in.bytes / sizeof(float), lo = part_lo(h, n, h->me), len = part_lo(h, n, h->me + 1) - lo;
	const float *mine = (const float *)h->in.p + lo;
	float *out = h->out.p;

	if (h->n.instr->kind == PLAN_SUM) {
		memcpy(out, h->in.p, h->in.bytes);
		return;
	}
	if (h->n.instr->kind == PLAN_GATHER) {
		n = h->out.bytes / sizeof(float);
		memmove(out + part_lo(h, n, h->me), h->in.p, h->in.bytes);
		return;
	}
	for (size_t k = 0; k < len; k++) {
		float v = h->me ? h->raw[k] : mine[k];

		for (uint32_t i = 1; i < h->nmembers; i++) {
			float x = i == h->me ? mine[k] : h->raw[i * len + k];

			v = h->n.group->op == PLAN_OP_MAX ? (v != v || v > x ? v : x) : v + x;
		}
		out[k] = h->n.group->op == PLAN_OP_MEAN ? v / (float)h->nmembers : v;
	}
}

static void allreduce(struct haul *h);

static void work_done(struct job *j)
{
	struct haul *h = container_of(j, struct haul, job);

	h->working = false;
	if (h->error.code || h->cancelled)
		settle(h, NULL);
	else if (h->n.instr->kind == PLAN_SUM)
		allreduce(h);
	else if (h->n.instr->kind == PLAN_GATHER)
		one_less(h);
	else
		settle(h, NULL);
}

static void work(struct haul *h, size_t bytes)
{
	h->working = true;
	h->job = (struct job){ .name = "carry", .lane = env_lane(h->c->c.env, "reduce"), .run = work_run, .done = work_done,
		.cost_us = bytes / 2000 };
	if (bytes > FEW) {
		env_work(h->c->c.env, &h->job);
		return;
	}
	work_run(&h->job);
	work_done(&h->job);
}

/* The last transfer of a SCATTER is followed by the sum; anything else is then over. */
static void one_less(struct haul *h)
{
	if (--h->left)
		return;
	if (h->raw)
		work(h, h->raw_bytes);
	else
		settle(h, NULL);
}

/* --- kinds */

static void send_recv(struct haul *h)
{
	bool send = h->n.instr->kind == PLAN_SEND;

	h->piece = xcalloc(2, sizeof(*h->piece));
	h->from = (struct token_from){ h->n.instr->peer, h->n.stream, h->n.index };
	h->version = h->n.version;
	move(h, send, h->n.peer, 'v', &h->version, sizeof(h->version));
	move(h, send, h->n.peer, 'd', send ? h->in.p : h->out.p, send ? h->in.bytes : h->out.bytes);
}

static void summed(void *arg, const struct err *e)
{
	struct haul *h = arg;
	struct err why;

	h->summing = false;
	if (e) {
		why = *e;
		(void)err_wrap(&why, "SUM of %s (index %lld) in group %s", h->n.tag, (long long)h->n.index, h->n.group->name);
	}
	settle(h, e ? &why : NULL);
}

static void allreduce(struct haul *h)
{
	static const enum coll_op op[] = { [PLAN_OP_SUM] = COLL_SUM, [PLAN_OP_MAX] = COLL_MAX, [PLAN_OP_MEAN] = COLL_MEAN };
	struct id *ids = xcalloc(h->nmembers, sizeof(*ids));
	struct coll_group g = { .members = ids, .n = h->nmembers, .me = h->me };

	for (uint32_t k = 0; k < h->nmembers; k++)
		ids[k] = *h->member[k];
	tag_of(h, 's', NULL, NULL, &g.tag);
	h->summing = true;
	coll_allreduce(h->c->coll, &g, (uint64_t)h->n.index, COLL_F32, h->out.p, h->out.bytes / sizeof(float),
		op[h->n.group->op], h->deadline_us, summed, h);
	free(ids);
}

static void gather(struct haul *h)
{
	size_t n = h->out.bytes / sizeof(float);

	h->piece = xcalloc(2 * (size_t)h->nmembers, sizeof(*h->piece));
	h->left = 1;                            /* my own part */
	for (uint32_t k = 0; k < h->nmembers; k++) {
		size_t lo = part_lo(h, n, k), len = part_lo(h, n, k + 1) - lo;

		if (k != h->me && h->in.bytes)
			move(h, true, h->member[k], 'd', h->in.p, h->in.bytes);
		if (k != h->me && len)
			move(h, false, h->member[k], 'd', (float *)h->out.p + lo, len * sizeof(float));
	}
	work(h, h->in.bytes);
}

static int scatter(struct haul *h, struct err *e)
{
	size_t n = h->in.bytes / sizeof(float), mine = h->out.bytes;

	h->raw_bytes = mine * h->nmembers + 1;
	h->raw = big_alloc(h->raw_bytes);
	if (!h->raw)
		return err_set(e, ERR_NOMEM, "no memory for %zu bytes of other members' parts", h->raw_bytes);
	h->piece = xcalloc(2 * (size_t)h->nmembers, sizeof(*h->piece));
	h->left = 1;
	for (uint32_t k = 0; k < h->nmembers; k++) {
		size_t lo = part_lo(h, n, k), len = part_lo(h, n, k + 1) - lo;

		if (k != h->me && len)
			move(h, true, h->member[k], 'd', (float *)h->in.p + lo, len * sizeof(float));
		if (k != h->me && mine)
			move(h, false, h->member[k], 'd', (char *)h->raw + k * mine, mine);
	}
	one_less(h);
	return 0;
}

static int collective(struct haul *h, struct err *e)
{
	const struct plan *p = h->n.plan;
	const struct plan_instr *i = h->n.instr;

	if (!i->nin || !i->nout || p->buf[i->in[0].buf].dtype != PLAN_F32 || p->buf[i->out[0].buf].dtype != PLAN_F32)
		return err_set(e, ERR_INVALID, "a collective takes one buffer of floats and makes one");
	if (members(h, e) < 0)
		return -1;
	if (i->kind == PLAN_GATHER && parts_fit(h, &h->out, &h->in, e) == 0) {
		gather(h);
		return 0;
	}
	if (i->kind == PLAN_SCATTER && parts_fit(h, &h->in, &h->out, e) == 0)
		return scatter(h, e);
	if (i->kind != PLAN_SUM)
		return -1;
	if (h->in.bytes != h->out.bytes || h->in.bytes % sizeof(float))
		return err_set(e, ERR_INVALID, "%s has %zu bytes and %s has %zu", h->in.buffer, h->in.bytes, h->out.buffer,
			h->out.bytes);
	care(h, 1);
	if (h->in.p == h->out.p)
		allreduce(h);
	else
		work(h, h->in.bytes);
	return 0;
}

static int begin(struct haul *h, struct err *e)
{
	const struct plan_instr *i = h->n.instr;

	if ((i->nin && !h->in.p) || (i->nout && !h->out.p))
		return err_set(e, ERR_INVALID, "%s is in no memory", i->nin && !h->in.p ? h->in.buffer : h->out.buffer);
	if (i->with == PLAN_PEER && (i->kind == PLAN_SEND || i->kind == PLAN_RECV)) {
		send_recv(h);
		return 0;
	}
	if (i->with == PLAN_IN_GROUP && (i->kind == PLAN_SUM || i->kind == PLAN_GATHER || i->kind == PLAN_SCATTER))
		return collective(h, e);
	return err_set(e, ERR_INVALID, "%s is not carried between peers yet", i->with == PLAN_ANY ? "RECV of any" :
		i->with == PLAN_REPLY ? "REPLY" : plan_kind_name(i->kind));
}

static void carry_net(void *arg, struct exec_wait *w, const struct exec_net *n, const struct exec_span *in,
	uint32_t nin, const struct exec_span *out, uint32_t nout)
{
	struct carry *c = arg;
	struct haul *h = xcalloc(1, sizeof(*h));
	struct err e;

	h->c = c;
	h->w = w;
	h->n = *n;
	h->in = nin ? in[0] : (struct exec_span){ 0 };
	h->out = nout ? out[0] : (struct exec_span){ 0 };
	h->deadline_us = n->deadline_us ? n->deadline_us :
		env_now(c->c.env) + (c->c.patience_us ? c->c.patience_us : PATIENCE_US);
	list_push(&c->hauls, &h->link);
	c->nhauls++;
	if (begin(h, &e) == 0)
		return;
	(void)err_wrap(&e, "plan %s: %s of %s", n->plan->strategy, plan_kind_name(n->instr->kind), n->tag);
	settle(h, &e);
}

static struct haul *find(const struct carry *c, const struct exec_wait *w)
{
	list_each(it, &c->hauls)
		if (list_entry(it, struct haul, link)->w == w)
			return list_entry(it, struct haul, link);
	return NULL;
}

static void carry_cancel(void *arg, struct exec_wait *w)
{
	struct haul *h = find(arg, w);

	if (!h)
		return;
	h->cancelled = true;
	if (h->summing && coll_cancel(h->c->coll, h))
		h->summing = false;
	if (h->working || h->summing)
		pieces_cancel(h);
	else
		haul_free(h);
}

static bool carry_busy(void *arg, struct exec_wait *w)
{
	return find(arg, w) != NULL;
}

void carry_free(struct carry *c)
{
	if (!c)
		return;
	list_each_safe(it, &c->hauls)
		haul_free(list_entry(it, struct haul, link));
	coll_free(c->coll);
	free(c);
}

const struct exec_ops carry_ops = { .net = carry_net, .cancel = carry_cancel, .busy = carry_busy };
