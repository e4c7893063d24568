/* Who keeps a round from going on, and telling the leader so: the dead at once, the late by deadlines. */
#include <stdlib.h>
#include "avg/grid_flow.h"
#include "avg/sent.h"
#include "avg/lead.h"

unsigned flow_patience(const struct round *r)
{
	return 2 * (r->flow ? (unsigned)r->b.grid.dims : tree_height(&r->tree));
}

/* Bytes of contributions and means that member i has ever sent us. */
uint64_t flow_came(const struct round *r, size_t i)
{
	struct peer_info info;
	return (int)i != r->me && net_peer(r->a->net, &r->b.m[i].id, &info) ? info.bytes.in[CLASS_weight_grad] : 0;
}

/* Who keeps us from going on: dead, or past the deadline. One deadline for pieces, two for sums of rows, and for
 * results as many as sums come before them and hands they go through: whoever is nearest to the one who is late says so
 * first. */
static size_t culprits(const struct round *r, bool *bad)
{
	size_t n = 0;
	if (r->flow)
		grid_flow_culprits(r, bad);
	for (size_t p = 0; !r->flow && p < r->b.parts; p++) {
		const struct rpart *rp = &r->part[p];
		if (rp->ready || rp->summing || !flow_holds(r, p))
			continue;
		unsigned wait = tree_height(&r->tree) + tree_depth(&r->tree, p, (size_t)r->me);
		if (rp->owner != r->me && (!flow_lives(r, rp->up) || r->lateness >= wait))
			bad[rp->up] = true;
		for (size_t i = 0; rp->sums && !rp->passed && i < r->b.n; i++)
			if ((int)i != r->me && flow_lacks(r, p, i) && (!flow_lives(r, i) ||
					r->lateness >= (tree_sums(&r->tree, p, i) ? 2 : 1)))
				bad[i] = true;
	}
	for (size_t i = 0; i < r->b.n; i++) {
		bad[i] = bad[i] || r->broken[i] || (sent_wrong(r, i) && r->w[i]) ||
			((int)i == r->me && r->own_late && r->growing && r->w[i]);
		n += bad[i];
	}
	return n;
}

/* How many times as long half as much again would take as what is to come from member i in this attempt, its pieces or,
 * when these are here, its results. Has a third come, its link is slow (or full of what was sent before), and so much
 * longer a deadline would do; else, 0, it stands still. In a grid nobody says so. */
static unsigned short_by(uint64_t came, uint64_t due)
{
	return 3 * came < due ? 0 : (unsigned)((3 * due + 2 * came - 1) / (2 * came));
}

static unsigned flowing(const struct round *r, size_t i)
{
	uint64_t came, pieces = 0, lacking = 0, results = 0;
	if (r->flow || !r->came || !flow_lives(r, i))
		return 0;
	came = flow_came(r, i) - r->came[i];
	for (size_t p = 0; p < r->b.parts; p++) {
		const struct rpart *rp = &r->part[p];
		if (rp->sums && rp->in && rp->in[i].r) {
			pieces += rp->bytes;
			lacking += rp->in[i].done ? 0 : rp->bytes;
		} else if (rp->owner != r->me && rp->up == i && flow_holds(r, p)) {
			results += rp->bytes;
		}
	}
	if (lacking)
		return short_by(came, pieces);
	return came > pieces ? short_by(came - pieces, results) : 0;
}

size_t missing_list(const struct round *r, struct buf *b, size_t *ret_bad, unsigned *ret_slow)
{
	bool *bad = xcalloc(r->b.n, sizeof *bad);
	size_t n = culprits(r, bad);
	*ret_bad = 0;
	*ret_slow = 0;
	for (size_t i = 0; i < r->b.n; i++)
		if (bad[i]) {
			unsigned times = flowing(r, i);
			buf_put(b, r->b.m[i].id.b, 32);
			*ret_slow = times > *ret_slow ? times : *ret_slow;
		}
	for (size_t i = 0; i < r->b.n; i++)
		if (r->bad[i] && r->w[i]) {
			buf_put(b, r->b.m[i].id.b, 32);
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
	unsigned slow;
	if (!r->attempted || r->closed || r->commit || r->fail || r->acked || r->mean_is_x)
		return;
	n = missing_list(r, &b, &nonfinite, &slow);
	if (n > r->missing_told) {
		r->missing_told = (unsigned)n;
		if (slow)
			times_short(&a->data_times, slow, r->b.data_us, unmeasured_us(a));
		MARK(a, "avg.missing.before");
		if (r->lead) {
			r->lead->missing_self = true;
			kick(a);
		} else if (r->ack_req) {
			net_reply(r->ack_req, json_pack("{s:b,s:I,s:i}", "missing", 1, "nonfinite", (json_int_t)nonfinite, "slow",
				(int)slow), blob_steal(&b));
			r->ack_req = NULL;
		} else if (a->leader) {
			json_t *j = hub_json(a);
			json_object_set_new(j, "attempt", json_integer(r->attempt));
			json_object_set_new(j, "round", json_hex(r->id, DIGEST));
			json_object_set_new(j, "nonfinite", json_integer((json_int_t)nonfinite));
			json_object_set_new(j, "slow", json_integer(slow));
			net_post(a->net, &a->leader->id, KIND_AVG_MISSING, j, blob_steal(&b), CLASS_control);
		}
		MARK(a, "avg.missing.after");
	}
	buf_free(&b);
}
