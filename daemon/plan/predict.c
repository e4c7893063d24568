/* The predictor's clock: starts whatever plan/tokens.h lets start, ends it when its modelled time has passed. */
#include "plan/predict_int.h"
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"

/* --- the event queue: by time, then by order of arrival */

static bool before(const struct event *a, const struct event *b)
{
	return a->at != b->at ? a->at < b->at : a->seq < b->seq;
}

void predict_at(struct sim *s, uint64_t at, enum event_kind kind, uint32_t peer, void *what)
{
	if (s->nqueue == s->cqueue) {
		s->cqueue = s->cqueue > 0 ? s->cqueue * 2 : 64;
		s->queue = xrealloc(s->queue, s->cqueue * sizeof *s->queue);
	}
	struct event e = { at, ++s->seq, kind, peer, what };
	size_t i = s->nqueue++;
	for (; i > 0 && before(&e, &s->queue[(i - 1) / 2]); i = (i - 1) / 2)
		s->queue[i] = s->queue[(i - 1) / 2];
	s->queue[i] = e;
}

static struct event pop(struct sim *s)
{
	struct event top = s->queue[0], last = s->queue[--s->nqueue];
	size_t i = 0;
	for (size_t c; (c = 2 * i + 1) < s->nqueue; i = c) {
		if (c + 1 < s->nqueue && before(&s->queue[c + 1], &s->queue[c]))
			c++;
		if (!before(&s->queue[c], &last))
			break;
		s->queue[i] = s->queue[c];
	}
	s->queue[i] = last;
	return top;
}

/* --- local work */

static uint64_t fn_us(const struct profile *m, const char *name, uint64_t bytes)
{
	for (uint32_t k = 0; k < m->nfns; k++)
		if (strcmp(m->fn[k].name, name) == 0)
			return m->fn[k].us + (uint64_t)(m->fn[k].us_per_byte * (double)bytes);
	return 0;
}

static uint64_t cost_us(const struct sim *s, const struct peer *p, const struct plan_instr *i)
{
	const struct profile *m = s->conf->profile;
	uint64_t bytes = 0;
	for (uint32_t k = 0; k < i->nout; k++)
		bytes += p->plan->buf[i->out[k].buf].bytes;
	for (uint32_t k = 0; k < i->nin && i->nout == 0; k++)
		bytes += p->plan->buf[i->in[k].buf].bytes;
	if (!m)
		return i->kind == PLAN_DROP || i->kind == PLAN_COMMIT ? 0 : 1;
	switch (i->kind) {
	case PLAN_FWD: return profile_fwd_us(m, i);
	case PLAN_BWD: return profile_bwd_us(m, i);
	case PLAN_LOAD: return m->load_us;
	case PLAN_VEC: return fn_us(m, i->fn, bytes);
	case PLAN_MOVE: case PLAN_SAVE: case PLAN_COMMIT: return fn_us(m, plan_kind_name(i->kind), bytes);
	default: return 0;
	}
}

static void launch(struct sim *s, uint32_t k, struct token_run *r)
{
	struct peer *p = &s->peer[k];
	struct predict_span span = { .start_us = s->now, .peer = k, .lane = r->instr->lane, .stream = r->stream,
		.number = r->number, .kind = r->instr->kind, .index = r->index, .version = r->version, .from = PLAN_NONE };
	bool mark = r->instr->kind == PLAN_DROP || r->instr->kind == PLAN_COMMIT;       /* they end where they begin */
	uint64_t us;
	r->user = xmemdup(&span, sizeof span);
	if (r->passed) {
		predict_end(s, k, r, NULL);
		return;
	}
	switch (r->instr->kind) {
	case PLAN_SEND: predict_send(s, k, r); break;
	case PLAN_RECV: case PLAN_ALLTOALL: case PLAN_SUM: case PLAN_GATHER: case PLAN_SCATTER: predict_wait(s, k, r);
		break;
	default: us = (uint64_t)((double)cost_us(s, p, r->instr) / p->speed + 0.5);
		if (us || !mark)
			predict_at(s, s->now + us, EVENT_END, k, r);
		else
			predict_end(s, k, r, NULL);
	}
}

