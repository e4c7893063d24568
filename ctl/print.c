/* Prints JSON for people. What came over the network may be in it, so control bytes are replaced everywhere. */
#include "print.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/mem.h"
#include "common/text.h"

#define CELL 200
#define NESTED 40                       /* bytes of a structure that are shown in a table */

static bool ends(const char *s, const char *tail)
{
	size_t n = strlen(s), m = strlen(tail);

	return n >= m && strcmp(s + n - m, tail) == 0;
}

/* Characters, not bytes. */
static int width(const char *s)
{
	int n = 0;

	for (; *s; s++)
		n += ((unsigned char)*s & 0xc0) != 0x80;
	return n;
}

static void pad(FILE *f, int n)
{
	for (; n > 0; n--)
		fputc(' ', f);
}

static bool is_hex_id(const char *s)
{
	return strlen(s) == 64 && strspn(s, "0123456789abcdef") == 64;
}

static void number(const char *key, const json_t *v, char *out, size_t cap)
{
	double d = json_number_value(v);

	char size[32];

	if (ends(key, "_bytes_per_s") && d >= 0)
		snprintf(out, cap, "%s/s", text_print_size((uint64_t)d, size, sizeof size));
	else if (ends(key, "_per_s"))
		snprintf(out, cap, "%.*f/s", d < 100 ? 1 : 0, d);
	else if ((ends(key, "_us") || ends(key, "_s")) && d >= 0)
		text_print_duration((uint64_t)(ends(key, "_us") ? d : d * 1e6), out, cap);
	else if (ends(key, "_ms") && d > 1e11)
		text_print_time((uint64_t)d, out, cap);
	else if ((ends(key, "_bytes") || strcmp(key, "bytes") == 0 || strncmp(key, "bytes_", 6) == 0) && d >= 0)
		text_print_size((uint64_t)d, out, cap);
	else if ((ends(key, "accuracy") || strcmp(key, "progress") == 0 || strcmp(key, "probability") == 0) && d >= 0 &&
		d <= 1)
		snprintf(out, cap, "%.2f %%", 100 * d);
	else if (json_is_integer(v))
		snprintf(out, cap, "%lld", (long long)json_integer_value(v));
	else
		snprintf(out, cap, "%.6g", d);
}

/* "a, b, c", cleaned. */
static void list(const json_t *v, int brief, char *out, size_t cap)
{
	size_t i, at = 0;
	json_t *x;

	out[0] = '\0';
	json_array_foreach((json_t *)v, i, x) {
		char one[CELL];

		print_cell("", x, brief, one, sizeof one);
		if (at < cap)
			at += (size_t)snprintf(out + at, cap - at, "%s%s", i ? ", " : "", one);
	}
	text_clean(out);
}

void print_cell(const char *key, const json_t *v, int brief, char *out, size_t cap)
{
	char *dump;

	switch (v ? json_typeof(v) : JSON_NULL) {
	case JSON_NULL: snprintf(out, cap, "-"); return;
	case JSON_TRUE: snprintf(out, cap, "yes"); return;
	case JSON_FALSE: snprintf(out, cap, "no"); return;
	case JSON_INTEGER: case JSON_REAL: number(key, v, out, cap); return;
	case JSON_STRING:
		snprintf(out, cap, brief && is_hex_id(json_string_value(v)) ? "%.8s" : "%s", json_string_value(v));
		break;
	case JSON_ARRAY:
		if (brief && json_is_object(json_array_get(v, 0))) {
			snprintf(out, cap, "%zu", json_array_size(v));   /* how many; without a table around it, they are shown */
			return;
		}
		if (!json_array_size(v) || !json_is_string(json_array_get(v, 0)))
			goto dump;
		list(v, brief, out, cap);
		return;
	default:
dump:
		dump = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
		snprintf(out, cap, "%s", dump ? dump : "?");
		free(dump);
	}
	text_clean(out);
}

void print_text(FILE *f, const char *text)
{
	char *copy = xstrdup(text), *line = copy;

	while (line) {
		char *end = strchr(line, '\n');

		if (end)
			*end = '\0';
		text_clean(line);
		if (*line || end)
			fprintf(f, "%s\n", line);
		line = end ? end + 1 : NULL;
	}
	free(copy);
}

/* --- tables: all cells as text first, so that columns can be as wide as they must */

struct grid { char **cell; size_t cols, rows; bool *right; };

/* Columns of the terminal that f is; 0: it is none. */
static int terminal(FILE *f)
{
	struct winsize ws;

	return isatty(fileno(f)) && ioctl(fileno(f), TIOCGWINSZ, &ws) == 0 ? ws.ws_col : 0;
}

