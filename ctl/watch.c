/* Shows a run while it trains: progress bar, ETA, rates, loss, accuracy, and who takes part. */
#include "watch.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/text.h"
#include "print.h"

static const char *str(const json_t *o, const char *key, const char *none)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : none;
}

/* " key value" when the run knows it. */
static void add(struct buf *b, const json_t *run, const char *key, const char *name)
{
	const json_t *v = json_object_get(run, key);
	char text[64];

	if (!v || json_is_null(v))
		return;
	print_cell(key, v, 1, text, sizeof text);
	buf_printf(b, "  %s %s", name, text);
}

static void title(struct buf *b, const json_t *run)
{
	const json_t *epochs = json_object_get(run, "epochs");
	char name[80];

	snprintf(name, sizeof name, "%s", str(run, "name", "?"));
	text_clean(name);
	buf_printf(b, "%s (%.8s)  %s  epoch %lld", name, str(run, "run", "?"), str(run, "state", "?"),
		(long long)json_integer_value(json_object_get(run, "epoch")));
	if (json_integer_value(epochs) > 0)
		buf_printf(b, "/%lld", (long long)json_integer_value(epochs));
}

static void bar(struct buf *b, const json_t *run, int cols)
{
	const json_t *progress = json_object_get(run, "progress"), *eta = json_object_get(run, "eta_s");
	double p = json_number_value(progress);
	int n = cols > 70 ? 40 : cols > 40 ? cols - 30 : 10, full;
	char text[32];

	if (!json_is_number(progress))
		return;
	p = p < 0 ? 0 : p > 1 ? 1 : p;
	full = (int)(p * n + 0.5);
	buf_printf(b, "[");
	for (int i = 0; i < n; i++)
		buf_printf(b, "%s", i < full ? "#" : "-");
	buf_printf(b, "] %3.0f %%", 100 * p);
	if (json_is_number(eta) && json_number_value(eta) >= 0)
		buf_printf(b, "  ETA %s", text_print_duration((uint64_t)(json_number_value(eta) * 1e6), text, sizeof text));
	buf_printf(b, "\n");
}

static void figures(struct buf *b, const json_t *run)
{
	static const char *const v[][2] = { { "samples", "samples" }, { "samples_per_s", "rate" }, { "loss", "loss" },
		{ "val_loss", "val loss" }, { "val_perplexity", "val perplexity" }, { "val_accuracy", "val accuracy" },
		{ "members", "members" } };
	size_t before = b->len;

	for (size_t i = 0; i < sizeof v / sizeof *v; i++)
		add(b, run, v[i][0], v[i][1]);
	if (b->len > before) {
		memmove(b->p + before, b->p + before + 2, b->len - before - 2);
		b->len -= 2;
		buf_printf(b, "\n");
	}
}

/* Cuts lines at cols characters, so that the picture has the height that it is said to have. */
static int cut(const struct buf *in, int cols, struct buf *out)
{
	int lines = 0, at = 0;

	for (size_t i = 0; i < in->len; i++) {
		uint8_t c = in->p[i];

		if (c == '\n') {
			at = 0;
			lines++;
			buf_u8(out, c);
		} else if (at < cols || ((c & 0xc0) == 0x80 && at <= cols)) {
			at += (c & 0xc0) != 0x80;
			buf_u8(out, c);
		}
	}
	return lines;
}

int watch_draw(const json_t *run, int cols, struct buf *out)
{
	const json_t *peers = json_object_get(run, "peers");
	struct buf b = { 0 };
	char *text = NULL;
	size_t n = 0;
	int lines;
	FILE *f;

	title(&b, run);
	buf_printf(&b, "\n");
	bar(&b, run, cols);
	figures(&b, run);
	if (json_is_array(peers) && json_array_size(peers) > 0 && (f = open_memstream(&text, &n))) {
		print_table(f, peers, 0);
		fclose(f);
		buf_put(&b, text, n);
		free(text);
	}
	if (json_is_string(json_object_get(run, "error"))) {
		char why[300];

		print_cell("", json_object_get(run, "error"), 0, why, sizeof why);
		buf_printf(&b, "error: %s\n", why);
	}
	lines = cut(&b, cols, out);
	buf_free(&b);
	return lines;
}

void watch_line(const json_t *run, struct buf *out)
{
	title(out, run);
	add(out, run, "progress", "progress");
	add(out, run, "samples", "samples");
	add(out, run, "samples_per_s", "rate");
	add(out, run, "loss", "loss");
	add(out, run, "perplexity", "perplexity");
	add(out, run, "val_loss", "val loss");
	add(out, run, "val_perplexity", "val perplexity");
	add(out, run, "val_accuracy", "val accuracy");
	add(out, run, "members", "members");
	add(out, run, "eta_s", "ETA");
	add(out, run, "error", "error");
	buf_printf(out, "\n");
}

/* --- */

struct seen { json_int_t epoch; char state[32]; int lines; };

static void show(const json_t *run, struct seen *seen, int json, int terminal)
{
	struct winsize ws = { 0 };
	struct buf b = { 0 };
	json_int_t epoch = json_integer_value(json_object_get(run, "epoch"));
	const char *state = str(run, "state", "");

	if (json) {
		char *line = json_dumps(run, JSON_COMPACT);

		printf("%s\n", line ? line : "{}");
		free(line);
	} else if (terminal) {
		if (seen->lines > 0)
			printf("\033[%dA\033[J", seen->lines);
		if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &ws) < 0 || ws.ws_col < 20)
			ws.ws_col = 80;
		seen->lines = watch_draw(run, ws.ws_col - 1, &b);
		fwrite(b.p, 1, b.len, stdout);
	} else if (epoch != seen->epoch || strcmp(state, seen->state) != 0 || json_is_true(json_object_get(run, "final"))) {
		watch_line(run, &b);
		fwrite(b.p, 1, b.len, stdout);
	}
	fflush(stdout);
	seen->epoch = epoch;
	snprintf(seen->state, sizeof seen->state, "%s", state);
	buf_free(&b);
}

static int ended(const json_t *run)
{
	if (!json_is_true(json_object_get(run, "final")))
		return -1;
	return strcmp(str(run, "state", ""), "failed") == 0 ? 1 : 0;
}

int watch_run(struct conn *c, const json_t *first, int json, int terminal)
{
	struct seen seen = { .epoch = -1 };
	int rc;

	show(first, &seen, json, terminal);
	rc = ended(first);
	while (rc < 0) {
		struct err e;
		json_t *m = conn_read(c, -1, &e);

		if (!m) {
			fprintf(stderr, "hivectl: %s\n", e.text);
			return 2;
		}
		if (strcmp(str(m, "method", ""), "run") == 0) {
			show(json_object_get(m, "params"), &seen, json, terminal);
			rc = ended(json_object_get(m, "params"));
		}
		json_decref(m);
	}
	return rc;
}
