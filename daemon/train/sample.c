/* The memory of a sample on its way through the steps, and what the way takes. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "train/step.h"

void meter_start(struct meter *m)
{
	if (m->f && m->f->ticks_ns)
		m->at = m->f->ticks_ns(m->f);
}

void meter_mark(struct meter *m, int stage, uint64_t n, uint64_t bytes)
{
	uint64_t now;

	if (!m)
		return;
	m->stage[stage].n += n;
	m->stage[stage].bytes += bytes;
	if (!m->f || !m->f->ticks_ns)
		return;
	now = m->f->ticks_ns(m->f);
	m->stage[stage].ns += now - m->at;
	m->at = now;
}

void *sample_room(struct sample *s, size_t bytes)
{
	int i = s->room[0] && s->p == s->room[0];

	if (s->cap[i] < bytes) {
		free(s->room[i]);
		s->room[i] = xmalloc(bytes);
		s->cap[i] = bytes;
	}
	return s->room[i];
}

void sample_reals(struct sample *s)
{
	const uint8_t *from = s->p;
	size_t n = sample_count(s);
	real *to;

	if (!s->bytes)
		return;
	to = sample_room(s, n * sizeof(*to));
	for (size_t i = 0; i < n; i++)
		to[i] = (real)from[i];
	s->p = to;
	s->bytes = false;
}

uint8_t *sample_file(struct sample *s, size_t bytes)
{
	if (s->file_cap < bytes) {
		free(s->file);
		s->file = xmalloc(bytes);
		s->file_cap = bytes;
	}
	return s->file;
}

void sample_whole(struct sample *s)
{
	s->full_h = s->h;
	s->full_w = s->w;
	s->top = s->left = 0;
}

void sample_cut(struct sample *s, const struct window *v)
{
	size_t unit = sample_unit(s), row = v->w * unit, stride = s->w * unit;
	const char *from = (const char *)s->p + (v->y - s->top) * stride + (v->x - s->left) * unit;
	char *to;

	if (v->h == s->h && v->w == s->w) {
		sample_whole(s);
		return;
	}
	to = sample_room(s, s->c * v->h * row);
	s->p = to;
	for (size_t c = 0; c < s->c; c++, from += s->h * stride)
		for (size_t r = 0; r < v->h; r++, to += row)
			memcpy(to, from + r * stride, row);
	s->h = v->h;
	s->w = v->w;
	sample_whole(s);
}
