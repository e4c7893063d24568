/* `model export`: which checkpoints there are of the run, here and on the machines of all who may hold parts of it, and
 * of which epoch they have everything, the newest of those; then its pieces are taken (export_take.c). Where this peer
 * has the whole model a checkpoint is written first. */
#include "run/export.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/jrpc.h"
#include "common/mem.h"
#include "common/planted.h"
#include "common/text.h"
#include "run/mover.h"
#include "train/strategy.h"

#define AT_ONCE 4                       /* of one daemon */
#define ASK_US 3000000
#define AGAIN_US 500000

static void owners_free(struct export *x)
{
	for (size_t i = 0; i < x->nowners; i++) {
		struct owner *o = &x->owner[i];
		if (o->call)
			net_cancel(x->rs->ctx.net, o->call);
		lends_forget(x->rs->lends, o);
		for (uint32_t k = 0; k < o->n; k++)
			free(o->saved[k].held);
		free(o->saved);
	}
	x->nowners = 0;
}

static void export_free(struct export *x)
{
	export_take_stop(x);
	owners_free(x);
	env_timer(x->rs->ctx.env, &x->timer, 0);
	list_del(&x->link);
	json_decref(x->file.meta);
	json_decref(x->file.spec);
	free(x->tensor);
	free(x->at);
	free(x);
}

void runs_exports_free(struct runs *rs)
{
	struct err e;
	err_set(&e, ERR_CANCELLED, "the daemon is stopping");
	list_each_safe(it, &rs->exports) {
		struct export *x = list_entry(it, struct export, link);
		export_drop_now(&x->file);
		reply_fail(x->reply, &e);
		export_free(x);
	}
}

/* ---- of which epoch? ---- */

static uint64_t all_elements(const struct export *x) { return x->params + x->stats; }

static bool same_epoch(const struct saved_epoch *a, const struct saved_epoch *b)
{
	return a->epoch == b->epoch && !memcmp(a->prev, b->prev, DIGEST);
}

/* Elements of that epoch that nobody has. */
static uint64_t missing(const struct export *x, const struct saved_epoch *of)
{
	uint64_t all = all_elements(x), none = 0;
	for (uint64_t at = 0; at < all; ) {
		uint64_t to = at, next = all, far;
		for (size_t i = 0; i < x->nowners; i++)
			for (uint32_t k = 0; k < x->owner[i].n; k++)
				if (same_epoch(&x->owner[i].saved[k], of) &&
						(far = export_reach(&x->owner[i].saved[k], at, &next)) > to)
					to = far;
		if (to == at) {
			none += next - at;
			to = next;
		}
		at = to;
	}
	return none;
}

/* May it be of this run's history, as far as this peer knows that? Else one could make up an epoch of its own. */
static bool of_history(const struct export *x, const struct saved_epoch *s)
{
	const struct run *r = runs_by_id(x->rs, &x->run);
	const struct avg_point *p = r ? run_point_at(r, s->epoch) : NULL;
	if (!s->epoch || (r && r->point.epoch && s->epoch > r->point.epoch && !PLANTED(SAVED_ANY_EPOCH)))
		return false;
	return !p || !memcmp(p->prev, s->prev, DIGEST) || PLANTED(SAVED_ANY_EPOCH);
}

static void take_epoch(struct export *x, const struct saved_epoch *of)
{
	x->epoch = of->epoch;
	memcpy(x->prev, of->prev, DIGEST);
	for (size_t i = 0; i < x->nowners; i++)
		for (uint32_t k = 0; k < x->owner[i].n; k++)
			if (same_epoch(&x->owner[i].saved[k], of))
				x->owner[i].is = &x->owner[i].saved[k];
}

