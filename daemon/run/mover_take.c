/* Parts of a state that this peer is to hold and does not: who has them is asked, of everybody who is there, and pieces
 * are taken from all of them at once, into shards of their own, until nothing is missing. Whoever fails is left out;
 * when nobody has a piece everybody is asked again. */
#include <stdlib.h>
#include <string.h>
#include "common/jrpc.h"
#include "common/mem.h"
#include "common/planted.h"
#include "run/mover.h"

#define ASK_US 3000000
#define OTHERS_US 200000                /* who answers so much later than another, and need not hold any of it, is not
	waited for */
#define SURE_US 2000000                 /* whoever holds some of it, and is busy, is */
#define AGAIN_US 100000
#define AGAIN_MAX_US 1000000
#define PIECE_CALL_US 5000000
#define FLYING_MAX 8
#define LOOKS_MAX 8                     /* pieces whose digests are asked for at one time */
#define TELL_US 5000000                 /* somebody should know */

static void more(struct mover *m);              /* the next steps of all that is missing */

/* ---- ends ---- */

static void morsel_free(struct morsel *x)
{
	struct mover *m = x->m;
	if (x->call)
		net_cancel(m->net, x->call);
	if (x->x)
		xfer_cancel(x->x);
	mover_look_stop(x);
	list_del(&x->link);
	x->over = true;
	if (x->looking)
		return;                         /* the job's end frees it */
	shard_free(&x->s);
	free(x);
}

