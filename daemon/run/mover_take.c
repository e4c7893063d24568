/* Parts of a state that this peer is to hold and does not: who has them is asked, of everybody who is there, and pieces
 * are taken from all of them at once, into shards of their own, until nothing is missing. Whoever fails is left out;
 * when nobody has a piece everybody is asked again. */
#include <stdlib.h>
#include <string.h>
#include "common/jrpc.h"
#include "common/mem.h"
#include "run/mover.h"

#define ASK_US 3000000
#define OTHERS_US 200000                /* who answers so much later than the first is not waited for */
#define AGAIN_US 100000
#define PIECE_CALL_US 5000000
#define PATIENCE_US 5000000
#define RATE_FLOOR 30000.0              /* bytes/s (B18) */
#define FLYING_MAX 8
#define FLYING_OF_ONE 2
#define TELL_TRIES 50                   /* 5 s: somebody should know */

static void more(struct mover *m);

/* ---- ends ---- */

static void morsel_free(struct morsel *x)
{
	struct mover *m = x->m;
	if (x->call)
		net_cancel(m->net, x->call);
	if (x->x)
		xfer_cancel(x->x);
	list_del(&x->link);
	shard_free(&x->s);
	free(x);
}

static void drop_sources(struct mover *m)
{
	for (size_t i = 0; i < m->nsources; i++) {
		if (m->source[i].call)
			net_cancel(m->net, m->source[i].call);
		free(m->source[i].held);
	}
	m->nsources = 0;
}

static void stop(struct mover *m, bool keep)
{
	env_timer(m->env, &m->timer, 0);
	drop_sources(m);
	list_each_safe(it, &m->morsels) {
		struct morsel *x = list_entry(it, struct morsel, link);
		if (!keep || !x->here)
			morsel_free(x);
	}
	m->left = m->flying = 0;
}

void mover_take_stop(struct mover *m)
{
	stop(m, false);
}

static void fire(struct timer *t)
{
	struct mover *m = container_of(t, struct mover, timer);
	if (m->step == MOVER_TAKES)
		more(m);
	else if (m->step == MOVER_ASKS)
		mover_take(m);
}

static void again(struct mover *m)
{
	struct run *r = m->r;
	stop(m, true);                          /* what has come need not come again */
	m->step = MOVER_ASKS;
	if (++m->tries % TELL_TRIES == 0)
		run_log(r, LOG_WARN_, "crew.fill", "parts of the state of epoch %llu are not to be had from anybody yet; "
			"asking again", (unsigned long long)r->point.epoch);
	m->timer.fire = fire;
	env_after(m->env, &m->timer, AGAIN_US);
}

/* ---- pieces ---- */

static bool has(const struct source *s, const struct shard_part *p)
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
			struct extent x = stat ? m->source[i].held[k].stat : m->source[i].held[k].param;
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
		struct extent is = stat ? x->is.stat : x->is.param;
		if (x->here && is.lo <= at && at < is.hi)
			return is.hi;
	}
	return at;
}

