/* What an all-reduce between N processes takes. usage: bench_allreduce round|clip|coll|ring|stream|digest N BYTES
 * TIMES [CODEC [NETNS=ADDRESS]...]: round: the averager's elastic rounds (begin to commit); clip: with
 * averaging.robust, where members sign what they send and sums are audited; coll: its strict face; ring: a bare TCP
 * ring, with no other protocol, as the rival; stream: BYTES to the next, which is what a path carries; digest: no
 * exchange, all hash BYTES from memory at once with the trees of what members say they hold, piece by piece as a
 * round does. A peer may live in a network namespace of its own (tests/bench/tbf.py). With the real cryptography or
 * with one that weighs nothing */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "avg/avg.h"
#include "avg/coll.h"
#include "common/hash.h"
#include "common/lease.h"
#include "common/mem.h"
#include "loop/loop.h"
#include "net/nano.h"
#include "usage.h"

#define PEERS_MAX 16
#define TIMES_MAX 256
#define WARM 3
#define PIECE ((size_t)512 << 10)               /* avg_conf.slice */

struct shared {
	struct endpoint at[PEERS_MAX]; struct id id[PEERS_MAX]; volatile int there;
	double ms[TIMES_MAX], cpu[PEERS_MAX]; volatile unsigned times; uint64_t bytes[PEERS_MAX];
	volatile int over /* peers that have counted all */, n;
	unsigned faults[PEERS_MAX], partial[PEERS_MAX];         /* page faults of all; rounds that not everybody was in */
};
#define ROOMS 4
struct room { struct lease lease; bool taken; };
struct peer {
	struct loop *loop; struct env *env; struct nano *nano; struct net *net; struct chunks *chunks;
	struct avg *avg; struct coll *coll; struct coll_group group; struct avg_point point; struct timer again;
	float *x; size_t len; int who, n; unsigned times, done; uint64_t seq, samples; double begun, busy;
	struct ranges claimed, grant; struct shared *s; long faulted; char **places;
	struct room room[ROOMS];
};

static double now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static double cpu_ms(void)
{
	struct rusage u;
	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e3 +
		(double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-3;
}

static long faults(void)
{
	struct rusage u;
	getrusage(RUSAGE_SELF, &u);
	return u.ru_minflt;
}

static void die(const char *what)
{
	fprintf(stderr, "%s\n", what);
	_exit(1);
}

/* One more is over: 0 keeps the times, everybody its processor time since the warm-up. */
static void one_over(struct peer *p)
{
	struct shared *s = p->s;
	if (p->done == WARM) {
		p->busy = cpu_ms();
		p->faulted = faults();
	}
	if (p->done >= WARM && p->who == 0 && p->done - WARM < p->times)
		s->ms[s->times++] = now_ms() - p->begun;
	if (++p->done == p->times + WARM) {
		s->cpu[p->who] = (cpu_ms() - p->busy) / p->times;
		s->faults[p->who] = (unsigned)(faults() - p->faulted) / p->times;
		__sync_fetch_and_add(&s->over, 1);
	}
}

static void fresh(struct peer *p)
{
	for (size_t k = 0; k < p->len; k += 1024)
		p->x[k] = (float)(p->who + 1);
}

/* "NETNS=ADDRESS" of peer i, this process in that namespace from now on; loopback where nothing was said. */
static const char *go_to(char **places, int i)
{
	const char *address = places && places[i] ? strchr(places[i], '=') : NULL;
	char path[300];
	int fd;
	if (!address)
		return "127.0.0.1";
	snprintf(path, sizeof path, "/run/netns/%.*s", (int)(address - places[i]), places[i]);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWNET))
		die(path);
	close(fd);
	return address + 1;
}

/* ---- rounds ---- */

static void offer(struct peer *p)
{
	struct ranges take = { 0 };
	if (p->samples)
		return;
	ranges_take(&p->grant, 1, &take);
	ranges_add_all(&p->claimed, &take);
	p->samples = ranges_count(&p->claimed);
	ranges_free(&take);
	if (p->samples)
		avg_progress(p->avg, p->samples, 1000, &p->claimed);
}

static void on_begin(void *arg, const struct avg_begin *b)
{
	struct peer *p = arg;
	p->begun = now_ms();
	avg_contribute(p->avg, b->epoch, p->samples ? p->x : NULL, p->samples, &p->claimed);
}

