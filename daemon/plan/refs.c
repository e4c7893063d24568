/* The notation of references: one grammar for planners, the terminal and JSON (plan.h says it). */
#include "plan/refs.h"
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"

static bool name_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
		c == '/' || c == '-';
}

bool refs_name_ok(const char *s, size_t len)
{
	if (len == 0 || len >= PLAN_NAME)
		return false;
	for (size_t i = 0; i < len; i++)
		if (!name_char(s[i]))
			return false;
	return true;
}

static uint32_t find(const struct plan *p, const char *s, size_t len)
{
	char name[PLAN_NAME];
	memcpy(name, s, len);
	name[len] = '\0';
	return plan_find(p, name);
}

/* Digits at *at, at most 2^30; false when there are none or too many. */
static bool number(const char *s, size_t len, size_t *at, int32_t *ret)
{
	int64_t v = 0;
	size_t from = *at;
	while (*at < len && s[*at] >= '0' && s[*at] <= '9' && v <= (1 << 30))
		v = v * 10 + (s[(*at)++] - '0');
	if (*at == from || v > (1 << 30))
		return false;
	*ret = (int32_t)v;
	return true;
}

static bool age(const char *s, size_t len, size_t *at, struct plan_ref *r)
{
	if (*at >= len)
		return true;
	if (s[*at] == '~') {
		(*at)++;
		r->age = PLAN_SAME;
		return number(s, len, at, &r->k);
	}
	if (s[*at] == '\'') {
		(*at)++;
		r->k = -1;
		return true;
	}
	if (s[*at] == '=') {
		(*at)++;
		return number(s, len, at, &r->k);
	}
	if (s[*at] != '<')
		return true;
	if (*at + 2 >= len || s[*at + 1] != '=')
		return false;
	*at += 2;
	r->age = PLAN_NEWEST;
	if (s[*at] == '*') {
		(*at)++;
		r->k = INT32_MAX;
		return true;
	}
	return number(s, len, at, &r->k);
}

static enum plan_role role_of(enum plan_class c)
{
	switch (c) {
	case PLAN_WEIGHT: return PLAN_AS_WEIGHT;
	case PLAN_WEIGHT_GRAD: case PLAN_ACTIVATION_GRAD: return PLAN_AS_GRAD;
	case PLAN_ROUTE: return PLAN_AS_ROUTE;
	default: return PLAN_AS_DATA;
	}
}

int refs_parse(const struct plan *p, const char *word, size_t len, bool out, struct plan_ref *ret, struct err *e)
{
	int role = -1;
	const char *s = word;
	size_t at = 0, n = len;
	if (n > 5 && strncmp(s, "save:", 5) == 0) { role = PLAN_AS_SAVED; s += 5; n -= 5; }
	else if (n > 6 && strncmp(s, "route:", 6) == 0) { role = PLAN_AS_ROUTE; s += 6; n -= 6; }
	else if (n > 5 && strncmp(s, "data:", 5) == 0) { role = PLAN_AS_DATA; s += 5; n -= 5; }
	while (at < n && name_char(s[at]))
		at++;
	*ret = (struct plan_ref){ .buf = at > 0 && at < PLAN_NAME ? find(p, s, at) : PLAN_NONE };
	if (ret->buf == PLAN_NONE)
		return err_set(e, ERR_NOT_FOUND, "reference \"%.*s\": the plan has no buffer of that name", (int)len, word);
	ret->role = role < 0 ? role_of(p->buf[ret->buf].class) : (enum plan_role)role;
	if (out) {
		if (at < n && s[at] == '\'') { ret->k = -1; at++; }
		if (at < n && s[at] == '+') { ret->add = true; at++; }
	} else {
		if (!age(s, n, &at, ret))
			at = 0;
		else if (at < n && s[at] == '!') { ret->drop = true; at++; }
	}
	if (at != n)
		return err_set(e, ERR_PARSE, "reference \"%.*s\": an %s is written %s", (int)len, word, out ? "output" :
			"input",
			out ? "[role:]name['][+]" : "[role:]name['|=k|<=k|<=*|~i][!]");
	return 0;
}

static void append(struct plan_ref **v, uint32_t *n, const struct plan_ref *r)
{
	*v = xrealloc(*v, (*n + 1) * sizeof **v);
	(*v)[(*n)++] = *r;
}

int refs_parse_all(const struct plan *p, const char *text, struct plan_instr *i, struct err *e)
{
	bool out = false;
	for (const char *s = text; *s;) {
		size_t len = strcspn(s, " ");
		if (len == 2 && memcmp(s, "->", 2) == 0) {
			out = true;
		} else if (len > 0) {
			struct plan_ref r;
			if (refs_parse(p, s, len, out, &r, e) < 0)
				return -1;
			if (out)
				append(&i->out, &i->nout, &r);
			else
				append(&i->in, &i->nin, &r);
		}
		s += len + strspn(s + len, " ");
	}
	return 0;
}

void refs_print(const struct plan *p, const struct plan_ref *r, bool out, struct buf *b)
{
	const struct plan_buf *x = &p->buf[r->buf];
	if (r->role != role_of(x->class))
		buf_printf(b, "%s", r->role == PLAN_AS_SAVED ? "save:" : r->role == PLAN_AS_ROUTE ? "route:" : "data:");
	buf_printf(b, "%s", x->name);
	if (out)
		buf_printf(b, "%s%s", r->k < 0 ? "'" : "", r->add ? "+" : "");
	else if (r->age == PLAN_SAME)
		buf_printf(b, "~%d", r->k);
	else if (r->age == PLAN_NEWEST && r->k == INT32_MAX)
		buf_printf(b, "<=*");
	else if (r->age == PLAN_NEWEST)
		buf_printf(b, "<=%d", r->k);
	else if (r->k < 0)
		buf_printf(b, "'");
	else if (r->k > 0)
		buf_printf(b, "=%d", r->k);
	if (!out && r->drop)
		buf_printf(b, "!");
}
