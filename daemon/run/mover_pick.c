/* Which pieces of a state are missing here, and which holder is asked for which of them. */
#include <stdio.h>
#include "common/mem.h"
#include "common/planted.h"
#include "run/mover.h"

#define FLYING_OF_ONE 2
#define REST_US 100000
#define REST_MAX_US 5000000
#define BAD_US (600ull * 1000000)       /* then it may be another: it has started anew, or its memory is mended */

bool mover_source_has(const struct source *s, const struct shard_part *p)
{
	for (uint32_t k = 0; k < s->n; k++) {
		const struct shard_part *h = &s->held[k];
		bool params = !extent_len(p->param) || (h->param.lo <= p->param.lo && p->param.hi <= h->param.hi);
		bool stats = !extent_len(p->stat) || (h->stat.lo <= p->stat.lo && p->stat.hi <= h->stat.hi);
		if (params && stats)
			return true;
	}
	return false;
}

/* The end of the piece that begins at `at`: of what one of the sources has; `at`: nobody has it. */
static uint64_t reach(const struct mover *m, bool stat, uint64_t at, uint64_t end)
{
	uint64_t to = at;
	for (size_t i = 0; i < m->nsources; i++)
		for (uint32_t k = 0; k < m->source[i].n && !m->source[i].out; k++) {
			struct extent x = mover_part_extent(&m->source[i].held[k], stat);
			uint64_t hi = x.hi < end ? x.hi : end;
			if (x.lo <= at && at < x.hi && hi > to)
				to = hi;
		}
	uint64_t most = at / STATE_CUT * STATE_CUT + MOVER_PIECE;
	return to < most ? to : most;
}

/* Where what has come already, and begins at `at`, ends; `at`: there is none. */
static uint64_t come(const struct mover *m, bool stat, uint64_t at)
{
	list_each(it, &m->morsels) {
		const struct morsel *x = list_entry(it, struct morsel, link);
		struct extent is = mover_part_extent(&x->is, stat);
		if (x->here && is.lo <= at && at < is.hi)
			return is.hi;
	}
	return at;
}

bool mover_cut(struct mover *m, bool stat, struct extent want)
{
	for (uint64_t at = want.lo; at < want.hi; ) {
		const struct shard *s = mover_shard_at(m, stat, at, false);
		if (s) {
			at = mover_extent(s, stat).hi;
			continue;
		}
		uint64_t to = come(m, stat, at);
		if (to > at) {
			at = to;
			continue;
		}
		to = reach(m, stat, at, want.hi);
		if (to == at)
			return false;
		struct morsel *x = xcalloc(1, sizeof *x);
		x->m = m;
		if (stat)
			x->is.stat = (struct extent){ at, to };
		else
			x->is.param = (struct extent){ at, to };
		list_push(&m->morsels, &x->link);
		m->left++;
		at = to;
	}
	return true;
}

void mover_rest(struct source *s)
{
	uint64_t now = env_now(s->m->env);
	if (s->rest_us > now || PLANTED(SHARD_RESTLESS))        /* it was said of another piece, too */
		return;
	s->pause_us = mover_longer(s->pause_us, REST_US, REST_MAX_US);
	s->rest_us = now + s->pause_us;
}

uint64_t mover_rests(const struct mover *m)
{
	uint64_t now = env_now(m->env), least = 0;
	for (size_t i = 0; i < m->nsources; i++) {
		const struct source *s = &m->source[i];
		if (!s->out && s->rest_us > now && (!least || s->rest_us - now < least))
			least = s->rest_us - now;
	}
	return least;
}

/* The least busy one that has it and does not rest; NULL and *ret_none: nobody has it. */
struct source *mover_source_of(struct mover *m, const struct morsel *x, bool *ret_none)
{
	struct source *best = NULL;
	*ret_none = true;
	for (size_t i = 0; i < m->nsources; i++) {
		struct source *s = &m->source[i];
		if (s->out || !mover_source_has(s, &x->is) || !mover_look_fits(x, s))
			continue;
		*ret_none = false;
		bool may = s->flying < (s->pause_us ? 1 : FLYING_OF_ONE) && s->rest_us <= env_now(m->env);
		if (may && (!best || s->flying < best->flying))
			best = s;
	}
	return best;
}

/* ---- who has given something bad ---- */

bool mover_blamed(const struct mover *m, const struct id *id)
{
	for (unsigned i = 0; i < MOVER_BAD; i++)
		if (m->bad[i].until_us > env_now(m->env) && id_eq(&m->bad[i].id, id))
			return true;
	return false;
}

const char *mover_words(const struct morsel *x, char *out, size_t cap)
{
	bool stat = extent_len(x->is.stat) > 0;
	struct extent is = mover_part_extent(&x->is, stat);
	snprintf(out, cap, "%s %llu to %llu", stat ? "running statistics" : "parameters", (unsigned long long)is.lo,
		(unsigned long long)is.hi);
	return out;
}

void mover_blame(struct mover *m, struct source *s, const struct morsel *x, const char *what)
{
	char is[64];
	s->out = true;
	run_log(m->r, LOG_WARN_, "crew.spoiled", "%s of epoch %llu, as peer %.8s has them, %s: others are asked instead",
		mover_words(x, is, sizeof is), (unsigned long long)m->r->point.epoch, id_short(&s->id, (char[9]){ 0 }), what);
	if (!mover_blamed(m, &s->id))
		m->bad[m->nbad++ % MOVER_BAD] = (struct bad_peer){ s->id, env_now(m->env) + BAD_US };
}
