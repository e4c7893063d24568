/* One member of a pipeline. What crosses a cut (all tensors that are read behind it, as one value) is a<k> in front of
 * stage k, its gradient g<k>; the loss goes back with it, because a micro-batch whose loss is not finite must add
 * nothing anywhere. Every stage loads: the first what the model reads, the last the labels, those between only learn
 * which samples these are.
 *
 * Rings. What a micro-batch needs for its way back is there as often as the schedule has micro-batches under way, what
 * comes from a neighbour once more, so that it can come meanwhile; what goes to a neighbour, and gradients, twice. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "kernels/real.h"
#include "state/layout.h"
#include "train/strategy/parts/keep.h"

#define ALIGN(n) (((uint64_t)(n) + 63) / 64 * 64)
#define ROOMS 24
#define FOREVER UINT32_MAX              /* one key for all: state and sums */

struct room { const char *name; uint32_t number; enum plan_class class; uint64_t bytes; uint32_t depth, per; };
/* What a stage learns: elements of the flat vector; bytes of running statistics. */
struct part { uint64_t lo, hi, stat_lo, stats; };
struct member {
	const struct pipe *x; uint32_t s; const struct stage *at;
	bool first, last;
	struct part part;
	uint32_t stash, n;                      /* micro-batches under way at most; of a flush at most */
	struct piece_need need;
};

const struct stage *stage_of(const struct pipe *x, uint32_t rank)
{
	for (uint32_t s = 0; s < x->n; s++)
		if (rank - x->base - x->stage[s].rank < x->stage[s].replicas)
			return &x->stage[s];
	return NULL;
}

const char *stage_tag(uint32_t s, char out[12])
{
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

static struct part stage_part(const struct pipe *x, uint32_t s)
{
	return part_of(x->v->profile, x->stage[s].a, x->stage[s].b);
}

static bool learns(const struct part *o)
{
	return o->hi > o->lo || o->stats;
}

bool stage_learns(const struct pipe *x, uint32_t s)
{
	struct part part = stage_part(x, s);

	return learns(&part);
}

/* What stage s has to have under way: all members from it on, shared among its own. */
static struct turns_at load_of(const struct pipe *x, uint32_t s, uint32_t n)
{
	const struct stage *at = &x->stage[s];

	return (struct turns_at){ n, (x->members - at->rank + at->replicas - 1) / at->replicas };
}

/* With what it needs for these ops; else all but that. */
static void seat_of(struct member *r, const struct pipe *x, uint32_t s, uint32_t a, uint32_t b)
{
	struct turns_at load;

	*r = (struct member){ .x = x, .s = s, .at = &x->stage[s], .first = s == 0, .last = s + 1 == x->n,
		.part = part_of(x->v->profile, a, b) };
	r->n = (x->most + r->at->replicas - 1) / r->at->replicas;
	load = load_of(x, s, r->n);
	r->stash = turns_stash(x->schedule, &load);
}

static void member_of(struct member *r, const struct pipe *x, uint32_t s, uint32_t a, uint32_t b)
{
	seat_of(r, x, s, a, b);
	profile_need(x->v->profile, a, b, &r->need);
}

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
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

	if (!learns(o))
		return 0;
	to[0] = (struct room){ "w", s, PLAN_WEIGHT, w, 1, FOREVER };
	to[1] = (struct room){ "opt", s, PLAN_OPTIMIZER, layout_opt_bytes(w, vectors), 1, FOREVER };
	return 2;
}

/* Without a depth in the schedule's hands: state and sums. */
static uint32_t lasting_rooms(const struct member *r, struct room *to)
{
	uint64_t w = part_bytes(&r->part);
	uint32_t k = state_rooms(r->x, r->s, &r->part, to);

	if (learns(&r->part)) {
		to[k++] = (struct room){ "acc", r->s, PLAN_WEIGHT_GRAD, w, 1, FOREVER };
		to[k++] = (struct room){ "dw", r->s, PLAN_WEIGHT_GRAD, w, 1, 1 };
	}
	if (learns(&r->part) && r->at->replicas > 1)
		to[k++] = (struct room){ "sum", r->s, PLAN_WEIGHT_GRAD, w, 1, FOREVER };
	return k;
}

/* What a member of another stage has of stage t when it keeps that: it steps as its owner does. */
static uint32_t kept_rooms(const struct pipe *x, uint32_t t, const struct part *o, struct room *to)
{
	uint32_t k = state_rooms(x, t, o, to);

	if (learns(o)) {
		to[k++] = (struct room){ "sum", t, PLAN_WEIGHT_GRAD, part_bytes(o), 1, FOREVER };
		to[k++] = (struct room){ "skipped", t, PLAN_SCALAR, 8, 1, 1 };
	}
	return k;
}

