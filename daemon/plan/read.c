/* Reading a plan's tables: names, keys, indexes. */
#include <string.h>
#include "common/map.h"
#include "common/text.h"
#include "plan/planner.h"

const char *plan_kind_name(enum plan_kind k)
{
	static const char *const name[] = {
#define X(n, net) #n,
		PLAN_KINDS(X)
#undef X
	};
	return (unsigned)k < PLAN_KINDS_COUNT ? name[k] : "?";
}

bool plan_leaves(enum plan_kind k)
{
	static const bool net[] = {
#define X(n, leaves) leaves,
		PLAN_KINDS(X)
#undef X
	};
	return (unsigned)k < PLAN_KINDS_COUNT && net[k];
}

const char *plan_class_name(enum plan_class c)
{
	static const char *const name[] = {
#define X(n, text) text,
		PLAN_CLASSES(X)
#undef X
	};
	return (unsigned)c < PLAN_CLASSES_COUNT ? name[c] : "?";
}

/* A few names are searched from the end, where they were made last; many have an index. */
uint32_t plan_find(const struct plan *p, const char *buf)
{
	if (p->index)
		return (uint32_t)(uintptr_t)map_get(p->index, buf, strlen(buf)) - 1;
	for (uint32_t i = p->nbufs; i-- > 0;)
		if (strcmp(p->buf[i].name, buf) == 0)
			return i;
	return PLAN_NONE;
}

uint32_t plan_find_group(const struct plan *p, const char *name)
{
	for (uint32_t i = 0; i < p->ngroups; i++)
		if (strcmp(p->group[i].name, name) == 0)
			return i;
	return PLAN_NONE;
}

uint32_t plan_find_lane(const struct plan *p, const char *name)
{
	for (uint32_t i = 0; i < p->nlanes; i++)
		if (strcmp(p->lane[i].name, name) == 0)
			return i;
	return PLAN_NONE;
}

uint32_t plan_depth(const struct plan_buf *b)
{
	return b->depth > 0 ? b->depth : 1;
}

int64_t plan_key(const struct plan *p, const struct plan_buf *b, int64_t index)
{
	int64_t per = b->per > 0 ? b->per : 1;
	return index >= 0 ? index / per : -((-index + per - 1) / per);
}

int64_t plan_index(const struct plan *p, const struct plan_instr *i, uint64_t iteration)
{
	uint64_t step = p->step > 0 ? p->step : 1, at = p->first;
	if (i->section == PLAN_BODY)
		at += iteration * step;
	else if (i->section == PLAN_EPILOGUE)
		at += p->iterations * step;
	return (int64_t)at + i->mb;
}

bool plan_due(const struct plan_instr *i, int64_t index)
{
	if (i->every == 0)
		return true;
	int64_t m = index % i->every;
	return (m < 0 ? m + i->every : m) == i->at;
}

bool plan_in_stream(const struct plan_instr *i, uint32_t stream)
{
	return i->stream_hi == 0 || (stream >= i->stream_lo && stream < i->stream_hi);
}

bool plan_is_state(const struct plan_buf *b)
{
	return b->initial && (b->class == PLAN_WEIGHT || b->class == PLAN_OPTIMIZER);
}

bool plan_lent(const struct plan *p, const struct plan_instr *i)
{
	return i->kind == PLAN_SUM && p->group[i->group].elastic && i->on_missing == PLAN_FAIL && i->nout == 1 &&
		(!i->nin || i->in[0].buf != i->out[0].buf);
}

bool plan_writes_state(const struct plan *p, const struct plan_instr *i)
{
	for (uint32_t k = 0; k < i->nout; k++)
		if (plan_is_state(&p->buf[i->out[k].buf]))
			return true;
	return false;
}

const char *plan_label(const struct plan *p, const struct plan_instr *i)
{
	bool makes = i->kind == PLAN_RECV || i->kind == PLAN_GATHER || i->kind == PLAN_ALLTOALL;
	if (!plan_leaves(i->kind) || i->nin + i->nout == 0)
		return NULL;
	return p->buf[i->nout > 0 && (makes || i->nin == 0) ? i->out[0].buf : i->in[0].buf].name;
}

static const char *wrong_refs(const struct plan *p, const struct plan_instr *i)
{
	for (uint32_t k = 0; k < i->nin; k++) {
		const struct plan_ref *r = &i->in[k];
		if (r->age == PLAN_SAME && ((uint32_t)r->k >= i->nin || i->in[r->k].age != PLAN_EXACT ||
			p->buf[i->in[r->k].buf].shared))
			return "~i names an input of an exact age in a buffer of this stream";
		if (p->buf[r->buf].shared && r->age == PLAN_EXACT)
			return "a shared buffer is read as <=* or ~i";
		if (r->drop && (r->age != PLAN_EXACT || p->buf[r->buf].shared))
			return "only an exact value of this stream can be dropped";
		for (uint32_t j = 0; j < k; j++)
			if (r->drop && i->in[j].drop && i->in[j].buf == r->buf && i->in[j].k == r->k)
				return "a value is dropped twice";
	}
	for (uint32_t k = 0; k < i->nout; k++)
		for (uint32_t j = 0; j < k; j++)
			if (i->out[j].buf == i->out[k].buf)
				return "an instruction writes a buffer once";
	return NULL;
}

static bool may_be_in_place(const struct plan *p, const struct plan_instr *i)
{
	if (i->kind != PLAN_VEC || !i->nin || !i->nout || !i->in[0].drop || i->in[0].age != PLAN_EXACT)
		return false;
	const struct plan_buf *from = &p->buf[i->in[0].buf], *to = &p->buf[i->out[0].buf];
	return from != to && from->bytes == to->bytes && from->tier == to->tier && !from->shared && !to->shared &&
		!from->journal && !to->journal;
}

