/* What the transport alone costs: two processes on loopback, unsealed. Prints JSON: round trip over the mailboxes and
 * through the door, messages a second at 64 bytes, bytes a second at 4 KiB and 256 KiB with a window of 6. The sender's
 * processor time for 100 MB stands beside bench_net's, which is sealed: it says what sealing costs on a busy machine,
 * too. */
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "common/mem.h"
#include "loop/loop.h"
#include "net/nano.h"
#include "usage.h"

#define TRIPS 4000
#define SMALL 300000
#define ROUNDS 5

enum what { ECHO = 1, COUNT, ACK, WHERE };
struct msg { struct packet p; uint8_t what; };

static struct loop *loop;
static struct env *env;
static struct nano *nano;
static struct endpoint other;
static bool child, over;
static uint8_t body[WIRE_MAX];
static struct { enum chan chan; size_t size; unsigned total, sent, seen, window; double began; } run;
static double trip[TRIPS];

static double seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int msg_seal(struct packet *p, uint32_t connection, uint8_t *out)
{
	memcpy(out, body, p->wire_len);
	out[0] = ((struct msg *)p)->what;
	if (out[0] == WHERE)
		memcpy(out + 1, nano_endpoint(nano), sizeof(struct endpoint));
	return 0;
}

static void msg_gone(struct packet *p, bool sent) { free(p); }

static void say(enum chan chan, uint64_t token, enum what what, size_t size)
{
	struct msg *m = xcalloc(1, sizeof(*m));
	m->p.wire_len = size;
	m->p.seal = msg_seal;
	m->p.gone = msg_gone;
	m->what = (uint8_t)what;
	env->ops->send(env, &other, chan, token, &m->p);
}

/* Keeps at most window messages unacknowledged; an ACK stands for 1 (big) or 64 (small) of them. */
static unsigned per_ack(void) { return run.size >= 65536 ? 1 : 64; }

static void pump(void)
{
	while (run.sent < run.total && run.sent - run.seen < run.window) {
		say(run.chan, 0, COUNT, run.size);
		run.sent++;
	}
	if (run.seen >= run.total)
		over = true;
}

static void on_recv(void *arg, struct via via, uint8_t *msg, size_t len)
{
	static unsigned counted;

	switch (msg[0]) {
	case WHERE:
		memcpy(&other, msg + 1, sizeof(other));
		over = true;
		break;
	case ECHO:
		if (child) {
			say(via.chan, via.door_token, ECHO, len);
			break;
		}
		trip[run.seen++] = seconds() - run.began;
		run.began = seconds();
		if (run.seen == TRIPS)
			over = true;
		else
			say(run.chan, 0, ECHO, len);
		break;
	case COUNT:
		if (++counted % (len >= 65536 ? 1 : 64) == 0)
			say(CHAN_CTRL, 0, ACK, 64);
		break;
	case ACK:
		run.seen += per_ack();
		pump();
		break;
	default:
		break;
	}
}

/* Processor time of this process, nanomsg's thread included. */
static double cpu(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static bool is_over(void *arg) { return over; }

static void wait_over(const char *what)
{
	if (!loop_run_until(loop, is_over, NULL, 60000000)) {
		fprintf(stderr, "%s did not end\n", what);
		_exit(1);
	}
	over = false;
}

static void start(void)
{
	struct loop_conf lc = {0};
	struct nano_conf nc = {0};
	struct err e;

	loop = loop_new(&lc, &e);
	if (!loop || nano_listen_parse("127.0.0.1:auto", &nc, &e) || !(nano = nano_new(loop, &nc, &e))) {
		fprintf(stderr, "%s\n", e.text);
		_exit(1);
	}
	env = loop_env(loop);
	env->recv = on_recv;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

static json_t *trips(enum chan chan)
{
	memset(&run, 0, sizeof(run));
	run.chan = chan;
	run.began = seconds();
	say(chan, 0, ECHO, 64);
	wait_over("round trips");
	qsort(trip, TRIPS, sizeof(trip[0]), by_value);
	return json_pack("{s:f, s:f}", "median_us", trip[TRIPS / 2] * 1e6, "p99_us", trip[TRIPS * 99 / 100] * 1e6);
}

static json_t *flow(enum chan chan, size_t size, unsigned total, unsigned window)
{
	double took[ROUNDS], busy = cpu();
	for (int i = 0; i < ROUNDS; i++) {
		memset(&run, 0, sizeof(run));
		run.chan = chan;
		run.size = size;
		run.total = total;
		run.window = window;
		double t = seconds();
		pump();
		wait_over("throughput");
		took[i] = seconds() - t;
	}
	busy = (cpu() - busy) / ((double)ROUNDS * (double)total * (double)size) * 1e8;
	qsort(took, ROUNDS, sizeof(took[0]), by_value);
	return json_pack("{s:I, s:f, s:f, s:f, s:f, s:f}", "message_bytes", (json_int_t)size, "messages_per_s",
		total / took[ROUNDS / 2], "bytes_per_s", (double)total * (double)size / took[ROUNDS / 2], "best_s", took[0],
		"worst_s", took[ROUNDS - 1], "sender_cpu_ms_100MB", busy * 1e3);
}

int main(int argc, char **argv)
{
	bench_words(argc, argv, 0, 0, "bench_nano");
	int to_child[2];
	pid_t pid;
	json_t *out;

	if (pipe(to_child))
		return 1;
	pid = fork();                           /* before any nanomsg socket exists */
	child = pid == 0;
	if (child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (read(to_child[0], &other, sizeof(other)) != sizeof(other))
			_exit(1);
		start();
		say(CHAN_CTRL, 0, WHERE, 64);
		loop_run(loop);
		_exit(0);
	}
	start();
	if (write(to_child[1], nano_endpoint(nano), sizeof(other)) != sizeof(other))
		return 1;
	wait_over("meeting");
	out = json_object();
	json_object_set_new(out, "round_trip_mailbox", trips(CHAN_CTRL));
	json_object_set_new(out, "round_trip_door", trips(CHAN_DOOR));
	json_object_set_new(out, "small", flow(CHAN_CTRL, 64, SMALL / 64 * 64, 4096));
	json_object_set_new(out, "medium", flow(CHAN_BULK, 4096, SMALL / 10 / 64 * 64, 1024));
	json_object_set_new(out, "chunks", flow(CHAN_BULK, 256 * 1024, 1200, 6));
	json_dumpf(out, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(5));
	putchar('\n');
	json_decref(out);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	nano_free(nano);
	loop_free(loop);
	return 0;
}
