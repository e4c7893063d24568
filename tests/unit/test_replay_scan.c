/* What a replay says before and while it computes: who is missing, whose bits cannot be those of the logs, of which run
 * they are, how far it is, and on which line it has ended. */
#include "replay_kit.h"

static unsigned lives_of(const struct swarm *w, unsigned id)
{
	unsigned set = 0;

	for (unsigned i = 0; i < w->n; i++)
		set |= w->m[i].id == id ? 1u << i : 0;
	return set;
}

/* The first epoch whose round has that peer, in any log. 0: none. */
static uint64_t counted_from(const struct swarm *w, unsigned id)
{
	uint64_t first = 0;
	char who[24];

	(void)snprintf(who, sizeof(who), "[\"%016x\",", id);
	for (unsigned i = 0; i < w->n; i++) {
		const char *at = memmem(w->m[i].log, w->m[i].len, who, strlen(who));
		const char *epoch = at;

		while (epoch && epoch > w->m[i].log && memcmp(epoch, "\"epoch\":", 8))
			epoch--;
		if (epoch && (!first || strtoull(epoch + 8, NULL, 10) < first))
			first = strtoull(epoch + 8, NULL, 10);
	}
	return first;
}

/* Each peer in turn, all of whose logs are missing; then all but one's. */
static void test_missing(void **state)
{
	static const struct replay_conf plain;
	char spec[1200], want[80];
	struct swarm *w = run(spec_for(spec, "hivemind", "\"delay_grad\":true"), 11);
	struct replay_result r;
	struct err e;
	unsigned named = 0;

	assert_int_equal(again(w, &r, &e), 0);
	assert_int_equal(r.peers, w->ids);
	for (unsigned id = 0; id < w->ids; id++) {
		uint64_t from = counted_from(w, id);

		if (!from)
			continue;
		assert_int_equal(again_of(w, ~lives_of(w, id), &plain, &r, &e), -1);
		(void)snprintf(want, sizeof(want), "no log of theirs is here: %016x from epoch %llu on", id,
			(unsigned long long)from);
		if (e.code != ERR_NOT_FOUND || !strstr(e.text, want))
			fail_msg("%s, not: %s", want, e.text);
		assert_int_equal(r.samples, 0);         /* nothing was computed */
		assert_int_equal(r.line, 0);
		if (!again_of(w, lives_of(w, id), &plain, &r, &e))
			continue;                       /* its lives have ended before any round */
		for (unsigned other = 0; other < w->ids && e.code == ERR_NOT_FOUND; other++) {
			(void)snprintf(want, sizeof(want), "%016x from epoch", other);
			named += other != id && strstr(e.text, want);
		}
	}
	assert_true(named > 2 * w->ids);        /* several at once */
	over(w);
}

static void refused(struct swarm *w, const char *spec, const char *why)
{
	struct replay_result r;
	struct err e;

	w->spec = spec;
	assert_int_equal(again(w, &r, &e), -1);
	if (e.code != ERR_INVALID || !strstr(e.text, why))
		fail_msg("%s, not: %s", why, e.text);
}

/* Sums whose order no log has, and what it began with. */
static void test_refused(void **state)
{
	char spec[1200], weights[1300];
	struct swarm *w = run(spec_for(spec, "hivemind", ""), 1);
	struct replay_result r;
	struct err e;

	(void)snprintf(weights, sizeof(weights), "{\"weights\":{},%s", spec + 1);
	refused(w, weights, "file of weights");
	refused(w, spec_for(spec, "hivemind", "\"group_size\":2"), "more than averaging.group_size (2)");
	w->spec = spec_for(spec, "hivemind", "\"group_size\":2,\"topology\":\"flat\"");
	assert_int_equal(again(w, &r, &e), 0);
	w->spec = spec_for(spec, "hivemind", "\"group_size\":4");
	assert_int_equal(again(w, &r, &e), 0);
	over(w);
}

struct seen { uint64_t epochs, of; unsigned calls; };

static void progress(void *arg, uint64_t epochs, uint64_t of)
{
	struct seen *s = arg;

	assert_int_equal(epochs, s->epochs + 1);
	assert_true(!s->of || of == s->of);
	s->epochs = epochs;
	s->of = of;
	s->calls++;
}

