/* The replay: every peer's log is walked line by line (replay_line.c), its instructions are done on vectors of its own
 * (replay_step.c); where it takes a mean it waits until all that were in the round have given. Nothing is known of
 * strategies here: what was under way, and how long, is the order of the lines. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/hash.h"
#include "common/jrpc.h"
#include "common/mem.h"
#include "kernels/vec.h"
#include "train/replay_int.h"
#include "train/trainer_int.h"

#define EPOCHS_MAX (1u << 24)

/* --- rounds */

struct round *replay_round(struct replayer *r, uint64_t epoch, const char *id, struct err *e)
{
	struct round **at;

	if (!epoch || epoch > EPOCHS_MAX) {
		(void)err_set(e, ERR_CORRUPT, "epoch %llu", (unsigned long long)epoch);
		return NULL;
	}
	if (epoch > r->nrounds) {
		r->round = xrealloc(r->round, epoch * sizeof(*r->round));
		memset(r->round + r->nrounds, 0, (epoch - r->nrounds) * sizeof(*r->round));
		r->nrounds = epoch;
	}
	for (at = &r->round[epoch - 1]; *at && strncmp((*at)->id, id, sizeof((*at)->id) - 1); at = &(*at)->next)
		;
	if (!*at) {
		*at = xcalloc(1, sizeof(**at));
		(*at)->epoch = epoch;
		(void)snprintf((*at)->id, sizeof((*at)->id), "%s", id);
	}
	return *at;
}

/* The state with the lowest epoch that a log has yet to begin with. */
static uint64_t goes_back_to(const struct peer *p)
{
	uint64_t least = UINT64_MAX;

	for (size_t k = p->adopted; k < p->nadopts; k++)
		least = p->adopts[k] < least ? p->adopts[k] : least;
	return least;
}

/* Who was in it gave the latest that it had given before it heard how it ended. A peer that has several logs, one for
 * each of its lives, gave in the one that has heard that it was counted; in none: in the last that has so many samples
 * for it, and all of them must have come so far. What another round of that epoch has had is not meant. */
static int find(struct replayer *r, const struct round *round, const struct share *s, const struct gift **ret,
	struct err *e)
{
	bool waits = false;

	*ret = NULL;
	for (size_t i = 0; i < r->npeers; i++) {
		const struct peer *p = &r->peer[i];

		if (strcmp(p->id, s->id))
			continue;
		waits = waits || (!p->over && (p->committed < round->epoch || goes_back_to(p) < round->epoch));
		list_each(it, &p->gifts) {
			const struct gift *g = list_entry(it, struct gift, link);

			if (g->epoch != round->epoch || g->samples != s->samples || (g->to && g->to != round))
				continue;
			*ret = g;
			if (g->counted)
				return 0;
		}
	}
	if (waits)
		return REPLAY_WAITS;
	return *ret ? 0 : err_set(e, ERR_CORRUPT, "epoch %llu: the %llu samples of peer %s are in no log: that of one "
		"of its lives is missing or has ended at its size (local.log), or the run goes on",
		(unsigned long long)round->epoch, (unsigned long long)s->samples, s->id);
}

/* Nobody says who was in it: whoever says that its samples were counted, in the order of the logs. */
static int guess(struct replayer *r, uint64_t epoch, const struct gift **ret, uint32_t *ret_n, struct err *e)
{
	*ret_n = 0;
	for (size_t i = 0; i < r->npeers; i++) {
		const struct peer *p = &r->peer[i];
		const struct gift *g = gift_to(p, epoch);

		if (!p->over && p->committed < epoch)
			return REPLAY_WAITS;
		if (g && g->counted && *ret_n < REPLAY_SHARES)
			ret[(*ret_n)++] = g;
	}
	return *ret_n ? 0 : err_set(e, ERR_CORRUPT, "epoch %llu: nobody contributed", (unsigned long long)epoch);
}

static void gifts_free(const struct replayer *r, struct peer *p, uint64_t upto)
{
	list_each_safe(it, &p->gifts) {
		struct gift *g = list_entry(it, struct gift, link);

		if (g->epoch > upto)
			continue;
		list_del(&g->link);
		big_free(g->x, r->given * sizeof(real));
		free(g);
	}
}

int replay_mean(struct replayer *r, struct round *round, const real **ret, struct err *e)
{
	const struct gift *g[REPLAY_SHARES];
	uint32_t n = round->n;
	double total = 0;
	int rc = 0;

	*ret = round->mean;
	if (round->mean)
		return 0;
	for (uint32_t k = 0; k < n && !rc; k++)
		rc = find(r, round, &round->share[k], &g[k], e);
	if (!n)
		rc = guess(r, round->epoch, g, &n, e);
	if (rc)
		return rc;
	round->mean = big_alloc(r->given * sizeof(real));
	if (!round->mean)
		return err_set(e, ERR_NOMEM, "no memory for the mean of epoch %llu (%zu bytes)",
			(unsigned long long)round->epoch, r->given * sizeof(real));
	for (uint32_t k = 0; k < n; k++)
		total += (double)g[k]->samples;
	for (uint32_t k = 0; k < n; k++) {
		vec_mean_add(r->par, r->given, (double)g[k]->samples / total, g[k]->x, round->mean, k == 0);
		r->ret->samples += g[k]->samples;
		r->ret->contributions++;
	}
	*ret = round->mean;
	return 0;
}

