/* What a peer holds of a state, has held, or has in its checkpoint, and how new shards are filled from it and from what
 * others have given (mover_take.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "run/mover.h"

/* ---- beside the trainer's ---- */

static void aside_free(struct aside *a)
{
	list_del(&a->link);
	if (a->from)
		a->from->a = NULL;              /* its job ends unheard */
	state_free(a->state, NULL, NULL);
	free(a);
}

void mover_forget(struct mover *m)
{
	if (m->step == MOVER_FILLS || m->stopped) {
		m->forget = true;
		return;
	}
	m->forget = false;
	list_each_safe(it, &m->asides) {
		struct aside *a = list_entry(it, struct aside, link);
		if (a->ready)
			aside_free(a);
	}
}

static struct aside *aside_new(struct mover *m, struct state *s, uint64_t epoch)
{
	struct aside *a = xcalloc(1, sizeof *a);
	*a = (struct aside){ .m = m, .state = s, .epoch = epoch };
	list_push(&m->asides, &a->link);
	return a;
}

/* Generations that come to nothing must not pile up copies of one thing. */
static bool keeps(const struct mover *m, struct state *was)
{
	uint32_t n;
	const struct shard *s = state_shards(was, &n);
	for (uint32_t k = 0; k < n; k++)
		if (!mover_has(m, s[k].param, false) || !mover_has(m, s[k].stat, true))
			return false;
	return true;
}

void mover_keep(struct mover *m, struct state *was, uint64_t epoch)
{
	if (was && epoch == m->r->point.epoch && keeps(m, was))
		state_free(was, NULL, NULL);
	else if (was)
		aside_new(m, was, epoch)->ready = true;
}

static const struct shard *with(const struct shard *s, uint32_t n, bool stat, uint64_t at)
{
	for (uint32_t k = 0; k < n; k++) {
		struct extent x = mover_extent(&s[k], stat);
		if (x.lo <= at && at < x.hi)
			return &s[k];
	}
	return NULL;
}

const struct shard *mover_shard_at(const struct mover *m, bool stat, uint64_t at, bool trainers)
{
	const struct run *r = m->r;
	const struct shard *v, *s;
	uint32_t n;
	list_each(it, &m->asides) {
		const struct aside *a = list_entry(it, struct aside, link);
		v = state_shards(a->state, &n);
		s = a->ready && a->epoch == r->point.epoch ? with(v, n, stat, at) : NULL;
		if (s)
			return s;
	}
	v = trainer_shards(r->trainer, &n);
	return trainers ? with(v, n, stat, at) : NULL;
}

bool mover_has(const struct mover *m, struct extent x, bool stat)
{
	const struct shard *h;
	for (uint64_t at = x.lo; at < x.hi; at = mover_extent(h, stat).hi)
		if (!(h = mover_shard_at(m, stat, at, false)))
			return false;
	return true;
}

/* ---- parts in words ---- */

json_t *mover_part_json(struct extent param, struct extent stat)
{
	return json_pack("[I,I,I,I]", (json_int_t)param.lo, (json_int_t)param.hi, (json_int_t)stat.lo, (json_int_t)stat.hi);
}

json_t *mover_parts_json(const struct shard_part *v, uint32_t n)
{
	json_t *list = json_array();
	for (uint32_t k = 0; k < n; k++)
		json_array_append_new(list, mover_part_json(v[k].param, v[k].stat));
	return list;
}

int mover_part_within(struct shard_part *ret, uint64_t params, uint64_t stats, const json_t *j, struct err *e)
{
	uint64_t v[4];
	for (size_t i = 0; i < 4; i++) {
		const json_t *x = json_array_get(j, i);
		if (!json_is_integer(x) || json_integer_value(x) < 0)
			return err_set(e, ERR_PROTOCOL, "a part is [lo, hi, stat lo, stat hi]");
		v[i] = (uint64_t)json_integer_value(x);
	}
	if (v[0] > v[1] || v[1] > params || v[2] > v[3] || v[3] > stats)
		return err_set(e, ERR_PROTOCOL, "a part from %llu to %llu of %llu parameters, %llu to %llu of %llu statistics",
			(unsigned long long)v[0], (unsigned long long)v[1], (unsigned long long)params,
			(unsigned long long)v[2], (unsigned long long)v[3], (unsigned long long)stats);
	*ret = (struct shard_part){ { v[0], v[1] }, { v[2], v[3] } };
	return 0;
}

int mover_part_read(struct shard_part *ret, const struct layout *l, const json_t *j, struct err *e)
{
	if (mover_part_within(ret, l->params, l->stats, j, e))
		return -1;
	if (shard_may_cut(l, ret->param.lo) && shard_may_cut(l, ret->param.hi))
		return 0;
	return err_set(e, ERR_PROTOCOL, "a part from %llu to %llu of the parameters, which are not cut there",
		(unsigned long long)ret->param.lo, (unsigned long long)ret->param.hi);
}

