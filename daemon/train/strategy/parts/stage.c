/* One member of a pipeline. What crosses a cut (all tensors that are read behind it, as one value) is a<k> in front of
 * stage k, its gradient g<k>; the loss goes back with it, because a micro-batch whose loss is not finite must add
 * nothing anywhere. Every stage loads: the first what the model reads, the last the labels, those between only learn
 * which samples these are.
 *
 * Rings. What a micro-batch needs for its way back is there as often as the schedule has micro-batches under way, what
 * comes from a neighbour once more, so that it can come meanwhile; what goes to a neighbour, and gradients, twice. Who
 * goes forward twice (remat) has inputs in rings alone: all else that BWD needs is made just before it, and once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/planted.h"
#include "exec/vec.h"
#include "kernels/real.h"
#include "state/layout.h"
#include "train/strategy/parts/keep.h"
#include "train/strategy/parts/stage_int.h"
#include "train/strategy/parts/tied.h"

#define ALIGN(n) (((uint64_t)(n) + 63) / 64 * 64)
#define ROOMS 28
#define FOREVER UINT32_MAX              /* one key for all: state and sums */

/* round: it is there in the round alone, when the epoch's micro-batches are over, if the schedule has such a time. */
struct room { const char *name; uint32_t number; enum plan_class class; uint64_t bytes; uint32_t depth, per;
	bool round; const struct part *of /* NULL: of all that its neighbours are of */; };
struct needs { uint64_t lasting, passing, round; };

const struct stage *stage_of(const struct pipe *x, uint32_t rank)
{
	for (uint32_t s = 0; s < x->n; s++)
		if (rank - x->base - x->stage[s].rank < x->stage[s].replicas)
			return &x->stage[s];
	return NULL;
}

const char *stage_tag(uint32_t s, char out[12])
{
	if (s == STAGE_TIED)
		(void)snprintf(out, 12, "%s", TIED_TAG);
	else
		(void)snprintf(out, 12, "%u", s);
	return out;
}

static uint64_t stats_of(const struct profile *m, uint32_t a, uint32_t b)
{
	uint64_t bytes = 0;

	for (uint32_t o = a; o < b; o++)
		bytes += m->op[o].stats_bytes;
	return bytes;
}

static struct part part_of(const struct profile *m, uint32_t a, uint32_t b)
{
	return (struct part){ .lo = m->op[a].param_lo, .hi = b + 1 < m->nops ? m->op[b + 1].param_lo : m->params,
		.stat_lo = m->params + stats_of(m, 0, a) / sizeof(real), .stats = stats_of(m, a, b + 1) };
}

/* Without the first elements. */
static struct part behind(struct part o, uint64_t lo)
{
	o.lo = lo > o.lo ? lo : o.lo;
	return o;
}

/* The state of stage s, when all cuts are known. */
static struct part stage_part(const struct pipe *x, uint32_t s)
{
	if (s == STAGE_TIED)
		return (struct part){ .hi = x->tied };
	return behind(part_of(x->v->profile, x->stage[s].a, x->stage[s].b), s ? 0 : x->tied);
}

bool stage_part_learns(const struct part *o)
{
	return o->hi > o->lo || o->stats;
}

bool stage_learns(const struct pipe *x, uint32_t s)
{
	struct part part = stage_part(x, s);

	return stage_part_learns(&part);
}

bool stage_gives(const struct pipe *x, uint32_t s)
{
	return stage_learns(x, s) || (s == 0 && x->tied);
}

struct turns_at stage_load(const struct pipe *x, uint32_t s, uint32_t n)
{
	const struct stage *at = &x->stage[s];

	return (struct turns_at){ n, (x->members - at->rank + at->replicas - 1) / at->replicas };
}

/* Micro-batches of the next epoch that each member of stage s has taken forward when it ends a program. */
static uint32_t ahead_of(const struct pipe *x, uint32_t s)
{
	return x->schedule->runs_on ? stage_load(x, s, 0).depth - 1 : 0;
}

