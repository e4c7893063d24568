/* A log that lies is found out: a line is missing, something was taken later than it was, or in another order, or is
 * said to be newer than it is. In every mode. */
#define EPOCHS 12
#include "replay_kit.h"

#define END "\"ev\":\"end\""
#define START "\"ev\":\"start\""

struct line { const char *at; size_t len; };
struct lines { struct line *v; size_t n; };

static struct lines lines_of(const char *text, size_t len)
{
	struct lines l = { 0 };

	for (const char *at = text, *nl; (nl = memchr(at, '\n', (size_t)(text + len - at))); at = nl + 1) {
		l.v = realloc(l.v, (l.n + 1) * sizeof(*l.v));
		l.v[l.n++] = (struct line){ at, (size_t)(nl + 1 - at) };
	}
	return l;
}

static bool has(const struct line *l, const char *text)
{
	return memmem(l->at, l->len, text, strlen(text)) != NULL;
}

static bool all(const struct line *l, const char *const text[3])
{
	return (!text[0] || has(l, text[0])) && (!text[1] || has(l, text[1])) && (!text[2] || has(l, text[2]));
}

/* Of a micro-batch that is given up nobody reads the samples. */
static bool counts(const struct lines *l, size_t i)
{
	const char *at = strstr(l->v[i].at, "\"index\":");
	char index[40];

	(void)snprintf(index, sizeof(index), "%.*s,", (int)strcspn(at, ","), at);
	for (size_t k = i + 1; k < l->n && !has(&l->v[k], "\"ev\":\"quiet\""); k++)
		if (has(&l->v[k], END) && has(&l->v[k], "\"kind\":\"COMMIT\"") && has(&l->v[k], index))
			return true;
	return false;
}

/* Of what is given in a second attempt the first may have brought all. */
static bool first_attempt(const struct lines *l, size_t i)
{
	while (i-- && !has(&l->v[i], "\"ev\":\"commit\""))
		if (has(&l->v[i], "\"ev\":\"failed\""))
			return false;
	return true;
}

/* What comes of it is in a commit, at the latest in the second behind it: nothing is given up before that. */
static bool matters(const struct lines *l, size_t i)
{
	int commits = 0;

	if ((has(&l->v[i], "\"kind\":\"LOAD\"") && !counts(l, i)) ||
	    (has(&l->v[i], "\"ev\":\"contribute\"") && !first_attempt(l, i)))
		return false;
	for (size_t k = i + 1; k < l->n; k++) {
		if (has(&l->v[k], "\"ev\":\"failed\"") || has(&l->v[k], "\"ev\":\"quiet\""))
			return false;
		if (has(&l->v[k], "\"ev\":\"commit\"") && has(&l->v[k], "\"samples\":0,"))
			return false;
		commits += has(&l->v[k], "\"ev\":\"commit\"");
		if (commits == 2)
			return true;
	}
	return false;
}

/* One of those that say all of text, from somewhere in the middle of the longest log; false: there is none. */
static bool pick(const struct lines *l, const char *const text[3], size_t *ret)
{
	size_t found = l->n;

	for (size_t i = 0; i < l->n && (found == l->n || i < l->n / 2); i++)
		if (all(&l->v[i], text) && matters(l, i))
			found = i;
	*ret = found;
	return found < l->n;
}

static unsigned longest(const struct swarm *w)
{
	unsigned best = 0;

	for (unsigned i = 1; i < w->n; i++)
		best = w->m[i].len > w->m[best].len ? i : best;
	return best;
}

/* The log of life i is these lines; then it is as it was. */
static void refused(struct swarm *w, unsigned i, const struct lines *l, const char *what)
{
	char *was = w->m[i].log;
	size_t was_len = w->m[i].len, at = 0;
	struct replay_result r;
	struct err e;

	w->m[i].log = malloc(was_len + 4096);
	for (size_t k = 0; k < l->n; k++) {
		memcpy(w->m[i].log + at, l->v[k].at, l->v[k].len);
		at += l->v[k].len;
	}
	w->m[i].len = at;
	if (again(w, &r, &e) == 0)
		fail_msg("%s: nobody has seen it", what);
	assert_true(e.code == ERR_MISMATCH || e.code == ERR_CORRUPT);
	print_message("  %s: %s\n", what, e.text);
	free(w->m[i].log);
	w->m[i].log = was;
	w->m[i].len = was_len;
}

/* false: there is no such line that matters. */
static bool without(struct swarm *w, const char *const text[3], const char *what)
{
	unsigned i = longest(w);
	struct lines l = lines_of(w->m[i].log, w->m[i].len);
	size_t k;
	bool there = pick(&l, text, &k);

	if (there) {
		k += !strcmp(text[0], START);   /* its end, which follows at once */
		memmove(&l.v[k], &l.v[k + 1], (l.n - k - 1) * sizeof(*l.v));
		l.n--;
		refused(w, i, &l, what);
	}
	free(l.v);
	return there;
}

