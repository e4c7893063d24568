/* hivemindd --replay: reads the run logs of all peers of a run, runs it again (train/replay.h), and says whether every
 * loss and every epoch's parameters are the same bits. One thread without OpenBLAS, as local.deterministic has it. */
#include "replay_cmd.h"

#include <fcntl.h>
#include <getopt.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/jrpc.h"
#include "common/mem.h"
#include "common/text.h"
#include "loop/files.h"
#include "train/replay.h"

enum { EQUAL = 0, NOT_EQUAL = 1, USAGE = 3 };
enum { OPT_DATA = 256, OPT_VOCAB, OPT_JSON, OPT_HELP };
#define PROGRESS_NS 200000000ull

static const struct option longs[] = {
	{ "data", required_argument, NULL, OPT_DATA },
	{ "vocab", required_argument, NULL, OPT_VOCAB },
	{ "json", no_argument, NULL, OPT_JSON },
	{ "help", no_argument, NULL, OPT_HELP },
	{ NULL, 0, NULL, 0 }
};
static const char help_text[] =
	"usage: hivemindd --replay [--data PATH] [--vocab FILE] [--json] LOG|FOLDER...\n"
	"Runs a run again from the run logs of all its peers. A FOLDER is that of a run (STATE/runs/ID): its run logs.\n"
	"Exit status: 0 every bit is the same, 1 it is not or it cannot be replayed, 3 usage. See hivemindd(8).\n";

struct file { struct replay_log log; dev_t dev; ino_t ino; };
struct cmd {
	const char *data, *vocab;               /* NULL: where the first log's peer had them */
	bool json;
	struct files *files;
	struct file *file; size_t n;
	char name[64];                          /* of the run */
	bool terminal;
	uint64_t shown_ns;
};

/* --- logs */

/* Somebody cuts a file short that is mapped here: its daemon never does. */
static void cut_short(int sig)
{
	static const char text[] = "hivemindd: replay: a file became shorter while it was read\n";
	ssize_t n = write(STDERR_FILENO, text, sizeof(text) - 1);

	(void)sig;
	(void)n;
	_exit(NOT_EQUAL);
}

/* A daemon may set its log aside between two looks at the path: what was opened counts. */
static int map_file(struct cmd *c, const char *path, struct file *ret, struct err *e)
{
	int fd = c->files->open(c->files, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0, e);
	struct stat st;

	if (fd < 0)
		return -1;
	if (fstat(fd, &st) < 0)
		(void)err_set(e, ERR_IO, "%s: %m", path);
	else if (!S_ISREG(st.st_mode))
		(void)err_set(e, ERR_INVALID, "%s: it is no file: a log or the folder of a run is wanted", path);
	else
		*ret = (struct file){ .dev = st.st_dev, .ino = st.st_ino, .log.len = (size_t)st.st_size,
			.log.text = st.st_size ? c->files->map(c->files, fd, (size_t)st.st_size, e) : "" };
	(void)c->files->close(c->files, fd, NULL);
	return ret->log.text ? 0 : -1;
}

/* may_be_empty: it is no log then. */
static int add_file(struct cmd *c, const char *path, bool may_be_empty, struct err *e)
{
	struct file f = { 0 };

	if (map_file(c, path, &f, e) < 0)
		return -1;
	if (!f.log.len && may_be_empty)
		return 0;
	f.log.name = xstrdup(path);
	for (size_t i = 0; i < c->n; i++)
		if (c->file[i].dev == f.dev && c->file[i].ino == f.ino)
			(void)err_set(e, ERR_INVALID, "%s: it is here twice: %s is the same file", path, c->file[i].log.name);
	c->file = xrealloc(c->file, (c->n + 1) * sizeof(*c->file));
	c->file[c->n++] = f;
	return e->code ? -1 : 0;
}

/* run.log.N, the older the larger N is, and run.log. */
struct lives { unsigned long *of; size_t n; };

static int life(void *arg, const char *name)
{
	static const char log[] = "run.log";
	struct lives *l = arg;
	const char *rest = name + sizeof(log) - 1;

	if (strncmp(name, log, sizeof(log) - 1) || (*rest && (*rest != '.' || rest[1] < '1' || rest[1] > '9' ||
	    strspn(rest + 1, "0123456789") != strlen(rest + 1))))
		return 0;
	l->of = xrealloc(l->of, (l->n + 1) * sizeof(*l->of));
	l->of[l->n++] = *rest ? strtoul(rest + 1, NULL, 10) : 0;
	return 0;
}

