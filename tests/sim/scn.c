/* The main of every scenario program: each scenario with several seeds, each seed in a process of its own, so that one
 * that crashes hides no other; the first TWICE of them (all, unless said) run twice, with equal trace hashes.
 * One seed alone (SEED=n) runs in this process, for a debugger. */
#include <errno.h>
#include <jansson.h>
#include <locale.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "common/text.h"
#include "sim.h"

#define CPU_SECONDS 150                 /* of one seed, under sanitizers, too: more is a call that never ends */

struct outcome { uint64_t hash, events; char why[512]; };       /* why: empty when all is well */

static uint64_t number(const char *name, uint64_t def)
{
	const char *text = getenv(name);
	uint64_t v;
	return text && !text_u64(text, &v, NULL) ? v : def;
}

static void once(const struct scn *c, uint64_t seed, struct outcome *ret)
{
	struct sim *s = sim_new(seed);
	struct sim_stats st;

	c->run(s);
	snprintf(ret->why, sizeof(ret->why), "%s", sim_failed(s) ? sim_failed(s) : "");
	ret->hash = sim_hash(s);
	sim_stats(s, &st);
	ret->events = st.events;
	sim_free(s);
}

static void run_here(const struct scn *c, uint64_t seed, bool twice, struct outcome *ret)
{
	struct outcome again;

	once(c, seed, ret);
	if (ret->why[0] || !twice)
		return;
	once(c, seed, &again);
	if (again.why[0] || again.hash != ret->hash)
		snprintf(ret->why, sizeof(ret->why), "not deterministic: trace %016llx, then %016llx",
			(unsigned long long)ret->hash, (unsigned long long)again.hash);
}

/* Shows what a seed's process has written; the line that says why it died is added to why. */
static void show(FILE *said, bool died, struct outcome *ret)
{
	static const char *const reasons[] = {"Assertion", "runtime error: ", "ERROR: ", "Fatal"};
	char line[1024];
	bool found = !died;

	rewind(said);
	while (fgets(line, sizeof(line), said)) {
		fputs(line, stderr);
		for (size_t i = 0; i < sizeof(reasons) / sizeof(*reasons) && !found; i++) {
			const char *at = strstr(line, reasons[i]);
			if (!at)
				continue;
			size_t n = strlen(ret->why);
			snprintf(ret->why + n, sizeof(ret->why) - n, ": %.*s", (int)strcspn(at, "\n"), at);
			found = true;
		}
	}
}

/* The child's part: its errors go to said, its outcome to the pipe. Returns its exit status. */
static int child(const struct scn *c, uint64_t seed, bool twice, FILE *said, int to)
{
	struct rlimit cpu = {CPU_SECONDS, CPU_SECONDS + 5};
	struct outcome o = {0};

	setrlimit(RLIMIT_CPU, &cpu);
	if (said)
		dup2(fileno(said), 2);
	run_here(c, seed, twice, &o);
	return write(to, &o, sizeof(o)) == sizeof(o) ? 0 : 1;
}

/* -1 in the parent, else the status with which this process, the child, has to return from main. */
static int run_apart(const struct scn *c, uint64_t seed, bool twice, struct outcome *ret)
{
	FILE *said = getenv("SIM_LOG") ? NULL : tmpfile();
	int to[2], status = 0;
	pid_t pid;

	fflush(NULL);
	if (pipe(to) || (pid = fork()) < 0) {
		snprintf(ret->why, sizeof(ret->why), "no process for this seed: %s", strerror(errno));
		return -1;
	}
	if (!pid) {
		close(to[0]);
		return child(c, seed, twice, said, to[1]);
	}
	close(to[1]);
	ssize_t got = read(to[0], ret, sizeof(*ret));           /* less than PIPE_BUF: whole, or nothing at all */
	close(to[0]);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	bool died = got != sizeof(*ret) || status != 0;
	if (died) {
		*ret = (struct outcome){0};
		if (WIFSIGNALED(status))
			snprintf(ret->why, sizeof(ret->why), "crashed, signal %d", WTERMSIG(status));
		else
			snprintf(ret->why, sizeof(ret->why), "ended, status %d", WEXITSTATUS(status));
	}
	if (said) {
		show(said, died, ret);
		fclose(said);
	}
	return -1;
}

