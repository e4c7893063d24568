/* hivectl: asks the daemon what it understands, turns words into one request, prints the answer. Exit code: 0 done,
 * 1 the daemon refused, 2 cannot talk to it, 3 usage. */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/jrpc.h"
#include "common/mem.h"
#include "common/text.h"
#include "conn.h"
#include "generate.h"
#include "print.h"
#include "watch.h"
#include "words.h"

enum { DONE = 0, REFUSED = 1, UNREACHABLE = 2, USAGE = 3 };

struct ctl {
	const char *socket;
	bool json, yes, help, names, complete;
	int timeout_ms;
	const char **words;     /* what is left for the command */
	size_t n;
	struct conn conn;
	json_t *table;          /* array of command rows */
};

static const char usage_text[] =
	"usage: hivectl [-s SOCKET] [--json] [--timeout SECONDS] [--yes] COMMAND [WORD]...\n"
	"       hivectl help [COMMAND]      what there is to ask (the daemon must run)\n"
	"       hivectl --version\n"
	"Without a command: status. The socket is -s, else HIVEMIND_SOCKET, else the system's or the user's default.\n"
	"Exit code: 0 done, 1 the daemon refused, 2 cannot talk to it, 3 usage.\n";

static int fail(int code, const char *text)
{
	fprintf(stderr, "hivectl: %s\n", text);
	return code;
}

/* --- hivectl's own options; the rest are the command's */

static int take_value(struct ctl *c, char **argv, int argc, int *i, const char *name, size_t len, const char **ret)
{
	char text[80];

	(void)c;
	if (argv[*i][len] == '=') {
		*ret = argv[*i] + len + 1;
		return 0;
	}
	if (*i + 1 < argc) {
		*ret = argv[++*i];
		return 0;
	}
	snprintf(text, sizeof text, "%s needs a value", name);
	return fail(-1, text);
}

static int own_option(struct ctl *c, char **argv, int argc, int *i)
{
	const char *a = argv[*i], *value;
	uint64_t us;
	struct err e;

	if (strcmp(a, "-s") == 0 || strcmp(a, "--socket") == 0 || strncmp(a, "--socket=", 9) == 0)
		return take_value(c, argv, argc, i, "--socket", a[1] == 's' ? 2 : 8, &c->socket) < 0 ? -1 : 1;
	if (strcmp(a, "--timeout") == 0 || strncmp(a, "--timeout=", 10) == 0) {
		if (take_value(c, argv, argc, i, "--timeout", 9, &value) < 0)
			return -1;
		if (text_duration(value, &us, &e) < 0 || us > 86400000000u)
			return fail(-1, "--timeout: expected seconds, or a duration such as 2m");
		c->timeout_ms = (int)(us / 1000);
		return 1;
	}
	if (strcmp(a, "--json") == 0)
		return c->json = true;
	if (strcmp(a, "--yes") == 0 || strcmp(a, "-y") == 0)
		return c->yes = true;
	if (strcmp(a, "--help") == 0 || strcmp(a, "-h") == 0)
		return c->help = true;
	if (strcmp(a, "--names") == 0)
		return c->names = true;
	if (strcmp(a, "--complete") == 0)
		return c->complete = true;
	return 0;
}

static int read_options(struct ctl *c, int argc, char **argv)
{
	bool own = true;

	c->words = xcalloc((size_t)argc + 1, sizeof *c->words);
	for (int i = 1; i < argc; i++) {
		int rc = own && argv[i][0] == '-' ? own_option(c, argv, argc, &i) : 0;

		if (rc < 0)
			return -1;
		if (strcmp(argv[i], "--") == 0)
			own = false;
		if (rc == 0)
			c->words[c->n++] = argv[i];
		if (c->complete)
			own = false;
	}
	return 0;
}

/* -s, HIVEMIND_SOCKET, the system's when it is there, the user's. */
static char *find_socket(const struct ctl *c)
{
	const char *env = getenv("HIVEMIND_SOCKET"), *xdg = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
	char *user;

	if (c->socket)
		return xstrdup(c->socket);
	if (env && *env)
		return xstrdup(env);
	if (xdg && *xdg == '/')
		user = xasprintf("%s/hivemindd/control.sock", xdg);
	else
		user = xasprintf("%s/.local/state/hivemindd/control.sock", home ? home : "");
	if (access("/run/hivemindd/control.sock", F_OK) == 0 || access(user, F_OK) != 0) {
		free(user);
		user = xstrdup("/run/hivemindd/control.sock");
	}
	return user;
}

/* --- asking */

