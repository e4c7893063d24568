/* Who may give parts of a state: what they have, whether they rest, and who has given something bad. */
#include <stdio.h>
#include "common/planted.h"
#include "run/mover.h"

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
