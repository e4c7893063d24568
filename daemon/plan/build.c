/* Building a plan's tables: what planners call, so that a planner is thirty lines. */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/map.h"
#include "common/mem.h"
#include "plan/refs.h"

static void name_set(char *to, const char *s)
{
	size_t n = strlen(s);
	assert(refs_name_ok(s, n));
	memcpy(to, s, n + 1);
}

void plan_init(struct plan *p, const char *strategy, uint32_t me, uint32_t nmembers, const struct id *member)
{
	assert(nmembers > 0 && nmembers <= PLAN_MEMBERS_MAX && me < nmembers);
	*p = (struct plan){ .me = me, .nmembers = nmembers, .redundancy = 1, .streams = 1, .iterations = 0, .step = 1 };
	name_set(p->strategy, strategy);
	p->member = xmemdup(member, nmembers * sizeof *member);
	plan_tier(p, "arena", 0);
	plan_tier(p, "host", 0);
	plan_tier(p, "file", 0);
	plan_lane(p, "train", 1, 1);
	plan_lane(p, "data", 2, 4);
	plan_lane(p, "net", 0, 64);
	plan_lane(p, "copy", 1, 4);
	plan_lane(p, "disk", 1, 2);
	plan_lane(p, "loop", 0, 16);
}

static void instr_free(struct plan_instr *i)
{
	free(i->piece);
	free(i->in);
	free(i->out);
}

void plan_free(struct plan *p)
{
	for (uint32_t i = 0; i < p->nbufs; i++) {
		free(p->buf[i].extent);
		free(p->buf[i].holder);
	}
	for (uint32_t i = 0; i < p->ngroups; i++)
		free(p->group[i].member);
	for (uint32_t i = 0; i < p->ninstrs; i++)
		instr_free(&p->instr[i]);
	free(p->buf);
	free(p->group);
	free(p->instr);
	free(p->lane);
	free(p->tier);
	free(p->member);
	map_free(p->index);
	*p = (struct plan){0};
}

uint32_t plan_lane(struct plan *p, const char *name, uint32_t width, uint32_t window)
{
	uint32_t k = plan_find_lane(p, name);
	if (k == PLAN_NONE) {
		assert(p->nlanes < PLAN_LANES_MAX);
		k = p->nlanes++;
		p->lane = xrealloc(p->lane, p->nlanes * sizeof *p->lane);
		p->lane[k] = (struct plan_lane){0};
		name_set(p->lane[k].name, name);
	}
	p->lane[k].width = width;
	p->lane[k].window = window > 0 ? window : 1;
	return k;
}

uint32_t plan_tier(struct plan *p, const char *name, uint64_t budget)
{
	uint32_t k = 0;
	while (k < p->ntiers && strcmp(p->tier[k].name, name) != 0)
		k++;
	if (k == p->ntiers) {
		assert(p->ntiers < PLAN_TIERS_MAX);
		p->tier = xrealloc(p->tier, ++p->ntiers * sizeof *p->tier);
		p->tier[k] = (struct plan_tier){0};
		name_set(p->tier[k].name, name);
	}
	p->tier[k].budget = budget;
	return k;
}

static void index_all(struct plan *p)
{
	p->index = map_new(0x706c616e);
	for (uint32_t i = 0; i < p->nbufs; i++)
		map_put(p->index, p->buf[i].name, strlen(p->buf[i].name), (void *)(uintptr_t)(i + 1));
}

uint32_t plan_buf(struct plan *p, const struct plan_buf *b, const char *fmt, ...)
{
	struct plan_buf x = *b;
	assert(p->nbufs < PLAN_BUFS_MAX);
	if (fmt) {
		va_list ap;
		va_start(ap, fmt);
		int n = vsnprintf(x.name, sizeof x.name, fmt, ap);
		va_end(ap);
		assert(n > 0 && n < PLAN_NAME);
	}
	assert(refs_name_ok(x.name, strlen(x.name)) && plan_find(p, x.name) == PLAN_NONE);
	assert(x.tier < p->ntiers && x.depth <= PLAN_DEPTH_MAX);
	x.depth = x.depth > 0 ? x.depth : 1;
	x.per = x.per > 0 ? x.per : 1;
	x.extent = NULL;
	x.nextents = 0;
	x.holder = NULL;
	x.nholders = 0;
	x.offset = x.offset > 0 ? x.offset : -1;
	if (p->nbufs == p->cbufs) {
		p->cbufs = p->cbufs > 0 ? p->cbufs * 2 : 16;
		p->buf = xrealloc(p->buf, p->cbufs * sizeof *p->buf);
	}
	p->buf[p->nbufs++] = x;
	if (p->index)
		map_put(p->index, x.name, strlen(x.name), (void *)(uintptr_t)p->nbufs);
	else if (p->nbufs == 32)
		index_all(p);
	return p->nbufs - 1;
}

void plan_extent(struct plan *p, uint32_t buf, enum plan_extent_kind kind, const char *name, uint64_t lo, uint64_t hi)
{
	assert(buf < p->nbufs && lo <= hi);
	struct plan_buf *b = &p->buf[buf];
	b->extent = xrealloc(b->extent, (b->nextents + 1) * sizeof *b->extent);
	struct plan_extent *x = &b->extent[b->nextents++];
	*x = (struct plan_extent){ .kind = kind, .lo = lo, .hi = hi };
	if (name && name[0])
		name_set(x->name, name);
}