/* With what it needs for these ops; else all but that. */
static void seat_of(struct member *r, const struct pipe *x, uint32_t s, uint32_t a, uint32_t b)
{
	struct turns_at load;

	*r = (struct member){ .x = x, .s = s, .at = &x->stage[s], .first = s == 0, .last = s + 1 == x->n,
		.part = part_of(x->v->profile, a, b) };
	if (r->first != r->last)
		r->tied.hi = tied_elements(x->v->profile, r->first ? b + 1 : a);
	r->own = r->first ? behind(r->part, r->tied.hi) : r->part;
	r->ahead = ahead_of(x, s);
	r->come = s ? ahead_of(x, s - 1) * x->stage[s - 1].replicas : 0;
	r->n = (x->most + r->at->replicas - 1) / r->at->replicas + r->ahead;
	load = stage_load(x, s, r->n);
	r->stash = turns_stash(x->schedule, &load);
	r->again = x->remat && r->stash > 1;
}

bool stage_again(const struct pipe *x, uint32_t s)
{
	struct member r;

	seat_of(&r, x, s, 0, 0);
	return r.again;
}

void stage_member(struct member *r, const struct pipe *x, uint32_t s, uint32_t a, uint32_t b)
{
	seat_of(r, x, s, a, b);
	profile_need(x->v->profile, a, b, &r->need);
}

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static uint64_t more_of(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t batch_bytes(const struct member *r)
{
	const struct profile *m = r->x->v->profile;

	return r->first && r->last ? m->batch_bytes : r->first ? m->batch_bytes - m->label_bytes : r->last ?
		m->label_bytes : m->batch * sizeof(uint64_t);
}

static uint64_t part_bytes(const struct part *o)
{
	return (o->hi - o->lo) * sizeof(real) + o->stats;
}

/* The state of stage s. */
static uint32_t state_rooms(const struct pipe *x, uint32_t s, const struct part *o, struct room *to)
{
	uint64_t w = part_bytes(o), vectors = x->v->profile->state_vectors * (w - o->stats);

	if (!stage_part_learns(o))
		return 0;
	to[0] = (struct room){ "w", s, PLAN_WEIGHT, w, 1, FOREVER };
	to[1] = (struct room){ "opt", s, PLAN_OPTIMIZER, layout_opt_bytes(w, vectors, STATE_CLOCK), 1, FOREVER };
	to[2] = (struct room){ STAGE_BEFORE, s, PLAN_WEIGHT, w, 1, FOREVER };
	return x->schedule->runs_on ? 3 : 2;
}

/* Of what both ends have in common, beside its state: the last stage adds up its gradient, which the first one adds to
 * its own at the end of the epoch. */
static uint32_t tied_rooms(const struct member *r, struct room *to)
{
	uint64_t w = part_bytes(&r->tied);

	if (!w)
		return 0;
	to[0] = (struct room){ "acc", STAGE_TIED, PLAN_WEIGHT_GRAD, w, 1, r->last ? FOREVER : 1, false, &r->tied };
	to[1] = (struct room){ "dw", STAGE_TIED, PLAN_WEIGHT_GRAD, w, 1, 1, false, &r->tied };
	return r->last ? 2 : 1;
}

/* Without a depth in the schedule's hands: state and sums. */
static uint32_t lasting_rooms(const struct member *r, struct room *to)
{
	uint64_t w = part_bytes(&r->part);
	uint32_t k = state_rooms(r->x, r->s, &r->own, to);

	if (stage_part_learns(&r->part)) {
		to[k++] = (struct room){ "acc", r->s, PLAN_WEIGHT_GRAD, w, 1, FOREVER, false, &r->part };
		to[k++] = (struct room){ "dw", r->s, PLAN_WEIGHT_GRAD, w, 1, 1, false, &r->part };
	}
	if (stage_part_learns(&r->own))
		to[k++] = (struct room){ "mean", r->s, PLAN_WEIGHT_GRAD, part_bytes(&r->own), 1, FOREVER, true };
	if (stage_part_learns(&r->part) && (r->at->replicas > 1 || r->x->schedule->runs_on))
		to[k++] = (struct room){ "sum", r->s, PLAN_WEIGHT_GRAD, w, 1, FOREVER, true, &r->part };
	return k + tied_rooms(r, to + k);
}

/* What a member of another stage has of stage t when it keeps that: it steps as its owner does. */
static uint32_t kept_rooms(const struct pipe *x, uint32_t t, const struct part *o, struct room *to)
{
	uint32_t k = state_rooms(x, t, o, to);

	if (stage_part_learns(o)) {
		to[k++] = (struct room){ "mean", t, PLAN_WEIGHT_GRAD, part_bytes(o), 1, FOREVER, true };
		to[k++] = (struct room){ "skipped", t, PLAN_SCALAR, 8, 1, 1 };
	}
	return k;
}

/* Inputs from the stage before that are here at once: one more than are under way, or all that come ahead. */
static uint32_t inputs_held(const struct member *r)
{
	uint32_t more = least(r->stash + 1, r->n), every = r->at->replicas, own = r->ahead * every;
	uint32_t come = r->come > own ? (r->come - own + every - 1) / every : 0;

	return r->ahead + come + 1 > more ? r->ahead + come + 1 : more;
}

static uint32_t rooms_of(const struct member *r, struct room *to)
{
	uint32_t more = least(r->stash + 1, r->n), two = least(2, r->n), kept = r->again ? 1 : r->stash;
	uint32_t k = lasting_rooms(r, to);

	to[k++] = (struct room){ "batch", FOREVER, PLAN_BATCH, batch_bytes(r), more, 1 };
	if (!r->first) {
		to[k++] = (struct room){ "a", r->s, PLAN_ACTIVATION, r->need.x, inputs_held(r), 1 };
		to[k++] = (struct room){ "g", r->s, PLAN_ACTIVATION_GRAD, r->need.x, two, 1 };
	}
	to[k++] = (struct room){ "a", r->s + 1, PLAN_ACTIVATION, r->last ? ALIGN(r->need.y) : r->need.y, r->last ?
		kept : two, 1 };
	to[k++] = (struct room){ "g", r->s + 1, PLAN_ACTIVATION_GRAD, r->last ? ALIGN(r->need.y) : r->need.y, r->last ? 1 :
		two, 1 };
	to[k++] = (struct room){ "kept", r->s, PLAN_ACTIVATION, ALIGN(r->need.saved), kept, 1 };
	if (r->again && !r->last)
		to[k++] = (struct room){ "again", r->s + 1, PLAN_ACTIVATION, r->need.y, 1, 1 };
	to[k++] = (struct room){ "loss", FOREVER, PLAN_SCALAR, 8, two, 1 };
	to[k++] = (struct room){ "correct", FOREVER, PLAN_SCALAR, 8, 1, 1 };
	to[k++] = (struct room){ "unit", FOREVER, PLAN_SCALAR, 8, 1, 1 };
	to[k++] = (struct room){ "whole", FOREVER, PLAN_SCALAR, 8, 1, 1 };
	to[k++] = (struct room){ "skipped", FOREVER, PLAN_SCALAR, 8, 1, 1 };
	to[k++] = (struct room){ "digest", FOREVER, PLAN_SCALAR, 16, 1, 1 };
	return k;
}

static void tell(struct needs *to, const struct room *room, uint32_t n)
{
	while (n-- > 0)
		*(room[n].round ? &to->round : room[n].per == FOREVER ? &to->lasting : &to->passing) +=
			room[n].bytes * room[n].depth;
}

/* Of a validation (stage_valid.c), but what is told. None of it is there while gradients are, which take as much, and
 * of what is under way in epochs that run on a micro-batch less is there than in the middle of one. */
static uint32_t held_rooms(const struct member *r, struct room *to)
{
	uint32_t k = 0, two = least(2, r->n);

	to[k++] = (struct room){ "vbatch", FOREVER, PLAN_BATCH, batch_bytes(r), two, 1 };
	if (!r->first)
		to[k++] = (struct room){ "va", r->s, PLAN_ACTIVATION, r->need.x, two, 1 };
	to[k++] = (struct room){ "va", r->s + 1, PLAN_ACTIVATION, r->last ? ALIGN(r->need.y) : r->need.y, r->last ? 1 : two,
		1 };
	to[k++] = (struct room){ "vloss", FOREVER, PLAN_SCALAR, 8, 1, 1 };
	to[k++] = (struct room){ "vcorrect", FOREVER, PLAN_SCALAR, 8, 1, 1 };
	return k;
}

static struct room told_room(uint32_t k)
{
	return (struct room){ "told", k, PLAN_SCALAR, TALLY * sizeof(double), 1, FOREVER };
}

static uint64_t told_bytes(const struct member *r)
{
	return r->x->v->held ? told_room(0).bytes * r->x->stage[r->x->n - 1].replicas : 0;
}

static void tell_own(struct needs *to, const struct member *r)
{
	struct room room[ROOMS];

	tell(to, room, rooms_of(r, room));
	to->lasting += told_bytes(r);
}

/* What it keeps of other stages, which begin and end as `at` says, and of what both ends have in common. */
static void tell_kept(struct needs *to, const struct member *r, const uint32_t *at)
{
	const struct profile *m = r->x->v->profile;
	struct plan_range keep = at ? r->x->keep[r->s] : (struct plan_range){ r->s, r->s };
	struct part tied = r->tied, part;
	struct room room[ROOMS];

	if (keep.a == 0 && !r->first)
		tied.hi = tied_elements(m, at[1]);
	for (uint32_t t = keep.a; t <= keep.b; t++) {
		if (t == r->s)
			continue;
		part = part_of(m, at[t - keep.a], at[t - keep.a + 1] - 1);
		part = behind(part, t ? 0 : tied.hi);
		tell(to, room, kept_rooms(r->x, t, &part, room));
	}
	tell(to, room, kept_rooms(r->x, STAGE_TIED, &tied, room));
}

/* The largest scratch of its passes. */
static uint64_t work_most(const struct member *r)
{
	const struct piece_need *x = &r->need;
	uint64_t most = x->work_fwd > x->work_bwd ? x->work_fwd : x->work_bwd;

	return (r->again || r->x->v->held) && x->work_eval > most ? x->work_eval : most;
}

/* Beside the arena, of whoever reads what is held out. */
static uint64_t held_out(const struct member *r)
{
	return (r->first || r->last) && !PLANTED(EVAL_UNCOUNTED) ? planner_held_bytes(r->x->v) : 0;
}

static uint64_t bytes_of(const struct pipe *x, const struct needs *is)
{
	return is->lasting + (x->schedule->runs_on ? is->passing + is->round : more_of(is->passing, is->round));
}

uint64_t stage_holds(const struct pipe *x, uint32_t s, uint32_t a, uint32_t b, const struct piece_need *need,
	const uint32_t *at)
{
	struct needs is = { 0 };
	struct member r;

	seat_of(&r, x, s, a, b);
	r.need = *need;
	r.need.x = r.need.y = 0;
	tell_own(&is, &r);
	tell_kept(&is, &r, at);
	is.lasting += held_out(&r) + r.part.stats;
	is.passing += work_most(&r);
	return bytes_of(x, &is);
}

uint64_t stage_least(const struct pipe *x, uint32_t a, uint32_t b)
{
	struct part part = part_of(x->v->profile, a, b);
	struct needs is = { 0 };
	struct room room[ROOMS];

	tell(&is, room, kept_rooms(x, 0, &part, room));
	return bytes_of(x, &is);
}

uint64_t stage_passes(const struct pipe *x, uint32_t s, uint64_t bytes_x, uint64_t bytes_y)
{
	struct needs all = { 0 }, rest = { 0 };
	struct member with, without;

	seat_of(&with, x, s, 0, 0);
	without = with;
	with.need.x = bytes_x;
	with.need.y = bytes_y;
	tell_own(&all, &with);
	tell_own(&rest, &without);
	return all.passing - rest.passing;
}

/* Of stage t, whose state every member has that is of it or keeps it. */
static void add(struct plan *p, const struct pipe *x, uint32_t t, const struct part *of, const struct room *o)
{
	bool whole = o->class == PLAN_WEIGHT || o->class == PLAN_WEIGHT_GRAD;
	const struct part *part = o->of ? o->of : of;
	char name[PLAN_NAME] = "", tag[12] = "";
	uint32_t id;

	(void)snprintf(name, sizeof(name), "%s%s", o->name, o->number == FOREVER ? "" : stage_tag(o->number, tag));
	id = plan_buf(p, &(struct plan_buf){ .class = o->class, .dtype = PLAN_F32, .bytes = o->bytes, .depth = o->depth,
		.per = o->per, .initial = o->class == PLAN_WEIGHT || o->class == PLAN_OPTIMIZER }, "%s", name);
	if (whole || o->class == PLAN_OPTIMIZER)
		plan_extent(p, id, PLAN_FLAT, "", part->lo, part->hi);
	if (whole && part->stats)
		plan_extent(p, id, PLAN_FLAT, "", part->stat_lo, part->stat_lo + part->stats / sizeof(real));
	for (uint32_t s = 0; plan_is_state(&p->buf[id]) && s < x->n; s++)
		for (uint32_t u = 0; (s == t || keeps(x, s, t)) && u < x->units; u++)
			for (uint32_t k = 0; k < x->stage[s].replicas; k++)
				plan_holder(p, id, u * x->members + x->stage[s].rank + k);
}

typedef uint32_t rooms_fn(const struct pipe *x, uint32_t t, const struct part *o, struct room *to);

static void kept_buffers(struct plan *p, const struct pipe *x, uint32_t s, rooms_fn *rooms)
{
	uint32_t kept[KEPT_MAX], n = keep_list(x, s, kept);
	struct room room[ROOMS];

	for (uint32_t i = 0; i < n; i++) {
		struct part part = stage_part(x, kept[i]);
		uint32_t nrooms = rooms(x, kept[i], &part, room);

		for (uint32_t k = 0; k < nrooms; k++)
			add(p, x, kept[i], &part, &room[k]);
	}
}

/* No bytes: nobody has said how many. */
static void arena(struct plan *p, const struct member *r, uint32_t rank)
{
	uint64_t bytes = r->x->v->member[rank].memory_bytes, beside = held_out(r);

	plan_tier(p, "arena", !bytes ? 0 : bytes > beside ? bytes - beside : 1);
}

void stage_buffers(struct plan *p, const struct pipe *x, uint32_t rank)
{
	const struct stage *at = stage_of(x, rank);
	struct room room[ROOMS];
	struct member r;
	uint32_t n;

	stage_member(&r, x, (uint32_t)(at - x->stage), at->a, at->b);
	n = rooms_of(&r, room);
	for (uint32_t k = 0; k < n; k++)
		add(p, x, r.s, &r.own, &room[k]);
	if (r.part.stats)
		plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT, .dtype = PLAN_F32, .bytes = r.part.stats,
			.per = FOREVER }, "stats");
	kept_buffers(p, x, r.s, kept_rooms);
	arena(p, &r, rank);
}

void stage_state(struct plan *p, const struct pipe *x, uint32_t rank)
{
	const struct stage *at = stage_of(x, rank);
	uint32_t s = (uint32_t)(at - x->stage), n;
	struct part part = stage_part(x, s);
	struct room room[ROOMS];
	struct member r;

	n = state_rooms(x, s, &part, room);
	for (uint32_t k = 0; k < n; k++)
		add(p, x, s, &part, &room[k]);
	kept_buffers(p, x, s, state_rooms);
	seat_of(&r, x, s, at->a, at->b);
	arena(p, &r, rank);
}

void stage_held(struct plan *p, const struct member *r)
{
	struct room room[ROOMS];
	uint32_t n = held_rooms(r, room);

	for (uint32_t k = 0; k < n; k++)
		add(p, r->x, r->s, &r->part, &room[k]);
	for (uint32_t k = 0; k < r->x->stage[r->x->n - 1].replicas; k++) {
		struct room told = told_room(k);

		add(p, r->x, r->s, &r->part, &told);
	}
}