/* The command that runs one seed again, with what of the environment matters. */
static void replay(const char *program, const struct scn *c, uint64_t seed)
{
	const char *planted = getenv("PLANTED"), *locale_ = getenv("LC_ALL");

	printf("replay: %s%s%s%s%s%sSEED=%llu %s %s        (SIM_LOG=1 shows the nodes' logs)\n", planted ? "PLANTED=" : "",
		planted ? planted : "", planted ? " " : "", locale_ ? "LC_ALL=" : "", locale_ ? locale_ : "",
		locale_ ? " " : "",
		(unsigned long long)seed, program, c->name);
}

/* What was asked for in the environment. */
struct wish {
	uint64_t first, seeds, twice;
	uint64_t seconds, least;        /* no new seed after so many seconds, when so many have run; 0 = no limit */
	bool apart, hashes;
	regex_t *wanted;                /* of a planted bug: go on until a failure says this; NULL = until the first one */
	int child;                      /* -1, or: this is a seed's process, which ends with this status */
};

static bool enough(const struct wish *w, uint64_t ran, bool seen, time_t began)
{
	if (ran >= w->seeds || seen)
		return true;
	return w->seconds && ran >= w->least && (uint64_t)(time(NULL) - began) >= w->seconds;
}

static int scenario(const char *program, const struct scn *c, struct wish *w)
{
	bool planted = getenv("PLANTED") != NULL, seen = false;
	uint64_t events = 0, ran = 0;
	time_t began = time(NULL);
	int failures = 0;

	for (; !enough(w, ran, seen, began); ran++) {
		uint64_t seed = w->first + ran;
		struct outcome o = {0};
		if (!w->apart)
			run_here(c, seed, ran < w->twice, &o);
		else if ((w->child = run_apart(c, seed, ran < w->twice, &o)) >= 0)
			return 0;
		events += o.events;
		if (w->hashes)
			printf("hash %s %llu %016llx\n", c->name, (unsigned long long)seed, (unsigned long long)o.hash);
		if (!o.why[0])
			continue;
		char line[700];
		snprintf(line, sizeof(line), "SEED=%llu %s: %s", (unsigned long long)seed, c->name, o.why);
		puts(line);
		replay(program, c, seed);
		fflush(stdout);
		failures++;
		seen = planted && (!w->wanted || !regexec(w->wanted, line, 0, NULL, 0));
	}
	printf("%s %s: %llu seeds, %d failed, %llu events\n", failures ? "not ok" : "ok", c->name, (unsigned long long)ran,
		failures, (unsigned long long)events);
	fflush(stdout);
	return failures;
}

int scn_main(const struct scn *list, int argc, char **argv)
{
	const char *pattern = getenv("WANTED");
	uint64_t seeds = number("SEEDS", getenv("SEED") && !getenv("SEEDS_MOST") ? 1 : 10);
	uint64_t most = number("SEEDS_MOST", seeds);    /* of heavy ones, however many are asked for */
	struct wish w = {.first = number("SEED", 1), .seeds = seeds < most ? seeds : most, .child = -1,
		.seconds = number("SEEDS_SECONDS", 0), .least = number("SEEDS_LEAST", 0),
		.hashes = getenv("HASHES") != NULL, .apart = getenv("SEEDS") || !getenv("SEED")};
	regex_t wanted;
	int failures = 0, ran = 0;

	w.twice = number("TWICE", getenv("PLANTED") ? 0 : UINT64_MAX);
	json_object_seed(1);
	setlocale(LC_ALL, "");                  /* as the daemon's libraries might: nothing may depend on it */
	if (argc == 2 && !strcmp(argv[1], "--list")) {
		for (const struct scn *c = list; c->name; c++)
			puts(c->name);
		return 0;
	}
	if (pattern && regcomp(&wanted, pattern, REG_EXTENDED | REG_NOSUB)) {
		fprintf(stderr, "%s: WANTED is no regular expression: %s\n", argv[0], pattern);
		return 2;
	}
	w.wanted = pattern ? &wanted : NULL;
	for (const struct scn *c = list; c->name; c++) {
		bool chosen = argc < 2;
		for (int i = 1; i < argc; i++)
			chosen |= !strcmp(argv[i], c->name);
		if (!chosen)
			continue;
		ran++;
		failures += scenario(argv[0], c, &w);
		if (w.child >= 0)
			break;
	}
	if (w.wanted)
		regfree(w.wanted);
	if (w.child >= 0)
		return w.child;
	if (!ran) {
		fprintf(stderr, "%s: no such scenario\n", argc > 1 ? argv[1] : "scn");
		return 2;
	}
	return failures ? 1 : 0;
}
