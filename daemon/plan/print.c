/* A plan for a person: three tables. */
#include <string.h>
#include "common/text.h"
#include "plan/refs.h"

static void target(const struct plan *p, const struct plan_instr *i, struct buf *out)
{
	const char *group = i->group < p->ngroups ? p->group[i->group].name : "?";
	switch (i->with) {
	case PLAN_ALONE: break;
	case PLAN_PEER: buf_printf(out, i->kind == PLAN_RECV ? " from %u" : " to %u", i->peer); break;
	case PLAN_IN_GROUP: buf_printf(out, " in %s", group); break;
	case PLAN_ANY:
		buf_printf(out, " from any %u..%u of %s", i->quorum, i->most, group);
		if (i->within_us > 0)
			buf_printf(out, " within %lluus", (unsigned long long)i->within_us);
		if (i->unique)
			buf_printf(out, " first-per-key");
		break;
	case PLAN_REPLY: buf_printf(out, " to sender"); break;
	}
}

static void options(const struct plan *p, const struct plan_instr *i, struct buf *out)
{
	static const char *const missing[] = { "", " else-without", " else-newest" };
	static const char *const scope[] = { " self", " shard", " group" };
	static const char *const keep[] = { " keep-none", "", " keep-all" };
	if (i->kind == PLAN_FWD && !i->replay)
		buf_printf(out, "%s", keep[i->keep]);
	if (i->replay)
		buf_printf(out, " replay");
	if (i->variant[0])
		buf_printf(out, " %s", i->variant);
	if (i->kind == PLAN_COMMIT)
		buf_printf(out, "%s", scope[i->scope]);
	if (i->every > 0)
		buf_printf(out, " when %u%%%u", i->at, i->every);
	if (i->stream_hi > 0)
		buf_printf(out, " streams %u..%u", i->stream_lo, i->stream_hi - 1);
	if (i->priority != 0)
		buf_printf(out, " priority %d", i->priority);
	if (i->deadline_us > 0)
		buf_printf(out, " deadline %lluus", (unsigned long long)i->deadline_us);
	buf_printf(out, "%s", missing[i->on_missing]);
	if (i->work_bytes > 0)
		buf_printf(out, " scratch %llu", (unsigned long long)i->work_bytes);
	if (i->inplace)
		buf_printf(out, " in place");
	if (i->scale != 0)
		buf_printf(out, " scale %g", i->scale);
}

void plan_print_instr(const struct plan *p, const struct plan_instr *i, struct buf *out)
{
	/* the optimizer is a VEC; people look for OPT */
	if (i->kind == PLAN_VEC)
		buf_printf(out, "%s", strcmp(i->fn, "opt") == 0 ? "OPT" : "VEC ");
	else
		buf_printf(out, "%s", plan_kind_name(i->kind));
	if (i->fn[0] && strcmp(i->fn, "opt") != 0)
		buf_printf(out, i->kind == PLAN_VEC ? "%s" : " %s", i->fn);
	for (uint32_t k = 0; k < i->npiece; k++) {
		buf_printf(out, k > 0 ? "," : " ");
		buf_printf(out, i->piece[k].a == i->piece[k].b ? "%u" : "%u..%u", i->piece[k].a, i->piece[k].b);
	}
	if (i->mb != 0)
		buf_printf(out, " @%lld", (long long)i->mb);
	buf_printf(out, ":");
	for (uint32_t k = 0; k < i->nin; k++) {
		buf_printf(out, " ");
		refs_print(p, &i->in[k], false, out);
	}
	if (i->nout > 0)
		buf_printf(out, i->nin > 0 ? " ->" : "");
	for (uint32_t k = 0; k < i->nout; k++) {
		buf_printf(out, " ");
		refs_print(p, &i->out[k], true, out);
	}
	target(p, i, out);
	options(p, i, out);
}

static void print_buf(const struct plan *p, const struct plan_buf *b, struct buf *out)
{
	char size[32];
	buf_printf(out, "  %-20s %-16s %10s%s x%u %s", b->name, plan_class_name(b->class),
		text_print_size(b->bytes, size, sizeof size), b->bounded ? " at most" : "", plan_depth(b),
		p->tier[b->tier].name);
	if (b->per > 1)
		buf_printf(out, " per %u", b->per);
	if (b->slot > 0)
		buf_printf(out, " slot %u", b->slot);
	buf_printf(out, "%s%s%s", b->initial ? " initial" : "", b->shared ? " shared" : "", b->journal ? " journal" : "");
	if (b->offset >= 0)
		buf_printf(out, " at %lld", (long long)b->offset);
	for (uint32_t k = 0; k < b->nextents; k++)
		buf_printf(out, " %s[%llu:%llu]", b->extent[k].kind == PLAN_GRAPH_OP ? "op" :
			b->extent[k].name[0] ? b->extent[k].name : "flat",
			(unsigned long long)b->extent[k].lo, (unsigned long long)b->extent[k].hi);
	for (uint32_t k = 0; k < b->nholders; k++)
		buf_printf(out, "%s%u", k > 0 ? "," : " holders ", b->holder[k]);
	buf_printf(out, "\n");
}

static void print_group(const struct plan_group *g, struct buf *out)
{
	static const char *const op[] = { "sum", "max", "mean" };
	buf_printf(out, "  %-20s %s %s %s of", g->name, g->elastic ? "elastic" : "ordered", g->strict ? "strict" :
		"weighted",
		op[g->op]);
	for (uint32_t k = 0; k < g->n; k++)
		buf_printf(out, g->member[k].slot > 0 ? " %u.%u" : " %u", g->member[k].peer, g->member[k].slot);
	buf_printf(out, "\n");
}

void plan_print(const struct plan *p, struct buf *out)
{
	static const char *const title[] = { "prologue", "body", "epilogue" };
	char digest[65];
	uint8_t d[32];
	plan_digest(p, d);
	id_hex((const struct id *)d, digest);
	buf_printf(out, "plan %s, peer %u of %u, generation %llu, from index %llu, digest %.16s\n", p->strategy, p->me,
		p->nmembers, (unsigned long long)p->generation, (unsigned long long)p->first, digest);
	buf_printf(out, "buffers\n");
	for (uint32_t i = 0; i < p->nbufs; i++)
		print_buf(p, &p->buf[i], out);
	if (p->ngroups > 0)
		buf_printf(out, "groups\n");
	for (uint32_t i = 0; i < p->ngroups; i++)
		print_group(&p->group[i], out);
	for (uint32_t i = 0; i < p->ninstrs; i++) {
		const struct plan_instr *x = &p->instr[i];
		if (i == 0 || x->section != p->instr[i - 1].section) {
			buf_printf(out, "%s", title[x->section]);
			if (x->section == PLAN_BODY)
				buf_printf(out, " %llu times, step %u", (unsigned long long)p->iterations, p->step);
			buf_printf(out, "\n");
		}
		buf_printf(out, "  %-6s ", p->lane[x->lane].name);
		plan_print_instr(p, x, out);
		buf_printf(out, "\n");
	}
}