/* The result, or NULL with *ret_code set and the reason printed. */
static json_t *ask(struct ctl *c, const char *method, json_t *params, int timeout_ms, int *ret_code)
{
	json_t *error = NULL, *result = NULL;
	struct err e;
	char text[600];

	*ret_code = UNREACHABLE;
	if (conn_send(&c->conn, method, params, &e) < 0) {
		*ret_code = e.code == ERR_LIMIT ? USAGE : UNREACHABLE;
		fail(0, e.text);
		return NULL;
	}
	result = conn_answer(&c->conn, timeout_ms, &error, &e);
	if (error) {
		print_cell("", json_object_get(error, "message"), 0, text, sizeof text);
		if (c->json) {
			char *dump = json_dumps(error, JSON_COMPACT);

			printf("{\"error\":%s}\n", dump ? dump : "null");
			free(dump);
		}
		fail(0, text);
		*ret_code = REFUSED;
		json_decref(error);
		json_decref(result);
		return NULL;
	}
	if (!result)
		fail(0, e.text);
	return result;
}

static int connect_to(struct ctl *c)
{
	char *path = find_socket(c);
	struct err e;
	int rc = conn_open(&c->conn, path, &e);

	free(path);
	return rc < 0 ? fail(UNREACHABLE, e.text) : 0;
}

static int fetch_table(struct ctl *c)
{
	int code;
	json_t *r = ask(c, "help", json_object(), c->timeout_ms, &code);

	if (!r)
		return code;
	c->table = json_incref(json_object_get(r, "commands"));
	json_decref(r);
	return json_is_array(c->table) ? 0 : fail(UNREACHABLE, "what answers at the socket is not a hivemindd");
}

/* --- help and completion */

