/* Which instruction may start. The tour: tokens_start fetches (binds references in list order), looks at each lane's
 * next `window` and takes the best one that nothing hinders; begin() and tokens_end() move the slots' states. */
#include "plan/tokens_int.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"

bool token_evicts(const struct plan_instr *i)
{
	return i->kind == PLAN_DROP && strcmp(i->fn, "evict") == 0;
}

bool token_drops(const struct plan_instr *i, uint32_t input)
{
	return i->in[input].drop || i->kind == PLAN_DROP;
}

static void find_pairs(struct tokens *t)
{
	for (uint32_t n = 0; n < t->plan->ninstrs; n++) {
		const struct plan_instr *i = &t->plan->instr[n];
		for (uint32_t k = 0; k < i->nin; k++) {
			if (i->in[k].age == PLAN_NEWEST)
				t->newest[i->in[k].buf] = true;
			if (i->in[k].age != PLAN_SAME)
				continue;
			struct pair x = { i->in[i->in[k].k].buf, i->in[k].buf };
			uint32_t have = 0;
			while (have < t->npairs && memcmp(&t->pair[have], &x, sizeof x) != 0)
				have++;
			if (have < t->npairs)
				continue;
			t->pair = xrealloc(t->pair, (t->npairs + 1) * sizeof x);
			t->pair[t->npairs++] = x;
		}
	}
}

struct tokens *tokens_new(const struct plan *p, const struct token_hooks *hooks, const struct tokens *before)
{
	struct tokens *t = xcalloc(1, sizeof *t);
	t->plan = p;
	t->hooks = hooks ? *hooks : (struct token_hooks){0};
	t->nstreams = p->streams > 0 ? p->streams : 1;
	t->iterations = p->iterations;
	t->index_max = (int64_t)p->first - 1;
	t->depth_max = 1;
	for (uint32_t i = 0; i < p->nbufs; i++)
		if (plan_depth(&p->buf[i]) > t->depth_max)
			t->depth_max = plan_depth(&p->buf[i]);
	for (uint32_t i = 0; i < p->ninstrs; i++)
		for (int s = p->instr[i].section + 1; s <= PLAN_SECTIONS_COUNT; s++)
			t->section[s] = i + 1;
	for (int s = PLAN_SECTIONS_COUNT; s-- > 0;) {
		t->lanes_from[s] = t->lanes_from[s + 1];
		for (uint32_t i = t->section[s]; i < t->section[s + 1]; i++)
			t->lanes_from[s] |= 1u << p->instr[i].lane;
	}
	t->newest = xcalloc(p->nbufs + 1, sizeof *t->newest);
	rings_init(t);
	find_pairs(t);
	t->stream = xcalloc(t->nstreams, sizeof *t->stream);
	for (uint32_t s = 0; s < t->nstreams; s++)
		list_init(&t->stream[s].runs);
	if (before)
		rings_carry(t, before);
	return t;
}

void token_run_free(struct token_run *r)
{
	if (r->own) {
		free(r->own->in);
		free(r->own->out);
		free(r->own->piece);
		free(r->own);
	}
	free(r->in);
	free(r->out);
	free(r);
}

void tokens_free(struct tokens *t)
{
	if (!t)
		return;
	for (uint32_t s = 0; s < t->nstreams; s++)
		list_each_safe(it, &t->stream[s].runs)
			token_run_free(list_entry(it, struct token_run, link));
	rings_free(t);
	free(t->stream);
	free(t->pair);
	free(t->newest);
	free(t);
}

/* --- fetching, in list order */

static struct token_run *run_new(struct tokens *t, const struct plan_instr *i, uint32_t stream, int64_t index)
{
	struct token_run *r = xcalloc(1, sizeof *r);
	r->instr = i;
	r->stream = stream;
	r->index = index;
	r->version = -1;
	r->in = xcalloc(i->nin + 1, sizeof *r->in);
	r->out = xcalloc(i->nout + 1, sizeof *r->out);
	for (uint32_t k = 0; k < i->nin; k++)
		r->in[k] = (struct token_bind){ i->in[k].buf, PLAN_NONE, stream, 0, false, false };
	for (uint32_t k = 0; k < i->nout; k++)
		r->out[k] = (struct token_bind){ i->out[k].buf, PLAN_NONE, stream, 0, false, false };
	r->seq = ++t->seq;
	return r;
}

