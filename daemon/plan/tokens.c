/* Which instruction may start. The tour: tokens_start fetches (tokens_fetch.c), looks at each lane's next `window` and
 * takes the best one that nothing hinders; begin() and tokens_end() move the slots' states. */
#include "plan/tokens_int.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/planted.h"

bool token_evicts(const struct plan_instr *i)
{
	return i->kind == PLAN_DROP && strcmp(i->fn, "evict") == 0;
}

bool token_drops(const struct plan_instr *i, uint32_t input)
{
	return i->in[input].drop || i->kind == PLAN_DROP;
}

#define HELP_ROUNDS 100000      /* a hook that inserts for ever must not hold the loop */

/* --- what hinders */

static bool same_slot(const struct tokens *t, const struct token_bind *a, const struct token_bind *b)
{
	return a->buf == b->buf && a->slot == b->slot && a->slot != PLAN_NONE && !t->plan->buf[a->buf].shared;
}

static bool touches(const struct tokens *t, const struct token_run *r, const struct token_bind *b, bool writes)
{
	for (uint32_t k = 0; k < r->instr->nout; k++)
		if (same_slot(t, &r->out[k], b))
			return true;
	for (uint32_t k = 0; k < r->instr->nin; k++)
		if ((writes || token_drops(r->instr, k)) && same_slot(t, &r->in[k], b))
			return true;
	return false;
}

static bool waits_for_all(const struct token_run *r)
{
	return r->instr->kind == PLAN_COMMIT && r->instr->nin == 0;
}

static bool conflict(const struct tokens *t, const struct token_run *earlier, const struct token_run *r)
{
	if (waits_for_all(r))
		return !PLANTED(TOKEN_EARLY_COMMIT);
	if (waits_for_all(earlier) && plan_writes_state(t->plan, r->instr) && !PLANTED(TOKEN_EARLY_STEP))
		return true;
	for (uint32_t k = 0; k < r->instr->nout; k++)
		if (touches(t, earlier, &r->out[k], true))
			return true;
	for (uint32_t k = 0; k < r->instr->nin; k++)
		if (touches(t, earlier, &r->in[k], token_drops(r->instr, k)))
			return true;
	return false;
}

static enum token_wait bind_late(struct tokens *t, struct token_run *r, uint32_t *which)
{
	const struct plan_instr *i = r->instr;
	for (uint32_t k = 0; k < i->nin; k++) {
		const struct plan_ref *ref = &i->in[k];
		bool shared = t->plan->buf[ref->buf].shared;
		*which = k;
		if (ref->age == PLAN_SAME) {
			/* a value that never came was made with no version: its reader is passed over */
			bool none = ring_slot(t, &r->in[ref->k])->state == SLOT_MISSING;
			if (!none && !ring_bind_same(t, &r->in[ref->k], &r->in[k]))
				return WAIT_VALUE;
			if (none && !ring_bind_newest(t, ref, r->index, &r->in[k]))
				return WAIT_AGE;
		} else if ((ref->age == PLAN_NEWEST || shared) && !ring_bind_newest(t, ref, r->index, &r->in[k])) {
			return WAIT_AGE;
		}
	}
	for (uint32_t k = 0; k < i->nout; k++) {
		*which = k;
		if (t->plan->buf[i->out[k].buf].shared && !ring_bind_shared_out(t, &i->out[k], &r->out[k]))
			return WAIT_SLOT;
	}
	return WAIT_NOTHING;
}

static enum token_wait values(struct tokens *t, struct token_run *r, uint32_t *which)
{
	const struct plan_instr *i = r->instr;
	for (uint32_t k = 0; k < i->nin; k++) {
		if (i->in[k].age != PLAN_EXACT || t->plan->buf[i->in[k].buf].shared)
			continue;
		*which = k;
		if (r->in[k].slot == PLAN_NONE)
			return WAIT_LOST;
		const struct token_slot *s = ring_slot(t, &r->in[k]);
		if (s->key != r->in[k].key || (s->state != SLOT_FULL && s->state != SLOT_EVICTED && s->state != SLOT_MISSING))
			return WAIT_VALUE;
	}
	return WAIT_NOTHING;
}

/* The newest complete value stays for those who will ask for the newest, unless the writer itself replaces it. */
static bool only_newest(const struct tokens *t, const struct token_run *r, const struct token_bind *out)
{
	if (!t->newest[out->buf] || tokens_newest(t, out->stream, out->buf) != out->slot)
		return false;
	for (uint32_t k = 0; k < r->instr->nin; k++)
		if (r->in[k].buf == out->buf && r->in[k].slot == out->slot)
			return false;
	return true;
}