void predict_end(struct sim *s, uint32_t k, struct token_run *r, const struct token_news *news)
{
	struct peer *p = &s->peer[k];
	struct predict_span *span = r->user;
	span->end_us = s->now;
	if (r->instr->kind == PLAN_RECV && news && news->nfrom > 0) {
		span->from = news->from[0].peer;
		span->version = news->version;
	}
	p->out->busy_us[span->lane] += span->end_us - span->start_us;
	p->out->ran[span->kind] += !r->passed;
	p->out->finish_us = s->now;
	if (s->conf->spans) {
		struct prediction *o = s->out;
		if ((o->nspans & (o->nspans - 1)) == 0)
			o->span = xrealloc(o->span, (o->nspans > 0 ? 2 * o->nspans : 1) * sizeof *o->span);
		o->span[o->nspans++] = *span;
	}
	free(span);
	if (news && news->missing)
		tokens_stand(p->tokens, r);
	tokens_end(p->tokens, r, news);
}

static void begin(struct sim *s, uint32_t k, const struct plan *p, const struct tokens *before)
{
	struct peer *x = &s->peer[k];
	struct plan *copy = &x->copy[x->plan == x->copy];
	*copy = *p;
	if (s->conf->iterations > 0)
		copy->iterations = s->conf->iterations;
	x->plan = copy;
	x->tokens = tokens_new(copy, s->conf->hooks ? &s->conf->hooks[p->me] : NULL, before);
}

/* Most that its programs have held, until now. */
static void peaks(struct peer *p)
{
	struct predict_peer *o = p->out;
	for (uint32_t t = 0; t < p->plan->ntiers; t++)
		if (tokens_peak(p->tokens, t) > o->peak[t])
			o->peak[t] = tokens_peak(p->tokens, t);
	if (p->plan->nbufs > o->nbufs) {
		o->values = xrealloc(o->values, p->plan->nbufs * sizeof *o->values);
		memset(o->values + o->nbufs, 0, (p->plan->nbufs - o->nbufs) * sizeof *o->values);
		o->nbufs = p->plan->nbufs;
	}
	for (uint32_t b = 0; b < p->plan->nbufs; b++)
		if (tokens_peak_values(p->tokens, b) > o->values[b])
			o->values[b] = tokens_peak_values(p->tokens, b);
}

/* The program that follows one that has ended; false: none does. */
static bool go_on(struct sim *s, uint32_t k)
{
	struct peer *p = &s->peer[k];
	struct predict_peer *o = p->out;
	struct tokens *was = p->tokens;
	if (o->nended == s->conf->nthen || p->dead || !tokens_finished(was))
		return false;
	peaks(p);
	o->finish_us = s->now;
	o->ended[o->nended] = *o;
	o->ended[o->nended].values = NULL;
	o->ended[o->nended].ended = NULL;
	begin(s, k, s->conf->then[o->nended++ * s->n + k], was);
	tokens_free(was);
	return true;
}

/* An end on one peer may let others start: arrivals and collectives end instructions elsewhere, so all are asked. */
static void start_all(struct sim *s)
{
	for (bool any = true; any;) {
		any = false;
		for (uint32_t k = 0; k < s->n; k++)
			do {
				for (struct token_run *r; !s->peer[k].dead && (r = tokens_start(s->peer[k].tokens)); any = true)
					launch(s, k, r);
			} while (go_on(s, k));
	}
}

static void handle(struct sim *s, const struct event *e)
{
	if (e->kind == EVENT_DEATH)
		predict_death(s, e->peer);
	else if (e->kind == EVENT_ARRIVE)
		predict_arrive(s, e->what);
	else if (e->kind == EVENT_TIMER)
		predict_timer(s, e->peer, e->what);
	else if (!s->peer[e->peer].dead)
		predict_end(s, e->peer, e->what, NULL);
	else
		free(((struct token_run *)e->what)->user);
}

static void loop(struct sim *s, uint64_t events_max)
{
	start_all(s);
	while (s->nqueue > 0 && s->nevents < events_max) {
		if (s->conf->horizon_us > 0 && s->queue[0].at > s->conf->horizon_us)
			break;
		uint64_t at = s->queue[0].at;
		s->now = at;
		while (s->nqueue > 0 && s->queue[0].at == at) {
			struct event e = pop(s);
			handle(s, &e);
			s->nevents++;
		}
		start_all(s);
	}
}