static void fetch_one(struct tokens *t, uint32_t stream, uint32_t at, int64_t index, uint64_t iteration)
{
	const struct plan_instr *i = &t->plan->instr[at];
	struct token_run *r = run_new(t, i, stream, index);
	struct stream *s = &t->stream[stream];
	r->number = at;
	r->iteration = iteration;
	for (uint32_t k = 0; k < i->nin; k++)
		ring_bind_in(t, &i->in[k], index, &r->in[k]);
	for (uint32_t k = 0; k < i->nout; k++)
		ring_bind_out(t, &i->out[k], index, &r->out[k]);
	for (uint32_t k = 0; k < i->nin; k++)
		if (token_drops(i, k))
			ring_unclaim(t, &r->in[k]);
	if (index > t->index_max)
		t->index_max = index;
	list_push(&s->runs, &r->link);
	s->nruns++;
	s->unstarted[i->lane]++;
}

static bool wants_more(const struct tokens *t, const struct stream *s, int section)
{
	if (s->nruns >= TOKENS_AHEAD)
		return false;
	if (section == PLAN_BODY && !list_empty(&s->runs)) {
		/* not too far ahead of what has not started: tokens_stop should mean soon */
		const struct list *it = s->runs.next;
		while (it->next != &s->runs && list_entry(it, const struct token_run, link)->running)
			it = it->next;
		if (s->iteration > list_entry(it, const struct token_run, link)->iteration + t->depth_max)
			return false;
	}
	for (uint32_t l = 0; l < t->plan->nlanes; l++)
		if ((t->lanes_from[section] >> l & 1) && s->unstarted[l] < t->plan->lane[l].window)
			return true;
	return false;
}

static int section_of(const struct tokens *t, struct stream *s)
{
	if (s->at < t->section[PLAN_BODY])
		return PLAN_PROLOGUE;
	if (s->at == t->section[PLAN_BODY] && s->iteration >= t->iterations)
		s->at = t->section[PLAN_EPILOGUE];
	return s->at < t->section[PLAN_EPILOGUE] ? PLAN_BODY :
		s->at < t->section[PLAN_SECTIONS_COUNT] ? PLAN_EPILOGUE : PLAN_SECTIONS_COUNT;
}

static void fetch(struct tokens *t, uint32_t stream)
{
	struct stream *s = &t->stream[stream];
	const struct plan *p = t->plan;
	uint64_t step = p->step > 0 ? p->step : 1;
	for (uint64_t skipped = 0; !s->fetched && skipped < 1u << 20;) {
		int section = section_of(t, s);
		if (section == PLAN_SECTIONS_COUNT)
			s->fetched = true;
		if (s->fetched || !wants_more(t, s, section))
			return;
		const struct plan_instr *i = &p->instr[s->at];
		uint64_t it = section == PLAN_PROLOGUE ? 0 : section == PLAN_BODY ? s->iteration : t->iterations;
		int64_t index = (int64_t)(p->first + it * step) + i->mb;
		if (plan_due(i, index) && plan_in_stream(i, stream))
			fetch_one(t, stream, s->at, index, it);
		else
			skipped++;
		s->at++;
		/* an empty body has no iterations to count */
		if (s->at == t->section[PLAN_EPILOGUE] && section == PLAN_BODY) {
			s->iteration++;
			if (s->iteration < t->iterations)
				s->at = t->section[PLAN_BODY];
		}
	}
}

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