static void say_missing(const struct export *x, const struct saved_epoch *newest, uint64_t none, struct err *e)
{
	char bytes[32], all[32];
	size_t told = 0;
	for (size_t i = 0; i < x->nowners; i++)
		told += !x->owner[i].failed;
	if (!newest) {
		err_set(e, ERR_STATE, "no part of run %s is saved yet, on this peer or the %zu others that have answered: it "
			"has not learned anything, or not saved it (checkpoint_every; hivectl checkpoint)", x->name,
			told - (told > 0));
		return;
	}
	err_set(e, ERR_NOT_FOUND, "of no epoch that is saved do the %zu peers that have answered have all of the model: of "
		"epoch %" PRIu64 " %s of %s have no holder among them", told, newest->epoch,
		text_print_size(none * sizeof(real), bytes, sizeof bytes),
		text_print_size(all_elements(x) * sizeof(real), all, sizeof all));
}

static bool some_failed(const struct export *x)
{
	for (size_t i = 0; i < x->nowners; i++)
		if (x->owner[i].failed)
			return true;
	return false;
}

/* The newest of which all is there. */
static void choose(struct export *x)
{
	const struct saved_epoch *best = NULL, *nearest = NULL;
	uint64_t least = 0, none;
	struct err e;
	for (size_t i = 0; i < x->nowners; i++)
		for (uint32_t k = 0; k < x->owner[i].n; k++) {
			const struct saved_epoch *s = &x->owner[i].saved[k];
			if ((best && s->epoch <= best->epoch) || !of_history(x, s))
				continue;
			none = missing(x, s);
			if (!none)
				best = s;
			if (!nearest || none < least || (none == least && s->epoch > nearest->epoch)) {
				nearest = s;
				least = none;
			}
		}
	if (!best) {
		say_missing(x, nearest, least, &e);
		if (nearest || some_failed(x))
			export_again(x, &e);
		else
			export_fail(x, &e);
		return;
	}
	take_epoch(x, best);
	x->why = (struct err){ 0 };
	json_object_set_new(x->file.meta, "epoch", json_sprintf("%" PRIu64, x->epoch));
	x->step = EXPORT_OPENS;
	export_work(x, EXPORT_OPEN);
}

/* ---- who has saved what ---- */

static int saved_read(const struct export *x, struct saved_epoch *ret, const json_t *j, struct err *e)
{
	const json_t *held = json_object_get(j, "held");
	size_t n = json_array_size(held);
	*ret = (struct saved_epoch){ 0 };
	if (json_get_u64(j, "epoch", &ret->epoch, e) || json_get_hex(j, "prev", ret->prev, DIGEST, e))
		return -1;
	if (n > MOVER_PARTS || !(json_is_array(held) || json_is_true(held)))
		return err_set(e, ERR_PROTOCOL, "held is no list of at most %d parts", MOVER_PARTS);
	ret->held = xcalloc(2 * n + 1, sizeof *ret->held);
	if (json_is_true(held))
		ret->held[ret->n++] = (struct extent){ 0, all_elements(x) };
	for (size_t k = 0; k < n; k++) {
		struct shard_part p;
		if (mover_part_within(&p, x->params, x->stats, json_array_get(held, k), e))
			return -1;
		ret->held[ret->n++] = p.param;
		ret->held[ret->n++] = (struct extent){ x->params + p.stat.lo, x->params + p.stat.hi };
	}
	return 0;
}

static void told(struct owner *o, const void *text, size_t len, const struct err *error)
{
	struct err e;
	json_t *list = error ? NULL : json_read(text, len, JSON_POINT, &e);
	size_t n = json_array_size(list);
	o->open = false;
	o->failed = error != NULL;
	o->saved = xcalloc(SAVED_EPOCHS, sizeof *o->saved);
	for (size_t i = 0; i < n && i < SAVED_EPOCHS; i++)
		if (saved_read(o->x, &o->saved[o->n++], json_array_get(list, i), &e))
			free(o->saved[--o->n].held);
	json_decref(list);
	export_soon(o->x);
}

static void told_here(void *arg, struct buf *bytes, const struct err *e)
{
	told(arg, bytes->p, bytes->len, e);
}

static void told_there(void *arg, const struct frame *a, const struct err *e)
{
	struct owner *o = arg;
	o->call = NULL;
	o->hashes = a ? json_get_hashes(a->json, o->x->rs->ctx.hashes) : 0;
	told(o, a ? (const void *)a->blob : NULL, a ? a->blob_len : 0, e);
}