/* What does not fit into a terminal is left out from the right, whole columns at a time, and counted. */
static size_t fitting(const struct grid *g, const int *w, int indent, int room)
{
	size_t c;
	int at = indent;

	for (c = 0; c < g->cols; c++) {
		at += w[c] + (c ? 2 : 0);
		if (room && c && at > room)
			break;
	}
	return c;
}

static void grid_print(FILE *f, const struct grid *g, int indent)
{
	int *w = xcalloc(g->cols, sizeof *w);
	size_t cols;

	for (size_t i = 0; i < g->cols * g->rows; i++)
		if (width(g->cell[i]) > w[i % g->cols])
			w[i % g->cols] = width(g->cell[i]);
	cols = fitting(g, w, indent, terminal(f));
	for (size_t r = 0; r < g->rows; r++) {
		pad(f, indent);
		for (size_t c = 0; c < cols; c++) {
			const char *s = g->cell[r * g->cols + c];

			if (g->right[c])
				pad(f, w[c] - width(s));
			fputs(s, f);
			if (!g->right[c] && c + 1 < cols)
				pad(f, w[c] - width(s));
			if (c + 1 < cols)
				fputs("  ", f);
		}
		fputc('\n', f);
	}
	if (cols < g->cols)
		fprintf(f, "(%zu more columns do not fit)\n", g->cols - cols);
	free(w);
}

static void grid_free(struct grid *g)
{
	for (size_t i = 0; i < g->cols * g->rows; i++)
		free(g->cell[i]);
	free(g->cell);
	free(g->right);
}

/* A key as words; the unit goes, because the value says it. */
static void label(const char *key, char *out, size_t cap)
{
	static const char *const units[] = { "_us", "_ms", "_s", "_bytes" };

	snprintf(out, cap, "%s", key);
	for (size_t i = 0; i < sizeof units / sizeof *units && !ends(key, "_per_s"); i++)
		if (ends(out, units[i])) {
			out[strlen(out) - strlen(units[i])] = '\0';
			break;
		}
	text_clean(out);
	for (; *out; out++)
		*out = *out == '_' ? ' ' : *out;
}

static void head(const char *key, char *out, size_t cap)
{
	label(key, out, cap);
	for (; *out; out++)
		*out = *out >= 'a' && *out <= 'z' ? (char)(*out - 32) : *out;
}

/* A cell of a table: whole when it is plain, cut when it is a structure. */
static char *cell_text(const char *key, const json_t *v, int brief)
{
	char text[CELL];

	print_cell(key, v, brief, text, sizeof text);
	if (brief && (json_is_object(v) || json_is_array(v)) && strlen(text) > NESTED) {
		memcpy(text + NESTED - 3, "...", 4);
		text_clean(text);
	}
	return xstrdup(text);
}

void print_table(FILE *f, const json_t *rows, int indent)
{
	json_t *keys = json_object(), *row, *v;
	struct grid g = { .rows = json_array_size(rows) + 1 };
	const char *key;
	char name[CELL];
	size_t i, c = 0;

	json_array_foreach((json_t *)rows, i, row)
		json_object_foreach(row, key, v)
			if (!json_object_get(keys, key))
				json_object_set_new(keys, key, json_true());
	g.cols = json_object_size(keys);
	if (g.cols == 0) {
		pad(f, indent);
		fputs("none\n", f);
		json_decref(keys);
		return;
	}
	g.cell = xcalloc(g.cols * g.rows, sizeof *g.cell);
	g.right = xcalloc(g.cols, sizeof *g.right);
	json_object_foreach(keys, key, v) {
		g.right[c] = true;
		head(key, name, sizeof name);
		g.cell[c] = xstrdup(name);
		json_array_foreach((json_t *)rows, i, row) {
			const json_t *x = json_object_get(row, key);

			if (x && !json_is_number(x) && !json_is_null(x))
				g.right[c] = false;
			g.cell[(i + 1) * g.cols + c] = cell_text(key, x, 1);
		}
		c++;
	}
	grid_print(f, &g, indent);
	grid_free(&g);
	json_decref(keys);
}

void print_query(FILE *f, const json_t *columns, const json_t *rows)
{
	struct grid g = { .cols = json_array_size(columns), .rows = json_array_size(rows) + 1 };
	size_t i;
	json_t *row;

	if (g.cols == 0)
		return;
	g.cell = xcalloc(g.cols * g.rows, sizeof *g.cell);
	g.right = xcalloc(g.cols, sizeof *g.right);
	for (size_t c = 0; c < g.cols; c++) {
		g.right[c] = true;
		g.cell[c] = cell_text("", json_array_get(columns, c), 0);
		json_array_foreach((json_t *)rows, i, row) {
			const json_t *x = json_array_get(row, c);

			if (x && !json_is_number(x) && !json_is_null(x))
				g.right[c] = false;
			g.cell[(i + 1) * g.cols + c] = cell_text("", x, 0);     /* SQL's own numbers: no units */
		}
	}
	grid_print(f, &g, 0);
	grid_free(&g);
}