static enum token_wait slots(struct tokens *t, struct token_run *r, uint32_t *which)
{
	const struct plan_instr *i = r->instr;
	for (uint32_t k = 0; k < i->nout; k++) {
		const struct token_slot *s = ring_slot(t, &r->out[k]);
		*which = k;
		bool over = s->state != SLOT_EMPTY && s->key != r->out[k].key;
		bool pinned = s->pins > 0 && !PLANTED(TOKEN_UNPINNED);
		if (s->state == SLOT_WRITING || s->readers > 0 || (over && (pinned || only_newest(t, r, &r->out[k]))))
			return WAIT_SLOT;
	}
	for (uint32_t k = 0; k < i->nin; k++) {
		*which = k;
		if (token_drops(i, k) && (ring_slot(t, &r->in[k])->pins > 0 || ring_slot(t, &r->in[k])->readers > 0))
			return WAIT_SLOT;
	}
	return WAIT_NOTHING;
}

/* Its first output takes over the memory of its first input. */
static bool moves(const struct tokens *t, const struct token_run *r)
{
	return r->instr->inplace && ring_slot(t, &r->in[0])->bytes && !ring_slot(t, &r->out[0])->bytes;
}

/* Bytes that starting r takes, per tier. */
static void needs(const struct tokens *t, const struct token_run *r, uint64_t need[PLAN_TIERS_MAX])
{
	memset(need, 0, PLAN_TIERS_MAX * sizeof *need);
	need[0] = r->instr->work_bytes;
	for (uint32_t k = 0; k < r->instr->nout; k++) {
		const struct plan_buf *b = &t->plan->buf[r->out[k].buf];
		if (!ring_slot(t, &r->out[k])->bytes && !(k == 0 && moves(t, r)))
			need[b->tier] += ring_bytes(b);
	}
}

/* Does a slot have memory in the rehearsal? Its mark says so from the first time the rehearsal touches it. */
static bool *rehearsed(struct tokens *t, const struct token_bind *b)
{
	struct token_slot *s = ring_slot(t, b);
	if (s->mark != t->mark) {
		s->mark = t->mark;
		s->marked = s->bytes;
	}
	return &s->marked;
}

/* One unfinished instruction of the rehearsal: what it still takes (false: too much), then what its end gives back. */
static bool rehearse(struct tokens *t, const struct token_run *e, uint64_t used[PLAN_TIERS_MAX])
{
	const struct plan *p = t->plan;
	if (e->instr->inplace && !e->running && e->in[0].slot != PLAN_NONE && e->out[0].slot != PLAN_NONE &&
			*rehearsed(t, &e->in[0]) && !*rehearsed(t, &e->out[0])) {
		*rehearsed(t, &e->in[0]) = false;
		*rehearsed(t, &e->out[0]) = true;
	}
	for (uint32_t k = 0; k < e->instr->nout; k++) {
		const struct plan_buf *b = &p->buf[e->out[k].buf];
		if (e->running || b->shared || e->out[k].slot == PLAN_NONE || *rehearsed(t, &e->out[k]))
			continue;
		*rehearsed(t, &e->out[k]) = true;
		used[b->tier] += ring_bytes(b);
	}
	used[0] += e->running ? 0 : e->instr->work_bytes;
	for (uint32_t k = 0; k < p->ntiers; k++)
		if (p->tier[k].budget > 0 && used[k] > p->tier[k].budget)
			return false;
	used[0] -= e->instr->work_bytes;
	for (uint32_t k = 0; k < e->instr->nin; k++) {
		const struct plan_buf *b = &p->buf[e->in[k].buf];
		if (!token_drops(e->instr, k) || b->shared || e->in[k].slot == PLAN_NONE || !*rehearsed(t, &e->in[k]))
			continue;
		*rehearsed(t, &e->in[k]) = false;
		used[b->tier] -= ring_bytes(b);
	}
	return true;
}

/* r fits now, and with its bytes taken everything before it in the list can still run in the list's order: an eager
 * prefetch must not take the memory that what it runs ahead of is waiting for. */
