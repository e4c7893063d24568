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

#define CPU_SECONDS 600                 /* of one seed: an event that never ends, since their number is bounded, too */
/* So many of so many seeds of a scenario may be late; where fewer ran, more are drawn after the first late one. */
#define LATE_MOST 2
#define LATE_OF 12

struct outcome { uint64_t hash, events; char why[512], late[512]; };    /* each: empty when all is well */

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
	snprintf(ret->late, sizeof(ret->late), "%s", sim_was_late(s) ? sim_was_late(s) : "");
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
	uint64_t late_drawn;            /* so many seeds run at least when one of them is late */
	regex_t *wanted;                /* of a planted bug: go on until a verdict says this; NULL = until the first one */
	int child;                      /* -1, or: this is a seed's process, which ends with this status */
};

/* Of a scenario's seeds; drawn: more of a row of its table that was late. */
struct tally { uint64_t ran, failed, late, drawn, drawn_late, events; bool seen, too_late; };

static bool enough(const struct wish *w, const struct tally *t, time_t began)
{
	uint64_t seeds = t->late && w->late_drawn > w->seeds ? w->late_drawn : w->seeds;
	if (t->ran >= seeds || t->seen)
		return true;
	return w->seconds && t->ran >= w->least && (uint64_t)(time(NULL) - began) >= w->seconds;
}

static bool too_many(uint64_t late, uint64_t ran)
{
	return late * LATE_OF > LATE_MOST * (ran > LATE_OF || ran == 1 ? ran : LATE_OF);
}

static void says(const char *program, const struct scn *c, const struct wish *w, uint64_t seed, const char *word,
	const char *why, struct tally *t)
{
	char line[700];
	snprintf(line, sizeof(line), "%s=%llu %s: %s", word, (unsigned long long)seed, c->name, why);
	puts(line);
	replay(program, c, seed);
	fflush(stdout);
	t->seen |= getenv("PLANTED") && (!w->wanted || !regexec(w->wanted, line, 0, NULL, 0));
}

/* One seed, and what it says. Returns whether it was late; in the process of a seed, w->child is set. */
static bool seed_of(const char *program, const struct scn *c, struct wish *w, uint64_t seed, bool twice,
	struct tally *t)
{
	struct outcome o = {0};
	if (!w->apart)
		run_here(c, seed, twice, &o);
	else if ((w->child = run_apart(c, seed, twice, &o)) >= 0)
		return false;
	t->events += o.events;
	if (w->hashes)
		printf("hash %s %llu %016llx\n", c->name, (unsigned long long)seed, (unsigned long long)o.hash);
	t->failed += o.why[0] != '\0';
	if (o.why[0])
		says(program, c, w, seed, "SEED", o.why, t);
	else if (o.late[0])
		says(program, c, w, seed, "LATE", o.late, t);
	return !o.why[0] && o.late[0];
}

/* The row of a table that `seed` took was late: is it so with other seeds? */
static void row_again(const char *program, const struct scn *c, struct wish *w, uint64_t seed, struct tally *t)
{
	uint64_t late = 1;
	for (uint64_t k = 1; k < LATE_OF && late <= LATE_MOST && w->child < 0; k++) {
		bool is = seed_of(program, c, w, seed + k * c->cells, false, t);
		late += is;
		t->drawn_late += is;
		t->drawn++;
	}
	t->too_late |= late > LATE_MOST;
}

/* Is it red? */
static bool scenario(const char *program, const struct scn *c, struct wish *w)
{
	struct tally t = {0};
	time_t began = time(NULL);

	for (; !enough(w, &t, began); t.ran++) {
		uint64_t seed = w->first + t.ran;
		bool late = seed_of(program, c, w, seed, t.ran < w->twice, &t);
		t.late += late;
		if (late && c->cells && w->late_drawn > 1 && !t.too_late)
			row_again(program, c, w, seed, &t);
		if (w->child >= 0)
			return false;
	}
	t.too_late |= too_many(t.late, t.ran);
	bool red = t.failed || t.seen || t.too_late;
	printf("%s %s: %llu seeds, %llu failed, %llu late%s, %llu events\n", red ? "not ok" : "ok", c->name,
		(unsigned long long)(t.ran + t.drawn), (unsigned long long)t.failed,
			(unsigned long long)(t.late + t.drawn_late),
		t.too_late ? " (too many)" : "", (unsigned long long)t.events);
	fflush(stdout);
	return red;
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
	bool red = false;
	int ran = 0;

	w.late_drawn = number("LATE_DRAWN", seeds > 1 && !getenv("PLANTED") ? LATE_OF : 1);
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
		red |= scenario(argv[0], c, &w);
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
	return red ? 1 : 0;
}