static void on_commit(void *arg, const struct avg_commit *c, const float *mean)
{
	struct peer *p = arg;
	uint8_t digest[16] = { 0 };
	avg_point_copy(&p->point, c->point);
	avg_applied(p->avg, c->epoch, digest);
	if ((int)c->contributors == p->n) {
		if (mean[0] < 1 || mean[0] > (float)p->n)
			die("a wrong mean");
		p->s->bytes[p->who] = c->bytes_out;
		one_over(p);
	} else {
		p->s->partial[p->who]++;
	}
	ranges_clear(&p->claimed);
	p->samples = 0;
	ranges_copy(&p->grant, c->grant);
	env_after(p->env, &p->again, 1);
}

static void on_failed(void *arg, uint64_t epoch, const struct err *e) { }
static void on_resync(void *arg, enum avg_why why, const struct id *donor, uint64_t epoch)
{
	struct peer *p = arg;
	struct avg_view v;
	struct err e;
	avg_view(p->avg, &v);
	avg_enter(p->avg, &p->point, false, &e);
}

static void on_grant(void *arg, const struct ranges *grant)
{
	struct peer *p = arg;
	ranges_copy(&p->grant, grant);
	env_after(p->env, &p->again, 1);
}

static void on_event(void *arg, enum log_level level, const char *code, const struct id *peer, const char *text)
{
	if (level >= LOG_WARN_)
		fprintf(stderr, "%d: %s: %s\n", ((struct peer *)arg)->who, code, text);
}

static void again(struct timer *t) { offer(container_of(t, struct peer, again)); }

/* Where means lie: they go from round to round, as those of a plan's buffers do. */
static void room_back(struct lease *l) { container_of(l, struct room, lease)->taken = false; }

static struct lease *on_room(void *arg, size_t bytes)
{
	struct peer *p = arg;
	struct room *o = NULL;
	for (size_t i = 0; i < ROOMS && !o; i++)
		if (!p->room[i].taken && (!p->room[i].lease.p || p->room[i].lease.bytes == bytes))
			o = &p->room[i];
	if (!o)
		return NULL;
	o->lease = (struct lease){ .p = o->lease.p ? o->lease.p : big_alloc(bytes), .bytes = bytes, .refs = 1,
		.back = room_back };
	o->taken = o->lease.p != NULL;
	return o->taken ? &o->lease : NULL;
}

static void rounds(struct peer *p, const char *codec, bool clip)
{
	static const struct avg_cb cb = { .begin = on_begin, .commit = on_commit, .failed = on_failed, .resync = on_resync,
		.grant = on_grant, .event = on_event, .room = on_room };
	struct avg_conf conf = { .target_batch = (uint64_t)p->n, .len = p->len, .micro_batch = 1, .hashes = HASHES_NEWEST,
		.codec = codec ? json_string(codec) : NULL, .robust = clip ? ROBUST_CLIP : ROBUST_NONE };
	struct err e;
	memset(conf.run.b, 7, 32);
	p->again = (struct timer){ .fire = again, .name = "bench" };
	p->avg = avg_new(p->env, p->net, p->chunks, NULL, &conf, &cb, p, &e);
	avg_point_init(&p->point);
	p->point.params = json_object();
	for (int i = 0; i < p->n; i++)
		if (i != p->who)
			avg_meet(p->avg, &p->s->id[i]);
	if (avg_enter(p->avg, &p->point, false, &e))
		die(e.text);
}

/* ---- strict ---- */

static void next(struct peer *p);

static void reduced(void *arg, const struct err *e)
{
	struct peer *p = arg;
	if (e)
		die(e->text);
	one_over(p);
	if (p->done < p->times + WARM)
		next(p);
}

static void next(struct peer *p)
{
	fresh(p);
	p->begun = now_ms();
	coll_allreduce(p->coll, &p->group, p->seq++, COLL_F32, p->x, p->len, COLL_SUM, env_now(p->env) + 60000000,
		reduced, p);
}

/* ---- processes ---- */

static bool is_over(void *arg) { return ((struct shared *)arg)->over == ((struct shared *)arg)->n; }

static void open_peer(struct peer *p)
{
	struct nano_conf nc = { 0 };
	struct net_conf c = { .boot_id = 1000 + (uint64_t)p->who, .peer_frames = UINT32_MAX,
		.moves = MOVES_ALL };
	struct loop_conf lc = { .log = log_new(64, LOG_WARN_, NULL, NULL) };
	struct err e;
	char at[80];
	snprintf(at, sizeof at, "%s:auto", go_to(p->places, p->who));
	c.seed[0] = (uint8_t)(p->who + 1);
	p->loop = loop_new(&lc, &e);
	if (!p->loop || nano_listen_parse(at, &nc, &e) || !(p->nano = nano_new(p->loop, &nc, &e)))
		die(e.text);
	p->env = loop_env(p->loop);
	c.self = *nano_endpoint(p->nano);
	p->net = net_new(p->env, &c, &e);
	p->chunks = chunks_new(p->env, p->net);
	p->s->at[p->who] = c.self;
	p->s->id[p->who] = *net_self(p->net);
	__sync_fetch_and_add(&p->s->there, 1);
	while (p->s->there < p->n)
		poll(NULL, 0, 1);
	for (int i = 0; i < p->n; i++)
		if (i != p->who)
			net_learn(p->net, &p->s->id[i], &p->s->at[i]);
}