/* Who cannot go on by itself comes first in the text: 0 a value that nobody makes, 1 memory or a ring, 2 others. */
static int cause(struct prediction *o, struct peer *p)
{
	int least = 2;
	for (uint32_t x = 0; x < (p->plan->streams > 0 ? p->plan->streams : 1); x++) {
		const struct token_run *r;
		uint32_t which;
		enum token_wait w = tokens_blocked(p->tokens, x, &r, &which);
		o->lost = o->lost || w == WAIT_LOST;
		o->memory = o->memory || w == WAIT_MEMORY;
		int c = w == WAIT_LOST ? 0 : w == WAIT_MEMORY || w == WAIT_SLOT ? 1 : 2;
		least = c < least ? c : least;
	}
	return least;
}

static void stuck(struct sim *s, struct peer *p)
{
	struct prediction *o = s->out;
	o->stuck = true;
	buf_printf(&o->why, "%speer %u: ", o->why.len > 0 ? "\n" : "", p->plan->me);
	size_t was = o->why.len;
	tokens_why(p->tokens, &o->why);
	list_each(it, &p->waits) {
		const struct wait *w = list_entry(it, struct wait, link);
		buf_printf(&o->why, "%s%s of index %lld (", o->why.len > was ? "; " : "", plan_kind_name(w->run->instr->kind),
			(long long)w->run->index);
		plan_print_instr(p->plan, w->run->instr, &o->why);
		buf_printf(&o->why, ") has not been answered");
	}
}

/* A server that waits for requests has not hung: nothing has come that it could still answer. */
static bool idle(const struct peer *p)
{
	uint64_t any = 0;
	list_each(it, &p->waits) {
		const struct wait *w = list_entry(it, struct wait, link);
		if (w->run->instr->with != PLAN_ANY || w->nfrom > 0)
			return false;
		any++;
	}
	return any > 0 && any == tokens_running(p->tokens) && list_empty(&p->mail);
}

static void conclude(struct sim *s)
{
	struct prediction *o = s->out;
	bool all_idle = true;
	for (uint32_t k = 0; k < s->n; k++) {
		struct peer *p = &s->peer[k];
		p->out->finished = tokens_finished(p->tokens) && p->out->nended == s->conf->nthen;
		p->out->idle = !p->out->finished && idle(p);
		all_idle = all_idle && (p->out->finished || p->dead || p->out->idle);
	}
	for (uint32_t k = 0; k < s->n; k++)
		o->us = s->peer[k].out->finish_us > o->us ? s->peer[k].out->finish_us : o->us;
	if (s->conf->horizon_us > 0 && s->nqueue > 0)
		o->us = s->conf->horizon_us;
	for (uint32_t k = 0; k < s->n; k++) {
		struct peer *p = &s->peer[k];
		uint32_t train = plan_find_lane(p->plan, "train");
		p->out->died = p->dead;
		p->out->bubble = o->us > 0 && train != PLAN_NONE ? 1 - (double)p->out->busy_us[train] / (double)o->us : 0;
		peaks(p);
		o->unread += list_len(&p->mail);
	}
	for (int c = 0; c < 3 && !all_idle && !(s->conf->horizon_us > 0 && s->nqueue > 0); c++)
		for (uint32_t k = 0; k < s->n; k++)
			if (!s->peer[k].out->finished && !s->peer[k].dead && cause(o, &s->peer[k]) == c)
				stuck(s, &s->peer[k]);
}

/* Programs that follow are of the same member, and name what it has as the first one does. */
static int follows(const struct sim *s, uint32_t k, const struct plan *first, struct err *e)
{
	for (uint32_t r = 0; r < s->conf->nthen; r++) {
		const struct plan *p = s->conf->then[r * s->n + k];
		bool same = p->me == first->me && p->nmembers == first->nmembers && p->generation == first->generation;
		for (uint32_t l = 0; same && l < p->nlanes && l < first->nlanes; l++)
			same = strcmp(p->lane[l].name, first->lane[l].name) == 0;
		if (!same)
			return err_set(e, ERR_MISMATCH, "plan of peer %u: program %u, which follows, is of another member or "
				"generation, or has other lanes", first->me, r + 1);
	}
	return 0;
}

