/* How new shards are filled from what a peer holds of a state, has held, or has in its checkpoint (mover_aside.c), and
 * from what others have given (mover_take.c). */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/planted.h"
#include "run/mover.h"

/* ---- filling ---- */

/* What has come from others lies there already. */
static int put(void *arg, struct shard *to, struct err *e)
{
	struct mover *m = arg;
	uint32_t n;
	shard_clock_reset(to);
	if (m->has_clock)
		memcpy(shard_clock(to), m->clock, shard_clock_bytes(to));
	list_each(it, &m->asides) {
		const struct aside *a = list_entry(it, struct aside, link);
		const struct shard *s = state_shards(a->state, &n);
		for (uint32_t k = 0; k < n && a->ready && a->epoch == m->epoch; k++)
			(void)shard_copy(to, &s[k]);
	}
	return 0;
}

/* The job has ended, whatever came of it. */
static void put_over(void *arg)
{
	struct mover *m = arg;
	bool stopped = m->stopped, dead = m->dead;
	m->step = MOVER_IDLE;
	m->stopped = false;
	mover_take_stop(m);
	if (stopped)
		m->done = NULL;
	if (m->forget)
		mover_forget(m);
	if (dead)
		mover_free(m);
}

bool mover_filled(struct mover *m)
{
	if (!m || !m->done)
		return false;
	m->done = NULL;
	m->fills++;
	m->fill_us = env_now(m->env) - m->begun_us;
	if (m->fill_us > m->fill_longest_us)
		m->fill_longest_us = m->fill_us;
	return true;
}

json_t *mover_json(const struct mover *m)
{
	return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I}", "taken_bytes", (json_int_t)m->taken_bytes, "given_bytes",
		(json_int_t)m->given_bytes, "busy", (json_int_t)m->busy, "fills", (json_int_t)m->fills,
		"fill_us", (json_int_t)m->fill_us, "fill_us_longest", (json_int_t)m->fill_longest_us);
}

void mover_fill(struct mover *m, void (*done)(void *run, const struct err *e))
{
	m->done = done;
	m->values = (struct state_fill){ .fill = put, .drop = put_over, .arg = m };
	m->begun_us = m->said_us = env_now(m->env);
	m->pause_us = 0;
	m->has_clock = false;
	mover_take(m);
}

void mover_stop(struct mover *m)
{
	if (m->step == MOVER_FILLS) {
		m->stopped = true;
		return;
	}
	m->step = MOVER_IDLE;
	m->done = NULL;
	mover_take_stop(m);
}

/* ---- all in one ---- */

static int put_here(void *arg, struct shard *to, struct err *e)
{
	const struct loading *l = arg;
	shard_clock_reset(to);
	for (uint32_t k = 0; k < l->nhere; k++)
		(void)shard_copy(to, l->here[k]);
	return 0;
}

static void put_here_over(void *loading)
{
	put_over(((struct loading *)loading)->m);
}

static void gathered(void *loading, const struct err *e)
{
	(void)mover_loaded(loading, e);
}

/* What they have together: parameters, then running statistics. NULL: in one place lies as much. */
static struct shard_part *together(const struct mover *m, const struct shard *const *v, uint32_t n, uint32_t *ret_n)
{
	uint64_t all = 0, most;
	struct ranges has[2] = { { 0 }, { 0 } };
	for (uint32_t k = 0; k < n; k++)
		for (int stat = 0; stat < 2; stat++)
			ranges_add(&has[stat], mover_extent(v[k], stat).lo, mover_extent(v[k], stat).hi);
	struct shard_part *part = xcalloc(has[0].n + has[1].n + 1, sizeof *part);
	*ret_n = 0;
	for (int stat = 0; stat < 2; stat++)
		for (size_t k = 0; k < has[stat].n; k++) {
			struct extent x = { has[stat].v[k].lo, has[stat].v[k].hi };
			*(stat ? &part[*ret_n].stat : &part[*ret_n].param) = x;
			(*ret_n)++;
			all += extent_len(x);
		}
	ranges_free(&has[0]);
	ranges_free(&has[1]);
	(void)mover_kept(m, &most);
	if (all > most)
		return part;
	free(part);
	return NULL;
}

bool mover_gathers(struct mover *m)
{
	uint32_t n, nparts;
	struct err e;
	if (m->step == MOVER_FILLS)
		return true;
	if (m->gathered || PLANTED(SHARD_UNSAVED))
		return false;
	mover_stop(m);
	m->gathered = true;
	const struct shard **v = mover_here(m, &n);
	struct shard_part *part = together(m, v, n, &nparts);
	struct loading *l = part ? mover_aside_new(m, m->r->point.epoch, part, nparts, &e) : NULL;
	if (part && !l)
		run_log(m->r, LOG_WARN_, "crew.gather", "%s: not all that is held here is saved", e.text);
	free(part);
	if (!l) {
		free(v);
		return false;
	}
	l->m = m;
	l->here = v;
	l->nhere = n;
	m->step = MOVER_FILLS;
	state_fill(l->a->state, &(struct state_fill){ .fill = put_here, .drop = put_here_over, .arg = l }, gathered, l);
	return true;
}

/* ---- life ---- */

struct mover *mover_new(struct run *r, by_run_fn *hand, struct err *e)
{
	static const enum kind kinds[] = { KIND_RUN_SHARD };
	struct mover *m = xcalloc(1, sizeof *m);
	*m = (struct mover){ .r = r, .env = r->rs->ctx.env, .net = r->rs->ctx.net };
	list_init(&m->asides);
	list_init(&m->morsels);
	list_init(&m->gifts);
	list_init(&m->looks);
	list_init(&m->hub.link);
	m->timer = (struct timer){ .name = "run.mover" };
	if (!by_run_enter(&m->hub, m->net, kinds, 1, &r->id, hand, m, e))
		return m;
	free(m);
	return NULL;
}

void mover_free(struct mover *m)
{
	if (!m)
		return;
	if (!m->dead) {
		by_run_leave(&m->hub);
		mover_give_stop(m);
		mover_stop(m);
		m->dead = true;
	}
	if (m->step == MOVER_FILLS)             /* the job's end frees it */
		return;
	list_each_safe(it, &m->asides)
		mover_aside_free(list_entry(it, struct aside, link));
	free(m);
}