static bool conflict(const struct tokens *t, const struct token_run *earlier, const struct token_run *r)
{
	if (r->instr->kind == PLAN_COMMIT && r->instr->nin == 0)
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
			if (!ring_bind_same(t, &r->in[ref->k], &r->in[k]))
				return WAIT_VALUE;
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
		if (s->key != r->in[k].key || (s->state != SLOT_FULL && s->state != SLOT_EVICTED))
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
		if (s->state == SLOT_WRITING || s->readers > 0 || (over && (s->pins > 0 || only_newest(t, r, &r->out[k]))))
			return WAIT_SLOT;
	}
	for (uint32_t k = 0; k < i->nin; k++) {
		*which = k;
		if (token_drops(i, k) && (ring_slot(t, &r->in[k])->pins > 0 || ring_slot(t, &r->in[k])->readers > 0))
			return WAIT_SLOT;
	}
	return WAIT_NOTHING;
}

static bool fits(const struct tokens *t, const struct token_run *r, uint32_t *ret_tier, uint64_t *ret_bytes)
{
	uint64_t need[PLAN_TIERS_MAX] = { r->instr->work_bytes };
	for (uint32_t k = 0; k < r->instr->nout; k++) {
		const struct plan_buf *b = &t->plan->buf[r->out[k].buf];
		bool twice = false;
		for (uint32_t j = 0; j < k; j++)
			twice = twice || (r->out[j].buf == r->out[k].buf && r->out[j].slot == r->out[k].slot);
		if (!twice && !ring_slot(t, &r->out[k])->bytes)
			need[b->tier] += ring_bytes(b);
	}
	for (uint32_t k = 0; k < t->plan->ntiers; k++) {
		uint64_t budget = t->plan->tier[k].budget;
		if (budget > 0 && need[k] > 0 && t->used[k] + need[k] > budget) {
			*ret_tier = k;
			*ret_bytes = t->used[k] + need[k] - budget;
			return false;
		}
	}
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

/* Cheap tests first; the scan over earlier instructions last. With `hook` a missing value or missing memory is offered to
 * the hooks, which may have inserted instructions before r when this returns. */
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
		if (hook && t->hooks.pressure && !helped(t, r))
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

static void begin(struct tokens *t, struct token_run *r)
{
	const struct plan_instr *i = r->instr;
	r->running = true;
	t->clock += i->kind != PLAN_DROP && i->kind != PLAN_COMMIT;
	t->running++;
	t->lane_running[i->lane]++;
	t->stream[r->stream].unstarted[i->lane]--;
	if (i->nin > 0)
		r->version = ring_slot(t, &r->in[0])->version;
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
		r->out[k].blank = s->state == SLOT_EMPTY || s->state == SLOT_EVICTED || s->key != r->out[k].key;
		if (s->state != SLOT_EMPTY && s->key != r->out[k].key)
			ring_forget(t, s);
		s->state = SLOT_WRITING;
		s->key = r->out[k].key;
		s->used = t->clock;
		ring_take(t, &r->out[k]);
	}
	t->used[0] += i->work_bytes;
	if (t->used[0] > t->peak[0])
		t->peak[0] = t->used[0];
}

struct token_run *tokens_start(struct tokens *t)
{
	struct token_run *best = NULL;
	bool again = true;
	for (int round = 0; again && round < 1000; round++) {
		again = false;
		best = NULL;
		for (uint32_t s = 0; s < t->nstreams && !again; s++) {
			fetch(t, s);
			best = pick(t, &t->stream[s], best, &again);
		}
	}
	if (best)
		begin(t, best);
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

void tokens_end(struct tokens *t, struct token_run *r, const struct token_news *news)
{
	const struct plan_instr *i = r->instr;
	struct stream *s = &t->stream[r->stream];
	assert(r->running);
	end_outputs(t, r, news);
	for (uint32_t k = 0; k < i->nin; k++)
		ring_slot(t, &r->in[k])->readers--;
	for (uint32_t k = 0; k < i->nin; k++)
		if (token_drops(i, k))
			ring_release(t, &r->in[k], token_evicts(i));
	t->used[0] -= i->work_bytes;
	t->running--;
	t->lane_running[i->lane]--;
	s->nruns--;
	list_del(&r->link);
	token_run_free(r);
}
