/* The expressions of zoo files: recursive descent over text, with numbers, texts and lists as values. */
#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "train/zoo.h"

#define DEPTH_MAX 32
#define WORD_MAX 32

struct parse { const char *all, *at; const json_t *vars; int depth; struct err *e; };

static json_t *expr(struct parse *p);

static json_t *wrong(struct parse *p, const char *what)
{
	(void)err_set(p->e, ERR_INVALID, "\"%.80s\": %s at \"%.20s\"", p->all, what, p->at);
	return NULL;
}

static bool take(struct parse *p, const char *word)
{
	while (*p->at == ' ')
		p->at++;
	if (strncmp(p->at, word, strlen(word)))
		return false;
	p->at += strlen(word);
	return true;
}

static json_t *number(double x)
{
	return x == floor(x) && fabs(x) < 9007199254740992.0 ? json_integer((json_int_t)x) : json_real(x);
}

/* Takes the reference. */
static int as_number(struct parse *p, json_t *v, double *ret)
{
	int rc = v && (json_is_number(v) || json_is_boolean(v)) ? 0 : -1;

	*ret = json_is_boolean(v) ? json_is_true(v) : json_number_value(v);
	if (v && rc < 0)
		(void)wrong(p, "a number is needed");
	json_decref(v);
	return rc;
}

static json_t *call_of(struct parse *p, const char *name)
{
	json_t *v = expr(p);
	double x;

	if (!v)
		return NULL;
	if (!take(p, ")")) {
		json_decref(v);
		return wrong(p, "a ) is missing");
	}
	if (!strcmp(name, "len")) {
		x = (double)json_array_size(v);
		json_decref(v);
		return number(x);
	}
	if (as_number(p, v, &x) < 0)
		return NULL;
	return x >= 0 ? number(sqrt(x)) : wrong(p, "the root of a negative number");
}

static json_t *named(struct parse *p)
{
	char word[WORD_MAX];
	size_t n = 0;
	json_t *v, *i;
	double x;

	while ((isalnum((unsigned char)*p->at) || *p->at == '_') && n < sizeof(word) - 1)
		word[n++] = *p->at++;
	word[n] = 0;
	if ((!strcmp(word, "len") || !strcmp(word, "sqrt")) && take(p, "("))
		return call_of(p, word);
	v = json_object_get(p->vars, word);
	if (!v)
		return wrong(p, "there is no parameter of this name");
	if (!take(p, "["))
		return json_incref(v);
	i = expr(p);
	if (!i || as_number(p, i, &x) < 0)
		return NULL;
	v = x >= 0 ? json_array_get(v, (size_t)x) : NULL;
	if (!v || !take(p, "]"))
		return wrong(p, v ? "a ] is missing" : "the list has no such element");
	return json_incref(v);
}

static json_t *primary(struct parse *p)
{
	char *end;
	json_t *v;

	if (take(p, "(")) {
		v = expr(p);
		if (v && !take(p, ")")) {
			json_decref(v);
			return wrong(p, "a ) is missing");
		}
		return v;
	}
	if (take(p, "'")) {
		size_t n = strcspn(p->at, "'");

		if (!p->at[n])
			return wrong(p, "a ' is missing");
		v = json_stringn(p->at, n);
		p->at += n + 1;
		return v;
	}
	if (isdigit((unsigned char)*p->at) || *p->at == '.') {
		double x = strtod(p->at, &end);

		p->at = end;
		return number(x);
	}
	return isalpha((unsigned char)*p->at) ? named(p) : wrong(p, "a value is missing");
}

static json_t *unary(struct parse *p)
{
	bool minus = take(p, "-"), not = !minus && p->at[0] == '!' && p->at[1] != '=' && take(p, "!");
	json_t *v = minus || not ? unary(p) : primary(p);
	double x, n, y = 1;

	if (v && (minus || not))
		return as_number(p, v, &x) < 0 ? NULL : number(minus ? -x : !(x != 0));
	if (!v || !take(p, "^"))
		return v;
	if (as_number(p, v, &x) < 0 || as_number(p, unary(p), &n) < 0)
		return NULL;
	if (!(n >= 0 && n <= 64 && n == floor(n)))
		return wrong(p, "an exponent must be a whole number from 0 to 64");
	for (; n > 0; n--)
		y *= x;
	return number(y);
}

enum { LEVELS = 5 };
static const char *const ops[LEVELS][7] = { { "||" }, { "&&" }, { "==", "!=", "<=", ">=", "<", ">" }, { "+", "-" },
	{ "*", "/", "%" } };

static json_t *apply(struct parse *p, const char *op, json_t *a, json_t *b)
{
	bool texts = json_is_string(a) && json_is_string(b), same = json_equal(a, b);
	double x, y;

	if (texts && (!strcmp(op, "==") || !strcmp(op, "!="))) {
		json_decref(a);
		json_decref(b);
		return number(op[0] == '=' ? same : !same);
	}
	if (as_number(p, a, &x) < 0) {
		json_decref(b);
		return NULL;
	}
	if (as_number(p, b, &y) < 0)
		return NULL;
	if ((*op == '/' || *op == '%') && y == 0)
		return wrong(p, "a division by 0");
	switch (*op) {
	case '|': return number(x != 0 || y != 0);
	case '&': return number(x != 0 && y != 0);
	case '=': return number(x == y);
	case '!': return number(x != y);
	case '<': return number(op[1] ? x <= y : x < y);
	case '>': return number(op[1] ? x >= y : x > y);
	case '+': return number(x + y);
	case '-': return number(x - y);
	case '*': return number(x * y);
	case '/': return number(x / y);
	default: return number(fmod(x, y));
	}
}

static json_t *level(struct parse *p, int n)
{
	json_t *a = n == LEVELS ? unary(p) : level(p, n + 1), *b;
	const char *op;

	while (a && n < LEVELS) {
		op = NULL;
		for (int i = 0; ops[n][i] && !op; i++)
			op = take(p, ops[n][i]) ? ops[n][i] : NULL;
		if (!op)
			break;
		b = level(p, n + 1);
		if (!b) {
			json_decref(a);
			return NULL;
		}
		a = apply(p, op, a, b);
	}
	return a;
}

static json_t *expr(struct parse *p)
{
	json_t *v, *yes, *no;
	double x;

	if (++p->depth > DEPTH_MAX)
		return wrong(p, "too many levels");
	v = level(p, 0);
	if (v && take(p, "?")) {
		if (as_number(p, v, &x) < 0)
			return NULL;
		yes = expr(p);
		no = !yes ? NULL : take(p, ":") ? expr(p) : wrong(p, "a : is missing");
		v = !no ? NULL : json_incref(x != 0 ? yes : no);
		json_decref(yes);
		json_decref(no);
	}
	p->depth--;
	return v;
}

json_t *zoo_value(const char *expression, const json_t *vars, struct err *e)
{
	struct parse p = { .all = expression, .at = expression, .vars = vars, .e = e };
	json_t *v = expr(&p);

	if (v && (take(&p, " ") || *p.at)) {
		json_decref(v);
		return wrong(&p, "this is left over");
	}
	return v;
}
