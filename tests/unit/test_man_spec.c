/* man/hivemind-spec.5 says what the program knows: every layer with its attributes, loss, optimizer with its
 * hyperparameters, schedule, step, kind of data, strategy and model of the zoo, with ranges and defaults, and every key
 * of every object; and the program takes the page's examples. All names come from the program: out of its lists, or
 * out of its answer to a word that nobody knows. */
#include <ctype.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "common/buf.h"
#include "kernels/optim.h"
#include "train/data/data.h"
#include "train/memory.h"
#include "train/spec/schedule.h"
#include "train/spec/spec.h"
#include "train/step.h"
#include "train/strategy.h"
#include "train/zoo.h"

#define PAGE SOURCE_ROOT "/man/hivemind-spec.5"
#define NOBODY "qqqqqqqq"                       /* a key that is near to none */
#define TEXT_MAX 4000

static char *page(void)
{
	FILE *in = fopen(PAGE, "r");
	char *text;
	size_t n;

	assert_non_null(in);
	text = calloc(1, 1 << 18);
	n = fread(text, 1, (1 << 18) - 1, in);
	assert_true(n > 0 && n < (1 << 18) - 1);
	fclose(in);
	return text;
}

/* Behind the line `head` in [from, to); NULL: there is none. */
static const char *behind(const char *from, const char *to, const char *head)
{
	size_t n = strlen(head);

	for (const char *p = from; p && p < to; p = strchr(p, '\n'), p = p ? p + 1 : NULL)
		if (!strncmp(p, head, n) && p[n] == '\n')
			return p + n + 1;
	return NULL;
}

/* Where the first line that begins with one of `stops` (three characters each) begins. */
static const char *until(const char *from, const char *to, const char *stops)
{
	for (const char *p = from; p && p < to; p = strchr(p, '\n'), p = p ? p + 1 : NULL)
		for (const char *s = stops; *s; s += 3)
			if (!strncmp(p, s, 3))
				return p;
	return to;
}

static bool macro(const char *word, size_t n)
{
	return n == 2 && isupper((unsigned char)word[0]) && islower((unsigned char)word[1]);
}

/* Running words: requests, macros and quotes gone. */
static void words(const char *from, const char *to, char *out)
{
	size_t at = 0;

	for (const char *p = from; p < to; ) {
		size_t n;

		p += strspn(p, " \n");
		n = strcspn(p, " \n");
		if (p + n > to)
			n = (size_t)(to - p);
		if (*p == '.' && n == 3)
			p++, n--;
		if (!macro(p, n) && n) {
			if (at && at + 1 < TEXT_MAX)
				out[at++] = ' ';
			for (size_t i = 0; i < n; i++)
				if (p[i] != '"' && at + 1 < TEXT_MAX)
					out[at++] = p[i];
		}
		p += n;
	}
	out[at] = 0;
}

struct part { const char *from, *to; };         /* of the page */

/* The part under a heading; none of it is an error that says what is missing. */
static struct part under(const char *text, const char *heading)
{
	char head[100];
	struct part p;

	(void)snprintf(head, sizeof(head), ".Ss %s", heading);
	p.from = behind(text, text + strlen(text), head);
	if (!p.from)
		fail_msg("%s has no \"%s\"", PAGE, head);
	p.to = until(p.from, text + strlen(text), ".Ss.Sh");
	return p;
}

/* The words of an item of a list. */
static void item(const struct part *p, const char *heading, const char *name, char *out)
{
	char head[100];
	const char *from;

	(void)snprintf(head, sizeof(head), ".It Cm %s", name);
	from = behind(p->from, p->to, head);
	if (!from)
		fail_msg("%s, \"%s\" has no \"%s\"", PAGE, heading, head);
	words(from, until(from, p->to, ".It.El.Bd"), out);
	if (strlen(out) < 10)
		fail_msg("%s, \"%s\": \"%s\" says nothing", PAGE, heading, name);
}

static void says(const struct part *p, const char *heading, const char *name, const char *what)
{
	char has[TEXT_MAX];

	item(p, heading, name, has);
	if (!strstr(has, what))
		fail_msg("%s, \"%s\": \"%s\" should say %s, and says: %s", PAGE, heading, name, what, has);
}

