/* The vector's encodings: a table of runs, made from the spec's words and the tensors' sizes. A part of the vector is
 * encoded run by run, each from where the part or the run begins. */
#include <stdlib.h>
#include <string.h>
#include "avg/coding.h"
#include "common/mem.h"

#define SMALL_BELOW 1024

struct words { const struct codec_ops *role[AVG_ROLES], *small; uint64_t below; };

static const char *const role_name[AVG_ROLES] = { "matrix", "vector", "state" };

static const struct codec_ops *codec_of(const json_t *o, const char *key, struct err *e)
{
	const json_t *v = key ? json_object_get(o, key) : o;
	const struct codec_ops *c = json_is_string(v) ? codec_find(json_string_value(v)) : NULL;
	char names[160];
	if (!c)
		err_set(e, ERR_INVALID, "averaging.codec%s%s: %s%.40s%s is none of: %s", key ? "." : "", key ? key : "",
			json_is_string(v) ? "\"" : "", json_is_string(v) ? json_string_value(v) : "what is there",
			json_is_string(v) ? "\"" : "", codec_names(names, sizeof names));
	return c;
}

static int is_known(const char *key)
{
	for (int i = 0; i < AVG_ROLES; i++)
		if (!strcmp(key, role_name[i]))
			return 1;
	return !strcmp(key, "default") || !strcmp(key, "small") || !strcmp(key, "small_below");
}

static int read_object(struct words *w, const json_t *spec, struct err *e)
{
	const char *key;
	json_t *v;
	json_object_foreach((json_t *)spec, key, v) {
		if (!is_known(key))
			return err_set(e, ERR_INVALID,
			"averaging.codec: \"%.40s\" is none of: default matrix vector state small small_below", key);
		if (!strcmp(key, "small_below")) {
			if (!json_is_integer(v) || json_integer_value(v) < 1)
				return err_set(e, ERR_INVALID, "averaging.codec.small_below: must be a number of elements, 1 or more");
			w->below = (uint64_t)json_integer_value(v);
		} else if (!codec_of(spec, key, e)) {
			return -1;
		}
	}
	for (int i = 0; i < AVG_ROLES; i++) {
		if (json_object_get(spec, "default"))
			w->role[i] = codec_of(spec, "default", e);
		if (json_object_get(spec, role_name[i]))
			w->role[i] = codec_of(spec, role_name[i], e);
	}
	if (json_object_get(spec, "small"))
		w->small = codec_of(spec, "small", e);
	else
		w->below = 0;
	return 0;
}

static int read_words(struct words *w, const json_t *spec, struct err *e)
{
	*w = (struct words){ .below = SMALL_BELOW, .small = codec_find("none") };
	for (int i = 0; i < AVG_ROLES; i++)
		w->role[i] = codec_find("none");
	if (json_is_object(spec))
		return read_object(w, spec, e);
	w->below = 0;
	for (int i = 0; i < AVG_ROLES && spec && !json_is_null(spec); i++)
		if (!(w->role[i] = codec_of(spec, NULL, e)))
			return -1;
	return 0;
}

int coding_check(const json_t *spec, struct err *e)
{
	struct words w;
	return read_words(&w, spec, e);
}

static void add(struct coding *c, uint64_t len, const struct codec_ops *codec)
{
	uint64_t lo = c->n ? c->run[c->n - 1].hi : 0;
	if (!len)
		return;
	if (c->n && c->run[c->n - 1].codec == codec)
		c->run[c->n - 1].hi += len;
	else
		c->run[c->n++] = (struct coding_run){ lo, lo + len, codec };
}

int coding_make(struct coding *ret, const json_t *spec, const struct avg_tensor *t, size_t tensors, uint64_t len,
	struct err *e)
{
	struct words w;
	uint64_t at = 0;
	if (read_words(&w, spec, e))
		return -1;
	*ret = (struct coding){ .run = xcalloc(tensors + 1, sizeof *ret->run) };
	for (size_t i = 0; i < tensors; i++) {
		uint64_t n = t[i].len < len - at ? t[i].len : len - at;
		add(ret, n, t[i].role == AVG_EXACT ? codec_find("none") : t[i].len < w.below ? w.small : w.role[t[i].role]);
		at += n;
	}
	add(ret, len - at, w.role[AVG_MATRIX]);
	return 0;
}

void coding_free(struct coding *c)
{
	free(c->run);
	*c = (struct coding){ 0 };
}

/* The run that holds element at, or the last. */
static size_t run_of(const struct coding *c, uint64_t at)
{
	size_t lo = 0, hi = c->n - 1;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (c->run[mid].hi <= at)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

bool coding_next(const struct coding *c, uint64_t off, uint64_t len, struct coding_piece *p)
{
	bool first = !p->codec;
	uint64_t at = first ? 0 : p->at + p->len;
	if (at >= len)
		return false;
	p->byte += first ? 0 : p->codec->bytes(p->len);
	p->run = first ? run_of(c, off) : p->run + 1;
	p->codec = c->run[p->run].codec;
	p->at = at;
	uint64_t end = p->run + 1 < c->n && c->run[p->run].hi < off + len ? c->run[p->run].hi - off : len;
	p->len = end - at;
	return true;
}

bool coding_plain(const struct coding *c, uint64_t off, uint64_t len)
{
	struct coding_piece p = { 0 };
	while (coding_next(c, off, len, &p))
		if (p.codec->lossy)
			return false;
	return true;
}

size_t coding_bytes(const struct coding *c, uint64_t off, uint64_t len)
{
	struct coding_piece p = { 0 };
	size_t bytes = 0;
	while (coding_next(c, off, len, &p))
		bytes += p.codec->bytes(p.len);
	return bytes;
}

static struct par best(void)
{
	enum cpu cpu = CPU_PLAIN;
	(void)cpu_pick(NULL, &cpu, NULL);
	return par_serial(cpu, NULL);
}

void coding_encode(const struct coding *c, uint64_t off, uint64_t len, const float *x, uint8_t *out)
{
	struct coding_piece p = { 0 };
	struct par par = best();
	while (coding_next(c, off, len, &p))
		p.codec->encode(&par, p.len, x + p.at, out + p.byte);
}

void coding_decode(const struct coding *c, uint64_t off, uint64_t len, const uint8_t *in, float *x)
{
	struct coding_piece p = { 0 };
	struct par par = best();
	while (coding_next(c, off, len, &p))
		p.codec->decode(&par, p.len, in + p.byte, x + p.at);
}