static const char *str(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

static void print_json(const json_t *j)
{
	json_dumpf(j, stdout, JSON_COMPACT);
	putchar('\n');
}

static void help_one(const json_t *cmd)
{
	char usage[512];
	size_t i;
	json_t *p;

	words_usage(cmd, usage, sizeof usage);
	printf("%s\n    %s\n", usage, str(cmd, "help"));
	json_array_foreach(json_object_get(cmd, "params"), i, p)
		printf("  %-12s %-9s %s%s\n", str(p, "name"), str(p, "type"), str(p, "help"),
			json_is_true(json_object_get(p, "required")) ? "" : " (optional)");
}

static int help(struct ctl *c, const char *const *w, size_t n)
{
	size_t i, used;
	json_t *row;
	struct err e;

	if (n > 0) {
		const json_t *cmd = words_command(c->table, w, n, &used, &e);

		if (cmd && used == n && c->json)
			print_json(cmd);
		else if (cmd && used == n)
			help_one(cmd);
		return cmd && used == n ? DONE : fail(USAGE, cmd ? "help takes one command" : e.text);
	}
	if (c->json) {
		print_json(c->table);
		return DONE;
	}
	if (!c->names)
		puts("hivectl [-s SOCKET] [--json] COMMAND ...   (hivectl help COMMAND tells more)\n");
	json_array_foreach(c->table, i, row) {
		if (c->names)
			puts(str(row, "name"));
		else
			printf("  %-12s %s\n", str(row, "name"), str(row, "help"));
	}
	return DONE;
}

/* The words that could come next, one a line, for the shell. */
static int complete(struct ctl *c)
{
	size_t i, k, used = 0;
	struct err e;
	json_t *row, *p, *r;
	const json_t *cmd = c->n ? words_command(c->table, c->words, c->n, &used, &e) : NULL;
	const char *last = "";          /* nouns stand together in the table */
	int code;

	if (!cmd || used > c->n) {
		json_array_foreach(c->table, i, row) {
			const char *name = str(row, "name"), *space = strchr(name, ' ');
			size_t len = c->n ? strlen(c->words[0]) : 0;

			if (c->n == 0 && !(space && strncmp(name, last, (size_t)(space - name) + 1) == 0))
				printf("%.*s\n", space ? (int)(space - name) : (int)strlen(name), name);
			else if (space && (size_t)(space - name) == len && strncmp(name, c->words[0], len) == 0)
				puts(space + 1);
			last = name;
		}
		return DONE;
	}
	json_array_foreach(json_object_get(cmd, "params"), i, p) {
		if (json_is_true(json_object_get(p, "option"))) {
			char name[64];

			snprintf(name, sizeof name, "%s", str(p, "name"));
			for (char *s = name; *s; s++)
				*s = *s == '_' ? '-' : *s;
			printf("--%s\n", name);
		} else if (strcmp(str(p, "name"), "run") == 0 && c->n == used &&
			(r = ask(c, "run.list", json_object(), 1000, &code))) {
			json_array_foreach(json_object_get(r, "runs"), k, row)
				puts(str(row, "name"));
			json_decref(r);
		}
	}
	return DONE;
}

/* --- running a command */

/* DONE: it may go on. Nobody is asked about what cannot be done anyway: the daemon says so first. */
static int agree(struct ctl *c, const json_t *cmd, const json_t *params)
{
	char line[16];
	json_t *check, *r;
	int code;

	if (!json_is_true(json_object_get(cmd, "ask")) || c->yes || json_is_true(json_object_get(params, "check")))
		return DONE;
	check = json_copy((json_t *)params);
	json_object_set_new(check, "check", json_true());
	r = ask(c, str(cmd, "method"), check, c->timeout_ms, &code);
	json_decref(r);
	if (!r)
		return code;
	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
		return fail(USAGE, "this cannot be undone: say --yes");
	printf("%s: %s. Go on? [y/N] ", str(cmd, "name"), str(cmd, "help"));
	fflush(stdout);
	return fgets(line, sizeof line, stdin) && (line[0] == 'y' || line[0] == 'Y') ? DONE : USAGE;
}

static void show(const struct ctl *c, const json_t *cmd, const json_t *result)
{
	if (c->json) {
		char *dump = json_dumps(result, JSON_COMPACT);

		printf("%s\n", dump ? dump : "{}");
		free(dump);
	} else {
		print_reply(stdout, cmd, result);
	}
	fflush(stdout);
}

/* What comes after the reply of `log -f` and of `stop`, until the connection ends. */
static int follow(struct ctl *c, bool end_is_good)
{
	for (;;) {
		struct err e;
		json_t *m = conn_read(&c->conn, -1, &e), *p;

		if (!m)
			return end_is_good && e.code == ERR_UNREACHABLE ? DONE : fail(UNREACHABLE, e.text);
		p = json_object_get(m, "params");
		if (strcmp(str(m, "method"), "log") == 0 && c->json) {
			char *dump = json_dumps(p, JSON_COMPACT);

			printf("%s\n", dump ? dump : "{}");
			free(dump);
		} else if (strcmp(str(m, "method"), "log") == 0) {
			print_log_line(stdout, p);
		}
		fflush(stdout);
		json_decref(m);
	}
}

static int command(struct ctl *c)
{
	size_t used;
	struct err e;
	const json_t *cmd = words_command(c->table, c->words, c->n, &used, &e);
	const char *method = str(cmd, "method");
	json_t *params, *result;
	char *prompt;
	bool follows;
	int code;

	if (!cmd)
		return fail(USAGE, e.text);
	used = c->n ? used : 0;
	if (strcmp(method, "help") == 0)
		return help(c, c->words + used, c->n - used);
	if (c->help)
		return help(c, c->words, used);
	params = words_params(cmd, c->words + used, c->n - used, &e);
	if (!params)
		return fail(USAGE, e.text);
	code = agree(c, cmd, params);
	if (code != DONE) {
		json_decref(params);
		return code;
	}
	follows = strcmp(method, "log") == 0 && json_is_true(json_object_get(params, "follow"));
	prompt = xstrdup(str(params, "prompt"));
	result = ask(c, method, params, c->timeout_ms, &code);
	if (!result) {
		free(prompt);
		return code;
	}
	if (json_is_true(json_object_get(result, "truncated")) && !c->json)
		fprintf(stderr, "hivectl: cut after %zu rows; more with --rows=N (at most 10000), WHERE or LIMIT\n",
			json_array_size(json_object_get(result, "rows")));
	if (*str(result, "warning"))
		fprintf(stderr, "hivectl: %s\n", str(result, "warning"));
	if (strcmp(method, "run.watch") == 0) {
		code = watch_run(&c->conn, result, c->json, isatty(STDOUT_FILENO));
	} else if (strcmp(method, "generate") == 0) {
		code = generate_show(&c->conn, result, prompt, c->json);
	} else {
		show(c, cmd, result);
		code = strcmp(method, "stop") == 0 ? follow(c, true) : follows ? follow(c, false) : DONE;
	}
	json_decref(result);
	free(prompt);
	return code;
}

int main(int argc, char **argv)
{
	struct ctl c = { .timeout_ms = 60000, .conn = { .fd = -1 } };
	int code;

	signal(SIGPIPE, SIG_DFL);
	if (argc == 2 && strcmp(argv[1], "--version") == 0) {
		printf("hivectl %s\n", HIVEMIND_VERSION);
		return DONE;
	}
	if (read_options(&c, argc, argv) < 0) {
		code = USAGE;
	} else if (c.help && c.n == 0) {
		fputs(usage_text, stdout);
		code = DONE;
	} else {
		code = connect_to(&c);
		if (code == 0)
			code = fetch_table(&c);
		if (code == 0)
			code = c.complete ? complete(&c) : command(&c);
	}
	conn_close(&c.conn);
	json_decref(c.table);
	free(c.words);
	return code;
}