static bool fits(struct tokens *t, const struct token_run *r, uint32_t *ret_tier, uint64_t *ret_bytes)
{
	const struct list *head = &t->stream[r->stream].runs;
	uint64_t need[PLAN_TIERS_MAX], used[PLAN_TIERS_MAX];
	bool takes = false;
	needs(t, r, need);
	for (uint32_t k = 0; k < t->plan->ntiers; k++) {
		uint64_t budget = t->plan->tier[k].budget;
		used[k] = t->used[k] + need[k];
		if (budget == 0 || need[k] == 0)
			continue;
		takes = true;
		*ret_tier = k;
		*ret_bytes = used[k] > budget ? used[k] - budget : 0;
		if (used[k] > budget)
			return false;
	}
	t->mark++;
	for (const struct list *it = head->next; takes && it != &r->link; it = it->next)
		if (!rehearse(t, list_entry(it, const struct token_run, link), used))
			return false;
	return true;
}

/* Whatever was inserted for r has not ended yet. */
static bool helped(const struct tokens *t, const struct token_run *r)
{
	const struct list *head = &t->stream[r->stream].runs;
	return r->link.prev != head && list_entry(r->link.prev, struct token_run, link)->inserted;
}

static bool evicted(struct tokens *t, struct token_run *r, uint32_t *which)
{
	for (uint32_t k = 0; k < r->instr->nin && r->instr->kind != PLAN_DROP; k++)
		if (ring_slot(t, &r->in[k])->state == SLOT_EVICTED) {
			*which = k;
			return true;
		}
	return false;
}

/* Cheap tests first; the scan over earlier instructions last. With `hook` a missing value or missing memory is
 * offered to the hooks, which may have inserted instructions before r when this returns. */
static enum token_wait hinders(struct tokens *t, struct token_run *r, bool hook, uint32_t *which)
{
	struct list *head = &t->stream[r->stream].runs;
	uint64_t bytes = 0;
	enum token_wait w = values(t, r, which);
	if (w != WAIT_NOTHING && w != WAIT_LOST && !hook)
		for (struct list *it = head->next; it != &r->link; it = it->next)
			if (conflict(t, list_entry(it, struct token_run, link), r))
				return WAIT_EARLIER;
	if (w != WAIT_NOTHING)
		return w;
	for (struct list *it = head->next; it != &r->link; it = it->next)
		if (conflict(t, list_entry(it, struct token_run, link), r))
			return WAIT_EARLIER;
	if ((w = bind_late(t, r, which)) != WAIT_NOTHING)
		return w;
	if (evicted(t, r, which)) {
		if (hook && t->hooks.miss && !helped(t, r))
			t->hooks.miss(t->hooks.arg, t, r, *which);
		return WAIT_VALUE;
	}
	if ((w = slots(t, r, which)) != WAIT_NOTHING)
		return w;
	if (!fits(t, r, which, &bytes)) {
		if (hook && bytes > 0 && t->hooks.pressure && !helped(t, r))
			t->hooks.pressure(t->hooks.arg, t, r, *which, bytes);
		return WAIT_MEMORY;
	}
	return WAIT_NOTHING;
}

/* For texts: no hooks. */
enum token_wait token_hinders(struct tokens *t, struct token_run *r, uint32_t *which)
{
	return hinders(t, r, false, which);
}

/* --- starting and ending */

static bool better(const struct token_run *a, const struct token_run *b)
{
	if (!b || a->inserted != b->inserted)
		return !b || a->inserted;
	return a->instr->priority != b->instr->priority ? a->instr->priority > b->instr->priority : a->seq < b->seq;
}

static bool lane_full(const struct tokens *t, uint32_t lane)
{
	uint32_t width = t->plan->lane[lane].width;
	return width > 0 && t->lane_running[lane] >= width;
}

/* The best of one stream against the best so far; *again when a hook has inserted something. */
static struct token_run *pick(struct tokens *t, struct stream *s, struct token_run *best, bool *again)
{
	uint32_t seen[PLAN_LANES_MAX] = {0}, which;
	list_each(it, &s->runs) {
		struct token_run *r = list_entry(it, struct token_run, link);
		uint32_t lane = r->instr->lane;
		if (r->running || seen[lane] >= t->plan->lane[lane].window)
			continue;
		seen[lane]++;
		if (lane_full(t, lane) || !better(r, best))
			continue;
		struct list *before = it->prev;
		if (hinders(t, r, true, &which) == WAIT_NOTHING)
			best = r;
		else if (it->prev != before) {
			*again = true;
			return best;
		}
	}
	return best;
}