static void one_peer(struct peer *p, const char *mode, const char *codec)
{
	open_peer(p);
	if (!strcmp(mode, "round") || !strcmp(mode, "clip")) {
		rounds(p, codec, *mode == 'c');
	} else {
		p->coll = coll_new(p->env, p->net, p->chunks);
		p->group = (struct coll_group){ .members = p->s->id, .n = (uint32_t)p->n, .me = (uint32_t)p->who,
			.cls = CLASS_activation };
		next(p);
	}
	loop_run_until(p->loop, is_over, p->s, 120000000);
	poll(NULL, 0, 200);                     /* the others' last answers */
	_exit(0);
}

/* ---- digests alone ---- */

static void digest_peer(struct peer *p)
{
	size_t bytes = p->len * sizeof *p->x;
	uint8_t digest[TREE256], all = 0;
	for (unsigned i = 0; i < p->times + WARM; i++) {
		p->begun = now_ms();
		for (size_t at = 0; at < bytes; at += PIECE) {
			tree256_of(HASHES_NEWEST, (const char *)p->x + at, bytes - at < PIECE ? bytes - at : PIECE, digest);
			all |= digest[0];
		}
		one_over(p);
	}
	_exit(all == 0);                        /* so that nothing can be left out */
}

/* ---- the bare ring ---- */

/* Sends and receives at once; both ends buffer 2 MiB. */
static void swap(int to, const char *out, size_t nout, int from, char *in, size_t nin)
{
	size_t sent = 0, got = 0;
	while (sent < nout || got < nin) {
		struct pollfd f[2] = { { .fd = to, .events = sent < nout ? POLLOUT : 0 },
			{ .fd = from, .events = got < nin ? POLLIN : 0 } };
		poll(f, 2, -1);
		if (f[0].revents & POLLOUT) {
			ssize_t k = write(to, out + sent, nout - sent < 1 << 18 ? nout - sent : 1 << 18);
			sent += k > 0 ? (size_t)k : 0;
		}
		if (f[1].revents & (POLLIN | POLLHUP)) {
			ssize_t k = read(from, in + got, nin - got < 1 << 18 ? nin - got : 1 << 18);
			if (k == 0)
				die("the ring broke");
			got += k > 0 ? (size_t)k : 0;
		}
	}
}

static void ring_peer(struct peer *p, int to, int from)
{
	size_t part = (p->len + (size_t)p->n - 1) / (size_t)p->n, n = (size_t)p->n;
	float *in = big_alloc(part * sizeof *in), *x = xcalloc(part * n, sizeof *x);
	fcntl(to, F_SETFL, O_NONBLOCK);
	fcntl(from, F_SETFL, O_NONBLOCK);
	for (unsigned i = 0; i < p->times + WARM; i++) {
		p->begun = now_ms();
		for (size_t step = 0; step < 2 * (n - 1); step++) {
			size_t me = (size_t)p->who, out = (me + 2 * n - step) % n, at = (me + 2 * n - step - 1) % n;
			bool sum = step < n - 1;
			out = sum ? out : (me + 2 * n + 1 - (step - n + 1)) % n;
			at = sum ? at : (me + 2 * n - (step - n + 1)) % n;
			float *y = x + at * part;
			swap(to, (char *)(x + out * part), part * sizeof *x, from, (char *)(sum ? in : y), part * sizeof *x);
			for (size_t k = 0; sum && k < part; k++)
				y[k] += in[k];
		}
		one_over(p);
	}
	_exit(0);
}

static void stream_peer(struct peer *p, int to, int from)
{
	size_t bytes = p->len * sizeof *p->x;
	char *in = big_alloc(bytes);
	fcntl(to, F_SETFL, O_NONBLOCK);
	fcntl(from, F_SETFL, O_NONBLOCK);
	for (unsigned i = 0; i < p->times + WARM; i++) {
		p->begun = now_ms();
		swap(to, (char *)p->x, bytes, from, in, bytes);
		one_over(p);
	}
	_exit(0);
}

