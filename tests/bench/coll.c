/* What the strict collectives of N processes on this machine carry, as NCCL's tests report it. One line of JSON for
 * every operation and size; bytes: of the whole vector, with alltoall of what each member gives. time_us: from the
 * moment that all have begun to the end of the last, the median; algbw = bytes / time; busbw = algbw times what each
 * member has to send at least, as a part of bytes: 2 (N - 1) / N with allreduce, (N - 1) / N with reduce_scatter,
 * allgather and alltoall, 1 with broadcast, reduce and send (from the first to the second). wrong: elements that are
 * not what they should be, of all members. */
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "avg/coll.h"
#include "common/mem.h"
#include "loop/loop.h"
#include "net/nano.h"
#include "usage.h"

#define PEERS_MAX 16
#define TIMES_MAX 256
#define WARM 2
#define SIZE_MAX_ ((uint64_t)1 << 30)
#define DEADLINE_US 60000000

struct shared { struct endpoint at[PEERS_MAX]; struct id id[PEERS_MAX]; volatile int there, over;
	double began[TIMES_MAX][PEERS_MAX], ended[TIMES_MAX][PEERS_MAX]; volatile uint64_t wrong; };
struct peer {
	struct loop *loop; struct env *env; struct coll *coll; struct coll_group group; struct shared *s;
	float *x, *y; size_t len; int who, n; unsigned times, done; uint64_t seq; const struct op *op;
};

static double now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void die(const char *what)
{
	fprintf(stderr, "%s\n", what);
	_exit(1);
}

/* Small whole numbers: sums of them are exact. */
static float value(int who, size_t k) { return (float)((k * 7 + (size_t)who * 3) % 11); }

static float sum_of(const struct peer *p, size_t k)
{
	float sum = 0;
	for (int i = 0; i < p->n; i++)
		sum += value(i, k);
	return sum;
}

/* ---- operations ---- */

static void over(void *arg, const struct err *e);

static void allreduce(struct peer *p, uint64_t until)
{
	coll_allreduce(p->coll, &p->group, p->seq++, COLL_F32, p->x, p->len, COLL_SUM, until, over, p);
}

static void reduce(struct peer *p, uint64_t until)
{
	coll_reduce(p->coll, &p->group, p->seq++, 0, COLL_F32, p->x, p->len, COLL_SUM, until, over, p);
}

static void broadcast(struct peer *p, uint64_t until)
{
	coll_broadcast(p->coll, &p->group, p->seq++, 0, COLL_F32, p->x, p->len, until, over, p);
}

static void reduce_scatter(struct peer *p, uint64_t until)
{
	coll_reduce_scatter(p->coll, &p->group, p->seq++, COLL_F32, p->x, p->len, COLL_SUM, p->y, until, over, p);
}

static void allgather(struct peer *p, uint64_t until)
{
	coll_allgather(p->coll, &p->group, p->seq++, COLL_F32, p->x, p->len, until, over, p);
}

static void alltoall(struct peer *p, uint64_t until)
{
	coll_alltoall(p->coll, &p->group, p->seq++, COLL_F32, p->x, p->len, p->y, until, over, p);
}

static void send_one(struct peer *p, uint64_t until)
{
	if (p->who == 0)
		coll_send(p->coll, &p->group, p->seq++, 1, COLL_F32, p->x, p->len, until, over, p);
	else if (p->who == 1)
		coll_recv(p->coll, &p->group, p->seq++, 0, COLL_F32, p->x, p->len, until, over, p);
	else
		coll_barrier(p->coll, &(struct coll_group){ .members = p->group.members + p->who, .n = 1, .me = 0,
			.tag = p->group.tag, .cls = p->group.cls }, p->seq++, until, over, p);
}

static void barrier(struct peer *p, uint64_t until)
{
	coll_barrier(p->coll, &p->group, p->seq++, until, over, p);
}

/* What element k of x, or of y where the result is there, should be; false: nothing is asked of it. */
static bool summed(const struct peer *p, size_t k, float *ret) { *ret = sum_of(p, k); return true; }
static bool at_root(const struct peer *p, size_t k, float *ret) { *ret = sum_of(p, k); return p->who == 0; }
static bool from_root(const struct peer *p, size_t k, float *ret) { *ret = value(0, k); return true; }
static bool second(const struct peer *p, size_t k, float *ret) { *ret = value(0, k); return p->who == 1; }
static bool nothing(const struct peer *p, size_t k, float *ret) { return false; }

