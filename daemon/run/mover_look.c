/* What a piece must be. No COMMIT says what a state is, only what it is made of; so all who have a piece are asked for
 * its digest before it is taken, and what most of them say is what it must have. Whoever says otherwise, or gives
 * something else, is named and left out. When as many say one thing as another nobody is believed, and that is said. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "common/jrpc.h"
#include "common/mem.h"
#include "common/planted.h"
#include "common/vote.h"
#include "run/mover.h"

#define LOOK_CALL_US 5000000
#define BUSY_TRIES 5                    /* 3 s of pauses; then it is done without its word */
#define TELL_US 5000000

/* ---- words ---- */

void mover_look_stop(struct morsel *x)
{
	for (uint32_t k = 0; k < x->nwords; k++)
		if (x->word[k].call) {
			net_cancel(x->m->net, x->word[k].call);
			x->word[k].s->asked--;
		}
	free(x->word);
	x->word = NULL;
	x->nwords = x->open = 0;
}

static void differ(struct morsel *x, const struct word *a, const struct word *b)
{
	struct mover *m = x->m;
	char is[64], one[9], other[9];
	x->differs = true;
	if (m->differed_us && env_now(m->env) - m->differed_us < TELL_US)
		return;
	m->differed_us = env_now(m->env);
	run_log(m->r, LOG_WARN_, "crew.differs", "peers %s and %s have different %s of epoch %llu, as many others have "
		"what one has as what the other has, and no COMMIT says which is right: neither is taken",
		id_short(&a->s->id, one), id_short(&b->s->id, other), mover_words(x, is, sizeof is),
		(unsigned long long)m->r->point.epoch);
}

/* All have said what they have. */
static void settle(struct morsel *x)
{
	const uint8_t *said[MOVER_SOURCES];
	size_t best, rival;
	for (uint32_t i = 0; i < x->nwords; i++)
		said[i] = x->word[i].told ? x->word[i].digest : NULL;
	best = vote_most(said, x->nwords, &rival);
	if (rival != VOTE_NONE) {
		differ(x, &x->word[best], &x->word[rival]);
		return;
	}
	x->agreed = best != VOTE_NONE;
	if (!x->agreed)
		return;
	memcpy(x->want, said[best], TREE256);
	for (uint32_t i = 0; i < x->nwords; i++)
		if (said[i] && memcmp(said[i], x->want, TREE256))
			mover_blame(x->m, x->word[i].s, x, "are not those that most have");
}

struct mover *mover_look_heard(void *word, const struct frame *a, const struct err *error)
{
	struct word *w = word;
	struct morsel *x = w->x;
	struct mover *m = x->m;
	struct err e = { 0 };
	w->call = NULL;
	w->s->asked--;
	if (error)
		e = *error;
	else
		w->told = !json_get_hex(a->json, "digest", w->digest, TREE256, &e);
	if (e.code == ERR_BUSY) {
		w->s->refused += w->s->rest_us <= env_now(m->env);      /* else it was of several at once */
		mover_rest(w->s);
		return m;
	}
	if (e.code == ERR_CORRUPT)
		mover_blame(m, w->s, x, "are broken, by its own word");
	else if (!w->told)
		w->s->out = true;
	w->over = true;
	if (w->told)
		w->s->pause_us = w->s->refused = 0;
	if (!--x->open)
		settle(x);
	return m;
}

static void ask(struct word *w, net_done_fn *said)
{
	struct morsel *x = w->x;
	const struct run *r = x->m->r;
	json_t *j = json_pack("{s:s,s:I,s:o,s:o,s:b}", "run", r->hex, "epoch", (json_int_t)r->point.epoch, "prev",
		json_hex(r->point.prev, DIGEST), "part", mover_part_json(x->is.param, x->is.stat), "look", 1);
	json_put_hashes(j, x->hashes);
	w->s->asked++;
	w->call = net_call(x->m->net, &w->s->id, KIND_RUN_SHARD, j, NO_BLOB, CLASS_weight, LOOK_CALL_US, said, w);
}

bool mover_look_ask(struct morsel *x, net_done_fn *said)
{
	struct mover *m = x->m;
	if (!x->word) {
		x->word = xcalloc(m->nsources + 1, sizeof *x->word);
		for (size_t i = 0; i < m->nsources; i++)
			if (!m->source[i].out && mover_source_has(&m->source[i], &x->is))
				x->word[x->nwords++] = (struct word){ .x = x, .s = &m->source[i] };
		x->open = x->nwords;
		x->hashes = m->r->rs->ctx.hashes;
		for (uint32_t k = 0; k < x->nwords; k++)
			x->hashes = hashes_both(x->hashes, x->word[k].s->hashes);
	}
	for (uint32_t k = 0; k < x->nwords; k++) {
		struct word *w = &x->word[k];
		if (w->over || w->call)
			continue;
		if (!w->s->out && w->s->refused < BUSY_TRIES) {
			if (w->s->rest_us <= env_now(m->env) && !(w->s->pause_us && w->s->asked))
				ask(w, said);
			continue;
		}
		w->over = true;                 /* it was busy, and is of no use any more, or for too long */
		if (!--x->open)
			settle(x);
	}
	return x->open > 0;
}

bool mover_look_fits(const struct morsel *x, const struct source *s)
{
	for (uint32_t k = 0; k < x->nwords; k++)
		if (x->word[k].s == s)
			return x->word[k].told && !memcmp(x->word[k].digest, x->want, TREE256);
	return PLANTED(SHARD_UNLOOKED);
}

/* ---- what has come ---- */

static bool finite_all(const char *p, size_t bytes, uint32_t unit)
{
	for (size_t i = 0; i < bytes; i += unit) {
		double d;
		float f;
		if (unit == sizeof d) {
			memcpy(&d, p + i, sizeof d);
		} else {
			memcpy(&f, p + i, sizeof f);
			d = f;
		}
		if (!isfinite(d))
			return false;
	}
	return true;
}

struct numbers mover_numbers(const struct shard *s)
{
	uint32_t unit = s->l->unit;
	return (struct numbers){ s->w_bytes + s->l->nopt * extent_len(s->param) * unit, s->w_bytes + s->opt_bytes, unit };
}

bool mover_sound(const struct shard *s, const struct numbers *x)
{
	return finite_all(s->block, x->bytes, x->unit) && finite_all((const char *)s->block + x->extra,
		s->bytes - x->extra, x->unit) && !shard_clock_look(s, NULL);
}

/* Nothing but its own memory: the layout may be gone. */
static void look_run(struct job *j)
{
	struct morsel *x = container_of(j, struct morsel, job);
	uint8_t digest[TREE256];
	tree256_of(x->hashes, x->s.block, x->s.bytes, digest);
	x->bad = NULL;
	if (!mover_sound(&x->s, &x->numbers))
		x->bad = "are no numbers that a state can have";
	else if (memcmp(digest, x->want, TREE256) && !PLANTED(SHARD_UNLOOKED))
		x->bad = "have another digest than it said";
}

bool mover_looked(struct morsel *x)
{
	x->looking = false;
	if (!x->over)
		return true;
	shard_free(&x->s);
	free(x);
	return false;
}

void mover_look_through(struct morsel *x, void (*looked)(struct job *j))
{
	struct env *env = x->m->env;
	x->numbers = mover_numbers(&x->s);
	x->looking = true;
	x->job = (struct job){ .name = "run.morsel", .lane = env_lane(env, "hash"), .run = look_run, .done = looked,
		.cost_us = 1 + x->s.bytes / 2000 };
	env_work(env, &x->job);
}
