/* The checkpoints of this peer, and what members tell each other of theirs: an older one is kept until a newer epoch is
 * whole on the disks of all of them together. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/jrpc.h"
#include "common/mem.h"
#include "common/text.h"
#include "run/crew_int.h"

static void kept_free(struct kept *k)
{
	claim_free(&k->is);
	free(k->point);
}

static void files_drop(struct rally *w)
{
	for (size_t i = 0; i < w->nfiles; i++)
		kept_free(&w->file[i]);
	free(w->file);
	w->file = NULL;
	w->nfiles = 0;
}

void rally_files_free(struct rally *w)
{
	files_drop(w);
	for (size_t i = 0; i < RALLY_TOLD; i++)
		free(w->told[i].v);
}

/* ---- what is there ---- */

static json_t *meta_json(const json_t *meta, const char *key, struct json_limits lim, struct err *e)
{
	const char *text = json_string_value(json_object_get(meta, key));
	return text ? json_read(text, strlen(text), lim, e) : NULL;
}

/* false: it is of no use here; whoever loads it says why. */
static bool kept_read(const struct rally *w, struct kept *k, const struct ckpt_seen *s)
{
	const char *run = json_string_value(json_object_get(s->meta, "run"));
	const char *life = json_string_value(json_object_get(s->meta, "crew_life"));
	struct avg_point p;
	struct err e;
	json_t *point = meta_json(s->meta, "point", JSON_FILE, &e);
	json_t *parts = meta_json(s->meta, "crew_parts", JSON_FILE, &e);
	*k = (struct kept){ .is.file = true };
	avg_point_init(&p);
	bool ok = run && !strcmp(run, w->r->hex) && point && parts && life && !text_u64(life, &k->life, NULL) &&
		!avg_point_parse(&p, point, &e) && p.epoch == s->epoch && p.epoch != w->bad;
	if (ok) {
		k->is.epoch = p.epoch;
		memcpy(k->is.prev, p.prev, DIGEST);
		k->is.v = mover_parts_read(&k->is.n, rally_layout(w), parts, &e);
		ok = k->is.v != NULL;
	}
	avg_point_done(&p);
	json_decref(point);
	json_decref(parts);
	if (!ok)
		return false;
	snprintf(k->path, sizeof k->path, "%s", s->path);
	k->bytes = s->bytes;
	k->point = xstrdup(json_string_value(json_object_get(s->meta, "point")));
	return true;
}

static void tell(struct rally *w)
{
	const struct run *r = w->r;
	struct avg_member v[RUN_PEERS_SHOWN];
	size_t n = avg_members(r->avg, v, RUN_PEERS_SHOWN);
	json_t *saved = claim_json(&w->file[0].is);
	rally_hear(w, saved);
	for (size_t i = 0; i < n && i < RUN_PEERS_SHOWN; i++)
		if (v[i].live && !id_eq(&v[i].id, net_self(w->net)))
			net_post(w->net, &v[i].id, KIND_RUN_SHARD, json_pack("{s:s,s:O}", "run", r->hex, "saved", saved), NO_BLOB,
				CLASS_control);
	json_decref(saved);
}

/* Who follows waits for that. */
static void was_read(struct rally *w, struct timer *then)
{
	if (then && w->r->crew->follows)
		env_after(w->env, then, 0);
}

static void looked(void *arg, const struct ckpt_seen *v, size_t n)
{
	struct rally *w = arg;
	if (w->dead) {
		free(w);
		return;
	}
	struct timer *then = w->then;
	uint64_t newest = w->nfiles ? w->file[0].is.epoch : 0;
	files_drop(w);
	w->file = xcalloc(n + 1, sizeof *w->file);
	for (size_t i = 0; i < n; i++)
		w->nfiles += kept_read(w, &w->file[w->nfiles], &v[i]);
	w->reading = false;
	w->then = NULL;
	if (w->again) {                         /* something was written meanwhile */
		w->again = false;
		rally_read(w, then);
		return;
	}
	if (w->nfiles && w->file[0].is.epoch > newest && w->r->state == RUN_TRAIN)
		tell(w);
	was_read(w, then);
}

void rally_read(struct rally *w, struct timer *then)
{
	char dir[4096];
	if (!w->r->rs->ctx.state_dir) {
		was_read(w, then);
		return;
	}
	w->then = then ? then : w->then;
	if (w->reading) {
		w->again = true;
		return;
	}
	run_dir(w->r, dir, sizeof dir);
	w->reading = true;
	ckpt_look(w->env, dir, RALLY_FILES, looked, w);
}