/* What nobody will ask for any more. */
static void let_go(struct replayer *r)
{
	uint64_t least = r->nrounds;

	for (size_t i = 0; i < r->npeers; i++) {
		const struct peer *p = &r->peer[i];
		uint64_t back = goes_back_to(p), from = p->taken < back ? p->taken : back;

		if (!p->over && from < least)
			least = from;
	}
	for (; r->freed < least; r->freed++) {
		if (!r->round[r->freed])
			continue;
		for (struct round *round = r->round[r->freed]; round; round = round->next) {
			big_free(round->mean, r->given * sizeof(real));
			round->mean = NULL;
		}
		for (size_t i = 0; i < r->npeers; i++)
			gifts_free(r, &r->peer[i], r->freed + 1);
	}
}

/* --- logs */

/* A line that has no end is what a peer was writing when it died. */
static int next_line(struct replayer *r, struct peer *p, struct err *e)
{
	const char *end = p->log->text + p->log->len;
	const char *nl = p->at < end ? memchr(p->at, '\n', (size_t)(end - p->at)) : NULL;
	size_t n = (size_t)((nl ? nl : end) - p->at);
	json_t *j = n ? json_read(p->at, n, JSON_FILE, e) : NULL;
	uint64_t epochs = r->ret->epochs;
	int rc = j ? replay_line(r, p, j, e) : n && nl ? err_wrap(e, "not JSON") : 0;

	json_decref(j);
	if (rc)
		return rc;
	if (r->ret->epochs > epochs && r->progress)
		r->progress(r->progress_arg, r->ret->epochs, r->last);
	p->at += n + (nl != NULL);
	p->line++;
	p->over = p->at >= end;
	return 0;
}

/* The error e is of the line that p has come to. */
static int at_line(const struct replayer *r, const struct peer *p, struct err *e)
{
	size_t log = (size_t)(p - r->peer);

	r->ret->log = log;
	r->ret->line = p->line + 1;
	r->ret->epoch = p->epoch + 1;
	return p->log->name ? err_wrap(e, "%.160s:%zu, epoch %llu", p->log->name, p->line + 1,
		(unsigned long long)p->epoch + 1) : err_wrap(e, "log %zu, line %zu", log, p->line + 1);
}

/* Nobody can go on. Who waits for a state says more than those who wait for what it gave. */
static int stuck(const struct replayer *r, struct err *e)
{
	const struct peer *who = NULL;

	for (size_t i = 0; i < r->npeers; i++)
		if (!r->peer[i].over && (!who || (r->peer[i].begins && !who->begins)))
			who = &r->peer[i];
	if (!who)
		return 0;
	if (who->begins)
		(void)err_set(e, ERR_CORRUPT, "the state that it begins with at epoch %llu is in no log; is that of who "
			"had it missing?",
			(unsigned long long)who->taken);
	else
		(void)err_set(e, ERR_CORRUPT, "epoch %llu is taken here, and others never end it",
			(unsigned long long)who->taken + 1);
	return at_line(r, who, e);
}

static int walk(struct replayer *r, struct err *e)
{
	bool moved = true;

	while (moved) {
		moved = false;
		for (size_t i = 0; i < r->npeers; i++) {
			struct peer *p = &r->peer[i];
			int rc = 0;

			while (!p->over && !(rc = next_line(r, p, e)))
				moved = true;
			if (rc < 0)
				return at_line(r, p, e);
		}
		let_go(r);
	}
	return stuck(r, e);
}

int replay_keep(struct replayer *r, const struct shard *s, uint64_t epoch, struct err *e)
{
	struct image *i = xcalloc(1, sizeof(*i));

	i->epoch = epoch;
	i->bytes = s->bytes;
	digest_of(s->block, s->bytes / sizeof(real), sizeof(real), i->digest);
	list_each(it, &r->images) {
		const struct image *has = list_entry(it, struct image, link);

		if (has->epoch == epoch && !memcmp(has->digest, i->digest, STATE_DIGEST)) {
			free(i);
			return 0;
		}
	}
	i->block = big_alloc(i->bytes);
	if (!i->block) {
		free(i);
		return err_set(e, ERR_NOMEM, "no memory to keep the state of epoch %llu (%zu bytes)",
			(unsigned long long)epoch, s->bytes);
	}
	memcpy(i->block, s->block, i->bytes);
	list_push(&r->images, &i->link);
	return 0;
}

/* --- the peers */

static int place(struct peer *p, enum place k, size_t bytes, void *in_shard, struct err *e)
{
	p->v[k] = (struct value){ .p = in_shard ? in_shard : bytes ? big_alloc(bytes) : NULL, .bytes = bytes,
		.own = !in_shard };
	return p->v[k].p || !bytes ? 0 : err_set(e, ERR_NOMEM, "no memory to replay vectors of %zu bytes", bytes);
}