static bool my_part(const struct peer *p, size_t k, float *ret)
{
	size_t lo, hi;
	coll_part((uint32_t)p->n, (uint32_t)p->who, p->len, &lo, &hi);
	*ret = sum_of(p, lo + k);
	return lo + k < hi;
}

static bool from_owner(const struct peer *p, size_t k, float *ret)
{
	size_t lo, hi;
	for (int i = 0; i < p->n; i++) {
		coll_part((uint32_t)p->n, (uint32_t)i, p->len, &lo, &hi);
		if (k < hi) {
			*ret = value(i, k);
			return true;
		}
	}
	return false;
}

static bool from_each(const struct peer *p, size_t k, float *ret)
{
	size_t lo, hi, n;
	coll_part((uint32_t)p->n, (uint32_t)p->who, p->len, &lo, &hi);
	n = hi - lo;
	if (!n || k >= n * (size_t)p->n)
		return false;
	*ret = value((int)(k / n), lo + k % n);
	return true;
}

enum sends { ONCE, SHARE, TWICE, NONE };        /* what each sends of the bytes: 1, (N - 1) / N, twice that, nothing */
static const struct op {
	const char *name; void (*run)(struct peer *p, uint64_t until); enum sends sends; bool in_y;
	bool (*right)(const struct peer *p, size_t k, float *ret);
} ops[] = {
	{ "allreduce", allreduce, TWICE, false, summed },
	{ "reduce_scatter", reduce_scatter, SHARE, true, my_part },
	{ "allgather", allgather, SHARE, false, from_owner },
	{ "alltoall", alltoall, SHARE, true, from_each },
	{ "broadcast", broadcast, ONCE, false, from_root },
	{ "reduce", reduce, ONCE, false, at_root },
	{ "send", send_one, ONCE, false, second },
	{ "barrier", barrier, NONE, false, nothing },
};
#define OPS (sizeof ops / sizeof *ops)

/* ---- one member ---- */

static void fill(struct peer *p)
{
	for (size_t k = 0; k < p->len; k++)
		p->x[k] = value(p->who, k);
}

static void check(const struct peer *p)
{
	uint64_t wrong = 0;
	const float *is = p->op->in_y ? p->y : p->x;
	float want;
	for (size_t k = 0; k < p->len; k++)
		wrong += p->op->right(p, k, &want) && is[k] != want;
	__sync_fetch_and_add(&p->s->wrong, wrong);
}

static void mark(const struct peer *p, const struct err *e, double at[][PEERS_MAX])
{
	if (e)
		die(e->text);
	if (p->done >= WARM)
		at[p->done - WARM][p->who] = now_us();
}

static void all_there(void *arg, const struct err *e)
{
	struct peer *p = arg;
	mark(p, e, p->s->began);
	p->op->run(p, env_now(p->env) + DEADLINE_US);
}

static void next(struct peer *p)
{
	fill(p);
	coll_barrier(p->coll, &p->group, p->seq++, env_now(p->env) + DEADLINE_US, all_there, p);
}

static void over(void *arg, const struct err *e)
{
	struct peer *p = arg;
	mark(p, e, p->s->ended);
	if (++p->done < p->times + WARM) {
		next(p);
		return;
	}
	check(p);
	__sync_fetch_and_add(&p->s->over, 1);
}

static bool all_over(void *arg) { const struct peer *p = arg; return p->s->over == p->n; }

static void member(struct peer *p)
{
	struct nano_conf nc = { 0 };
	struct net_conf c = { .boot_id = 1000 + (uint64_t)p->who, .peer_frames = UINT32_MAX, .moves = MOVES_ALL };
	struct loop_conf lc = { .log = log_new(64, LOG_WARN_, NULL, NULL) };
	struct nano *nano;
	struct err e;
	c.seed[0] = (uint8_t)(p->who + 1);
	p->loop = loop_new(&lc, &e);
	if (!p->loop || nano_listen_parse("127.0.0.1:auto", &nc, &e) || !(nano = nano_new(p->loop, &nc, &e)))
		die(e.text);
	p->env = loop_env(p->loop);
	c.self = *nano_endpoint(nano);
	struct net *net = net_new(p->env, &c, &e);
	p->coll = coll_new(p->env, net, chunks_new(p->env, net));
	p->s->at[p->who] = c.self;
	p->s->id[p->who] = *net_self(net);
	__sync_fetch_and_add(&p->s->there, 1);
	while (p->s->there < p->n)
		poll(NULL, 0, 1);
	for (int i = 0; i < p->n; i++)
		if (i != p->who)
			net_learn(net, &p->s->id[i], &p->s->at[i]);
	p->group = (struct coll_group){ .members = p->s->id, .n = (uint32_t)p->n, .me = (uint32_t)p->who,
		.cls = CLASS_activation };
	p->x = xcalloc(p->len + 1, sizeof *p->x);
	p->y = xcalloc(p->len + (size_t)p->n, sizeof *p->y);
	next(p);
	loop_run_until(p->loop, all_over, p, 120000000);
	poll(NULL, 0, 100);                     /* the others' last answers */
	_exit(!all_over(p));
}