static size_t find(const struct lines *l, size_t from, const char *const text[3])
{
	while (from < l->n && !all(&l->v[from], text))
		from++;
	return from;
}

/* The instruction that is found is done only behind the next one of `behind`. false: there is none. */
static bool later(struct swarm *w, const char *const start[3], const char *const behind[3], const char *what)
{
	unsigned i = longest(w);
	struct lines l = lines_of(w->m[i].log, w->m[i].len);
	char fn[40], in[40];
	const char *const end[3] = { "\"ev\":\"end\"", fn, in };
	struct line first, last;
	size_t k, stop, to;
	bool there = pick(&l, start, &k);

	if (there) {
		const char *f = strstr(l.v[k].at, "\"fn\":"), *p = strstr(l.v[k].at, "\"i\":");

		(void)snprintf(fn, sizeof(fn), "%.*s", (int)(strchr(f, ',') - f), f);
		(void)snprintf(in, sizeof(in), "%.*s,", (int)(strchr(p, ',') - p), p);
		stop = find(&l, k, end);
		to = find(&l, stop, behind);
		assert_true(to < l.n);
		first = l.v[k];
		last = l.v[stop];
		memmove(&l.v[stop], &l.v[stop + 1], (to - stop) * sizeof(*l.v));
		memmove(&l.v[k], &l.v[k + 1], (to - 1 - k) * sizeof(*l.v));
		l.v[to - 1] = first;
		l.v[to] = last;
		refused(w, i, &l, what);
	}
	free(l.v);
	return there;
}

/* A number behind a key is another. */
static bool instead(struct swarm *w, const char *const text[3], const char *key, const char *what)
{
	unsigned i = longest(w);
	struct lines l = lines_of(w->m[i].log, w->m[i].len);
	size_t k;
	bool there = pick(&l, text, &k);

	if (there) {
		char *copy = strndup(l.v[k].at, l.v[k].len), *digit = strstr(copy, key) + strlen(key);

		digit += strcspn(digit, ",}]\"") - 1;
		*digit = *digit == '1' ? '0' : '1';
		l.v[k].at = copy;
		refused(w, i, &l, what);
		free(copy);
	}
	free(l.v);
	return there;
}

/* In all logs, the first in a round of three or more is summed last. */
static void another_order(struct swarm *w)
{
	struct replay_result r;
	unsigned turned = 0;
	struct err e;

	for (unsigned i = 0; i < w->n; i++) {
		struct lines l = lines_of(w->m[i].log, w->m[i].len);

		for (size_t k = 0; k < l.n; k++) {
			char *at, *first, *second, *end, whole[400];

			if (!has(&l.v[k], "\"ev\":\"round\""))
				continue;
			at = strndup(l.v[k].at, l.v[k].len);
			first = strstr(at, "[[") + 1;
			end = strstr(first, "]]") + 1;
			second = strstr(first, "],[");
			if (second && strstr(second + 2, "],[")) {
				(void)snprintf(whole, sizeof(whole), "%.*s,%.*s", (int)(end - second - 2), second + 2,
					(int)(second + 1 - first), first);
				memcpy(first, whole, strlen(whole));
				memcpy((char *)(uintptr_t)l.v[k].at, at, l.v[k].len);
				turned++;
			}
			free(at);
		}
		free(l.v);
	}
	assert_true(turned > EPOCHS / 2);
	assert_int_equal(again(w, &r, &e), -1);
	assert_int_equal(e.code, ERR_MISMATCH);
	print_message("  another order of the sum: %s\n", e.text);
}

