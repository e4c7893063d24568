/* Buffers whose one value lies in memory of the owner, or counts as if it did: by name, for every program. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "exec/int.h"

const struct bound *bound_find(const struct exec *x, const char *name)
{
	list_each(it, &x->bounds) {
		const struct bound *b = list_entry(it, struct bound, link);
		size_t n = b->parts ? strlen(b->name) : 0;

		if (b->parts ? !strncmp(b->name, name, n) && name[n] == '.' : !strcmp(b->name, name))
			return b;
	}
	return NULL;
}

bool bound_value(const struct exec *x, const char *name)
{
	const struct bound *b = bound_find(x, name);

	return b && b->p;
}

void *bound_at(const struct bound *own, const struct plan_buf *b, size_t *ret_bytes)
{
	size_t at = own->parts && b->nextents && b->extent[0].kind == PLAN_FLAT ? b->extent[0].lo * sizeof(real) : 0;

	at = at < own->bytes ? at : own->bytes;
	*ret_bytes = own->bytes - at;
	return (char *)own->p + at;
}

void exec_bind(struct exec *x, const char *buffer, void *p, size_t bytes)
{
	struct bound *b = xcalloc(1, sizeof(*b));

	assert(!x->prog && strlen(buffer) < sizeof(b->name) && !bound_find(x, buffer));
	memcpy(b->name, buffer, strlen(buffer) + 1);
	b->p = p;
	b->bytes = bytes;
	list_push(&x->bounds, &b->link);
}

void exec_bind_parts(struct exec *x, const char *stem, void *p, size_t bytes)
{
	exec_bind(x, stem, p, bytes);
	list_entry(x->bounds.prev, struct bound, link)->parts = true;
}

void exec_count(struct exec *x, const char *buffer)
{
	exec_bind(x, buffer, NULL, 0);
}

void exec_unbind(struct exec *x)
{
	assert(!x->prog || x->dying);
	while (!list_empty(&x->bounds))
		free(list_entry(list_pop(&x->bounds), struct bound, link));
}

bool op_counts(const struct op *o)
{
	for (uint32_t k = 0; k < o->i->nout; k++)
		if (o->out && o->out[k] && bound_find(o->x, o->prog->plan.buf[o->i->out[k].buf].name))
			return true;
	return false;
}

bool binds_fit(const struct exec *x, const struct plan *p, struct err *e)
{
	for (uint32_t i = 0; i < p->nbufs; i++) {
		const struct plan_buf *b = &p->buf[i];
		const struct bound *own = bound_find(x, b->name);
		uint32_t values = plan_depth(b) * (p->streams && !b->shared ? p->streams : 1);
		size_t room;

		if (!own || !own->p)
			continue;
		if (plan_place(p, b) == PLAN_FILE) {
			(void)err_set(e, ERR_INVALID, "plan %s: buffer %s is to lie in tier %s, and lies in memory of its owner",
				p->strategy, b->name, p->tier[b->tier].name);
			return false;
		}
		if (values > 1) {
			(void)err_set(e, ERR_INVALID, "plan %s: buffer %s is to hold %u values, and lies in memory of its owner, "
				"which has room for one", p->strategy, b->name, values);
			return false;
		}
		(void)bound_at(own, b, &room);
		if (block_bytes(b) > room) {
			(void)err_set(e, ERR_INVALID, "plan %s: buffer %s needs %zu bytes, and lies in memory of its owner, which "
				"has %zu", p->strategy, b->name, block_bytes(b), room);
			return false;
		}
	}
	return true;
}