/* ---- all of them ---- */

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

static double median_us(const struct peer *p)
{
	double us[TIMES_MAX];
	for (unsigned i = 0; i < p->times; i++) {
		double from = 0, to = 0;
		for (int k = 0; k < (p->op->run == send_one ? 2 : p->n); k++) {
			from = p->s->began[i][k] > from ? p->s->began[i][k] : from;
			to = p->s->ended[i][k] > to ? p->s->ended[i][k] : to;
		}
		us[i] = to - from;
	}
	qsort(us, p->times, sizeof *us, by_value);
	return us[p->times / 2];
}

static void measure(const struct op *op, int n, uint64_t bytes, unsigned times)
{
	struct peer p = { .op = op, .n = n, .len = bytes / sizeof *p.x, .times = times };
	double share = (n - 1) / (double)n, part[] = { [ONCE] = 1, [SHARE] = share, [TWICE] = 2 * share, [NONE] = 0 };
	int status, bad = 0;
	p.s = mmap(NULL, sizeof *p.s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (p.s == MAP_FAILED)
		die("no memory");
	for (p.who = 0; p.who < n; p.who++)
		if (!fork())
			member(&p);
	while (wait(&status) > 0)
		bad += !WIFEXITED(status) || WEXITSTATUS(status);
	if (bad)
		die("a member has not come to the end");
	double us = median_us(&p), gb = op->sends == NONE ? 0 : (double)(p.len * sizeof *p.x) / us * 1e-3;
	json_t *j = json_pack("{s:s,s:i,s:I,s:i,s:f,s:f,s:f,s:I}", "op", op->name, "peers", n, "bytes",
		(json_int_t)(op->sends == NONE ? 0 : p.len * sizeof *p.x), "times", (int)times, "time_us", us,
		"algbw_gb_per_s", gb, "busbw_gb_per_s", gb * part[op->sends], "wrong", (json_int_t)p.s->wrong);
	json_dumpf(j, stdout, JSON_REAL_PRECISION(4));
	printf("\n");
	(void)fflush(stdout);
	json_decref(j);
	if (p.s->wrong)
		_exit(1);
	munmap(p.s, sizeof *p.s);
}

/* "4k", "64M", "1000": bytes. */
static uint64_t size_of(const char *text, char **end)
{
	uint64_t v = strtoull(text, end, 10);
	const char *units = "kMG", *unit = **end ? strchr(units, **end) : NULL;
	*end += unit != NULL;
	return unit ? v << 10 * (unit - units + 1) : v;
}

int main(int argc, char **argv)
{
	static const char usage[] = "bench_coll OPERATION|all PEERS FROM[:TO] [TIMES]: allreduce, reduce_scatter, "
		"allgather, alltoall, broadcast, reduce, send, barrier; bytes such as 4k:64M, each twice the one before; "
		"TIMES 1 to 256, 11 unless said";
	char *end;
	bench_words(argc, argv, 3, 4, usage);
	int n = bench_number(argc, argv, 2, 0, 2, PEERS_MAX, usage), times = bench_number(argc, argv, 4, 11, 1, TIMES_MAX,
		usage);
	uint64_t from = size_of(argv[3], &end), to = *end == ':' ? size_of(end + 1, &end) : from;
	bool any = false;
	if (*end || from < 4 || to < from || to > SIZE_MAX_) {
		(void)fprintf(stderr, "%s: \"%s\" are no sizes from 4 bytes to 1G\n", argv[0], argv[3]);
		bench_wrong(usage);
	}
	signal(SIGPIPE, SIG_IGN);
	for (size_t i = 0; i < OPS; i++) {
		if (strcmp(argv[1], "all") && strcmp(argv[1], ops[i].name))
			continue;
		any = true;
		for (uint64_t bytes = from; bytes <= to; bytes *= 2) {
			measure(&ops[i], n, bytes, (unsigned)times);
			if (ops[i].sends == NONE)
				break;
		}
	}
	if (!any) {
		(void)fprintf(stderr, "%s: \"%s\" is no operation\n", argv[0], argv[1]);
		bench_wrong(usage);
	}
	return 0;
}
