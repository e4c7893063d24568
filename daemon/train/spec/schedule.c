/* Schedules of the learning rate, one line each. Everybody must step with the same bits, so only + - * / are used: libm
 * differs between machines in the last bit. */
#include <stdio.h>
#include <string.h>
#include "train/spec/schedule.h"
#include "train/spec/int.h"

/* t and all counts: in units, or in swarm epochs when the rate changes inside a unit. */
struct at { uint64_t t, warmup, total, every; double gamma, min; };
struct schedule_ops {
	const char *name;
	bool needs_total, needs_every, decays;  /* decays: warms up from min instead of 0 */
	double (*factor)(const struct at *a);   /* after the warmup, 1 at its end */
};

/* cos on [0, pi] by its series around the middle: sin(pi/2 - x), |argument| <= pi/2, error below 1e-15. */
static double cosine_of(double x)
{
	double y = 1.57079632679489661923 - x, y2 = y * y, term = y, sum = y;

	for (int k = 1; k < 13; k++) {
		term = term * y2 / (double)(2 * k * (2 * k + 1));
		sum = k % 2 ? sum - term : sum + term;
	}
	return sum;
}

/* ln of x >= 1: x = m 2^e with m in [0.7, 1.5), ln m = 2 artanh((m - 1) / (m + 1)) by its series, error below 1e-15. */
static double ln(double x)
{
	double e = 0, z, z2, sum = 0;

	for (; x > 1.4142135623730951; x *= 0.5)
		e++;
	z = (x - 1) / (x + 1);
	z2 = z * z;
	for (int k = 25; k > 0; k -= 2)
		sum = sum * z2 + 1 / (double)k;
	return e * 0.69314718055994530942 + 2 * z * sum;
}

static double power(double x, uint64_t n)
{
	double r = 1;

	for (; n; n >>= 1, x *= x)
		if (n & 1)
			r *= x;
	return r;
}

static double constant(const struct at *a)
{
	return 1;
}

static double step(const struct at *a)
{
	return power(a->gamma, (a->t - a->warmup) / a->every);
}

static double linear(const struct at *a)
{
	return a->t >= a->total ? a->min :
		a->min + (1 - a->min) * ((double)(a->total - a->t) / (double)(a->total - a->warmup));
}

static double cosine(const struct at *a)
{
	double x = a->t >= a->total ? 1 : (double)(a->t - a->warmup) / (double)(a->total - a->warmup);

	return x >= 1 ? a->min : a->min + (1 - a->min) * 0.5 * (1 + cosine_of(3.14159265358979323846 * x));
}

static const struct schedule_ops table[] = {
	{ "constant", false, false, false, constant },
	{ "step", false, true, false, step },           /* gamma^(t / every) */
	{ "linear", true, false, false, linear },       /* from 1 to min at total */
	{ "cosine", true, false, false, cosine },       /* the same, half a cosine */
	{ "warmup_decay", true, false, true, linear },  /* DeepSpeed's WarmupDecayLR: from min to 1 and back to min */
};
#define COUNT (sizeof(table) / sizeof(*table))

const char *schedule_names(char *out, size_t cap)
{
	size_t n = 0;

	out[0] = 0;
	for (size_t i = 0; i < COUNT && n < cap; i++)
		n += (size_t)snprintf(out + n, cap - n, "%s%s", i ? " " : "", table[i].name);
	return out;
}

static double warming(const struct schedule *s, const struct at *a, double k)
{
	double at = (double)a->t / (double)a->warmup;

	if (s->from == WARMUP_CONSTANT)
		return 1;
	if (s->from == WARMUP_BASE)
		return 1 + (k - 1) * at;
	if (!s->ops->decays)
		return k * ((double)(a->t + 1) / (double)a->warmup);    /* lr 0 would be a lost epoch */
	if (s->log)
		at = ln((double)(a->t + 1)) / ln((double)a->warmup);
	return k * (a->min + (1 - a->min) * at);
}

double schedule_factor(const struct schedule *s, uint64_t target_batch, uint64_t epoch)
{
	uint64_t unit = s->unit ? s->unit : 1, times = s->stairs ? 1 : unit;
	double k = s->base_batch > 0 ? (double)target_batch / s->base_batch : 1;
	struct at a = { .t = s->stairs ? epoch / unit : epoch, .warmup = s->warmup * times, .total = s->total * times,
		.every = s->every * times, .gamma = s->gamma, .min = s->min };

	if (!s->ops)
		return k;
	return a.t < a.warmup ? warming(s, &a, k) : k * s->ops->factor(&a);
}

