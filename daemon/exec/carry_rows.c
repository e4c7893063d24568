/* ALLTOALL. The route has a number for every row of x (32 bits): which member of the group gets it, in the group's
 * order with each peer once; CARRY_NOBODY: nobody. Rows of one member travel together, in their order. "x route ->"
 * sends each member its rows, which a server takes by RECV of any, and "route -> y" puts the rows that it answers
 * (REPLY) where those lay that it was sent; rows of who does not answer are zero. "x route -> y" is among the members
 * of a group: y has the rows of all members one behind the other, in group order, then zeros; its own are among them.
 */
#include "exec/carry_int.h"
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/planted.h"

struct rows {
	uint32_t n, *count;                     /* rows; of each member */
	size_t *offset;                         /* where those of each member begin when they are sorted, and their end */
	size_t row;                             /* bytes of one, of x or else y */
	bool sends, receives;
	char *packed; size_t packed_bytes;      /* x in the members' order */
	uint64_t held, limit;                   /* bytes of what has come; at most */
	uint32_t expected, come;
	struct err bad;
};

/* In the lane: counts, and the rows that are sent, sorted. */
static void sort(struct job *j)
{
	struct haul *h = haul_of(j);
	struct rows *r = h->rows;
	const uint32_t *route = h->route.p;
	size_t *at;

	for (uint32_t k = 0; k < r->n; k++) {
		uint32_t m = route[k];

		if (m == CARRY_NOBODY)
			continue;
		if (m >= h->nmembers || (m == h->me && !(r->sends && r->receives))) {
			(void)err_set(&r->bad, ERR_INVALID, "route %s sends row %u to member %u of %u%s", h->route.buffer, k, m,
				h->nmembers, m == h->me ? ", which is this peer itself" : "");
			return;
		}
		r->count[m]++;
	}
	for (uint32_t m = 0; m < h->nmembers; m++)
		r->offset[m + 1] = r->offset[m] + r->count[m] * r->row;
	if (!r->sends)
		return;
	at = xmemdup(r->offset, (h->nmembers + 1) * sizeof(*at));
	for (uint32_t k = 0; k < r->n; k++) {
		if (route[k] == CARRY_NOBODY)
			continue;
		memcpy(r->packed + at[route[k]], (char *)h->in.p + k * r->row, r->row);
		at[route[k]] += r->row;
	}
	free(at);
}

static struct value *of_member(struct haul *h, uint32_t m, bool send)
{
	return &h->value[2 * m + send];
}

/* In the lane: what has come goes to its place in y. */
static void place(struct job *j)
{
	struct haul *h = haul_of(j);
	struct rows *r = h->rows;
	const uint32_t *route = h->route.p;
	char *y = h->out.p;
	size_t *at, n = 0;

	if (!r->sends) {
		at = xcalloc(h->nmembers + 1, sizeof(*at));
		for (uint32_t k = 0; k < r->n; k++) {
			struct value *v = route[k] == CARRY_NOBODY ? NULL : of_member(h, route[k], false);

			if (!v || !v->done) {
				memset(y + k * r->row, 0, r->row);
				continue;
			}
			memcpy(y + k * r->row, (char *)v->p + at[route[k]], r->row);
			at[route[k]] += r->row;
		}
		free(at);
		memset(y + r->n * r->row, 0, h->out.bytes - r->n * r->row);
		return;
	}
	for (uint32_t m = 0; m < h->nmembers; m++) {
		const struct value *v = of_member(h, m, false);
		size_t bytes = m == h->me ? r->count[m] * r->row : v->done ? v->bytes : 0;

		if (bytes)
			memcpy(y + n, m == h->me ? r->packed + r->offset[m] : v->p, bytes);
		n += bytes;
	}
	memset(y + n, 0, h->out.bytes - n);
}

static void finish(struct haul *h)
{
	struct rows *r = h->rows;
	struct err e;

	if (!r->receives) {
		haul_settle(h, NULL);
		return;
	}
	if (r->expected && !r->come) {
		(void)err_set(&e, ERR_TIMEOUT, "ALLTOALL of %s (index %lld): nobody of group %s has sent anything", h->n.tag,
			(long long)h->n.index, h->n.group->name);
		haul_settle(h, &e);
		return;
	}
	h->from = xcalloc(h->nmembers + 1, sizeof(*h->from));
	for (uint32_t m = 0; m < h->nmembers; m++) {
		const struct value *v = of_member(h, m, false);

		if (v->done && v->bytes)
			h->from[h->nfrom++] = (struct token_from){ v->rank, v->stream, v->index, v->bytes, 0 };
	}
	HAUL_WORK(h, h->out.bytes, place, haul_done);
}

static void one_less(struct haul *h)
{
	if (!--h->left)
		finish(h);
}

/* Who does not take its rows is left out; who brings none, where the plan goes on with fewer. */
static void over(struct value *v, const struct err *e)
{
	struct haul *h = v->h;
	struct rows *r = h->rows;

	if (v->send && value_again(v, e))
		return;
	if (e && !v->send && h->n.instr->on_missing == PLAN_FAIL) {
		values_cancel(h);
		haul_settle(h, e);
		return;
	}
	if (!v->send && (e || v->bytes))
		r->expected++;
	r->come += !v->send && !e && v->bytes;
	one_less(h);
}

