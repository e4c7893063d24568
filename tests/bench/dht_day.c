/* A swarm that lives for long in the simulator, with churn: does anything grow? usage: dht_day [PEERS [HOURS]]; JSON.
 * Each peer keeps a signed presence record, asks for one a minute (ten in the first hour, so that all have met: what is
 * known of other peers is kept) and stores one of a random life every ten; every five minutes somebody is killed, and
 * whoever was killed before comes back with its shelf. What is allocated (mallinfo2) is read at the end of each virtual
 * hour; the status is 1 when it has grown after the first. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "common/mem.h"
#include "common/text.h"
#include "dht_world.h"
#include "usage.h"

#define HOURS_MAX 240
#define MINUTE (60 * SEC)
#define GROWTH_MAX 0.01                 /* measured: 0.0009 with 64 peers over 24 hours */

static double now_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Large blocks are mapped at first and lie in the heap later, when the allocator has seen some freed: both count. */
static double allocated(void)
{
	struct mallinfo2 m = mallinfo2();
	return (double)m.uordblks + (double)m.hblkhd;
}

static void present(struct sim *s, int i)
{
	char key[32];
	snprintf(key, sizeof key, "presence%d", i);
	dht_keep(dht_of(s, i), key, NULL, json_pack("{s:s,s:i}", "address", "10.0.0.1:4237", "runs", i), 180000, true);
}

static void on_get(void *arg, const struct record *r, size_t n, const struct err *e)
{
	uint64_t *found = arg;
	*found += n > 0;
}

static void minute(struct sim *s, int n, int at, uint64_t *asked, uint64_t *found)
{
	char key[32];
	for (int i = 0; i < n; i++) {
		if (!sim_alive(s, i))
			continue;
		for (int k = 0; k < (at < 60 ? 10 : 1); k++) {
			snprintf(key, sizeof key, "presence%d", (int)rng_below(sim_rng(s), (uint64_t)n));
			dht_get(dht_of(s, i), key, (at + k) % 2, on_get, found);
			++*asked;
		}
		snprintf(key, sizeof key, "work%d", (int)rng_below(sim_rng(s), 10u * (unsigned)n));
		if ((i + at) % 10 == 0)
			dht_put(dht_of(s, i), key, NULL, json_integer(at), 600000 + rng_below(sim_rng(s), 1800000), false, NULL,
				NULL);
		sim_run_for(s, MINUTE / (uint64_t)n);
	}
}

/* One goes, by whatever end; the one before it comes back. */
static void churn(struct sim *s, int n, int *away)
{
	int back = *away;
	do
		*away = 1 + (int)rng_below(sim_rng(s), (uint64_t)n - 1);
	while (*away == back);
	if (rng_below(sim_rng(s), 2))
		sim_kill(s, *away);
	else
		sim_power_off(s, *away);
	if (back < 0)
		return;
	sim_restart(s, back);
	present(s, back);
}

static double mean(const double *v, int from, int to)
{
	double sum = 0;
	for (int i = from; i < to; i++)
		sum += v[i];
	return sum / (to - from);
}

int main(int argc, char **argv)
{
	static const char usage[] = "dht_day [PEERS [HOURS]]";
	bench_words(argc, argv, 0, 2, usage);
	int n = bench_number(argc, argv, 1, 64, 3, 1000, usage), away = -1;
	int hours = bench_number(argc, argv, 2, 24, 3, HOURS_MAX, usage);
	static double bytes[HOURS_MAX];
	struct dht_world w = { .unchecked = true };
	uint64_t found = 0, asked = 0;
	json_object_seed(1);
	struct sim *s = sim_new(1);
	double begun = now_s();
	dht_add(s, &w, n);
	dht_joined(s);
	for (int i = 0; i < n; i++)
		present(s, i);
	for (int at = 0; at < 60 * hours && !sim_failed(s); at++) {
		if (at % 5 == 4)
			churn(s, n, &away);
		minute(s, n, at, &asked, &found);
		if (at % 60 == 59)
			bytes[at / 60] = allocated();
	}
	int part = hours > 8 ? 4 : 1;           /* the last hours against those after the first */
	double first = mean(bytes, 1, 1 + part), last = mean(bytes, hours - part, hours), growth = last / first - 1;
	printf("{\"bench\": \"dht_day\", \"peers\": %d, \"hours\": %d, \"asked\": %llu, \"found\": %llu, \"cpu_s\": %.1f, "
		"\"growth\": %.5f, \"bytes_per_peer\": [", n, hours, (unsigned long long)asked, (unsigned long long)found,
		now_s() - begun, growth);
	for (int i = 0; i < hours; i++)
		printf("%s%.0f", i ? ", " : "", bytes[i] / n);
	printf("]}\n");
	int bad = sim_trouble(s) != NULL;
	if (bad)
		fprintf(stderr, "%s\n", sim_trouble(s));
	sim_free(s);
	return bad || !(growth < GROWTH_MAX) || found < asked * 9 / 10 /* the records of those who are away end */;
}
