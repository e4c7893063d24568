/* Bytes: the growing writer and the bounds-checked reader behind every binary format;
 * little-endian on every machine. */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/buf.h"
#include "common/mem.h"

void buf_free(struct buf *b)
{
	free(b->p);
	*b = (struct buf){0};
}

void buf_clear(struct buf *b)
{
	b->len = 0;
}

static void reserve(struct buf *b, size_t n)
{
	size_t cap = b->cap ? b->cap : 64;

	assert(n <= SIZE_MAX / 4 && b->len <= SIZE_MAX / 4);
	if (b->p && b->len + n <= b->cap)
		return;
	while (cap < b->len + n)
		cap *= 2;
	b->p = xrealloc(b->p, cap);
	b->cap = cap;
}

void *buf_grow(struct buf *b, size_t n)
{
	reserve(b, n);
	b->len += n;
	return b->p + b->len - n;
}

void buf_put(struct buf *b, const void *p, size_t n)
{
	void *to = buf_grow(b, n);

	if (n)
		memcpy(to, p, n);
}

static void put_le(struct buf *b, uint64_t v, unsigned bytes)
{
	uint8_t *p = buf_grow(b, bytes);

	for (unsigned i = 0; i < bytes; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

void buf_u8(struct buf *b, uint8_t v)
{
	put_le(b, v, 1);
}

void buf_u16(struct buf *b, uint16_t v)
{
	put_le(b, v, 2);
}

void buf_u32(struct buf *b, uint32_t v)
{
	put_le(b, v, 4);
}

void buf_u64(struct buf *b, uint64_t v)
{
	put_le(b, v, 8);
}

void buf_f64(struct buf *b, double v)
{
	uint64_t u;

	memcpy(&u, &v, 8);
	put_le(b, u, 8);
}

void buf_str(struct buf *b, const char *s)
{
	size_t n = strlen(s);

	assert(n <= UINT16_MAX);
	buf_u16(b, (uint16_t)n);
	buf_put(b, s, n);
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	int n;

	assert(fmt);
	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	assert(n >= 0);
	reserve(b, (size_t)n + 1);
	va_start(ap, fmt);
	vsnprintf((char *)b->p + b->len, (size_t)n + 1, fmt, ap);
	va_end(ap);
	b->len += (size_t)n;
}

void buf_drop(struct buf *b, size_t n)
{
	assert(n <= b->len);
	b->len -= n;
	if (n && b->len)
		memmove(b->p, b->p + n, b->len);
}

struct rd rd_of(const void *p, size_t n)
{
	return (struct rd){ .p = p, .len = n };
}

size_t rd_left(const struct rd *r)
{
	return r->bad ? 0 : r->len - r->at;
}

const uint8_t *rd_bytes(struct rd *r, size_t n)
{
	static const uint8_t nothing[1];

	if (r->bad || n > r->len - r->at) {
		r->bad = true;
		return NULL;
	}
	r->at += n;
	return r->p ? r->p + r->at - n : nothing;
}

static uint64_t get_le(struct rd *r, unsigned bytes)
{
	const uint8_t *p = rd_bytes(r, bytes);
	uint64_t v = 0;

	for (unsigned i = bytes; p && i-- > 0;)
		v = v << 8 | p[i];
	return v;
}

uint8_t rd_u8(struct rd *r)
{
	return (uint8_t)get_le(r, 1);
}

uint16_t rd_u16(struct rd *r)
{
	return (uint16_t)get_le(r, 2);
}

uint32_t rd_u32(struct rd *r)
{
	return (uint32_t)get_le(r, 4);
}

uint64_t rd_u64(struct rd *r)
{
	return get_le(r, 8);
}

double rd_f64(struct rd *r)
{
	uint64_t u = get_le(r, 8);
	double v;

	memcpy(&v, &u, 8);
	return v;
}

bool rd_str(struct rd *r, char *out, size_t cap)
{
	size_t n = rd_u16(r);
	const uint8_t *p = n < cap ? rd_bytes(r, n) : NULL;

	if (!p || r->bad || memchr(p, 0, n)) {          /* a NUL inside would make two readers see two strings */
		r->bad = true;
		if (cap)
			out[0] = 0;
		return false;
	}
	memcpy(out, p, n);
	out[n] = 0;
	return true;
}