/* Each name of a list that is parted by blanks. */
static void names(const char *text, const char *heading, const char *list)
{
	struct part p = under(text, heading);
	char name[100], has[TEXT_MAX];

	while (*list) {
		size_t n = strcspn(list, " ");

		(void)snprintf(name, sizeof(name), "%.*s", (int)n, list);
		item(&p, heading, name, has);
		list += n + (list[n] == ' ');
	}
}

/* "(whole number 1 to 255, default 1)" */
static void range(char *out, size_t cap, const char *kind, double lo, double hi, bool open, double def)
{
	char has[40];

	(void)snprintf(has, sizeof(has), "default %.15g", def);
	(void)snprintf(out, cap, "(%s %.15g to %s%.15g, %s)", kind, lo, open ? "below " : "", hi,
		isnan(def) ? "required" : has);
}

static void attr_text(const struct layer_attr *a, char *out, size_t cap)
{
	if (a->integer && a->min == 0 && a->max == 1)
		(void)snprintf(out, cap, "(true or false, default %s)", a->def > 0 ? "true" : "false");
	else
		range(out, cap, a->integer ? "whole number" : "number", a->min, a->max, false, a->def);
}

static void key_text(const struct optim_key *k, char *out, size_t cap)
{
	if (k->flag)
		(void)snprintf(out, cap, "(true or false, default %s)", k->def > 0 ? "true" : "false");
	else
		range(out, cap, "number", k->min, k->max, k->open_max, k->def);
}

static void layers(void **state)
{
	char *text = page(), heading[80], what[120];

	for (int i = 0; layer_at(i); i++) {
		const struct layer_ops *ops = layer_at(i);
		struct part p;

		(void)snprintf(heading, sizeof(heading), "Layer %s", ops->name);
		p = under(text, heading);
		for (int a = 0; a < ops->nattrs; a++) {
			attr_text(&ops->attr[a], what, sizeof(what));
			says(&p, heading, ops->attr[a].name, what);
		}
	}
	free(text);
}

static void optimizers(void **state)
{
	char *text = page(), heading[80], what[120];

	for (int i = 0; optim_at(i); i++) {
		const struct optim_ops *ops = optim_at(i);
		struct part p;

		(void)snprintf(heading, sizeof(heading), "Optimizer %s", ops->name);
		p = under(text, heading);
		for (int k = 0; k < ops->nkeys; k++) {
			key_text(&ops->key[k], what, sizeof(what));
			says(&p, heading, ops->key[k].name, what);
		}
	}
	free(text);
}

static void names_of_lists(void **state)
{
	char *text = page(), list[400];

	names(text, "Losses", loss_names(list, sizeof(list)));
	names(text, "Schedules", schedule_names(list, sizeof(list)));
	names(text, "Kinds of data", data_names(list, sizeof(list)));
	names(text, "Strategies", strategy_names(list, sizeof(list)));
	names(text, "Policies", memory_names(list, sizeof(list)));
	free(text);
}

/* A value as the page writes it: texts without quotes. */
static void value_text(const json_t *v, char *out, size_t cap)
{
	char *s = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(12));

	(void)snprintf(out, cap, "%s", json_is_string(v) ? json_string_value(v) : s);
	free(s);
}

static void zoo(void **state)
{
	char *text = page(), value[200], what[300];
	struct part p = under(text, "Models of the zoo");

	for (const struct zoo_entry *z = zoo_entries; z->name; z++) {
		struct err e;
		json_t *j = zoo_entry_json(z->name, &e), *v;
		const char *key;

		assert_non_null(j);
		json_object_foreach(json_object_get(j, "parameters"), key, v) {
			value_text(v, value, sizeof(value));
			(void)snprintf(what, sizeof(what), json_is_string(v) ? "%s (%s; or" : "%s (%s)", key, value);
			says(&p, "Models of the zoo", z->name, what);
		}
		json_decref(j);
	}
	free(text);
}

/* --- keys of objects: the answer to one that nobody knows names those that are known */

