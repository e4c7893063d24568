/* CSV: one pass that counts, one that reads; memory is what the count says. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "common/mem.h"
#include "common/text.h"
#include "train/data/csv_parse.h"

#define FIELD_MAX 64

struct cursor { const char *p, *end; size_t line, field; };

static int bad(const struct cursor *c, struct err *e, const char *what)
{
	return err_set(e, ERR_CORRUPT, "line %zu, field %zu: %s", c->line, c->field, what);
}

/* Text between commas, without quotes and blanks around it. ret_last: the line ends behind it. */
static int field(struct cursor *c, char *out, bool *ret_last, struct err *e)
{
	size_t n = 0, from = 0;
	bool quoted;

	c->field++;
	while (c->p < c->end && (*c->p == ' ' || *c->p == '\t'))
		c->p++;
	quoted = c->p < c->end && *c->p == '"';
	for (c->p += quoted; c->p < c->end && (quoted ? *c->p != '"' : *c->p != ',' && *c->p != '\n'); c->p++)
		if (n < FIELD_MAX - 1)
			out[n++] = *c->p;
	if (quoted && (c->p == c->end || *c->p++ != '"'))
		return bad(c, e, "a quote that does not end");
	while (quoted && c->p < c->end && (*c->p == ' ' || *c->p == '\r'))
		c->p++;
	if (c->p < c->end && *c->p != ',' && *c->p != '\n')
		return bad(c, e, "text behind the closing quote");
	*ret_last = c->p == c->end || *c->p == '\n';
	c->p += c->p < c->end;
	while (n > from && (out[n - 1] == ' ' || out[n - 1] == '\r' || out[n - 1] == '\t'))
		n--;
	out[n] = 0;
	if (strlen(out) != n)
		return bad(c, e, "a zero byte");
	return 0;
}

static bool blank(struct cursor *c)
{
	const char *p = c->p;

	while (p < c->end && (*p == ' ' || *p == '\r' || *p == '\t'))
		p++;
	if (p < c->end && *p != '\n')
		return false;
	c->p = p < c->end ? p + 1 : p;
	return true;
}

/* One line; v NULL: only counts. *ret_names: a field is no number. */
static int line(struct cursor *c, float *v, size_t *ret_fields, bool *ret_names, struct err *e)
{
	char text[FIELD_MAX];
	bool last = false;
	struct err why;
	double x;

	c->field = 0;
	*ret_names = false;
	while (!last) {
		if (field(c, text, &last, e) < 0)
			return -1;
		if (text_double(text, &x, &why) < 0 || !isfinite((float)x)) {
			*ret_names = true;
			text_clean(text);
			if (v)
				return err_set(e, ERR_CORRUPT, "line %zu, field %zu: \"%.40s\" is no number", c->line, c->field, text);
		} else if (v) {
			v[c->field - 1] = (float)x;
		}
		if (v && c->field == *ret_fields && !last)
			return err_set(e, ERR_CORRUPT, "line %zu: more fields than the %zu of the first line", c->line,
				*ret_fields);
	}
	if (v && c->field != *ret_fields)
		return err_set(e, ERR_CORRUPT, "line %zu: %zu fields, and the first line has %zu", c->line, c->field,
			*ret_fields);
	*ret_fields = c->field;
	return 0;
}

int csv_parse(struct csv *ret, const char *text, size_t n, struct err *e)
{
	struct cursor c = { text, text + n, 1, 0 };
	size_t lines = 0;
	bool names;
	int rc = 0;

	*ret = (struct csv){ 0 };
	while (c.p < c.end && blank(&c))
		c.line++;
	text = c.p;
	if (c.p == c.end || line(&c, NULL, &ret->columns, &names, e) < 0)
		return c.p == c.end && !ret->columns ? err_set(e, ERR_CORRUPT, "no lines") : -1;
	if (!names)
		c.p = text;
	c.line += names;
	for (const char *p = c.p; p < c.end; p++)
		lines += *p == '\n' || p + 1 == c.end;
	/* a line has at least two bytes for each field but the last's end, so this is bounded by the file */
	if (lines > (size_t)n / ret->columns + 1)
		lines = (size_t)n / ret->columns + 1;
	ret->bytes = (lines * ret->columns + 1) * sizeof(float);
	ret->v = big_alloc(ret->bytes);
	if (!ret->v)
		return err_set(e, ERR_NOMEM, "no memory for %zu bytes", ret->bytes);
	for (; c.p < c.end && !rc; c.line++)
		if (!blank(&c) && !(rc = line(&c, ret->v + ret->rows * ret->columns, &ret->columns, &names, e)))
			ret->rows++;
	if (!rc && !ret->rows)
		rc = err_set(e, ERR_CORRUPT, "no lines of numbers");
	if (rc)
		csv_free(ret);
	return rc;
}

void csv_free(struct csv *c)
{
	big_free(c->v, c->bytes);
	*c = (struct csv){ 0 };
}
