/* MOVE and SAVE: values between memory and the file of tier file, and to files that stay. A failure of the disk is the
 * instruction's (op.io), who runs the plan decides. */
#include <string.h>
#include "exec/int.h"

#define CHUNK 65536                     /* of what is in a file and goes to a file; on the lane's stack */

static size_t bytes_of(const struct op *o, const struct plan_ref *r)
{
	return o->prog->plan.buf[r->buf].bytes;
}

static int file_to_file(const struct op *o, const struct block *to, const struct block *from, size_t bytes,
	struct err *e)
{
	uint8_t part[CHUNK];

	for (size_t at = 0; at < bytes; at += CHUNK) {
		size_t n = bytes - at < CHUNK ? bytes - at : CHUNK;

		if (spill_read(o->spill, o->fd, part, n, from->at + at, e) < 0 ||
		    spill_write(o->spill, o->fd, part, n, to->at + at, e) < 0)
			return -1;
	}
	return 0;
}

int block_copy(const struct op *o, struct block *to, const struct block *from, size_t bytes, struct err *e)
{
	if (to->filed && from->filed)
		return from->holds ? file_to_file(o, to, from, bytes, e) : 0;
	if (to->filed)
		return spill_write(o->spill, o->fd, from->p, bytes, to->at, e);
	if (from->filed && from->holds)
		return spill_read(o->spill, o->fd, to->p, bytes, from->at, e);
	if (from->filed)
		memset(to->p, 0, bytes);
	else
		memcpy(to->p, from->p, bytes);
	return 0;
}

void block_copied(struct block *to, const struct block *from)
{
	to->holds = !from->filed || from->holds;
}

static int open_first(struct op *o)
{
	if (o->opens)
		o->fd = spill_open(o->spill, &o->io);
	return o->opens && o->fd < 0 ? -1 : 0;
}

static void run_move(struct job *j)
{
	struct op *o = container_of(j, struct op, job);

	o->rc = open_first(o);
	for (uint32_t k = 0; k < o->i->nin && !o->rc; k++)
		o->rc = block_copy(o, o->out[k], o->in[k], bytes_of(o, &o->i->in[k]), &o->io);
}

static int save_one(const struct op *o, struct spill_out *to, const struct block *b, size_t bytes, struct err *e)
{
	uint8_t part[CHUNK];

	if (!b->filed)
		return spill_out_put(to, b->p, bytes, e);
	memset(part, 0, sizeof(part));
	for (size_t at = 0; at < bytes; at += CHUNK) {
		size_t n = bytes - at < CHUNK ? bytes - at : CHUNK;

		if ((b->holds && spill_read(o->spill, o->fd, part, n, b->at + at, e) < 0) ||
		    spill_out_put(to, part, n, e) < 0)
			return -1;
	}
	return 0;
}

static void run_save(struct job *j)
{
	struct op *o = container_of(j, struct op, job);
	struct spill_out to;

	o->rc = spill_out_open(&to, o->spill, o->i->fn, &o->io);
	for (uint32_t k = 0; k < o->i->nin && !o->rc; k++)
		o->rc = save_one(o, &to, o->in[k], bytes_of(o, &o->i->in[k]), &o->io);
	o->rc = spill_out_close(&to, o->rc, &o->io);
}

/* Does it need the file, and is somebody else about to open it? */
bool move_must_wait(const struct op *o)
{
	const struct plan *p = &o->prog->plan;

	if (!o->x->spill || o->i->kind != PLAN_MOVE || !spill_opening(o->x->spill))
		return false;
	for (uint32_t k = 0; k < o->i->nout; k++)
		if (plan_place(p, &p->buf[o->i->in[k].buf]) == PLAN_FILE ||
		    plan_place(p, &p->buf[o->i->out[k].buf]) == PLAN_FILE)
			return true;
	return false;
}

void move_prepare(struct op *o)
{
	struct exec *x = o->x;
	bool writes = false;

	o->spill = x->spill;
	o->fd = x->spill ? spill_fd(x->spill) : -1;
	o->job.run = o->i->kind == PLAN_SAVE ? run_save : run_move;
	for (uint32_t k = 0; k < o->i->nout; k++)
		writes = writes || o->out[k]->filed;
	if (!writes || o->fd >= 0)
		return;
	o->opens = true;
	spill_begin(x->spill);
}

void move_done(struct op *o)
{
	if (o->opens)
		spill_opened(o->x->spill, o->fd);
	for (uint32_t k = 0; k < o->i->nout && o->job.run == run_move && !o->rc; k++)
		block_copied(o->out[k], o->in[k]);
	if (!o->io.code)
		return;
	(void)err_wrap(&o->io, "plan %s: %s of index %lld", o->prog->plan.strategy, plan_kind_name(o->i->kind),
		(long long)o->index);
}