static void add(struct export *x, const struct id *id)
{
	bool here = id_eq(id, net_self(x->rs->ctx.net));
	for (size_t i = 0; i < x->nowners; i++)
		if (id_eq(&x->owner[i].id, id))
			return;
	if (x->nowners < EXPORT_OWNERS)
		x->owner[x->nowners++] = (struct owner){ .x = x, .id = *id, .here = here, .open = true };
}

/* This peer; the members of the run; when it is over, whoever is there. */
static void whom(struct export *x)
{
	const struct run *r = runs_by_id(x->rs, &x->run);
	struct net *net = x->rs->ctx.net;
	add(x, net_self(net));
	if (!x->crew)
		return;
	if (r && r->crew && r->avg) {
		struct id v[MOVER_SOURCES];
		size_t sure, n = mover_whom(r, v, &sure);
		for (size_t i = 0; i < n; i++)
			add(x, &v[i]);
		return;
	}
	struct peer_info *v = xcalloc(EXPORT_OWNERS, sizeof *v);
	size_t n = net_peers(net, v, EXPORT_OWNERS);
	for (size_t i = 0; i < n && i < EXPORT_OWNERS; i++)
		if (!v[i].banned_until_us)
			add(x, &v[i].id);
	free(v);
}

static void ask_all(struct export *x)
{
	owners_free(x);
	x->step = EXPORT_ASKS;
	whom(x);
	for (size_t i = 0; i < x->nowners; i++) {
		struct owner *o = &x->owner[i];
		if (o->here)
			lends_ask(x->rs->lends, &(struct saved_ask){ .run = x->run }, told_here, o);
		else
			o->call = net_call(x->rs->ctx.net, &o->id, KIND_RUN_SAVED, json_pack("{s:s}", "run", x->hex), NO_BLOB,
				CLASS_control, ASK_US, told_there, o);
	}
}

/* ---- steps ---- */

static void done(struct export *x)
{
	size_t peers = 0;
	for (size_t i = 0; i < x->nowners; i++) {
		const struct saved_epoch *s = x->owner[i].is;
		bool some = false;
		for (uint32_t k = 0; s && k < s->n; k++)
			some = some || extent_len(s->held[k]);
		peers += some;
	}
	reply_ok(x->reply, json_pack("{s:s,s:s,s:s,s:I,s:I,s:I,s:I,s:I}", "run", x->hex, "name", x->name, "path",
		x->file.dir, "epoch", (json_int_t)x->epoch, "parameters", (json_int_t)x->params, "tensors",
		(json_int_t)x->ntensors, "bytes", (json_int_t)x->file.bytes, "peers", (json_int_t)peers));
	export_free(x);
}

static void dropped(struct export *x)
{
	if (!x->again) {
		reply_fail(x->reply, &x->fail);
		export_free(x);
		return;
	}
	owners_free(x);
	x->step = EXPORT_SAVES;                 /* which is asking anew, after a while */
	env_after(x->rs->ctx.env, &x->timer, AGAIN_US);
}

static void asked(struct export *x)
{
	for (size_t i = 0; i < x->nowners; i++)
		if (x->owner[i].open)
			return;
	choose(x);
}

static void step(struct timer *t)
{
	struct export *x = container_of(t, struct export, timer);
	if (x->works)
		return;                         /* it comes back here */
	bool failed = x->rc != 0, was_put = x->op == EXPORT_PUT;
	enum export_step at = x->step;
	x->rc = 0;
	x->op = EXPORT_DROP;
	if (failed && at != EXPORT_DROPS) {
		struct err e = x->e;
		export_fail(x, &e);
		return;
	}
	switch (at) {
	case EXPORT_SAVES: ask_all(x); break;
	case EXPORT_ASKS: asked(x); break;
	case EXPORT_OPENS:
		x->step = EXPORT_TAKES;
		export_take(x);
		break;
	case EXPORT_TAKES:
		if (was_put)
			export_put_done(x);
		else
			export_take(x);
		break;
	case EXPORT_ENDS: done(x); break;
	case EXPORT_DROPS:
		export_take_stop(x);            /* no job reads a piece any more */
		if (x->file.made || x->file.out)
			export_work(x, EXPORT_DROP);
		else
			dropped(x);
		break;
	}
}