static void begin_output(struct tokens *t, struct token_run *r, uint32_t k)
{
	struct token_slot *s = ring_slot(t, &r->out[k]);
	if (s->state != SLOT_EMPTY && s->key != r->out[k].key)
		ring_forget(t, s);
	s->state = SLOT_WRITING;
	s->key = r->out[k].key;
	s->used = t->clock;
	if (k == 0 && r->moved)
		ring_move(t, &r->in[0], &r->out[0]);
	ring_take(t, &r->out[k]);
}

static void begin(struct tokens *t, struct token_run *r)
{
	const struct plan_instr *i = r->instr;
	r->running = true;
	t->clock += i->kind != PLAN_DROP && i->kind != PLAN_COMMIT;
	t->running++;
	t->lane_running[i->lane]++;
	t->stream[r->stream].unstarted[i->lane]--;
	token_read(t, r);
	if (i->nin > 0)
		r->version = ring_slot(t, &r->in[0])->version;
	r->moved = !r->passed && moves(t, r);
	for (uint32_t k = i->nin; k-- > 0;) {
		struct token_slot *s = ring_slot(t, &r->in[k]);
		/* weights that came from elsewhere keep the version of their owner */
		if (i->in[k].role == PLAN_AS_WEIGHT)
			r->version = s->remote ? s->version : r->in[k].key;
		s->readers++;
		s->used = t->clock;
	}
	for (uint32_t k = 0; k < i->nout; k++) {
		struct token_slot *s = ring_slot(t, &r->out[k]);
		r->out[k].fresh = !s->bytes;
		r->out[k].blank = s->state != SLOT_FULL || s->key != r->out[k].key;
	}
	if (r->passed)
		tokens_stand(t, r);
	for (uint32_t k = 0; k < i->nout; k++)
		if (!r->passed || r->stands[k].slot != PLAN_NONE)
			begin_output(t, r, k);
	t->used[0] += i->work_bytes;
	if (t->used[0] > t->peak[0])
		t->peak[0] = t->used[0];
}

struct token_run *tokens_start(struct tokens *t)
{
	struct token_run *best = NULL;
	bool again = !t->nothing;
	for (int round = 0; again && round < HELP_ROUNDS; round++) {
		again = false;
		best = NULL;
		for (uint32_t s = 0; s < t->nstreams && !again; s++) {
			tokens_fetch(t, s);
			best = pick(t, &t->stream[s], best, &again);
		}
	}
	if (best)
		begin(t, best);
	t->nothing = !best && !again;
	return best;
}

static bool paired(const struct tokens *t, uint32_t base, uint32_t weight)
{
	for (uint32_t k = 0; k < t->npairs; k++)
		if (t->pair[k].base == base && t->pair[k].weight == weight)
			return true;
	return false;
}

static void end_outputs(struct tokens *t, struct token_run *r, const struct token_news *news)
{
	const struct plan_instr *i = r->instr;
	for (uint32_t k = 0; k < i->nout; k++) {
		struct token_slot *s = ring_slot(t, &r->out[k]);
		s->state = SLOT_FULL;
		s->version = r->version;
		s->remote = news != NULL;
		if (i->nin > 0 && ring_slot(t, &r->in[0]) != s) {
			const struct token_slot *from = ring_slot(t, &r->in[0]);
			ring_senders(s, from->nfrom, from->from, from->parts);
		}
		if (news) {
			s->version = news->version;
			ring_senders(s, news->nfrom, news->from, i->most > 0 ? i->most : 1);
		}
		for (uint32_t n = 0; n < i->nin; n++)
			if (i->in[n].role == PLAN_AS_WEIGHT && paired(t, i->out[k].buf, i->in[n].buf))
				ring_pin(t, s, &r->in[n]);
	}
}

void token_leave(struct tokens *t, struct token_run *r, bool takes)
{
	const struct plan_instr *i = r->instr;
	struct stream *s = &t->stream[r->stream];
	assert(r->running);
	t->nothing = false;
	for (uint32_t k = 0; k < i->nin; k++)
		ring_slot(t, &r->in[k])->readers--;
	for (uint32_t k = 0; k < i->nin && takes; k++)
		if (token_drops(i, k) && ring_slot(t, &r->in[k])->key == r->in[k].key)
			ring_release(t, &r->in[k], token_evicts(i));
	t->used[0] -= i->work_bytes;
	t->running--;
	t->lane_running[i->lane]--;
	s->nruns--;
	list_del(&r->link);
	token_run_free(r);
}

void tokens_end(struct tokens *t, struct token_run *r, const struct token_news *news)
{
	if (r->passed || (news && news->missing))
		token_not_made(t, r);
	else
		end_outputs(t, r, news);
	token_leave(t, r, true);
}
