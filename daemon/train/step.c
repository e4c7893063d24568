/* The registry of steps, and the memory of a sample on its way through them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "train/step.h"

#define STEP(x) extern const struct step_ops step_##x;
#include "train/step/list.h"
#undef STEP

static const struct step_ops *const list[] = {
#define STEP(x) &step_##x,
#include "train/step/list.h"
#undef STEP
	NULL
};

const struct step_ops *step_find(const char *name)
{
	for (int i = 0; list[i]; i++)
		if (!strcmp(list[i]->name, name))
			return list[i];
	return NULL;
}

const char *step_names(char *out, size_t cap)
{
	size_t n = 0;

	out[0] = 0;
	for (int i = 0; list[i] && n < cap; i++)
		n += (size_t)snprintf(out + n, cap - n, "%s%s", i ? " " : "", list[i]->name);
	return out;
}

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

void sample_free(struct sample *s)
{
	free(s->room[0]);
	free(s->room[1]);
	free(s->file);
	if (s->decoder)
		s->decoder_free(s->decoder);
}

void sample_whole(struct sample *s)
{
	s->full_h = s->h;
	s->full_w = s->w;
	s->top = s->left = 0;
}

void sample_window(const struct sample *s, size_t h, size_t w, struct window *ret)
{
	const struct step_ops *ops = s->first ? s->first->ops : NULL;

	if (!ops || !ops->window || !ops->window(s->first, h, w, s->key, s->train, ret))
		*ret = (struct window){ 0, 0, h, w };
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

int step_read_size(struct spec_step *st, const json_t *o, const struct place *at, struct err *e)
{
	const struct place p = place_key(at, "size");
	const json_t *v = json_object_get(o, "size");
	double h, w = 0;

	if (json_is_array(v) && json_array_size(v) == 2) {
		if (read_number(json_array_get(v, 0), &p, 1, 4096, &h, e) < 0 ||
		    read_number(json_array_get(v, 1), &p, 1, 4096, &w, e) < 0)
			return -1;
	} else if (!json_is_integer(v)) {
		return place_err(&p, e, "must be a whole number or [height, width], and is %s", json_kind(v));
	} else if (read_number(v, &p, 1, 4096, &h, e) < 0) {
		return -1;
	}
	st->h = (uint32_t)h;
	st->w = (uint32_t)w;
	return 0;
}