static uint32_t rooms_of(const struct member *r, struct room *to)
{
	uint32_t more = least(r->stash + 1, r->n), two = least(2, r->n), k = lasting_rooms(r, to);

	to[k++] = (struct room){ "batch", FOREVER, PLAN_BATCH, batch_bytes(r), more, 1 };
	if (!r->first) {
		to[k++] = (struct room){ "a", r->s, PLAN_ACTIVATION, r->need.x, more, 1 };
		to[k++] = (struct room){ "g", r->s, PLAN_ACTIVATION_GRAD, r->need.x, two, 1 };
	}
	to[k++] = (struct room){ "a", r->s + 1, PLAN_ACTIVATION, r->last ? ALIGN(r->need.y) : r->need.y, r->last ?
		r->stash : two, 1 };
	to[k++] = (struct room){ "g", r->s + 1, PLAN_ACTIVATION_GRAD, r->last ? ALIGN(r->need.y) : r->need.y, r->last ? 1 :
		two, 1 };
	to[k++] = (struct room){ "kept", r->s, PLAN_ACTIVATION, ALIGN(r->need.saved), r->stash, 1 };
	to[k++] = (struct room){ "loss", FOREVER, PLAN_SCALAR, 8, two, 1 };
	to[k++] = (struct room){ "correct", FOREVER, PLAN_SCALAR, 8, 1, 1 };
	to[k++] = (struct room){ "unit", FOREVER, PLAN_SCALAR, 8, 1, 1 };
	to[k++] = (struct room){ "whole", FOREVER, PLAN_SCALAR, 8, 1, 1 };
	to[k++] = (struct room){ "skipped", FOREVER, PLAN_SCALAR, 8, 1, 1 };
	to[k++] = (struct room){ "digest", FOREVER, PLAN_SCALAR, 16, 1, 1 };
	return k;
}

static uint64_t sum_of(const struct room *room, uint32_t n)
{
	uint64_t bytes = 0;

	while (n-- > 0)
		bytes += room[n].bytes * room[n].depth;
	return bytes;
}

static uint64_t room_bytes(const struct member *r)
{
	struct room room[ROOMS];

	return sum_of(room, rooms_of(r, room));
}

/* What it keeps of other stages; each as large as its own while the cuts are not known. */
static uint64_t kept_bytes(const struct member *r)
{
	struct room room[ROOMS];
	uint64_t bytes = 0;

	for (uint32_t t = 0; t < r->x->n; t++)
		if (keeps(r->x, r->s, t)) {
			struct part part = r->x->cut ? stage_part(r->x, t) : r->part;

			bytes += sum_of(room, kept_rooms(r->x, t, &part, room));
		}
	return bytes;
}

uint64_t stage_holds(const struct pipe *x, uint32_t s, uint32_t a, uint32_t b, const struct piece_need *need)
{
	struct member r;

	seat_of(&r, x, s, a, b);
	r.need = *need;
	r.need.x = r.need.y = 0;
	return room_bytes(&r) + kept_bytes(&r) + r.part.stats + (need->work_fwd > need->work_bwd ? need->work_fwd :
		need->work_bwd);
}

uint64_t stage_passes(const struct pipe *x, uint32_t s, uint64_t bytes_x, uint64_t bytes_y)
{
	struct member with, without;

	seat_of(&with, x, s, 0, 0);
	without = with;
	with.need.x = bytes_x;
	with.need.y = bytes_y;
	return room_bytes(&with) - room_bytes(&without);
}

/* Of stage t, whose state every member has that is of it or keeps it. */
static void add(struct plan *p, const struct pipe *x, uint32_t t, const struct part *part, const struct room *o)
{
	bool whole = o->class == PLAN_WEIGHT || o->class == PLAN_WEIGHT_GRAD;
	char name[PLAN_NAME] = "";
	uint32_t id;

	if (o->number == FOREVER)
		(void)snprintf(name, sizeof(name), "%s", o->name);
	else
		(void)snprintf(name, sizeof(name), "%s%u", o->name, o->number);
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

static void kept_buffers(struct plan *p, const struct pipe *x, uint32_t s)
{
	struct room room[ROOMS];

	for (uint32_t t = 0; t < x->n; t++)
		if (keeps(x, s, t)) {
			struct part part = stage_part(x, t);
			uint32_t n = kept_rooms(x, t, &part, room);

			for (uint32_t k = 0; k < n; k++)
				add(p, x, t, &part, &room[k]);
		}
}

void stage_buffers(struct plan *p, const struct pipe *x, uint32_t rank)
{
	const struct stage *at = stage_of(x, rank);
	struct room room[ROOMS];
	struct member r;
	uint32_t n;

	member_of(&r, x, (uint32_t)(at - x->stage), at->a, at->b);
	n = rooms_of(&r, room);
	for (uint32_t k = 0; k < n; k++)
		add(p, x, r.s, &r.part, &room[k]);
	if (r.part.stats)
		plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT, .dtype = PLAN_F32, .bytes = r.part.stats,
			.per = FOREVER }, "stats");
	kept_buffers(p, x, r.s);
	plan_tier(p, "arena", x->v->member[rank].memory_bytes);
}