/* One of two or three words; absent: the first. */
static int read_word(const json_t *o, const struct place *at, const char *key, const char *words, int *ret,
	struct err *e)
{
	const struct place p = place_key(at, key);
	char word[32] = "";
	size_t n;
	int i = 0, rc = read_text(o, at, key, word, sizeof(word), e);

	*ret = 0;
	if (rc)
		return rc < 0 ? -1 : 0;
	for (const char *w = words; *w; w += n + (w[n] == ' '), i++) {
		n = strcspn(w, " ");
		if (n == strlen(word) && !memcmp(w, word, n)) {
			*ret = i;
			return 0;
		}
	}
	return place_unknown(&p, key, word, words, e);
}

static int check(const struct schedule *s, const struct place *at, struct err *e)
{
	if (s->ops->needs_every && !s->every)
		return place_err(at, e, "%s needs \"every\" (epochs) and \"gamma\"", s->ops->name);
	if (s->ops->needs_total && s->total <= s->warmup)
		return place_err(at, e, "%s needs \"total\" (epochs), greater than \"warmup\"", s->ops->name);
	if (s->from != WARMUP_ZERO && (!s->warmup || s->base_batch <= 0))
		return place_err(at, e,
			"\"warmup_from\" leads from lr to the scaled lr: it needs \"warmup\" and \"base_batch\"");
	if (s->track && s->base_batch <= 0)
		return place_err(at, e, "\"track\" says which batch the rate is scaled with: it needs \"base_batch\"");
	if (s->from != WARMUP_ZERO && s->ops->decays)
		return place_err(at, e, "warmup_decay rises from \"min\"; leave \"warmup_from\" out");
	if (s->log && (!s->ops->decays || s->warmup < 2))
		return place_err(at, e, "\"warmup_form\":\"log\" is for warmup_decay with a warmup of at least 2");
	return 0;
}

int schedule_read(struct schedule *s, const json_t *o, struct err *e)
{
	static const char *const known[] = { "name", "warmup", "total", "every", "gamma", "min", "unit", "granularity",
		"warmup_from", "warmup_form", "base_batch", "track", NULL };
	const struct place top = { "" }, at = place_key(&top, "schedule"), nm = place_key(&at, "name");
	char name[32] = "constant", names[100];
	int stairs, from, form, track;
	size_t k = 0;

	*s = (struct schedule){ .ops = &table[0], .gamma = 1, .unit = 1 };
	if (!o)
		return 0;
	if (read_object(o, &at, e) < 0 || read_known(o, &at, known, e) < 0 ||
	    read_text(o, &at, "name", name, sizeof(name), e) < 0 ||
	    read_u64(o, &at, "warmup", 0, 1ull << 40, &s->warmup, e) < 0 ||
	    read_u64(o, &at, "total", 1, 1ull << 40, &s->total, e) < 0 ||
	    read_u64(o, &at, "every", 1, 1ull << 40, &s->every, e) < 0 ||
	    read_u64(o, &at, "unit", 1, 1ull << 20, &s->unit, e) < 0 ||
	    read_real(o, &at, "gamma", 0, 1, &s->gamma, e) < 0 || read_real(o, &at, "min", 0, 1, &s->min, e) < 0 ||
	    read_real(o, &at, "base_batch", 1, 1e12, &s->base_batch, e) < 0 ||
	    read_word(o, &at, "granularity", "step epoch", &stairs, e) < 0 ||
	    read_word(o, &at, "warmup_from", "zero base constant", &from, e) < 0 ||
	    read_word(o, &at, "warmup_form", "linear log", &form, e) < 0 ||
	    read_word(o, &at, "track", "target peers", &track, e) < 0)
		return -1;
	while (k < COUNT && strcmp(table[k].name, name))
		k++;
	if (k == COUNT)
		return place_unknown(&nm, "schedule", name, schedule_names(names, sizeof(names)), e);
	s->ops = &table[k];
	s->stairs = stairs;
	s->from = (enum warmup_from)from;
	s->log = form;
	s->track = track;
	return check(s, &at, e);
}
