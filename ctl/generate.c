/* Prints a text while it is being written. It comes from a model that saw any bytes, so control bytes do not pass. */
#include "generate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/mem.h"
#include "print.h"

void generate_clean(char *text)
{
	for (unsigned char *p = (unsigned char *)text; *p; p++)
		if ((*p < 0x20 && *p != '\n' && *p != '\t') || *p == 0x7f)
			*p = '?';
		else if (*p == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0)     /* the control characters from U+0080 on */
			p[0] = p[1] = '?';
}

static void print_clean(const char *text)
{
	char *copy = xstrdup(text);

	generate_clean(copy);
	fputs(copy, stdout);
	free(copy);
}

static void print_line(const json_t *j)
{
	char *line = json_dumps(j, JSON_COMPACT);

	printf("%s\n", line ? line : "{}");
	free(line);
}

static const char *text_of(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

/* -1: more follows; else the exit code. */
static int take(const json_t *p, int json)
{
	const char *error = text_of(p, "error");

	if (json)
		print_line(p);
	else
		print_clean(text_of(p, "text"));
	if (!json_is_true(json_object_get(p, "final"))) {
		fflush(stdout);
		return -1;
	}
	if (!json)
		putchar('\n');
	fflush(stdout);
	if (*error) {
		char line[400];

		print_cell("", json_object_get(p, "error"), 0, line, sizeof line);
		fprintf(stderr, "hivectl: %s\n", line);
	}
	return *error ? 1 : 0;
}

int generate_show(struct conn *c, const json_t *first, const char *prompt, int json)
{
	const char *id = text_of(first, "generate");
	int rc = -1;

	if (json)
		print_line(first);
	else if (!json_is_true(json_object_get(first, "answers")))     /* else it is no continuation */
		print_clean(prompt);
	fflush(stdout);
	while (rc < 0) {
		struct err e;
		json_t *m = conn_read(c, -1, &e), *p = json_object_get(m, "params");

		if (!m) {
			fprintf(stderr, "%shivectl: %s\n", json ? "" : "\n", e.text);
			return 2;
		}
		if (strcmp(text_of(m, "method"), "generate") == 0 && strcmp(text_of(p, "generate"), id) == 0)
			rc = take(p, json);
		json_decref(m);
	}
	return rc;
}