static bool cut(struct mover *m, bool stat, struct extent want)
{
	for (uint64_t at = want.lo; at < want.hi; ) {
		const struct shard *s = mover_shard_at(m, stat, at, false);
		if (s) {
			at = stat ? s->stat.hi : s->param.hi;
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

/* ---- on their way ---- */

static void missed(struct morsel *x, bool out)
{
	struct mover *m = x->m;
	if (x->call)
		net_cancel(m->net, x->call);
	if (x->x)
		xfer_cancel(x->x);
	x->call = NULL;
	x->x = NULL;
	shard_free(&x->s);
	x->from->flying--;
	x->from->out = x->from->out || out;
	x->from = NULL;
	m->flying--;
	if (out)
		more(m);
	else
		env_after(m->env, &m->timer, AGAIN_US);
}

static void received(void *arg, struct xfer *t, const struct err *e)
{
	struct morsel *x = arg;
	struct mover *m = x->m;
	x->x = NULL;
	if (e) {
		missed(x, true);
		return;
	}
	if (x->call)
		net_cancel(m->net, x->call);
	x->call = NULL;
	x->here = true;
	x->from->flying--;
	m->flying--;
	m->left--;
	m->taken_bytes += x->s.bytes;
	more(m);
}

static void promised(void *arg, const struct frame *a, const struct err *e)
{
	struct morsel *x = arg;
	x->call = NULL;
	if (e)
		missed(x, e->code != ERR_BUSY);
}

static int fly(struct morsel *x, struct source *s, struct err *e)
{
	struct mover *m = x->m;
	struct run *r = m->r;
	struct runs_ctx *c = &r->rs->ctx;
	struct id tag;
	if (shard_new(&x->s, trainer_shard(r->trainer)->l, x->is.param, x->is.stat, e))
		return -1;
	c->env->ops->secure(c->env, tag.b, 32);
	x->from = s;
	s->flying++;
	m->flying++;
	uint64_t deadline = env_now(c->env) + PATIENCE_US + (uint64_t)((double)x->s.bytes * FLYING_MAX / RATE_FLOOR * 1e6);
	x->x = xfer_recv(c->chunks, &s->id, &tag, x->s.block, x->s.bytes, deadline, received, x);
	x->call = net_call(c->net, &s->id, KIND_RUN_SHARD, json_pack("{s:s,s:I,s:o,s:o,s:o}", "run", r->hex,
		"epoch", (json_int_t)r->point.epoch, "prev", json_hex(r->point.prev, DIGEST), "part",
		mover_part_json(x->is.param, x->is.stat), "tag", json_hex(tag.b, 32)),
		NO_BLOB, CLASS_weight, PIECE_CALL_US, promised, x);
	return 0;
}

/* The least busy one that has it; NULL and *ret_none: there is none. */
static struct source *source_of(struct mover *m, const struct morsel *x, bool *ret_none)
{
	struct source *best = NULL;
	*ret_none = true;
	for (size_t i = 0; i < m->nsources; i++) {
		struct source *s = &m->source[i];
		if (s->out || !has(s, &x->is))
			continue;
		*ret_none = false;
		if (s->flying < FLYING_OF_ONE && (!best || s->flying < best->flying))
			best = s;
	}
	return best;
}

static void more(struct mover *m)
{
	struct err e;
	bool none = false;
	if (!m->left) {
		env_timer(m->env, &m->timer, 0);
		drop_sources(m);
		mover_take_done(m);
		return;
	}
	list_each(it, &m->morsels) {
		struct morsel *x = list_entry(it, struct morsel, link);
		if (x->here || x->from || m->flying >= FLYING_MAX)
			continue;
		struct source *s = source_of(m, x, &none);
		if (none)
			break;
		if (s && fly(x, s, &e)) {
			run_log(m->r, LOG_WARN_, "crew.fill", "%s", e.text);
			none = true;
			break;
		}
	}
	if (none)
		again(m);
}

/* ---- asking ---- */

static void choose(struct mover *m)
{
	const struct run *r = m->r;
	uint32_t n;
	const struct shard *s = trainer_shards(r->trainer, &n);
	bool all = true;
	for (uint32_t k = 0; k < n && all; k++)
		all = cut(m, false, s[k].param) && cut(m, true, s[k].stat);
	if (!all) {
		again(m);
		return;
	}
	m->step = MOVER_TAKES;
	m->timer.fire = fire;
	more(m);
}

static void late(struct timer *t)
{
	choose(container_of(t, struct mover, timer));
}

static bool all_answered(const struct mover *m)
{
	for (size_t i = 0; i < m->nsources; i++)
		if (m->source[i].call)
			return false;
	return true;
}

static int take_held(struct source *s, const json_t *list, struct err *e)
{
	const struct layout *l = trainer_shard(s->m->r->trainer)->l;
	size_t n = json_array_size(list);
	if (!json_is_array(list) || n > MOVER_SOURCES)
		return err_set(e, ERR_PROTOCOL, "held is no list of at most %d parts", MOVER_SOURCES);
	s->held = xcalloc(n + 1, sizeof *s->held);
	for (; s->n < n; s->n++)
		if (mover_part_read(&s->held[s->n], l, json_array_get(list, s->n), e))
			return -1;
	return 0;
}

static void answered(void *arg, const struct frame *a, const struct err *e)
{
	struct source *s = arg;
	struct mover *m = s->m;
	struct err mine;
	s->call = NULL;
	s->out = e || take_held(s, json_object_get(a->json, "held"), &mine);
	if (m->step != MOVER_ASKS)
		return;
	if (all_answered(m)) {
		choose(m);
	} else if (!s->out) {
		m->timer.fire = late;
		env_after(m->env, &m->timer, OTHERS_US);
	}
}

static bool all_loaded(const struct mover *m)
{
	list_each(it, &m->asides)
		if (!list_entry(it, struct aside, link)->ready)
			return false;
	return true;
}

/* Is something to be filled that was not held here before? */
static bool lacks(const struct mover *m)
{
	uint32_t n;
	const struct shard *s = trainer_shards(m->r->trainer, &n);
	for (uint32_t k = 0; k < n; k++)
		if (!mover_has(m, s[k].param, false) || !mover_has(m, s[k].stat, true))
			return true;
	return false;
}

static void add(const struct run *r, const struct id *id, struct id *to, size_t *n)
{
	bool there = id_eq(id, net_self(r->rs->ctx.net));
	for (size_t i = 0; i < *n; i++)
		there = there || id_eq(&to[i], id);
	if (!there && *n < MOVER_SOURCES)
		to[(*n)++] = *id;
}

/* Who holds the state by the last COMMIT, whether this peer has heard of it since or not, and everybody who lives. */
static size_t whom(const struct run *r, struct id *ret)
{
	struct avg_member v[RUN_PEERS_SHOWN];
	struct id held[MOVER_SOURCES];
	size_t n = avg_members(r->avg, v, RUN_PEERS_SHOWN), holders = run_crew_holders(r, held, MOVER_SOURCES), out = 0;
	for (size_t i = 0; i < holders; i++)
		add(r, &held[i], ret, &out);
	for (size_t i = 0; i < n && i < RUN_PEERS_SHOWN; i++)
		if (v[i].live)
			add(r, &v[i].id, ret, &out);
	return out;
}

void mover_take(struct mover *m)
{
	struct run *r = m->r;
	struct id v[MOVER_SOURCES];
	stop(m, true);
	m->step = MOVER_ASKS;
	m->timer.fire = fire;
	if (!all_loaded(m)) {
		env_after(m->env, &m->timer, AGAIN_US / 10);
		return;
	}
	if (!lacks(m)) {
		mover_take_done(m);
		return;
	}
	m->nsources = whom(r, v);
	for (size_t i = 0; i < m->nsources; i++) {
		m->source[i] = (struct source){ .m = m, .id = v[i] };
		json_t *j = json_pack("{s:s,s:I,s:o}", "run", r->hex, "epoch", (json_int_t)r->point.epoch, "prev",
			json_hex(r->point.prev, DIGEST));
		m->source[i].call = net_call(m->net, &v[i], KIND_RUN_SHARD, j, NO_BLOB, CLASS_control, ASK_US, answered,
			&m->source[i]);
	}
	if (!m->nsources)
		again(m);
}

/* ---- where others are ---- */

void mover_where_stop(struct mover *m)
{
	for (size_t i = 0; i < sizeof m->asked / sizeof *m->asked; i++) {
		struct asked *a = &m->asked[i];
		if (a->call)
			net_cancel(m->net, a->call);
		if (a->has)
			avg_point_done(&a->point);
		*a = (struct asked){ 0 };
	}
}

static bool same_place(const struct asked *a, const struct asked *b)
{
	return a->point.epoch == b->point.epoch && !memcmp(a->point.prev, b->point.prev, DIGEST) &&
		a->generation == b->generation;
}

static void said(struct mover *m)
{
	struct run *r = m->r;
	struct avg_point p;
	const struct asked *best = NULL;
	size_t most = 0, n = sizeof m->asked / sizeof *m->asked;
	void (*told)(struct run *r, const struct avg_point *p, uint64_t generation) = m->told;
	for (size_t i = 0; i < n; i++)
		if (m->asked[i].call)
			return;
	for (size_t i = 0; i < n; i++) {
		size_t same = 0;
		for (size_t k = 0; k < n && m->asked[i].has; k++)
			same += m->asked[k].has && same_place(&m->asked[i], &m->asked[k]);
		if (same > most || (same && same == most && m->asked[i].point.epoch > best->point.epoch)) {
			most = same;
			best = &m->asked[i];
		}
	}
	m->told = NULL;
	avg_point_init(&p);
	if (best)
		avg_point_copy(&p, &best->point);
	uint64_t generation = best ? best->generation : 0;
	mover_where_stop(m);
	told(r, generation ? &p : NULL, generation);    /* before the first COMMIT there is none */
	avg_point_done(&p);
}

static void point_came(void *arg, const struct frame *a, const struct err *error)
{
	struct asked *x = arg;
	struct mover *m = x->m;
	struct err e;
	x->call = NULL;
	bool fine = !error && !json_get_u64(a->json, "generation", &x->generation, &e);
	json_t *j = !fine ? NULL : json_read((const char *)a->blob, a->blob_len, JSON_POINT, &e);
	if (j) {
		avg_point_init(&x->point);
		x->has = !avg_point_parse(&x->point, j, &e);
		if (!x->has)
			avg_point_done(&x->point);
	}
	json_decref(j);
	said(m);
}

void mover_where(struct mover *m, void (*told)(struct run *r, const struct avg_point *p, uint64_t generation))
{
	struct run *r = m->r;
	struct id v[MOVER_SOURCES];
	size_t n = whom(r, v), max = sizeof m->asked / sizeof *m->asked;
	if (m->told)
		return;
	m->told = told;
	for (size_t i = 0; i < n && i < max; i++) {
		m->asked[i] = (struct asked){ .m = m };
		m->asked[i].call = net_call(m->net, &v[i], KIND_RUN_SHARD, json_pack("{s:s}", "run", r->hex), NO_BLOB,
			CLASS_control, ASK_US, point_came, &m->asked[i]);
	}
	if (!n) {
		m->told = NULL;
		told(r, NULL, 0);
	}
}