/* ---- the command ---- */

static int tensors_of(struct export *x, const struct model_param *p, int n, uint64_t off, struct err *e)
{
	enum ckpt_dtype type = sizeof(real) == sizeof(double) ? CKPT_F64 : CKPT_F32;
	for (int i = 0; i < n; i++, p++) {
		uint64_t shape[CKPT_DIMS];
		for (int k = 0; k < p->shape.nd; k++)
			shape[k] = p->shape.d[k];
		x->at[x->ntensors] = off + p->offset;
		if (ckpt_tensor(&x->tensor[x->ntensors++], p->name, type, (unsigned)p->shape.nd, shape, NULL, e))
			return -1;
	}
	return 0;
}

/* What is to be written, as the spec says: no part of it need be here. */
static int plan(struct export *x, const struct run *r, struct err *e)
{
	struct model *m = spec_model(r->spec, NULL, e);
	if (!m)
		return -1;
	x->params = m->nparam;
	x->stats = m->nbuffer;
	x->tensor = xcalloc((size_t)(m->nparams + m->nbuffers) + 1, sizeof *x->tensor);
	x->at = xcalloc((size_t)(m->nparams + m->nbuffers) + 1, sizeof *x->at);
	int rc = tensors_of(x, m->param, m->nparams, 0, e) || tensors_of(x, m->buffer, m->nbuffers, x->params, e) ? -1 : 0;
	model_free(m);
	return rc;
}

static int may(const struct run *r, const char *dir, struct err *e)
{
	size_t n = 0;
	if (!r->rs->ctx.state_dir || !r->hex[0] || !r->spec)
		return err_set(e, ERR_STATE, "run %s keeps no checkpoints: it has nothing to export", r->name);
	if (!dir || dir[0] != '/' || !dir[1] || strlen(dir) > 3000 || dir[strlen(dir) - 1] == '/')
		return err_set(e, ERR_INVALID, "model export: DIR must be an absolute path, of a folder that is not there yet");
	list_each(it, &r->rs->exports) {
		n++;
		if (!strcmp(list_entry(it, struct export, link)->file.dir, dir))
			return err_set(e, ERR_BUSY, "%.200s is being written", dir);
	}
	return n < AT_ONCE ? 0 : err_set(e, ERR_LIMIT, "%zu models are being written: that is the most at once", n);
}

void runs_export(struct runs *rs, const json_t *params, struct reply *reply)
{
	struct run *r = runs_find(rs, params, reply);
	const char *dir = json_string_value(json_array_get(json_object_get(params, "dir"), 0));
	struct err e;
	if (!r)
		return;
	struct export *x = xcalloc(1, sizeof *x);
	*x = (struct export){ .rs = rs, .reply = reply, .run = r->id, .op = EXPORT_DROP, .saves.done = export_saved,
		.timer = { .fire = step, .name = "run.export" } };
	list_init(&x->link);
	bool lives = !run_over(r) && r->trainer;
	int rc = may(r, dir, &e) || plan(x, r, &e);
	if (!rc)
		x->crew = strategy_find(r->spec->strategy)->crew;
	if (!rc && lives && !x->crew && !r->point.epoch)
		rc = err_set(&e, ERR_STATE, "run %s has not learned anything yet: its first epoch is not over", r->name);
	if (rc) {
		reply_fail(reply, &e);
		export_free(x);
		return;
	}
	memcpy(x->hex, r->hex, sizeof x->hex);
	memcpy(x->name, r->name, sizeof x->name);
	(void)snprintf(x->file.dir, sizeof x->file.dir, "%s", dir);
	(void)snprintf(x->file.part, sizeof x->file.part, "%s.part", dir);
	x->file.files = rs->ctx.env->files;
	x->file.meta = json_pack("{s:s,s:s}", "run", x->hex, "name", x->name);
	x->file.spec = json_deep_copy(r->spec->shared);
	list_push(&rs->exports, &x->link);
	if (lives && !x->crew && r->state == RUN_TRAIN)
		run_save(r, &x->saves);         /* what it has learned until now */
	else
		export_soon(x);
}
