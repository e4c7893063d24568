/* What a peer has of a state: in the trainer's shards, and beside them, held before or read from its checkpoint. */
#include <stdio.h>
#include <stdlib.h>
#include "common/mem.h"
#include "run/mover.h"

void mover_aside_free(struct aside *a)
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
			mover_aside_free(a);
	}
}

static struct aside *aside_new(struct mover *m, struct state *s, uint64_t epoch)
{
	struct aside *a = xcalloc(1, sizeof *a);
	*a = (struct aside){ .m = m, .state = s, .epoch = epoch };
	list_push(&m->asides, &a->link);
	return a;
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

static uint64_t elements(const struct shard *s, uint32_t n)
{
	uint64_t ret = 0;
	for (uint32_t k = 0; k < n; k++)
		ret += extent_len(s[k].param) + extent_len(s[k].stat);
	return ret;
}

struct state *mover_kept(const struct mover *m, uint64_t *ret_most)
{
	struct state *ret = NULL;
	uint32_t n;
	const struct shard *s = trainer_shards(m->r->trainer, &n);
	uint64_t most = run_crew_whole(m->r) ? elements(s, n) : 0;
	list_each(it, &m->asides) {
		const struct aside *a = list_entry(it, struct aside, link);
		s = state_shards(a->state, &n);
		if (a->ready && a->epoch == m->r->point.epoch && elements(s, n) > most) {
			most = elements(s, n);
			ret = a->state;
		}
	}
	if (ret_most)
		*ret_most = most;
	return ret;
}

static const struct shard **with_one(const struct shard **v, uint32_t *n, const struct shard *one)
{
	v = xrealloc(v, (*n + 1) * sizeof *v);
	v[(*n)++] = one;
	return v;
}

const struct shard **mover_here(const struct mover *m, uint32_t *ret_n)
{
	const struct run *r = m->r;
	const struct shard **v = NULL;
	uint32_t n;
	*ret_n = 0;
	list_each(it, &m->asides) {
		const struct aside *a = list_entry(it, struct aside, link);
		const struct shard *s = state_shards(a->state, &n);
		for (uint32_t k = 0; k < n && a->ready && a->epoch == r->point.epoch; k++)
			v = with_one(v, ret_n, &s[k]);
	}
	const struct shard *s = trainer_shards(r->trainer, &n);
	for (uint32_t k = 0; k < n && run_crew_whole(r); k++)
		v = with_one(v, ret_n, &s[k]);
	return v;
}

json_t *mover_held(const struct mover *m)
{
	json_t *list = json_array();
	uint32_t n;
	const struct shard **v = mover_here(m, &n);
	for (uint32_t k = 0; k < n; k++)
		json_array_append_new(list, mover_part_json(v[k]->param, v[k]->stat));
	free(v);
	return list;
}

static int from_file(void *arg, struct shard *to, struct err *e)
{
	const struct loading *l = arg;
	const char *path = l->path;
	return to == l->shard ? shard_gather(l->shard, l->shards, l->files, &path, 1, e) : 0;   /* all with the first */
}

struct run *mover_loaded(void *loading, const struct err *e)
{
	struct loading *l = loading;
	struct aside *a = l->a;
	struct run *r = a ? a->m->r : NULL;
	trainer_read_over(l->trainer);
	if (a) {
		a->from = NULL;
		a->ready = !e;
		if (e)
			mover_aside_free(a);
	}
	free(l->here);
	free(l);
	return r;
}

struct loading *mover_aside_new(struct mover *m, uint64_t epoch, const struct shard_part *part, uint32_t n,
	struct err *e)
{
	struct state *s = trainer_state_of(m->r->trainer, part, n, e);
	if (!s)
		return NULL;
	struct aside *a = aside_new(m, s, epoch);
	struct loading *l = a->from = xcalloc(1, sizeof *l);
	*l = (struct loading){ .a = a, .files = m->env->files, .trainer = m->r->trainer };
	trainer_read(l->trainer);
	l->shard = state_shards(s, &l->shards);
	return l;
}

int mover_load(struct mover *m, const char *path, uint64_t epoch, const struct shard_part *part, uint32_t n,
	void (*over)(void *loading, const struct err *e), struct err *e)
{
	struct loading *l = mover_aside_new(m, epoch, part, n, e);
	if (!l)
		return -1;
	snprintf(l->path, sizeof l->path, "%s", path);
	state_fill(l->a->state, &(struct state_fill){ .fill = from_file, .arg = l }, over, l);
	return 0;
}