/* Memory for what is about to come, all of it together no more than y has. */
static bool room(struct value *v, struct err *e)
{
	struct rows *r = v->h->rows;

	if ((v->bytes % r->row || v->bytes > r->limit - r->held) && !PLANTED(CARRY_ROWS_UNBOUNDED)) {
		(void)err_set(e, ERR_LIMIT, "it has %llu bytes, rows have %zu, and there is room for %llu bytes",
			(unsigned long long)v->bytes, r->row, (unsigned long long)(r->limit - r->held));
		return false;
	}
	if (!v->bytes)
		return true;
	v->p = big_alloc(v->bytes);
	if (!v->p) {
		(void)err_set(e, ERR_NOMEM, "no memory for %llu bytes of rows", (unsigned long long)v->bytes);
		return false;
	}
	v->room = v->bytes;
	r->held += v->bytes;
	return true;
}

static int start(struct haul *h, uint32_t m, struct err *e)
{
	struct rows *r = h->rows;
	bool both = r->sends && r->receives;
	uint64_t bytes = r->count[m] * r->row;
	struct value v = { .h = h, .peer = h->member[m], .rank = h->rank[m], .stream = h->n.stream,
		.index = h->n.index, .grouped = both, .bytes = bytes, .may_die = true, .over = over };

	if (r->receives && (both || bytes)) {
		struct value *in = of_member(h, m, false);

		*in = v;
		in->known = !both;
		in->room = in->bytes = both ? 0 : bytes;
		if (both) {
			in->room = r->limit;
			in->place = room;
		} else if (!room(in, e)) {
			in->h = NULL;
			return -1;
		}
		h->left++;
		value_begin(in);
	}
	if (r->sends && (both || bytes)) {
		struct value *out = of_member(h, m, true);

		*out = v;
		out->send = true;
		out->p = r->packed + r->offset[m];
		h->left++;
		value_begin(out);
	}
	return 0;
}

static void sorted(struct job *j)
{
	struct haul *h = haul_of(j);
	struct rows *r = h->rows;
	struct err e = r->bad;

	if (!haul_worked(h))
		return;
	h->nvalues = 2 * h->nmembers;
	h->value = xcalloc(h->nvalues + 1, sizeof(*h->value));
	h->left = 1;
	if (r->sends && r->receives && h->me != PLAN_NONE)
		r->held = r->count[h->me] * r->row;
	if (!e.code && r->held > r->limit)
		(void)err_set(&e, ERR_LIMIT, "%llu bytes of rows stay here, and %s has %llu", (unsigned long long)r->held,
			h->out.buffer, (unsigned long long)r->limit);
	for (uint32_t m = 0; m < h->nmembers && !e.code; m++)
		if (m != h->me && start(h, m, &e) < 0)
			break;
	if (e.code) {
		(void)err_wrap(&e, "ALLTOALL of %s (index %lld)", h->n.tag, (long long)h->n.index);
		values_cancel(h);
		haul_settle(h, &e);
		return;
	}
	one_less(h);
}

void rows_free(struct haul *h)
{
	struct rows *r = h->rows;

	for (uint32_t k = 0; k < h->nvalues; k += 2)
		if (h->value[k].p && h->value[k].room)
			big_free(h->value[k].p, h->value[k].room);
	big_free(r->packed, r->packed_bytes);
	free(r->count);
	free(r->offset);
	free(r);
	h->rows = NULL;
}

int rows_begin(struct haul *h, struct err *e)
{
	const struct plan_instr *i = h->n.instr;
	bool sends = i->nin > 1, receives = i->nout > 0;
	const struct exec_span *s = sends ? &h->in : &h->out;
	struct rows *r;

	if (!h->route.p || !i->nin || i->in[sends].role != PLAN_AS_ROUTE || i->nin > 2 || i->nout > 1 ||
	    !(sends || receives) || h->route.bytes % sizeof(uint32_t) || !h->route.bytes)
		return err_set(e, ERR_INVALID, "rows and their route of 32-bit numbers, or the route alone, are taken");
	r = h->rows = xcalloc(1, sizeof(*r));
	*r = (struct rows){ .n = (uint32_t)(h->route.bytes / sizeof(uint32_t)), .sends = sends, .receives = receives };
	r->row = s->bytes / r->n;
	r->limit = h->out.bytes;
	if (!r->row || r->row * r->n != s->bytes)
		return err_set(e, ERR_INVALID, "%s has %zu bytes, which are no rows for a route of %u", s->buffer, s->bytes,
			r->n);
	if (haul_members(h, sends && receives, e) < 0)
		return -1;
	r->count = xcalloc(h->nmembers + 1, sizeof(*r->count));
	r->offset = xcalloc(h->nmembers + 1, sizeof(*r->offset));
	if (sends) {
		r->packed_bytes = h->in.bytes;
		r->packed = big_alloc(r->packed_bytes);
		if (!r->packed)
			return err_set(e, ERR_NOMEM, "no memory for %zu bytes of sorted rows", r->packed_bytes);
	}
	HAUL_WORK(h, h->route.bytes + (sends ? h->in.bytes : 0), sort, sorted);
	return 0;
}