static int older(const void *a, const void *b)
{
	unsigned long x = *(const unsigned long *)a, y = *(const unsigned long *)b;

	return x < y ? 1 : x > y ? -1 : 0;
}

/* A life that ended before it wrote a line is none. */
static int add_folder(struct cmd *c, const char *dir, struct err *e)
{
	struct lives l = { 0 };
	size_t was = c->n;
	int rc = c->files->list(c->files, dir, life, &l, e);

	if (l.n)
		qsort(l.of, l.n, sizeof(*l.of), older);
	for (size_t i = 0; i < l.n && !rc; i++) {
		char *path = l.of[i] ? xasprintf("%s/run.log.%lu", dir, l.of[i]) : xasprintf("%s/run.log", dir);

		rc = add_file(c, path, true, e);
		free(path);
	}
	free(l.of);
	if (!rc && c->n == was)
		rc = err_set(e, ERR_NOT_FOUND, "%s: there is no run log in this folder: the run was started without --log "
			"(\"log\" in the local part), or it is not a run's folder, STATE/runs/ID", dir);
	return rc;
}

static int add(struct cmd *c, const char *path, struct err *e)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return err_set(e, ERR_NOT_FOUND, "%s: %m", path);
	return S_ISDIR(st.st_mode) ? add_folder(c, path, e) : add_file(c, path, false, e);
}

static void forget(struct cmd *c)
{
	for (size_t i = 0; i < c->n; i++) {
		if (c->file[i].log.len)
			c->files->unmap(c->files, c->file[i].log.text, c->file[i].log.len);
		free((char *)(uintptr_t)c->file[i].log.name);
	}
	free(c->file);
}

/* --- the replay */

static void progress(void *arg, uint64_t epochs, uint64_t of)
{
	struct cmd *c = arg;
	uint64_t now = c->files->ticks_ns(c->files);

	if (now - c->shown_ns < PROGRESS_NS && c->shown_ns)
		return;
	c->shown_ns = now;
	(void)fprintf(stderr, "\r%s: epoch %llu of %llu", c->name, (unsigned long long)epochs, (unsigned long long)of);
}

static void progress_over(const struct cmd *c)
{
	if (c->shown_ns)
		(void)fprintf(stderr, "\r\033[K");
}

/* The data of the run, whose digest is in the spec. */
static struct data *open_data(const struct cmd *c, struct spec *s, struct err *e)
{
	const struct data_ops *kind = data_find(s->data_kind);
	const char *path = c->data ? c->data : s->local.data;
	size_t n = strlen(s->data_kind);
	struct data *d;

	if (!strncmp(path, s->data_kind, n) && path[n] == ':')
		path += n + 1;
	if (c->vocab)
		(void)snprintf(s->local.vocab, sizeof(s->local.vocab), "%s", c->vocab);
	s->local.cache[0] = '\0';               /* that is the daemon's */
	if (!kind->unplaced && !c->data && path[0] != '/') {
		(void)err_set(e, ERR_INVALID, "the logs do not say where the data %s is here: --data PATH", s->data_name);
		return NULL;
	}
	d = data_open(c->files, path, s, e);
	if (!d)
		(void)err_wrap(e, c->data || kind->unplaced ? "data %s" : "data %s (--data PATH says where it is here)", path);
	return d;
}

static int run(struct cmd *c, struct replay_result *ret, struct err *e)
{
	struct replay_log *log = xcalloc(c->n, sizeof(*log));
	struct spec *s;
	struct data *d;
	struct kerr why = { 0 };
	enum cpu cpu;
	struct par par;
	int rc = -1;

	for (size_t i = 0; i < c->n; i++)
		log[i] = c->file[i].log;
	s = replay_spec(log, c->n, e);
	d = s ? open_data(c, s, e) : NULL;
	if (d && cpu_pick(NULL, &cpu, &why) < 0)
		(void)err_set(e, ERR_INVALID, "%s", why.text);
	else if (d) {
		(void)snprintf(c->name, sizeof(c->name), "%s", s->name);
		par = par_serial(cpu, NULL);
		rc = replay(&(struct replay_conf){ .spec = s, .data = d, .par = &par, .log = log, .n = c->n,
			.progress = c->terminal ? progress : NULL, .arg = c }, ret, e);
		progress_over(c);
	}
	if (!rc && !ret->epochs)
		rc = err_set(e, ERR_STATE, "nothing was compared: no log comes to the end of an epoch");
	data_free(d);
	spec_free(s);
	free(log);
	return rc;
}