static void test_lies(void **state)
{
	static const struct { const char *what, *text[3]; } line[] = {
		{ "no accumulate", { END, "\"fn\":\"accumulate\"" } }, { "no opt", { END, "\"fn\":\"opt\"" } },
		{ "no mean taken", { END, "\"kind\":\"SUM\"" } }, { "no digest", { END, "\"fn\":\"digest\"" } },
		{ "a micro-batch does not count", { START, "\"kind\":\"COMMIT\"", "[\"batch\"," } },
		{ "no commit", { "\"ev\":\"commit\"" } }, { "no applied", { "\"ev\":\"applied\"" } },
		{ "no contribution", { "\"ev\":\"contribute\"" } }, { "no load", { END, "\"kind\":\"LOAD\"" } },
		{ "no outer step", { END, "\"fn\":\"outer\"" } }, { "no delta", { END, "\"fn\":\"delta\"" } },
		{ "no fragment", { END, "\"fn\":\"fragment\"" } },
	};
	static const char *const micro[3] = { END, "\"fn\":\"loss\"" }, *const step[3] = { END, "\"fn\":\"opt\"" };
	static const char *const copied[3] = { START, "\"fn\":\"copy\",\"stream\":0", "[\"w\"," };
	static const char *const taken[][3] = { { START, "\"fn\":\"opt\"", "[\"mean\"" }, { START, "\"fn\":\"delta\"" },
		{ START, "\"fn\":\"fragment\"", "[\"mean\"" } };
	unsigned told[sizeof(line) / sizeof(*line)] = { 0 };
	char spec[1200];

	for (size_t m = 0; m < MODES; m++) {
		struct swarm *w = run(spec_for(spec, modes[m].strategy, modes[m].averaging), 7000 + m);
		unsigned late = 0;
		struct replay_result r;
		struct err e;

		print_message("%s\n", modes[m].name);
		assert_int_equal(again(w, &r, &e), 0);
		for (size_t k = 0; k < sizeof(line) / sizeof(*line); k++)
			told[k] += without(w, line[k].text, line[k].what);
		for (size_t k = 0; k < sizeof(taken) / sizeof(*taken) && modes[m].stale; k++)
			late += later(w, taken[k], micro, "taken a micro-batch later");
		bool delays = strstr(modes[m].averaging, "delay_grad") || strstr(modes[m].averaging, "delay_step");
		if (delays)
			late += later(w, copied, step, "no delay: the copy is of the parameters behind the step");
		late += instead(w, (const char *const[3]){ "\"ev\":\"commit\"", "\"flew\":" }, "\"flew\":", "another delay");
		assert_true(instead(w, (const char *const[3]){ "\"ev\":\"commit\"" }, "\"hyper\":[\"", "another rate"));
		assert_true(instead(w, (const char *const[3]){ END, "\"positions\":" }, "\"positions\":[[", "another sample"));
		assert_int_equal(late, modes[m].stale ? 2 + delays : 0);
		another_order(w);
		over(w);
	}
	for (size_t k = 0; k < sizeof(line) / sizeof(*line); k++)
		if (!told[k])
			fail_msg("%s: no log has such a line", line[k].what);
}

/* The scale of a loss is the state's. */
static void test_scale(void **state)
{
	char spec[1200];
	struct swarm *w = run(spec_with(spec, "hivemind", "", "\"precision\":\"fp16\","), 1);
	struct replay_result r;
	struct err e;

	assert_int_equal(again(w, &r, &e), 0);
	assert_true(instead(w, (const char *const[3]){ END, "\"fn\":\"loss\"" }, "\"loss_scale\":\"", "another scale"));
	over(w);
}

/* A state that nobody has made a copy of; what no log has enough of. */
static void test_refused(void **state)
{
	static const struct { const char *averaging, *why; } row[] = {
		{ "\"codec\":\"fp16\"", "averaging.codec" }, { "\"robust\":\"median\"", "averaging.robust" },
	};
	char spec[1200];
	struct swarm *w = run(spec_for(spec, "hivemind", ""), 1);
	struct replay_result r;
	struct err e;
	char *digit = strstr(w->m[0].log, "\"state\":\"") + 9;

	*digit = *digit == '1' ? '2' : '1';
	assert_int_equal(again(w, &r, &e), -1);
	assert_non_null(strstr(e.text, "log 0, line 1: the state that it begins with at epoch 0 is in no log"));
	for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
		w->spec = spec_for(spec, "hivemind", row[i].averaging);
		assert_int_equal(again(w, &r, &e), -1);
		assert_int_equal(e.code, ERR_INVALID);
		assert_non_null(strstr(e.text, row[i].why));
	}
	over(w);
}

/* Whatever stands in a log, it is an error or the same run. */
static void test_noise(void **state)
{
	static const char text[] = "0123456789\"[]{},:wasgopt-";
	struct rng rng;
	char spec[1200];

	rng_seed(&rng, 5);
	for (size_t m = 0; m < MODES; m += 3) {
		struct swarm *w = run(spec_for(spec, modes[m].strategy, modes[m].averaging), 9000 + m);
		unsigned seen = 0;
		struct replay_result is, r;
		struct err e;

		assert_int_equal(again(w, &is, &e), 0);
		for (int k = 0; k < 40; k++) {
			struct life *l = &w->m[rng_below(&rng, w->n)];
			size_t at = (size_t)rng_below(&rng, l->len);
			char was = l->log[at];

			l->log[at] = text[rng_below(&rng, sizeof(text) - 1)];
			if (again(w, &r, &e) < 0)
				seen++;
			else
				assert_memory_equal(&r, &is, sizeof(r));
			l->log[at] = was;
		}
		print_message("%s: %u of 40 are seen\n", modes[m].name, seen);
		assert_true(seen > 10);
		over(w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lies), cmocka_unit_test(test_scale), cmocka_unit_test(test_noise),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