static int open_peer(struct replayer *r, struct peer *p, struct err *e)
{
	const struct planner_mode *m = &r->s->mode;
	size_t w = r->n * sizeof(real), part = m->parts > 1 ? r->given * sizeof(real) : w;
	struct shard *s = &p->shard;

	p->at = p->log->text;
	p->over = !p->log->len;
	memcpy(p->hyper, r->s->hyper, sizeof(p->hyper));
	p->clip_norm = r->s->clip_norm;
	p->target = r->s->target_batch;
	if (shard_new(s, &r->layout, (struct extent){ 0, r->model->nparam }, (struct extent){ 0, r->model->nbuffer },
	    e) < 0)
		return -1;
	memset(s->block, 0, s->bytes);
	model_init(r->model, r->s->seed, shard_w(s));
	model_init_buffers(r->model, (real *)shard_w(s) + r->model->nparam);
	shard_clock_reset(s);
	p->scale = shard_scale(s);
	shard_begin(s);
	if (place(p, PLACE_w, s->w_bytes, shard_w(s), e) < 0 || place(p, PLACE_opt, s->opt_bytes, shard_opt(s), e) < 0 ||
	    place(p, PLACE_acc, w, NULL, e) < 0 || place(p, PLACE_g, w, NULL, e) < 0 ||
	    place(p, PLACE_work, w, NULL, e) < 0 || place(p, PLACE_grad, m->grows ? w : 0, NULL, e) < 0 ||
	    place(p, PLACE_sent, part, NULL, e) < 0 || place(p, PLACE_mean, part, NULL, e) < 0 ||
	    place(p, PLACE_stats, r->model->nbuffer * sizeof(real), NULL, e) < 0)
		return -1;
	for (uint32_t k = 0; k < m->nstate; k++) {
		int at = replay_place(m->state[k]);

		if (at < 0)
			return err_set(e, ERR_INVALID, "replay: the state's vector %s", m->state[k]);
		(void)place(p, (enum place)at, s->w_bytes, shard_extra(s, k), e);
	}
	return 0;
}

static void close_peer(const struct replayer *r, struct peer *p)
{
	gifts_free(r, p, UINT64_MAX);
	list_each_safe(it, &p->commits)
		free(list_entry(it, struct told, link));
	free(p->applying);
	free(p->adopts);
	for (int k = 0; k < PLACES; k++)
		if (p->v[k].own && p->v[k].p)
			big_free(p->v[k].p, p->v[k].bytes);
	for (int k = 0; k < REPLAY_LOADS; k++)
		free(p->micro[k].position);
	shard_free(&p->shard);
}

static int open_replayer(struct replayer *r, const struct replay_log *log, struct err *e)
{
	for (size_t i = 0; i < r->npeers; i++)
		r->peer[i].log = &log[i];
	if (replay_scan(r, e) < 0)
		return -1;
	r->model = spec_model(r->s, NULL, e);
	if (!r->model || trainer_layout(r->s, r->model, r->used, &r->layout, e) < 0)
		return -1;
	r->n = r->model->nparam + r->model->nbuffer;
	r->given = round_len_of(r->s, r->model, r->layout.nopt);
	for (size_t i = 0; i < r->npeers; i++)
		if (open_peer(r, &r->peer[i], e) < 0)
			return -1;
	return replay_keep(r, &r->peer[0].shard, 0, e);
}

static void close_replayer(struct replayer *r)
{
	for (size_t i = 0; i < r->npeers; i++)
		close_peer(r, &r->peer[i]);
	for (size_t k = 0; k < r->nrounds; k++) {
		for (struct round *round = r->round[k], *next; round; round = next) {
			next = round->next;
			free(round->share);
			big_free(round->mean, r->given * sizeof(real));
			free(round);
		}
	}
	list_each_safe(it, &r->images) {
		struct image *i = list_entry(it, struct image, link);

		big_free(i->block, i->bytes);
		free(i);
	}
	for (int k = 0; k < REPLAY_AREAS; k++)
		big_free(r->area[k].p, r->area[k].bytes);
	free(r->round);
	free(r->peer);
	layout_free(&r->layout);
	if (r->model)
		model_free(r->model);
}

int replay(const struct replay_conf *c, struct replay_result *ret, struct err *e)
{
	struct replayer r = { .s = c->spec, .d = c->data, .par = c->par, .strategy = strategy_find(c->spec->strategy),
		.npeers = c->n, .ret = ret, .progress = c->progress, .progress_arg = c->arg };
	int rc;

	*ret = (struct replay_result){ 0 };
	list_init(&r.images);
	r.peer = xcalloc(c->n ? c->n : 1, sizeof(*r.peer));
	for (size_t i = 0; i < c->n; i++) {
		list_init(&r.peer[i].commits);
		list_init(&r.peer[i].gifts);
	}
	rc = c->n ? replay_can(c->spec, e) : err_set(e, ERR_INVALID, "replay: there is no log");
	if (!rc)
		rc = open_replayer(&r, c->log, e);
	if (!rc)
		rc = walk(&r, e);
	close_replayer(&r);
	return rc;
}