struct shard_part *mover_parts_read(uint32_t *ret_n, const struct layout *l, const json_t *list, struct err *e)
{
	size_t n = json_array_size(list);
	if (!json_is_array(list) || n > MOVER_PARTS) {
		err_set(e, ERR_PROTOCOL, "parts of a state are a list, of at most %d", MOVER_PARTS);
		return NULL;
	}
	struct shard_part *v = xcalloc(n + 1, sizeof *v);
	for (size_t k = 0; k < n; k++)
		if (mover_part_read(&v[k], l, json_array_get(list, k), e)) {
			free(v);
			return NULL;
		}
	*ret_n = (uint32_t)n;
	return v;
}

/* ---- its checkpoint ---- */

static int from_file(void *arg, struct shard *to, struct err *e)
{
	const struct loading *l = arg;
	const char *path = l->path;
	return to == l->shard ? shard_gather(l->shard, l->shards, l->files, &path, 1, e) : 0;   /* all with the first */
}

static void loaded(void *arg, const struct err *e)
{
	struct loading *l = arg;
	struct aside *a = l->a;
	struct run *r = a ? a->m->r : NULL;
	trainer_read_over(l->trainer);
	if (a) {
		a->from = NULL;
		a->ready = !e;
		if (e)
			aside_free(a);
		l->done(r, e);
	}
	free(l);
}

int mover_load(struct mover *m, const char *path, uint64_t epoch, const struct shard_part *part, uint32_t n,
	void (*done)(struct run *r, const struct err *e), struct err *e)
{
	struct state *s = trainer_state_of(m->r->trainer, part, n, e);
	if (!s)
		return -1;
	struct aside *a = aside_new(m, s, epoch);
	struct loading *l = a->from = xcalloc(1, sizeof *l);
	*l = (struct loading){ .a = a, .files = m->env->files, .trainer = m->r->trainer, .done = done };
	trainer_read(l->trainer);
	snprintf(l->path, sizeof l->path, "%s", path);
	l->shard = state_shards(s, &l->shards);
	state_fill(s, &(struct state_fill){ .fill = from_file, .arg = l }, loaded, l);
	return 0;
}

/* ---- filling ---- */

/* What has come from others lies there already. */
static int put(void *arg, struct shard *to, struct err *e)
{
	struct mover *m = arg;
	uint32_t n;
	shard_clock_reset(to);
	if (m->has_clock)
		memcpy(shard_clock(to), m->clock, sizeof m->clock);
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

static void filled(void *arg, const struct err *e)
{
	struct run *r = arg;
	struct mover *m = run_crew_mover(r);
	void (*done)(struct run *run, const struct err *error) = m ? m->done : NULL;
	if (!done)
		return;
	m->done = NULL;
	m->fills++;
	m->fill_us = env_now(m->env) - m->begun_us;
	if (m->fill_us > m->fill_longest_us)
		m->fill_longest_us = m->fill_us;
	done(r, e);
}

json_t *mover_json(const struct mover *m)
{
	return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I}", "taken_bytes", (json_int_t)m->taken_bytes, "given_bytes",
		(json_int_t)m->given_bytes, "busy", (json_int_t)m->busy, "fills", (json_int_t)m->fills,
		"fill_us", (json_int_t)m->fill_us, "fill_us_longest", (json_int_t)m->fill_longest_us);
}

void mover_take_done(struct mover *m)
{
	struct run *r = m->r;
	struct trainer_fill how = { .epoch = r->point.epoch, .live = r->point.params,
		.values = { .fill = put, .drop = put_over, .arg = m } };
	m->step = MOVER_FILLS;
	m->epoch = r->point.epoch;
	trainer_fill(r->trainer, &how, filled, r);
}

void mover_fill(struct mover *m, void (*done)(struct run *r, const struct err *e))
{
	m->done = done;
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

/* ---- life ---- */

struct mover *mover_new(struct run *r, struct rally *rally, struct err *e)
{
	static const enum kind kinds[] = { KIND_RUN_SHARD };
	struct mover *m = xcalloc(1, sizeof *m);
	*m = (struct mover){ .r = r, .env = r->rs->ctx.env, .net = r->rs->ctx.net, .rally = rally };
	list_init(&m->asides);
	list_init(&m->morsels);
	list_init(&m->gifts);
	list_init(&m->looks);
	list_init(&m->hub.link);
	m->timer = (struct timer){ .name = "run.mover" };
	if (!by_run_enter(&m->hub, m->net, kinds, 1, &r->id, mover_hand, m, e))
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
		aside_free(list_entry(it, struct aside, link));
	free(m);
}
