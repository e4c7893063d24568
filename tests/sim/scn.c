/* The main of every scenario program: each scenario with several seeds, each seed twice with equal trace hashes. */
#include <jansson.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "common/text.h"
#include "sim.h"

static char running[700];               /* for the handler: which seed crashed, and how to see it again */

static void crashed(int signo)
{
	ssize_t rc = write(2, running, strlen(running));
	(void)rc;
	signal(signo, SIG_DFL);
	raise(signo);
}

static uint64_t number(const char *name, uint64_t def)
{
	const char *text = getenv(name);
	uint64_t v;
	return text && !text_u64(text, &v, NULL) ? v : def;
}

/* One run; the hash, or the failure in why. */
static uint64_t once(const struct scn *c, uint64_t seed, char *why, size_t cap, struct sim_stats *ret_stats)
{
	struct sim *s = sim_new(seed);
	uint64_t hash;

	c->run(s);
	if (sim_failed(s))
		snprintf(why, cap, "%s", sim_failed(s));
	hash = sim_hash(s);
	sim_stats(s, ret_stats);
	sim_free(s);
	return hash;
}

/* The command that runs one seed again, with what of the environment matters. */
static void replay(const char *program, const struct scn *c, uint64_t seed, char *out, size_t cap)
{
	const char *planted = getenv("PLANTED"), *locale_ = getenv("LC_ALL");

	snprintf(out, cap, "%s%s%s%s%s%sSEED=%llu %s %s", planted ? "PLANTED=" : "", planted ? planted : "",
		planted ? " " : "", locale_ ? "LC_ALL=" : "", locale_ ? locale_ : "", locale_ ? " " : "",
		(unsigned long long)seed, program, c->name);
}

static int scenario(const char *program, const struct scn *c, uint64_t first, uint64_t seeds)
{
	int failures = 0;
	struct sim_stats st = {0};
	uint64_t events = 0;

	bool planted = getenv("PLANTED") != NULL;       /* a bug has been seen when one seed has shown it */
	for (uint64_t seed = first; seed < first + seeds && !(planted && failures); seed++) {
		char why[512] = "", again[512];
		replay(program, c, seed, again, sizeof(again));
		snprintf(running, sizeof(running), "SEED=%llu %s: crashed\nreplay: %s\n", (unsigned long long)seed, c->name,
			again);
		uint64_t a = once(c, seed, why, sizeof(why), &st), b;
		events += st.events;
		if (getenv("HASHES"))
			printf("hash %s %llu %016llx\n", c->name, (unsigned long long)seed, (unsigned long long)a);
		if (!why[0] && (b = once(c, seed, why, sizeof(why), &st)) != a)
			snprintf(why, sizeof(why), "not deterministic: trace %016llx, then %016llx", (unsigned long long)a,
				(unsigned long long)b);
		if (why[0]) {
			printf("SEED=%llu %s: %s\n", (unsigned long long)seed, c->name, why);
			printf("replay: %s        (SIM_LOG=1 shows the nodes' logs)\n", again);
			failures++;
		}
		fflush(stdout);
	}
	printf("%s %s: %llu seeds, %llu events\n", failures ? "not ok" : "ok", c->name, (unsigned long long)seeds,
		(unsigned long long)events);
	return failures;
}

int scn_main(const struct scn *list, int argc, char **argv)
{
	uint64_t first = number("SEED", 1), seeds = number("SEEDS", getenv("SEED") && !getenv("SEEDS_MOST") ? 1 : 10);
	uint64_t most = number("SEEDS_MOST", seeds);    /* of heavy ones, however many are asked for */
	int failures = 0, ran = 0;

	json_object_seed(1);
	setlocale(LC_ALL, "");                  /* as the daemon's libraries might: nothing may depend on it */
	signal(SIGABRT, crashed);
	signal(SIGSEGV, crashed);
	if (argc == 2 && !strcmp(argv[1], "--list")) {
		for (const struct scn *c = list; c->name; c++)
			puts(c->name);
		return 0;
	}
	for (const struct scn *c = list; c->name; c++) {
		bool wanted = argc < 2;
		for (int i = 1; i < argc; i++)
			wanted |= !strcmp(argv[i], c->name);
		if (!wanted)
			continue;
		ran++;
		failures += scenario(argv[0], c, first, seeds < most ? seeds : most);
	}
	if (!ran) {
		fprintf(stderr, "%s: no such scenario\n", argc > 1 ? argv[1] : "scn");
		return 2;
	}
	return failures ? 1 : 0;
}
