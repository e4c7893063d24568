/* A member holds what the attempt asks of it: the ACK, with the hashes of all parts. Or it holds what the COMMIT names,
 * which is then applied. */
#include <string.h>
#include "avg/grid_flow.h"

/* With what most have: in a grid, of this peer's line. */
static bool agrees(const struct round *r)
{
	if (r->flow)
		return grid_flow_agrees(r, r->commit);
	for (size_t p = 0; p < r->b.parts && !r->mean_is_x; p++)
		if (flow_holds(r, p) && memcmp(r->part[p].hash, r->commit->part[p].hash, TREE256))
			return false;
	return true;
}

static void ack(struct round *r)
{
	struct avg *a = r->a;
	struct buf b = { 0 };
	r->acked = true;
	env_timer(a->env, &r->late, 0);
	if (!r->lead)
		times_add(&a->data_times, now_of(a) - r->attempt_us);
	for (size_t p = 0; p < r->b.parts; p++)
		buf_put(&b, r->part[p].hash, TREE256);
	if (r->ack_req && !r->lead) {
		uint8_t sig[SIG_BYTES];
		ack_sign(r, &r->ack_req->f.from, b.p, sig);
		buf_put(&b, sig, SIG_BYTES);
	}
	if (r->lead) {                          /* what follows from it does from the kick: this may be deep in a sum */
		lead_acked(r, (size_t)r->me, b.p, b.len);
		kick(a);
		buf_free(&b);
	} else if (PLANTED(APPLY_WITHOUT_COMMIT)) {
		kick(a);
		buf_free(&b);
	} else if (r->ack_req) {
		MARK(a, "avg.ack.before");
		net_reply(r->ack_req, NULL, blob_steal(&b));
		r->ack_req = NULL;
		MARK(a, "avg.ack.after");
	} else {
		buf_free(&b);
	}
}

void member_check(struct round *r)
{
	struct avg *a = r->a;
	if (r->closed || !flow_complete(r))
		return;
	if (r->commit) {
		if (!agrees(r)) {
			struct id donor = r->commit->leader;
			lost(a, AVG_DIVERGED, &donor, r->commit->epoch);
			return;
		}
		kick(a);                        /* applied from there, when no job reads the owner's vector */
		return;
	}
	if (!r->acked && r->attempted)
		ack(r);
}