#define HEAD "{\"name\":\"a\",\"input\":[1,8,8],\"model\":[{\"type\":\"flatten\"},{\"type\":\"linear\",\"out\":10}],"
#define LOSS "\"loss\":\"cross_entropy\","
#define OPTIM "\"optimizer\":{\"name\":\"sgd\"},"
#define DATA_ "\"data\":{\"name\":\"d\"},"
#define REST OPTIM DATA_ "\"target_batch\":8"
#define ODD "\"" NOBODY "\":1"

static const struct { const char *heading, *spec, *first; } objects[] = {
	{ "The spec", HEAD LOSS REST "," ODD "}", "input" },
	{ "averaging", HEAD LOSS REST ",\"averaging\":{" ODD "}}", "local_updates" },
	{ "averaging", HEAD LOSS REST ",\"strategy\":\"allreduce\",\"averaging\":{" ODD "}}", "sync_every" },
	{ "averaging", HEAD LOSS REST ",\"strategy\":\"diloco\",\"averaging\":{" ODD "}}", "inner_steps" },
	{ "plan", HEAD LOSS REST ",\"strategy\":\"pipeline\",\"plan\":{" ODD "}}", "schedule" },
	{ "stop", HEAD LOSS REST ",\"stop\":{" ODD "}}", "epochs" },
	{ "validation", HEAD LOSS REST ",\"validation\":{" ODD "}}", "split" },
	{ "loss_scale", HEAD LOSS REST ",\"precision\":\"fp16\",\"loss_scale\":{" ODD "}}", "init_scale" },
	{ "weights", HEAD LOSS REST ",\"weights\":{" ODD "}}", "digest" },
	{ "local", HEAD LOSS REST ",\"local\":{" ODD "}}", "data" },
	{ "remat", HEAD LOSS REST ",\"local\":{\"remat\":{" ODD "}}}", "policy" },
	{ "schedule", HEAD LOSS REST ",\"schedule\":{" ODD "}}", "name" },
	{ "data", HEAD LOSS OPTIM "\"data\":{\"name\":\"d\"," ODD "},\"target_batch\":8}", "name" },
	{ "loss", HEAD "\"loss\":{\"type\":\"cross_entropy\"," ODD "}," REST "}", "type" },
	{ "loss", "{\"name\":\"a\",\"input\":[8],\"model\":[{\"type\":\"embedding\",\"vocab\":4,\"dim\":4}],"
		"\"loss\":{\"type\":\"parts\"," ODD "}," REST "}", "type" },
	{ "Parts of a loss", "{\"name\":\"a\",\"input\":[8],\"model\":[{\"type\":\"embedding\",\"vocab\":4,\"dim\":4}],"
		"\"loss\":{\"type\":\"parts\",\"weights\":{\"x\":1},\"parts\":[{\"name\":\"x\"," ODD "}]}," REST "}", "name" },
	{ "Every layer", "{\"name\":\"a\",\"input\":[8],\"model\":[{\"type\":\"relu\"," ODD "}]," LOSS REST "}", "type" },
	{ "optimizer", HEAD LOSS "\"optimizer\":{\"name\":\"sgd\"," ODD "}," DATA_ "\"target_batch\":8}", "name" },
};

/* The keys after "known here: " or "known: " that are told about a spec with an odd key. */
static const char *known(const char *spec, struct err *e)
{
	struct spec *s = spec_parse(spec, strlen(spec), e);
	const char *list;

	assert_null(s);
	list = strstr(e->text, NOBODY) ? strstr(e->text, "known") : NULL;
	list = list ? strstr(list, ": ") : NULL;
	if (!list)
		fail_msg("%s: no known keys in \"%s\"", spec, e->text);
	return list + 2;
}

static void keys_of_objects(void **state)
{
	char *text = page();

	for (size_t i = 0; i < sizeof(objects) / sizeof(*objects); i++) {
		struct err e;
		const char *list = known(objects[i].spec, &e);

		assert_int_equal(strncmp(list, objects[i].first, strlen(objects[i].first)), 0);
		if (!strcmp(objects[i].heading, "optimizer"))          /* hyperparameters have their own headings */
			list = "name decay";
		names(text, objects[i].heading, list);
	}
	free(text);
}