static void ring(struct peer *p, int *to, int *from)
{
	int bytes = 2 << 20, one = 1;
	for (int i = 0; i < p->n; i++) {
		struct sockaddr_in a = { .sin_family = AF_INET,
			.sin_addr.s_addr = inet_addr(go_to(p->places, (i + 1) % p->n)) };
		int server = socket(AF_INET, SOCK_STREAM, 0), client;
		socklen_t n = sizeof a;
		go_to(p->places, i);
		client = socket(AF_INET, SOCK_STREAM, 0);
		setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		setsockopt(server, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
		setsockopt(client, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
		if (bind(server, (struct sockaddr *)&a, n) || listen(server, 1) ||
				getsockname(server, (struct sockaddr *)&a, &n) ||
				connect(client, (struct sockaddr *)&a, n))
			die("no socket");
		to[i] = client;
		from[(i + 1) % p->n] = accept(server, NULL, NULL);
	}
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

static void print(const struct peer *p, const char *mode, const char *codec, struct shared *s)
{
	double cpu = 0;
	uint64_t bytes = 0;
	unsigned faulted = 0, partial = 0;
	if (s->times < p->times)
		die("no end");
	qsort(s->ms, p->times, sizeof *s->ms, by_value);
	for (int i = 0; i < p->n; i++) {
		cpu += s->cpu[i];
		bytes += s->bytes[i];
		faulted += s->faults[i];
		partial += s->partial[i];
	}
	json_t *j = json_pack("{s:s,s:i,s:I,s:s,s:f,s:f,s:f,s:f,s:i,s:i}", "mode", mode, "peers", p->n, "bytes",
		(json_int_t)(p->len * 4), "codec", codec ? codec : "none", "ms_median", s->ms[p->times / 2],
		"ms_best", s->ms[0],
		"ms_worst", s->ms[p->times - 1], "cpu_ms_per_peer", cpu / p->n, "page_faults_per_peer", (int)faulted / p->n,
		"partial_rounds", (int)partial);
	if (bytes)
		json_object_set_new(j, "sent_of_2g_n_1", json_real((double)bytes / (8.0 * (double)p->len * (p->n - 1))));
	json_dumpf(j, stdout, JSON_REAL_PRECISION(4));
	printf("\n");
}

int main(int argc, char **argv)
{
	static const char usage[] = "bench_allreduce round|clip|coll|ring|stream|digest PEERS BYTES TIMES "
		"[CODEC [NETNS=ADDRESS]...]";
	static const char *const modes[] = { "round", "clip", "coll", "ring", "stream", "digest" };
	struct peer p = { 0 };
	int to[PEERS_MAX], from[PEERS_MAX];
	bool known = false;
	bench_words(argc, argv, 4, 5 + PEERS_MAX, usage);
	for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
		known |= !strcmp(argv[1], modes[i]);
	p.n = bench_number(argc, argv, 2, 0, 2, PEERS_MAX, usage);
	const char *codec = argc > 5 ? argv[5] : NULL;
	if (!known || (argc > 6 && argc != 6 + p.n))
		bench_wrong(usage);
	bool bare = !strcmp(argv[1], "ring") || !strcmp(argv[1], "stream");
	codec = codec && strcmp(codec, "none") ? codec : NULL;
	p.places = argc == 6 + p.n ? argv + 6 : NULL;
	p.len = strtoul(argv[3], NULL, 10) / 4;
	p.times = (unsigned)strtoul(argv[4], NULL, 10);
	if (!p.len || !p.times || p.times > TIMES_MAX)
		die("between 4 bytes and what fits, between 1 and 256 times");
	p.s = mmap(NULL, sizeof *p.s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	p.s->n = p.n;
	signal(SIGPIPE, SIG_IGN);
	if (bare)
		ring(&p, to, from);
	for (p.who = 0; p.who < p.n; p.who++)
		if (!fork()) {
			p.x = big_alloc(p.len * sizeof *p.x);
			memset(p.x, 0, p.len * sizeof *p.x);
			for (size_t k = 0; k < p.len; k++)
				p.x[k] = (float)(p.who + 1);
			if (!strcmp(argv[1], "digest"))
				digest_peer(&p);
			if (bare)
				(*argv[1] == 'r' ? ring_peer : stream_peer)(&p, to[p.who], from[p.who]);
			one_peer(&p, argv[1], codec);
		}
	while (wait(NULL) > 0 || errno == EINTR)
		;
	print(&p, argv[1], codec, p.s);
	return 0;
}
