/* Which pieces of a state are missing here, and which holder is asked for which of them. */
#include "common/mem.h"
#include "run/mover.h"

#define FLYING_OF_ONE 2

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