static int setup(struct sim *s, const struct plan *const *v, struct err *e)
{
	for (uint32_t k = 0; k < s->n; k++) {
		const struct plan *p = v[k];
		struct peer *x = &s->peer[k];
		if (p->nmembers != v[0]->nmembers || p->me >= p->nmembers || p->generation != v[0]->generation)
			return err_set(e, ERR_MISMATCH, "plan of peer %u: other members or another generation than plan 0", p->me);
		if (s->rank_at[p->me] != PLAN_NONE)
			return err_set(e, ERR_EXISTS, "there are two plans of peer %u", p->me);
		s->rank_at[p->me] = k;
		if (follows(s, k, p, e) < 0)
			return -1;
		x->speed = s->conf->speed ? s->conf->speed[p->me] : 1;
		if (!(x->speed > 0))
			return err_set(e, ERR_INVALID, "speed of peer %u is not above 0", p->me);
		x->out = &s->out->peer[k];
		x->out->ended = s->conf->nthen ? xcalloc(s->conf->nthen, sizeof *x->out->ended) : NULL;
		begin(s, k, p, s->conf->before ? s->conf->before[k] : NULL);
		if (s->conf->dies_at_us && s->conf->dies_at_us[p->me] > 0)
			predict_at(s, s->conf->dies_at_us[p->me], EVENT_DEATH, k, NULL);
	}
	return 0;
}

static void teardown(struct sim *s)
{
	for (uint32_t k = 0; k < s->n; k++) {
		list_each(it, &s->peer[k].waits)
			free(list_entry(it, struct wait, link)->run->user);
	}
	while (s->nqueue > 0) {
		struct event e = pop(s);
		if (e.kind == EVENT_ARRIVE)
			free(e.what);
		else if (e.kind == EVENT_END)
			free(((struct token_run *)e.what)->user);
		else if (e.kind == EVENT_TIMER && !((struct wait *)e.what)->run)
			predict_timer(s, e.peer, e.what);
	}
	predict_net_free(s);
	for (uint32_t k = 0; k < s->n; k++)
		tokens_free(s->peer[k].tokens);
	free(s->peer);
	free(s->queue);
	free(s->rank_at);
}

int predict(const struct plan *const *v, uint32_t n, const struct predict_conf *conf, struct prediction *ret,
	struct err *e)
{
	struct sim s = { .conf = conf, .out = ret, .n = n };
	uint64_t events_max = conf->events_max > 0 ? conf->events_max : 50000000;
	*ret = (struct prediction){ .npeers = n };
	if (n == 0)
		return err_set(e, ERR_INVALID, "there is no plan to predict");
	ret->nmembers = v[0]->nmembers;
	ret->peer = xcalloc(n, sizeof *ret->peer);
	ret->link_bytes = xcalloc((size_t)ret->nmembers * ret->nmembers, sizeof *ret->link_bytes);
	s.peer = xcalloc(n, sizeof *s.peer);
	s.rank_at = xmalloc(ret->nmembers * sizeof *s.rank_at);
	for (uint32_t k = 0; k < ret->nmembers; k++)
		s.rank_at[k] = PLAN_NONE;
	for (uint32_t k = 0; k < n; k++) {
		list_init(&s.peer[k].mail);
		list_init(&s.peer[k].waits);
	}
	int rc = setup(&s, v, e);
	if (rc == 0) {
		loop(&s, events_max);
		if (s.nevents >= events_max)
			rc = err_set(e, ERR_LIMIT, "the prediction took more than %llu events", (unsigned long long)events_max);
		else
			conclude(&s);
	}
	teardown(&s);
	if (rc < 0)
		prediction_free(ret);
	return rc;
}

void prediction_free(struct prediction *p)
{
	for (uint32_t k = 0; p->peer && k < p->npeers; k++) {
		free(p->peer[k].values);
		free(p->peer[k].ended);
	}
	free(p->peer);
	free(p->link_bytes);
	free(p->span);
	buf_free(&p->why);
	*p = (struct prediction){0};
}