/* --- what came out */

static void say(const struct cmd *c, const struct replay_result *r, const struct err *e)
{
	if (!e) {
		(void)printf("%s: %llu epoch%s equal, every bit: %llu samples in %llu contribution%s of %zu peer%s (%zu log%s)",
			c->name, (unsigned long long)r->epochs, r->epochs == 1 ? " is" : "s are", (unsigned long long)r->samples,
			(unsigned long long)r->contributions, r->contributions == 1 ? "" : "s", r->peers, r->peers == 1 ? "" : "s",
			c->n, c->n == 1 ? "" : "s");
		if (r->stale)
			(void)printf("; %llu of them stale, by %llu epoch%s at most", (unsigned long long)r->stale,
				(unsigned long long)r->stale_most, r->stale_most == 1 ? "" : "s");
		(void)printf("\n");
	} else if (r->epochs) {
		(void)fprintf(stderr, "hivemindd: replay: %s (equal before it: %llu epoch%s)\n", e->text,
			(unsigned long long)r->epochs, r->epochs == 1 ? "" : "s");
	} else {
		(void)fprintf(stderr, "hivemindd: replay: %s\n", e->text);
	}
}

static void say_json(const struct cmd *c, const struct replay_result *r, const struct err *e, uint64_t took_ns)
{
	const char *result = !e ? "equal" : e->code == ERR_MISMATCH && r->line ? "differs" : "not_replayed";
	json_t *j = json_pack("{s:s,s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:f}", "result", result, "run", c->name,
		"logs", (json_int_t)c->n, "peers", (json_int_t)r->peers, "epochs", (json_int_t)r->epochs,
		"samples", (json_int_t)r->samples, "contributions", (json_int_t)r->contributions,
		"stale", (json_int_t)r->stale, "stale_most", (json_int_t)r->stale_most, "took_s", (double)took_ns / 1e9);

	if (e)
		(void)json_object_set_new(j, "error", json_pack("{s:s,s:o}", "code", err_name(e->code), "text",
			json_text(e->text)));
	if (e && r->line) {
		json_t *at = json_object_get(j, "error");

		(void)json_object_set_new(at, "log", json_text(c->file[r->log].log.name));
		(void)json_object_set_new(at, "line", json_integer((json_int_t)r->line));
		(void)json_object_set_new(at, "epoch", json_integer((json_int_t)r->epoch));
	}
	(void)json_dumpf(j, stdout, JSON_COMPACT);
	(void)printf("\n");
	json_decref(j);
}

/* 0: go on; else the exit status, and one more. */
static int options(struct cmd *c, int argc, char **argv)
{
	int k;

	optind = 1;
	while ((k = getopt_long(argc, argv, "", longs, NULL)) != -1)
		switch (k) {
		case OPT_DATA: c->data = optarg; break;
		case OPT_VOCAB: c->vocab = optarg; break;
		case OPT_JSON: c->json = true; break;
		case OPT_HELP: (void)fputs(help_text, stdout); return EQUAL + 1;
		default: (void)fputs(help_text, stderr); return USAGE + 1;
		}
	if (optind < argc)
		return 0;
	(void)fprintf(stderr, "hivemindd: --replay: which logs? one for each life of every peer, or the runs' folders\n%s",
		help_text);
	return USAGE + 1;
}

int replay_cmd(int argc, char **argv)
{
	struct cmd c = { .files = files_real(), .terminal = isatty(STDERR_FILENO) };
	struct replay_result r = { 0 };
	struct err e = { 0 };
	uint64_t began = c.files->ticks_ns(c.files);
	int rc = options(&c, argc, argv);

	if (rc)
		return rc - 1;
	(void)signal(SIGBUS, cut_short);
	for (int i = optind; i < argc && !rc; i++)
		rc = add(&c, argv[i], &e);
	if (!rc)
		rc = run(&c, &r, &e);
	text_clean(e.text);                     /* a log may hold any bytes */
	if (c.json)
		say_json(&c, &r, rc ? &e : NULL, c.files->ticks_ns(c.files) - began);
	else
		say(&c, &r, rc ? &e : NULL);
	forget(&c);
	if (fflush(stdout) || ferror(stdout)) {
		(void)fprintf(stderr, "hivemindd: replay: the result cannot be written: %m\n");
		return NOT_EQUAL;
	}
	return rc ? NOT_EQUAL : EQUAL;
}