static void drop_sources(struct mover *m)
{
	list_each(it, &m->morsels)
		mover_look_stop(list_entry(it, struct morsel, link));   /* words point to them */
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

static bool some_bad(const struct mover *m)
{
	for (unsigned i = 0; i < MOVER_BAD; i++)
		if (mover_blamed(m, &m->bad[i].id))
			return true;
	return false;
}

static void again(struct mover *m)
{
	struct run *r = m->r;
	stop(m, true);                          /* what has come need not come again */
	m->step = MOVER_ASKS;
	if (env_now(m->env) - m->said_us >= TELL_US) {
		m->said_us = env_now(m->env);
		run_log(r, LOG_WARN_, "crew.fill", "parts of the state of epoch %llu are not to be had from anybody yet%s; "
			"asking again", (unsigned long long)r->point.epoch, some_bad(m) ? ", but for peers whose values were bad" :
			"");
	}
	m->pause_us = mover_longer(m->pause_us, AGAIN_US, AGAIN_MAX_US);
	m->timer.fire = fire;
	env_after(m->env, &m->timer, m->pause_us);
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
	more(m);
}

/* To where it belongs, at once: all that is taken would else lie here twice. Nothing else touches the trainer's shards
 * until they are filled; only its marks say what of them has come. */
static void put_down(struct morsel *x)
{
	struct mover *m = x->m;
	uint32_t n;
	struct shard *s = trainer_shards(m->r->trainer, &n);
	for (uint32_t k = 0; k < n; k++)
		(void)shard_copy(&s[k], &x->s);
	if (extent_len(x->is.param)) {
		memcpy(m->clock, shard_clock(&x->s), shard_clock_bytes(&x->s));
		m->has_clock = true;
	}
	shard_free(&x->s);
}

static void landed(struct morsel *x)
{
	struct mover *m = x->m;
	m->taken_bytes += x->s.bytes;
	put_down(x);
	x->here = true;
	x->from->flying--;
	x->from->pause_us = m->pause_us = 0;
	m->flying--;
	m->left--;
	more(m);
}

static void looked(struct job *j)
{
	struct morsel *x = container_of(j, struct morsel, job);
	if (!mover_looked(x))
		return;
	if (x->bad) {
		mover_blame(x->m, x->from, x, x->bad);
		missed(x, true);
	} else {
		landed(x);
	}
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
	mover_look_through(x, looked);
}

static void promised(void *arg, const struct frame *a, const struct err *e)
{
	struct morsel *x = arg;
	x->call = NULL;
	if (!e)
		return;
	if (e->code == ERR_BUSY)
		mover_rest(x->from);
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
	uint64_t deadline = env_now(c->env) + mover_patience(x->s.bytes, FLYING_MAX);
	x->x = xfer_recv(c->chunks, &s->id, &tag, x->s.block, x->s.bytes, deadline, received, x);
	x->call = net_call(c->net, &s->id, KIND_RUN_SHARD, json_pack("{s:s,s:I,s:o,s:o,s:o}", "run", r->hex,
		"epoch", (json_int_t)r->point.epoch, "prev", json_hex(r->point.prev, DIGEST), "part",
		mover_part_json(x->is.param, x->is.stat), "tag", json_hex(tag.b, 32)),
		NO_BLOB, CLASS_weight, PIECE_CALL_US, promised, x);
	return 0;
}

/* Somebody of what it has: it is asked again, or done without. */
static void said(void *arg, const struct frame *a, const struct err *e)
{
	more(mover_look_heard(arg, a, e));
}

/* Its next step; false: nobody has it. */
static bool step(struct morsel *x)
{
	struct mover *m = x->m;
	struct err e;
	bool none = false;
	if (!x->agreed && !PLANTED(SHARD_UNLOOKED)) {
		bool asked = !x->differs && mover_look_ask(x, said);
		if (!x->agreed)
			return asked;
	}
	if (m->flying >= FLYING_MAX)
		return true;
	struct source *s = mover_source_of(m, x, &none);
	if (!s || !fly(x, s, &e))
		return !none;
	run_log(m->r, LOG_WARN_, "crew.fill", "%s", e.text);
	return false;
}

/* All is here. */
static void take_done(struct mover *m)
{
	struct run *r = m->r;
	struct trainer_fill how = { .epoch = r->point.epoch, .live = r->point.params, .values = m->values };
	m->step = MOVER_FILLS;
	m->epoch = r->point.epoch;
	trainer_fill(r->trainer, &how, m->done, r);
}

/* What nobody has is asked for anew when all else that can come has. */
static void more(struct mover *m)
{
	bool none = false, waits = false;
	if (!m->left) {
		env_timer(m->env, &m->timer, 0);
		drop_sources(m);
		take_done(m);
		return;
	}
	unsigned looks = 0;
	list_each(it, &m->morsels) {
		struct morsel *x = list_entry(it, struct morsel, link);
		if (x->here || x->from)
			continue;
		if (!x->agreed && !x->differs && looks++ >= LOOKS_MAX)
			continue;
		bool had = step(x);
		none = none || !had;
		waits = waits || had;
	}
	uint64_t rests = mover_rests(m);
	if (none && !waits && !m->flying)
		again(m);
	else if (rests)
		env_after(m->env, &m->timer, rests);
}

/* ---- asking ---- */

/* Somebody who holds some of it makes a step, or has not applied the last one: soon it has a word to say, too. */
static bool sure_soon(const struct mover *m)
{
	bool busy = false;
	for (size_t i = 0; i < m->nsure; i++)
		busy = busy || m->source[i].busy;
	return busy && env_now(m->env) - m->begun_us < SURE_US;
}

static void choose(struct mover *m)
{
	const struct run *r = m->r;
	uint32_t n;
	const struct shard *s = trainer_shards(r->trainer, &n);
	bool all = !sure_soon(m);
	for (uint32_t k = 0; k < n && all; k++)
		all = mover_cut(m, false, s[k].param) && mover_cut(m, true, s[k].stat);
	if (!all) {
		again(m);
		return;
	}
	m->step = MOVER_TAKES;
	m->timer.fire = fire;
	more(m);
}

static bool answered_all(const struct mover *m, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (m->source[i].call)
			return false;
	return true;
}

/* Whoever holds it has a word to say of it. */
static void late(struct timer *t)
{
	struct mover *m = container_of(t, struct mover, timer);
	if (answered_all(m, m->nsure))
		choose(m);
}

static int take_held(struct source *s, const json_t *said, struct err *e)
{
	s->hashes = json_get_hashes(said, s->m->r->rs->ctx.hashes);
	s->held = mover_parts_read(&s->n, trainer_shard(s->m->r->trainer)->l,
		json_object_get(said, "held"), e);
	return s->held ? 0 : -1;
}

static void answered(void *arg, const struct frame *a, const struct err *e)
{
	struct source *s = arg;
	struct mover *m = s->m;
	struct err mine;
	s->call = NULL;
	s->busy = e && e->code == ERR_BUSY;
	s->out = e || take_held(s, a->json, &mine);
	if (m->step != MOVER_ASKS)
		return;
	if (answered_all(m, m->nsources)) {
		choose(m);
	} else {
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

/* Who could have some of it; who was busy before still rests. */
static void know(struct mover *m, const struct id *v, size_t n)
{
	struct source *s = xcalloc(n + 1, sizeof *s);
	for (size_t i = 0; i < n; i++) {
		s[i] = (struct source){ .m = m, .id = v[i], .out = mover_blamed(m, &v[i]) };
		for (size_t k = 0; k < m->nknown; k++)
			if (id_eq(&m->source[k].id, &v[i])) {
				s[i].rest_us = m->source[k].rest_us;
				s[i].pause_us = m->source[k].pause_us;
			}
	}
	memcpy(m->source, s, n * sizeof *s);
	m->nsources = m->nknown = n;
	free(s);
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
		take_done(m);
		return;
	}
	know(m, v, mover_whom(r, v, &m->nsure));
	for (size_t i = 0; i < m->nsources; i++) {
		if (m->source[i].out)
			continue;
		json_t *j = json_pack("{s:s,s:I,s:o}", "run", r->hex, "epoch", (json_int_t)r->point.epoch, "prev",
			json_hex(r->point.prev, DIGEST));
		m->source[i].call = net_call(m->net, &v[i], KIND_RUN_SHARD, j, NO_BLOB, CLASS_control, ASK_US, answered,
			&m->source[i]);
	}
	if (answered_all(m, m->nsources))                    /* there is nobody */
		again(m);
}