const struct kept *rally_file(const struct rally *w, uint64_t epoch, const uint8_t prev[DIGEST])
{
	for (size_t i = 0; i < w->nfiles; i++)
		if (w->file[i].is.epoch == epoch && !memcmp(w->file[i].is.prev, prev, DIGEST))
			return &w->file[i];
	return NULL;
}

const struct kept *rally_has(const struct rally *w, uint64_t epoch, const uint8_t prev[DIGEST],
	const struct shard_part *v, uint32_t n)
{
	const struct kept *k = rally_file(w, epoch, prev);
	bool all = k != NULL;
	for (uint32_t i = 0; i < n && all; i++) {
		bool has = !extent_len(v[i].param) && !extent_len(v[i].stat);
		for (uint32_t m = 0; m < k->is.n && !has; m++)
			has = shard_part_same(&k->is.v[m], &v[i]);
		all = has;
	}
	return all ? k : NULL;
}

void rally_bad(struct rally *w, uint64_t epoch)
{
	w->bad = epoch;
	for (size_t i = 0; i < w->nfiles; i++)
		if (w->file[i].is.epoch == epoch) {
			kept_free(&w->file[i]);
			memmove(w->file + i, w->file + i + 1, (--w->nfiles - i) * sizeof *w->file);
			return;
		}
}

/* ---- what is whole ---- */

static int by_lo(const void *a, const void *b)
{
	const struct extent *x = a, *y = b;
	return x->lo < y->lo ? -1 : x->lo > y->lo;
}

/* Elements of 0 .. end - 1 that none of them has. Sorts them. */
static uint64_t holes(struct extent *x, size_t n, uint64_t end)
{
	uint64_t at = 0, missing = 0;
	qsort(x, n, sizeof *x, by_lo);
	for (size_t i = 0; i < n; i++) {
		if (x[i].lo > at)
			missing += x[i].lo - at;
		at = x[i].hi > at ? x[i].hi : at;
	}
	return missing + (end > at ? end - at : 0);
}

uint64_t rally_missing(const struct layout *l, const struct shard_part *v, size_t n)
{
	struct extent *x = xcalloc(n + 1, sizeof *x);
	for (size_t i = 0; i < n; i++)
		x[i] = v[i].param;
	uint64_t bytes = holes(x, n, l->params) * l->unit * (1 + l->nopt + l->nextra);
	for (size_t i = 0; i < n; i++)
		x[i] = v[i].stat;
	bytes += holes(x, n, l->stats) * l->unit * (1 + l->nextra);
	free(x);
	return bytes;
}

uint64_t rally_on_disks(const struct rally *w) { return w->on_disks; }

void rally_found(struct rally *w, uint64_t epoch)
{
	w->on_disks = epoch > w->on_disks ? epoch : w->on_disks;
}

/* Where what is said of that point is summed up; an older one goes. NULL: it is older than all. */
static struct rally_sum *sum_of(struct rally *w, const struct claim *c)
{
	struct rally_sum *old = w->told;
	for (struct rally_sum *s = w->told; s < w->told + RALLY_TOLD; s++) {
		if (s->n && s->epoch == c->epoch && !memcmp(s->prev, c->prev, DIGEST))
			return s;
		old = s->epoch < old->epoch ? s : old;
	}
	if (old->epoch > c->epoch)
		return NULL;
	free(old->v);
	*old = (struct rally_sum){ .epoch = c->epoch };
	memcpy(old->prev, c->prev, DIGEST);
	return old;
}

/* Of points that this peer has seen: of another history, or ahead, it is no word that anything here depends on. */
void rally_hear(struct rally *w, const json_t *saved)
{
	struct claim c;
	struct err e;
	if (claim_read(&c, rally_layout(w), saved, &e))
		return;
	const struct avg_point *p = run_point_at(w->r, c.epoch);
	struct rally_sum *s = p && !memcmp(p->prev, c.prev, DIGEST) ? sum_of(w, &c) : NULL;
	if (s && s->n + c.n <= MOVER_PARTS) {
		s->v = xrealloc(s->v, (s->n + c.n + 1) * sizeof *s->v);
		memcpy(s->v + s->n, c.v, c.n * sizeof *c.v);
		s->n += c.n;
		if (!rally_missing(rally_layout(w), s->v, s->n))
			rally_found(w, c.epoch);
	}
	claim_free(&c);
}