/* Where a word out of a few is expected, the page names all of them. */
static const struct { const char *heading, *item, *spec; } choices[] = {
	{ "optimizer", "decay", HEAD LOSS "\"optimizer\":{\"name\":\"sgd\",\"decay\":\"" NOBODY "\"}}" },
	{ "schedule", "granularity", HEAD LOSS OPTIM "\"schedule\":{\"granularity\":\"" NOBODY "\"}}" },
	{ "schedule", "warmup_from", HEAD LOSS OPTIM "\"schedule\":{\"warmup_from\":\"" NOBODY "\"}}" },
	{ "schedule", "warmup_form", HEAD LOSS OPTIM "\"schedule\":{\"warmup_form\":\"" NOBODY "\"}}" },
	{ "plan", "schedule", HEAD LOSS REST ",\"strategy\":\"pipeline\",\"plan\":{\"schedule\":\"" NOBODY "\"}}" },
	{ "The spec", "conv", HEAD "\"conv\":\"" NOBODY "\"}" },
	{ "The spec", "precision", HEAD "\"precision\":\"" NOBODY "\"}" },
};

static void words_of_keys(void **state)
{
	char *text = page(), word[60];
	struct err e;

	for (size_t i = 0; i < sizeof(choices) / sizeof(*choices); i++) {
		struct part p = under(text, choices[i].heading);

		for (const char *w = known(choices[i].spec, &e); *w; w += strcspn(w, " "), w += *w == ' ') {
			(void)snprintf(word, sizeof(word), "%.*s", (int)strcspn(w, " "), w);
			says(&p, choices[i].heading, choices[i].item, word);
		}
	}
	names(text, "Kinds of convolution", known(HEAD "\"conv\":\"" NOBODY "\"}", &e));
	names(text, "Kinds of precision", known(HEAD "\"precision\":\"" NOBODY "\"}", &e));
	free(text);
}

static void keys_of_steps(void **state)
{
	char *text = page(), list[400], heading[80], spec[600];
	const char *at = step_names(list, sizeof(list));

	while (*at) {
		size_t n = strcspn(at, " ");
		struct err e;
		const char *keys;

		(void)snprintf(heading, sizeof(heading), "Step %.*s", (int)n, at);
		(void)snprintf(spec, sizeof(spec), HEAD LOSS OPTIM "\"data\":{\"name\":\"d\",\"steps\":[{\"type\":\"%.*s\"," ODD
			"}]},\"target_batch\":8}", (int)n, at);
		keys = known(spec, &e);
		assert_int_equal(strncmp(keys, "type", 4), 0);
		(void)under(text, heading);
		if (keys[4])
			names(text, heading, keys + 5);
		at += n + (at[n] == ' ');
	}
	free(text);
}

/* What an answer can name is all there is: the list of the longest object is not cut. */
static void the_answer_is_whole(void **state)
{
	struct err e;
	const char *list = known(objects[0].spec, &e), *last = strrchr(list, ' ');

	assert_non_null(last);
	assert_string_equal(last + 1, "local");
}

/* Examples are whole objects between lines of "{" and "}". */
static void examples(void **state)
{
	char *text = page();
	int n = 0;

	for (const char *p = text, *end; (p = strstr(p, "\n{\n")); p = end) {
		struct err e;
		struct spec *s;

		end = strstr(p, "\n}\n");
		assert_non_null(end);
		s = spec_parse(p + 1, (size_t)(end + 2 - p), &e);
		if (!s)
			fail_msg("example %d of %s: %s", n + 1, PAGE, e.text);
		spec_free(s);
		n++;
	}
	assert_true(n >= 3);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(layers),
		cmocka_unit_test(optimizers),
		cmocka_unit_test(names_of_lists),
		cmocka_unit_test(zoo),
		cmocka_unit_test(keys_of_objects),
		cmocka_unit_test(keys_of_steps),
		cmocka_unit_test(words_of_keys),
		cmocka_unit_test(the_answer_is_whole),
		cmocka_unit_test(examples),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