/* How far it is; and where it ends: the line whose loss is another, in the log that is named. */
static void test_progress(void **state)
{
	char spec[1200], *digit;
	struct swarm *w = run(spec_for(spec, "allreduce", "\"async\":true"), 3);
	struct seen s = { 0 };
	struct replay_result r;
	struct err e;
	size_t line = 1;

	if (again_of(w, UINT32_MAX, &(struct replay_conf){ .progress = progress, .arg = &s }, &r, &e) < 0)
		fail_msg("%s", e.text);
	assert_true(s.calls == EPOCHS && s.epochs == r.epochs && s.of == EPOCHS);
	digit = strstr(w->m[0].log + w->m[0].len / 2, "\"fn\":\"loss\"");
	digit = strstr(digit, "\"loss\":\"0x1.") + strlen("\"loss\":\"0x1.");
	*digit = *digit == '1' ? '2' : '1';
	s = (struct seen){ 0 };
	assert_int_equal(again_of(w, UINT32_MAX, &(struct replay_conf){ .progress = progress, .arg = &s }, &r, &e), -1);
	assert_int_equal(e.code, ERR_MISMATCH);
	assert_int_equal(r.log, 0);
	for (const char *at = w->m[0].log; at < digit; at++)
		line += *at == '\n';
	assert_true(r.line > line && r.line < line + 40);       /* where the gradient is first read */
	assert_true(r.epochs == s.epochs && r.epoch <= EPOCHS && r.epoch >= 1);
	over(w);
}

/* Of which run logs are: their first lines. */
static int of_run(const char *first, const char *second, struct err *e)
{
	struct replay_log log[2] = { { first, strlen(first), "one" }, { second ? second : "", second ? strlen(second) : 0,
		"two" } };
	struct spec *s = replay_spec(log, second ? 2 : 1, e);
	bool is = s != NULL;

	if (s) {
		assert_string_equal(s->name, "r");
		assert_int_equal(s->target_batch, 96);
		assert_string_equal(s->local.data, "/d");
	}
	spec_free(s);
	return is ? 0 : -1;
}

static char *head_with(const char *strategy, const char *id, const char *local)
{
	char spec[1200], *text = malloc(2000);
	size_t n = strlen(spec_for(spec, strategy, ""));

	*strstr(spec, ",\"local\"") = '}';
	n = (size_t)(strchr(strstr(spec, "\"count\":500}"), '}') + 2 - spec);
	(void)snprintf(text, 2000, "{\"t\":1,\"ev\":\"peer\",\"id\":\"%016x\"}\n"
		"{\"t\":1,\"ev\":\"run\",\"id\":\"%s\",\"name\":\"r\","
		"\"spec\":%.*s,\"local\":%s}\n", 7, id, (int)n, spec, local);
	return text;
}

static char *head(const char *id, const char *local) { return head_with("hivemind", id, local); }

static void test_run(void **state)
{
	char *a = head("aa", "{\"deterministic\":true,\"data\":\"/d\"}"), *b = head("aa", "{\"deterministic\":true}");
	char *other = head("ab", "{\"deterministic\":true}"), *chance = head("aa", "{\"batch\":8}");
	char *idle = head("aa", "{\"aux\":true}"), *wrong = head("aa", "{\"deterministic\":true,\"bath\":8}");
	char *line = head_with("pipeline\",\"plan\":{\"stages\":2},\"conv\":\"auto", "aa", "{\"batch\":8}");
	const struct { const char *first, *second, *why; enum err_code code; } row[] = {
		{ a, NULL, NULL, ERR_NONE }, { a, b, NULL, ERR_NONE }, { a, idle, NULL, ERR_NONE },
		{ idle, a, NULL, ERR_NONE },
		{ a, other, "two: it is of run r (ab), and one of run r (aa)", ERR_INVALID },
		{ a, chance, "two: this peer did not have \"deterministic\": true", ERR_INVALID },
		{ chance, a, "one: this peer did not have", ERR_INVALID },
		{ a, "", "two: it is empty", ERR_CORRUPT }, { "", NULL, "one: it is empty", ERR_CORRUPT },
		{ strchr(a, '\n') + 1, NULL, NULL, ERR_NONE }, { a, "\n\n\n\n{", "two: it does not say", ERR_CORRUPT },
		{ "{\"t\":1,\"ev\":\"run\",\"id\":\"aa\",\"name\":\"r\"", NULL, "one: it does not say", ERR_CORRUPT },
		{ "{\"t\":1,\"ev\":\"run\",\"id\":\"aa\",\"name\":\"r\",\"local\":{\"deterministic\":true}}", NULL, "one: ",
			ERR_INVALID },
		{ wrong, NULL, "one: local.bath", ERR_INVALID },
		{ line, NULL, "one: replay: strategy pipeline", ERR_INVALID },
	};

	for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
		struct err e = { 0 };
		int rc = of_run(row[i].first, row[i].second, &e);

		if (rc != (row[i].why ? -1 : 0) || (row[i].why && (!strstr(e.text, row[i].why) || e.code != row[i].code)))
			fail_msg("row %zu: %s", i, e.text);
	}
	free(a); free(b); free(other); free(chance); free(idle); free(wrong); free(line);
}

int main(void)
{
	const struct CMUnitTest t[] = {
		cmocka_unit_test(test_missing), cmocka_unit_test(test_refused), cmocka_unit_test(test_progress),
		cmocka_unit_test(test_run),
	};

	return cmocka_run_group_tests(t, NULL, NULL);
}