void plan_holder(struct plan *p, uint32_t buf, uint32_t rank)
{
	assert(buf < p->nbufs && rank < p->nmembers);
	struct plan_buf *b = &p->buf[buf];
	b->holder = xrealloc(b->holder, (b->nholders + 1) * sizeof *b->holder);
	b->holder[b->nholders++] = rank;
}

uint32_t plan_group(struct plan *p, const char *name, enum plan_op op, bool strict, bool elastic)
{
	assert(plan_find_group(p, name) == PLAN_NONE && !(strict && elastic));
	p->group = xrealloc(p->group, (p->ngroups + 1) * sizeof *p->group);
	struct plan_group *g = &p->group[p->ngroups];
	*g = (struct plan_group){ .op = op, .strict = strict, .elastic = elastic };
	name_set(g->name, name);
	return p->ngroups++;
}

void plan_join(struct plan *p, uint32_t group, uint32_t peer, uint32_t slot)
{
	assert(group < p->ngroups && peer < p->nmembers);
	struct plan_group *g = &p->group[group];
	assert(g->n < PLAN_MEMBERS_MAX);
	g->member = xrealloc(g->member, (g->n + 1) * sizeof *g->member);
	g->member[g->n++] = (struct plan_member){ peer, slot };
}

void plan_section(struct plan *p, enum plan_section s)
{
	assert(s >= p->building && s < PLAN_SECTIONS_COUNT);
	p->building = s;
}

static const char *lane_of(enum plan_kind k)
{
	switch (k) {
	case PLAN_LOAD: return "data";
	case PLAN_MOVE: return "copy";
	case PLAN_SAVE: return "disk";
	case PLAN_DROP: case PLAN_COMMIT: return "loop";
	case PLAN_FWD: case PLAN_BWD: case PLAN_VEC: return "train";
	default: return "net";
	}
}

static struct plan_instr *add(struct plan *p, enum plan_kind kind, int64_t mb, const char *fmt, va_list ap)
{
	char text[4096];
	struct err e = {0};
	assert(p->ninstrs < PLAN_INSTRS_MAX);
	if (p->ninstrs == p->cinstrs) {
		p->cinstrs = p->cinstrs > 0 ? p->cinstrs * 2 : 16;
		p->instr = xrealloc(p->instr, p->cinstrs * sizeof *p->instr);
	}
	struct plan_instr *i = &p->instr[p->ninstrs++];
	*i = (struct plan_instr){ .kind = kind, .section = p->building, .mb = mb, .peer = PLAN_NONE, .group = PLAN_NONE };
	i->lane = plan_find_lane(p, lane_of(kind));
	assert(i->lane != PLAN_NONE);
	int n = vsnprintf(text, sizeof text, fmt, ap);
	assert(n >= 0 && n < (int)sizeof text);
	if (refs_parse_all(p, text, i, &e) < 0) {
		fprintf(stderr, "planner %s: %s\n", p->strategy, e.text);
		assert(!"a planner wrote a reference that is none");
	}
	return i;
}

#define ADD(kind, mb) \
	va_list ap; \
	va_start(ap, refs); \
	struct plan_instr *i = add(p, kind, mb, refs, ap); \
	va_end(ap)

struct plan_instr *plan_do(struct plan *p, enum plan_kind kind, int64_t mb, const char *refs, ...)
{
	ADD(kind, mb);
	return i;
}

struct plan_instr *plan_vec(struct plan *p, int64_t mb, const char *fn, const char *refs, ...)
{
	ADD(PLAN_VEC, mb);
	name_set(i->fn, fn);
	return i;
}

static struct plan_instr *transfer(struct plan *p, struct plan_instr *i, uint32_t peer)
{
	assert(peer < p->nmembers);
	i->with = PLAN_PEER;
	i->peer = peer;
	return i;
}

struct plan_instr *plan_send(struct plan *p, int64_t mb, uint32_t peer, const char *refs, ...)
{
	ADD(PLAN_SEND, mb);
	return transfer(p, i, peer);
}

struct plan_instr *plan_recv(struct plan *p, int64_t mb, uint32_t peer, const char *refs, ...)
{
	ADD(PLAN_RECV, mb);
	/* "a3" alone means what arrives, an output */
	if (i->nout == 0) {
		i->out = i->in;
		i->nout = i->nin;
		i->in = NULL;
		i->nin = 0;
	}
	return transfer(p, i, peer);
}

struct plan_instr *plan_coll(struct plan *p, enum plan_kind kind, int64_t mb, uint32_t group, const char *refs, ...)
{
	assert(group < p->ngroups);
	ADD(kind, mb);
	i->with = PLAN_IN_GROUP;
	i->group = group;
	return i;
}

struct plan_instr *plan_piece(struct plan_instr *i, uint32_t a, uint32_t b)
{
	assert(a <= b);
	i->piece = xrealloc(i->piece, (i->npiece + 1) * sizeof *i->piece);
	i->piece[i->npiece++] = (struct plan_range){ a, b };
	return i;
}

struct plan_instr *plan_streams(struct plan_instr *i, uint32_t lo, uint32_t hi)
{
	assert(lo < hi);
	i->stream_lo = lo;
	i->stream_hi = hi;
	return i;
}

struct plan_instr *plan_when(struct plan_instr *i, uint32_t every, uint32_t at)
{
	assert(every == 0 || at < every);
	i->every = every;
	i->at = at;
	return i;
}