/* Who of a stage makes the micro-batch mb of the plan. */
static uint32_t who(const struct plan *p, const struct pipe *x, const struct stage *at, int64_t mb)
{
	return x->base + at->rank + (uint32_t)((p->first + (uint64_t)mb) % at->replicas);
}

static void forward(struct plan *p, const struct member *r, int64_t mb)
{
	const char *read = r->first ? r->last ? "" : "x" : r->last ? "labels" : "positions";
	struct plan_instr *i = plan_do(p, PLAN_LOAD, mb, "-> batch");
	char in[24] = "", w[16] = "";
	uint32_t s = r->s;

	memcpy(i->variant, read, strlen(read) + 1);
	if (!r->first) {
		plan_recv(p, mb, who(p, r->x, r->at - 1, mb), "a%u", s);
		(void)snprintf(in, sizeof(in), "a%u ", s);
	}
	if (learns(&r->part))
		(void)snprintf(w, sizeof(w), " w%u", s);
	i = plan_piece(plan_do(p, PLAN_FWD, mb, "%sbatch%s -> a%u save:kept%u", in, w, s + 1, s), r->at->a, r->at->b);
	i->keep = PLAN_KEEP_ALL;
	i->work_bytes = r->need.work_fwd;
	if (!r->last)
		plan_send(p, mb, who(p, r->x, r->at + 1, mb), "a%u!", s + 1);
}

/* Its samples count once, where their sum is the last to be complete. The loss is let go beside the train lane, which
 * must not wait until a neighbour has it. */
static void sum_up(struct plan *p, const struct member *r, int64_t mb)
{
	const char *batch = r->first ? "batch" : "batch!", *stats = r->part.stats ? " stats" : "";
	struct plan_instr *i;

	if (learns(&r->part)) {
		i = plan_vec(p, mb, "accumulate", "dw%u! %s loss%s -> acc%u+ unit", r->s, batch, stats, r->s);
		i->inplace = true;
		i->scale = r->x->v->profile->batch;
	}
	plan_do(p, PLAN_DROP, mb, "loss!%s", r->first || learns(&r->part) ? "" : " batch!");
	if (r->first)
		plan_do(p, PLAN_COMMIT, mb, "batch!")->priority = 1;
}

static void backward(struct plan *p, const struct member *r, int64_t mb)
{
	char in[24] = "", out[24] = "", w[16] = "", dw[16] = "";
	uint32_t s = r->s;

	if (r->last) {
		plan_vec(p, mb, "loss", "a%u! batch -> g%u loss correct", s + 1, s + 1)->inplace = true;
	} else {
		plan_recv(p, mb, who(p, r->x, r->at + 1, mb), "g%u", s + 1);
		plan_recv(p, mb, who(p, r->x, r->at + 1, mb), "loss");
	}
	if (!r->first) {
		(void)snprintf(in, sizeof(in), " a%u!", s);
		(void)snprintf(out, sizeof(out), " g%u", s);
	}
	if (learns(&r->part)) {
		(void)snprintf(w, sizeof(w), " w%u", s);
		(void)snprintf(dw, sizeof(dw), " dw%u", s);
	}
	plan_piece(plan_do(p, PLAN_BWD, mb, "save:kept%u! g%u!%s batch%s ->%s%s", s, s + 1, in, w, out, dw), r->at->a,
		r->at->b)->work_bytes = r->need.work_bwd;
	if (!r->first) {
		plan_send(p, mb, who(p, r->x, r->at - 1, mb), "g%u!", s);
		plan_send(p, mb, who(p, r->x, r->at - 1, mb), "loss");
	}
	sum_up(p, r, mb);
}

void stage_flush(struct plan *p, const struct pipe *x, uint32_t rank, uint32_t n)
{
	const struct stage *at = stage_of(x, rank);
	uint32_t every = at->replicas, from = (rank - x->base - at->rank + every - (uint32_t)(p->first % every)) % every;
	uint32_t own = n > from ? (n - from + every - 1) / every : 0;
	struct turns_at load = load_of(x, (uint32_t)(at - x->stage), own);
	struct turn *turn = xcalloc(2 * (size_t)own + 1, sizeof(*turn));
	struct member r;

	member_of(&r, x, (uint32_t)(at - x->stage), at->a, at->b);
	x->schedule->order(&load, turn);
	if (r.part.stats)            /* they go on from what the sum says: an abandoned flush leaves no trace */
		plan_vec(p, from, "tail", "%s%u -> stats", x->v->samples && !x->v->begun ? "acc" : "w", r.s);
	plan_section(p, PLAN_BODY);
	p->iterations = 1;
	p->step = n;
	for (uint32_t k = 0; k < 2 * own; k++)
		if (turn[k].back)
			backward(p, &r, from + (int64_t)turn[k].k * every);
		else
			forward(p, &r, from + (int64_t)turn[k].k * every);
	free(turn);
}
