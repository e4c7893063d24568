/* What the net room costs over the real transport: two processes on loopback, sealed. Prints JSON: round trip of a
 * small call, calls per second with 64 open, and a transfer of 100 MB (seconds, bytes per second). */
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "common/mem.h"
#include "loop/loop.h"
#include "net/chunk.h"
#include "net/nano.h"
#include "net/net.h"
#include "usage.h"

#define TRIPS 2000
#define CALLS 20000
#define OPEN 64
#define BIG ((size_t)100 * 1000 * 1000)
#define ROUNDS 5

struct side { struct loop *loop; struct env *env; struct nano *nano; struct net *net; struct chunks *chunks;
	uint8_t *mem; };
static struct side me;
static struct id other;
static bool over;
static unsigned done_calls, begun;
static double trip[TRIPS];

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Processor time of this process, nanomsg's thread included: says more than the clock on a busy machine. */
static double cpu(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static void start(uint8_t who, unsigned suites)
{
	struct nano_conf nc = {0};
	struct net_conf c = { .suites = suites, .boot_id = 1000 + who };
	struct log *log = log_new(64, LOG_WARN_, NULL, NULL);
	struct loop_conf lc = { .log = log };
	struct err e;

	c.seed[0] = who;
	me.loop = loop_new(&lc, &e);
	me.env = me.loop ? loop_env(me.loop) : NULL;
	if (!me.loop || nano_listen_parse("127.0.0.1:auto", &nc, &e) || !(me.nano = nano_new(me.loop, &nc, &e))) {
		fprintf(stderr, "%s\n", e.text);
		_exit(1);
	}
	c.self = *nano_endpoint(me.nano);
	me.net = net_new(me.env, &c, &e);
	me.chunks = chunks_new(me.env, me.net);
	me.mem = big_alloc(BIG);
	memset(me.mem, who, BIG);
}

static bool is_over(void *arg) { return over; }

/* ---- the one who answers ---- */

static void echo(void *arg, struct request *r) { net_reply(r, json_pack("{s:i}", "n", 1), NO_BLOB); }
static void nothing(void *arg, struct xfer *x, const struct err *e) {}
static void offered(void *arg, const struct id *from, const struct id *tag, uint64_t len)
{
	xfer_recv(me.chunks, from, tag, me.mem, len, 0, nothing, NULL);
}

static void serve(int fd, unsigned suites)
{
	start(2, suites);
	net_on(me.net, KIND_RUN_STATE, echo, NULL);
	chunks_offer(me.chunks, offered, NULL);
	if (write(fd, nano_endpoint(me.nano), sizeof(struct endpoint)) != sizeof(struct endpoint))
		_exit(1);
	loop_run(me.loop);
}

/* ---- the one who asks ---- */

static void answered(void *arg, const struct frame *f, const struct err *e)
{
	if (e) {
		fprintf(stderr, "%s\n", e->text);
		_exit(1);
	}
	if (++done_calls == CALLS)
		over = true;
	else if (begun < CALLS) {
		begun++;
		net_call(me.net, &other, KIND_RUN_STATE, json_pack("{s:i}", "n", 1), NO_BLOB, CLASS_control, 10000000,
			answered, NULL);
	}
}

static void one(void *arg, const struct frame *f, const struct err *e) { over = true; }
static void dialled(void *arg, const struct id *peer, const struct err *e)
{
	if (!peer) {
		fprintf(stderr, "%s\n", e->text);
		_exit(1);
	}
	other = *peer;
	over = true;
}

static void moved(void *arg, struct xfer *x, const struct err *e)
{
	if (e) {
		fprintf(stderr, "%s\n", e->text);
		_exit(1);
	}
	over = true;
}

static void wait_over(void)
{
	if (!loop_run_until(me.loop, is_over, NULL, 60000000)) {
		fprintf(stderr, "no end after 60 s\n");
		_exit(1);
	}
	over = false;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static json_t *ask(const struct endpoint *at)
{
	double t, cold, calls, busy, best[ROUNDS];
	struct id tag = {0};

	t = seconds();
	net_dial(me.net, at, 5000000, dialled, NULL);
	wait_over();
	cold = seconds() - t;
	for (int i = 0; i < TRIPS; i++) {
		t = seconds();
		net_call(me.net, &other, KIND_RUN_STATE, json_pack("{s:i}", "n", 1), NO_BLOB, CLASS_control, 10000000, one,
			NULL);
		wait_over();
		trip[i] = seconds() - t;
	}
	qsort(trip, TRIPS, sizeof *trip, by_value);
	t = seconds();
	for (begun = 0; begun < OPEN; begun++)
		net_call(me.net, &other, KIND_RUN_STATE, json_pack("{s:i}", "n", 1), NO_BLOB, CLASS_control, 10000000,
		answered, NULL);
	wait_over();
	calls = CALLS / (seconds() - t);
	busy = cpu();
	for (int i = 0; i < ROUNDS; i++) {
		tag.b[0] = (uint8_t)(i + 1);
		t = seconds();
		xfer_send(me.chunks, &other, &tag, me.mem, BIG, CLASS_weight, env_now(me.env) + 60000000, moved, NULL);
		wait_over();
		best[i] = seconds() - t;
	}
	busy = (cpu() - busy) / ROUNDS;
	qsort(best, ROUNDS, sizeof *best, by_value);
	return json_pack("{s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f}", "transfer_100MB_sender_cpu_ms", busy * 1e3, "hello_ms",
		cold * 1e3, "trip_us_median", trip[TRIPS / 2] * 1e6,
		"trip_us_p99", trip[TRIPS * 99 / 100] * 1e6, "calls_per_s", calls, "transfer_100MB_ms_median",
		best[ROUNDS / 2] * 1e3,
		"transfer_100MB_ms_best", best[0] * 1e3, "transfer_MB_per_s", (double)BIG / 1e6 / best[ROUNDS / 2]);
}

static json_t *pair(unsigned suites)
{
	int fd[2], out[2];
	struct endpoint at;
	char text[4096] = "";
	pid_t a, b;
	json_t *j;

	if (pipe(fd) || pipe(out) || (a = fork()) < 0)
		return NULL;
	if (!a)
		serve(fd[1], suites);
	if (read(fd[0], &at, sizeof at) != sizeof at || (b = fork()) < 0)
		return NULL;
	if (!b) {
		start(1, suites);
		j = ask(&at);
		dup2(out[1], 1);
		json_dumpf(j, stdout, JSON_COMPACT);
		fflush(stdout);
		_exit(0);
	}
	waitpid(b, NULL, 0);
	kill(a, SIGKILL);
	waitpid(a, NULL, 0);
	close(out[1]);
	for (size_t n = 0; n < sizeof text - 1;) {
		ssize_t k = read(out[0], text + n, sizeof text - 1 - n);

		if (k <= 0)
			break;
		n += (size_t)k;
	}
	return json_loads(text, 0, NULL);
}

int main(int argc, char **argv)
{
	bench_words(argc, argv, 0, 0, "bench_net");
	json_t *j = json_pack("{s:o*,s:o*}", "aes-256-gcm", pair(1), "chacha20-poly1305", pair(2));

	json_dumpf(j, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
	printf("\n");
	json_decref(j);
	return 0;
}