/* What comes is written over the value that would stand for it. */
static bool keeps_nothing(const struct plan *p, const struct plan_instr *i)
{
	if (!plan_leaves(i->kind) || i->on_missing == PLAN_FAIL)
		return false;
	if (i->with == PLAN_IN_GROUP && p->group[i->group].elastic)
		return false;
	for (uint32_t k = 0; k < i->nout; k++) {
		const struct plan_buf *b = &p->buf[i->out[k].buf];
		if ((i->on_missing == PLAN_USE_NEWEST || b->initial) && plan_depth(b) < 2)
			return true;
	}
	return false;
}

enum plan_place plan_place(const struct plan *p, const struct plan_buf *b)
{
	const char *name = p->tier[b->tier].name;
	return b->tier == 0 ? PLAN_ARENA : strcmp(name, "host") == 0 ? PLAN_HOST : strcmp(name, "file") == 0 ? PLAN_FILE :
		PLAN_ELSEWHERE;
}

bool plan_lives_on(const struct plan *p, const struct plan_buf *o, const struct plan *q, const struct plan_buf *b)
{
	return b->bytes == o->bytes && plan_depth(b) == plan_depth(o) && b->shared == o->shared &&
		(plan_place(p, o) == PLAN_FILE) == (plan_place(q, b) == PLAN_FILE);
}

static const char *wrong_move(const struct plan *p, const struct plan_instr *i)
{
	if (i->nin == 0 || i->nin != i->nout)
		return "MOVE has an output for each of its inputs, one at least";
	for (uint32_t k = 0; k < i->nin; k++) {
		if (i->out[k].add)
			return "MOVE writes over its output and adds nothing";
		if (p->buf[i->out[k].buf].bytes < p->buf[i->in[k].buf].bytes)
			return "MOVE needs as much room in its output as its input has bytes";
	}
	return NULL;
}

const char *plan_place_wrong(const struct plan *p, const struct plan_instr *i)
{
	static const char *const lane[] = { "disk", "copy", "copy-in", "copy-out" };
	uint32_t l = 0, most = i->kind == PLAN_SAVE ? 1 : 4;
	bool file = i->kind == PLAN_SAVE;
	for (uint32_t k = 0; k < i->nin; k++)
		file = file || plan_place(p, &p->buf[i->in[k].buf]) == PLAN_FILE;
	for (uint32_t k = 0; k < i->nout; k++)
		file = file || plan_place(p, &p->buf[i->out[k].buf]) == PLAN_FILE;
	if (file && i->kind != PLAN_MOVE && i->kind != PLAN_DROP && i->kind != PLAN_SAVE)
		return "only MOVE, DROP and SAVE touch a buffer of tier file";
	while (l < most && strcmp(p->lane[i->lane].name, lane[l]) != 0)
		l++;
	if (i->kind == PLAN_SAVE && l == most)
		return "SAVE runs in lane disk";
	if (file && i->kind == PLAN_MOVE && l == most)
		return "MOVE from or to tier file runs in lane copy, copy-in, copy-out or disk";
	if (i->kind == PLAN_SAVE && (i->nin == 0 || i->nout > 0))
		return "SAVE has inputs and no output";
	/* a name in a folder, and not one of the executor's own, which begin with a point */
	if (i->kind == PLAN_SAVE && !text_name_ok(i->fn))
		return "SAVE needs the name of its file (fn): letters, digits, _ - and . but not first";
	return i->kind == PLAN_MOVE ? wrong_move(p, i) : NULL;
}

const char *plan_instr_wrong(const struct plan *p, const struct plan_instr *i)
{
	if (plan_leaves(i->kind) && i->with == PLAN_ALONE)
		return "an instruction that leaves this peer needs a peer or a group";
	if (!plan_leaves(i->kind) && i->with != PLAN_ALONE)
		return "an instruction that stays on this peer has neither peer nor group";
	if (i->with == PLAN_ANY && i->kind != PLAN_RECV)
		return "only RECV takes from any";
	if (i->with == PLAN_REPLY && i->kind != PLAN_SEND)
		return "only SEND answers";
	bool pair = i->kind == PLAN_SEND || i->kind == PLAN_RECV;
	if (i->with == PLAN_PEER && !pair)
		return "a collective needs a group";
	if (i->with == PLAN_IN_GROUP && pair)
		return "SEND and RECV need one peer";
	if (i->kind == PLAN_SEND && i->nin == 0)
		return "SEND needs an input";
	if (i->kind == PLAN_RECV && i->nout == 0)
		return "RECV needs an output";
	if (i->with == PLAN_IN_GROUP && i->nin + i->nout == 0)
		return "a collective needs a buffer";
	if (i->kind == PLAN_DROP)
		for (uint32_t k = 0; k < i->nin; k++)
			if (i->in[k].age != PLAN_EXACT || p->buf[i->in[k].buf].shared)
				return "only an exact value of this stream can be dropped";
	if (keeps_nothing(p, i))
		return "when nothing comes the newest value stays, and needs a place of its own: a ring of two at least";
	if (i->inplace && !may_be_in_place(p, i))
		return "in place: VEC drops its first input, an exact value with the bytes, the tier and the stream of its "
			"first output";
	const char *wrong = plan_place_wrong(p, i);
	return wrong ? wrong : wrong_refs(p, i);
}

double plan_result(const struct plan_results *r, const char *name, double otherwise)
{
	for (uint32_t i = r ? r->n : 0; i-- > 0;)
		if (strcmp(r->v[i].name, name) == 0)
			return r->v[i].value;
	return otherwise;
}
