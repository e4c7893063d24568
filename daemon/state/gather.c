/* Which file has which elements of which tensor, first; then every piece of the shard from those that have it. */
#include "state/gather.h"
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"

#define CLOCK_NAME "optimizer.clock"

struct source { const char *path; struct ckpt_head head; int fd; size_t clock_bytes; double clock[STATE_CLOCK_MAX]; };
struct found { const struct ckpt_tensor *t; struct source *in; uint64_t lo, n; };    /* of the whole tensor */

/* "NAME@LO": where NAME ends, and LO; 0 when the tensor is whole. */
static size_t name_end(const char *name, uint64_t *ret_lo)
{
	const char *at = strrchr(name, '@');

	*ret_lo = at ? strtoull(at + 1, NULL, 10) : 0;
	return at ? (size_t)(at - name) : strlen(name);
}

static bool same_name(const char *x, const char *y)
{
	uint64_t lo;
	size_t n = name_end(x, &lo);

	return name_end(y, &lo) == n && !memcmp(x, y, n);
}

static bool is_piece(const struct ckpt_tensor *t) { return strchr(t->name, '@') != NULL; }

static int fits(const struct shard *s, size_t k, const struct ckpt_tensor *t, struct err *e)
{
	const struct layout_tensor *whole = s->of[k];
	uint64_t lo;
	bool ok = t->dtype == s->tensor[k].dtype;

	(void)name_end(t->name, &lo);
	if (ok && is_piece(t))
		ok = lo <= whole->n && t->bytes / s->l->unit <= whole->n - lo;
	else if (ok)
		ok = t->ndim == (unsigned)whole->nd && !memcmp(t->shape, whole->shape, t->ndim * sizeof(*t->shape));
	return ok ? 0 : err_set(e, ERR_MISMATCH, "tensor %s has another type or shape than the model's", t->name);
}

/* --- files */

static int read_at(struct files *f, const struct source *in, const struct ckpt_tensor *t, uint64_t off, void *to,
	uint64_t bytes, struct err *e)
{
	int64_t got = f->pread(f, in->fd, to, bytes, in->head.data_at + t->at + off, e);

	if (got < 0)
		return err_wrap(e, "%s", in->path);
	return (uint64_t)got == bytes ? 0 : err_set(e, ERR_CORRUPT, "%s: tensor %s is cut short", in->path, t->name);
}

static int open_one(struct source *in, struct files *f, struct err *e)
{
	const struct ckpt_tensor *clock;

	in->fd = -1;
	if (ckpt_read(f, in->path, NULL, 0, NULL, e) < 0 || ckpt_head_read(&in->head, f, in->path, e) < 0)
		return -1;
	in->fd = f->open(f, in->path, O_RDONLY | O_CLOEXEC, 0, e);
	if (in->fd < 0)
		return err_wrap(e, "%s", in->path);
	clock = ckpt_find(&in->head, CLOCK_NAME);
	if (!clock || clock->bytes != in->clock_bytes)
		return err_set(e, ERR_MISMATCH, "%s has no clock of an optimizer%s", in->path, in->clock_bytes >
			STATE_CLOCK * sizeof(double) ? " with the scale of a loss" : "");
	return read_at(f, in, clock, 0, in->clock, in->clock_bytes, e);
}

/* The clock that counts the steps of what is gathered: of the first that has more of the state than a clock. A part
 * without parameters makes no steps. */
static const struct source *clock_of(const struct source *in, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (in[i].head.n > 1)
			return &in[i];
	return in;
}

static int open_all(struct source *in, size_t n, struct files *f, struct err *e)
{
	const struct source *one;

	for (size_t i = 0; i < n; i++)
		if (open_one(&in[i], f, e) < 0)
			return -1;
	one = clock_of(in, n);
	for (const struct source *x = one; x < in + n; x++)
		if (x->head.n > 1 && memcmp(x->clock, one->clock, x->clock_bytes))
			return err_set(e, ERR_MISMATCH, "%s is of step %.0f, and %s of step %.0f: not of one epoch", x->path,
				x->clock[0], one->path, one->clock[0]);
	return n ? 0 : err_set(e, ERR_NOT_FOUND, "no checkpoint");
}

/* --- pieces */

/* Of the wanted tensor whoever has its element `at`, counted in the whole; NULL: nobody. */
static const struct ckpt_tensor *who_has(struct source *in, size_t n, const struct shard *s,
	const struct ckpt_tensor *want, uint64_t at, struct found *ret)
{
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < in[i].head.n; k++) {
			const struct ckpt_tensor *t = &in[i].head.v[k];
			uint64_t lo, count = t->bytes / s->l->unit;

			if (!same_name(t->name, want->name))
				continue;
			(void)name_end(t->name, &lo);
			if (at < lo || at - lo >= count)
				continue;
			*ret = (struct found){ t, &in[i], lo, count };
			return t;
		}
	return NULL;
}

/* read false: only whether all is there and fits. */
static int take(struct shard *s, size_t k, struct source *in, size_t n, struct files *f, bool read, struct err *e)
{
	const struct ckpt_tensor *want = &s->tensor[k];
	uint64_t lo, unit = s->l->unit, end;
	struct found x;

	(void)name_end(want->name, &lo);
	end = lo + want->bytes / unit;
	for (uint64_t at = lo, upto; at < end; at = upto) {
		if (!who_has(in, n, s, want, at, &x))
			return err_set(e, ERR_NOT_FOUND, "tensor %.*s: of %zu checkpoints none has its element %" PRIu64 " (%s "
				"from %" PRIu64 " to %" PRIu64 " is needed)", (int)name_end(want->name, &lo), want->name, n, at,
				is_piece(want) ? "the piece" : "all", lo, end);
		upto = x.lo + x.n < end ? x.lo + x.n : end;
		if (fits(s, k, x.t, e) < 0)
			return err_wrap(e, "%s", x.in->path);
		if (read && read_at(f, x.in, x.t, (at - x.lo) * unit, (char *)want->data + (at - lo) * unit, (upto - at) * unit,
		    e) < 0)
			return -1;
	}
	return 0;
}

/* Of one shard: is all there, and does it fit? Or: it is read. */
static int take_all(struct shard *s, struct source *in, size_t n, struct files *f, bool read, struct err *e)
{
	for (size_t i = 0; i < s->ntensors; i++)
		if (s->of[i] && take(s, i, in, n, f, read, e) < 0)
			return -1;
	return 0;
}

int shard_gather(struct shard *s, uint32_t shards, struct files *f, const char *const *path, size_t n, struct err *e)
{
	struct source *in = xcalloc(n + 1, sizeof(*in));
	int rc;

	for (size_t i = 0; i < n; i++)
		in[i] = (struct source){ .path = path[i], .fd = -1, .clock_bytes = shard_clock_bytes(s) };
	rc = open_all(in, n, f, e);
	for (int read = 0; read < 2; read++)
		for (uint32_t k = 0; k < shards && rc == 0; k++)
			rc = take_all(&s[k], in, n, f, read, e);
	for (uint32_t k = 0; k < shards && rc == 0; k++)
		memcpy(shard_clock(&s[k]), clock_of(in, n)->clock, shard_clock_bytes(s));
	for (size_t i = 0; i < n; i++) {
		if (in[i].fd >= 0)
			f->close(f, in[i].fd, NULL);
		ckpt_head_done(&in[i].head);
	}
	free(in);
	return rc;
}