/* --- objects */

static bool is_table(const json_t *v)
{
	return json_is_array(v) && json_array_size(v) > 0 && json_is_object(json_array_get(v, 0));
}

static void print_list(FILE *f, const json_t *v)
{
	size_t i;
	json_t *x;
	char text[CELL];

	json_array_foreach((json_t *)v, i, x) {
		print_cell("", x, 0, text, sizeof text);
		fprintf(f, "%s%s", i ? ", " : "", text);
	}
	fputs(json_array_size(v) ? "\n" : "none\n", f);
}

void print_object(FILE *f, const json_t *o, int indent)
{
	const char *key;
	char text[4096], name[CELL];
	int w = 0;
	json_t *v;

	json_object_foreach((json_t *)o, key, v) {
		label(key, name, sizeof name);
		if (!json_is_object(v) && !is_table(v) && width(name) > w && width(name) < 40)
			w = width(name);
	}
	json_object_foreach((json_t *)o, key, v) {
		label(key, name, sizeof name);
		pad(f, indent);
		if (json_is_object(v) || is_table(v)) {
			fprintf(f, "%s:\n", name);
			if (json_is_object(v))
				print_object(f, v, indent + 2);
			else
				print_table(f, v, indent + 2);
			continue;
		}
		fprintf(f, "%s:", name);
		pad(f, w - width(name) + 1);
		if (json_is_array(v)) {
			print_list(f, v);
			continue;
		}
		print_cell(key, v, 0, text, sizeof text);
		fprintf(f, "%s\n", text);
	}
}

void print_log_line(FILE *f, const json_t *line)
{
	char at[40], text[CELL * 3];
	json_t *lost = json_object_get(line, "lost");

	if (lost)
		fprintf(f, "(%lld lines were dropped: this reader is too slow)\n", (long long)json_integer_value(lost));
	text_print_time((uint64_t)json_integer_value(json_object_get(line, "wall_ms")), at, sizeof at);
	print_cell("", json_object_get(line, "text"), 0, text, sizeof text);
	fprintf(f, "%s %-7.7s %s\n", at, json_string_value(json_object_get(line, "level")) ?
		json_string_value(json_object_get(line, "level")) : "?", text);
}

/* Only these keys of an object, in this order; names are separated by commas. Keys that are not there stay away. */
static json_t *pick(const json_t *o, const char *names)
{
	json_t *out = json_object();

	while (*names) {
		size_t n = strcspn(names, ",");
		char key[64];

		snprintf(key, sizeof key, "%.*s", (int)n, names);
		if (json_object_get(o, key))
			json_object_set(out, key, json_object_get(o, key));
		names += n + (names[n] == ',');
	}
	return out;
}

static json_t *pick_rows(const json_t *rows, const char *names)
{
	json_t *out = json_array(), *row;
	size_t i;

	json_array_foreach((json_t *)rows, i, row)
		json_array_append_new(out, pick(row, names));
	return out;
}

static void print_value(FILE *f, const json_t *v)
{
	if (json_is_string(v))
		print_text(f, json_string_value(v));
	else if (json_is_array(v))
		print_table(f, v, 0);
	else
		print_object(f, v, 0);
}

/* The row's print: KEY, KEY:COLUMN,COLUMN or :KEY,KEY. */
void print_reply(FILE *f, const json_t *cmd, const json_t *result)
{
	const char *print = json_string_value(json_object_get(cmd, "print")), *names = print ? strchr(print, ':') : NULL;
	char key[64] = "";
	json_t *v, *line;
	size_t i;

	if (print)
		snprintf(key, sizeof key, "%.*s", names ? (int)(names - print) : (int)strlen(print), print);
	v = *key ? json_object_get(result, key) : NULL;
	if (v && strcmp(key, "lines") == 0) {
		json_array_foreach(v, i, line)
			print_log_line(f, line);
	} else if (v && json_object_get(result, "columns")) {
		print_query(f, json_object_get(result, "columns"), v);
		if (json_is_true(json_object_get(result, "truncated")))
			fputs("(there are more rows: --rows N)\n", f);
	} else if (names) {
		json_t *some = json_is_array(v) ? pick_rows(v, names + 1) : pick(v ? v : result, names + 1);

		print_value(f, some);
		json_decref(some);
	} else {
		print_value(f, v ? v : result);
	}
}
