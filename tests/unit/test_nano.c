/* The real transport over loopback: order, death of a peer, doors, oversize, strangers, least-recently-used closing,
 * and that every packet comes back exactly once. Each "peer" here is a loop of its own, run in turns. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "common/mem.h"
#include "loop.h"
#include "net/nano.h"

#define PEERS_MAX 8
#define SECOND 1000000

struct peer {
	struct loop *loop; struct env *env; struct nano *nano;
	int sent, back, unsent, got[CHANS], disorder;
	uint32_t last[CHANS], last_connection[CHANS], connections;
	size_t last_len;
	uint64_t token;
	bool echo_door, in_send;
};
struct bed { struct peer p[PEERS_MAX]; int n; };

struct msg { struct packet p; struct peer *from; uint32_t number; int fail; };

static int msg_seal(struct packet *p, uint32_t connection, uint8_t *out)
{
	struct msg *m = (struct msg *)p;
	assert_false(m->from->in_send);         /* never from inside of send */
	if (m->fail)
		return -1;
	memset(out, 0x5a, p->wire_len);
	memcpy(out, &m->number, 4);
	memcpy(out + 4, &connection, 4);
	return 0;
}

static void msg_gone(struct packet *p, bool sent)
{
	struct msg *m = (struct msg *)p;
	assert_false(m->from->in_send);
	m->from->back++;
	m->from->unsent += !sent;
	free(m);
}

static void say_(struct peer *from, const struct endpoint *to, enum chan chan, uint64_t token, uint32_t number, size_t len, int fail)
{
	struct msg *m = xcalloc(1, sizeof(*m));
	m->from = from;
	m->number = number;
	m->fail = fail;
	m->p.wire_len = len;
	m->p.seal = msg_seal;
	m->p.gone = msg_gone;
	from->sent++;
	from->in_send = true;
	from->env->ops->send(from->env, to, chan, token, &m->p);
	from->in_send = false;
}

static void say(struct peer *from, const struct endpoint *to, enum chan chan, uint64_t token, uint32_t number, size_t len)
{
	say_(from, to, chan, token, number, len, 0);
}

static void on_recv(void *arg, struct via via, const uint8_t *msg, size_t len)
{
	struct peer *p = arg;
	uint32_t number = 0, connection = 0;

	p->got[via.chan]++;
	p->last_len = len > p->last_len ? len : p->last_len;
	p->token = via.door_token;
	assert_int_equal(via.door_token != 0, via.chan == CHAN_DOOR);
	if (len >= 8) {
		memcpy(&number, msg, 4);
		memcpy(&connection, msg + 4, 4);
	}
	if (connection != p->last_connection[via.chan])
		p->connections++;
	else if (number <= p->last[via.chan])
		p->disorder++;
	p->last[via.chan] = number;
	p->last_connection[via.chan] = connection;
	if (p->echo_door && via.chan == CHAN_DOOR)
		say(p, NULL, CHAN_DOOR, via.door_token, number + 1000, len);
}

static struct peer *open_peer(struct bed *b, const char *listen, bool client, const struct nano_conf *more)
{
	struct peer *p = &b->p[b->n++];
	struct loop_conf lc = {0};
	struct nano_conf nc = more ? *more : (struct nano_conf){0};
	struct err e = {0};

	memset(p, 0, sizeof(*p));
	p->loop = loop_new(&lc, &e);
	assert_non_null(p->loop);
	p->env = loop_env(p->loop);
	p->env->recv = on_recv;
	p->env->recv_arg = p;
	nc.client = client;
	nc.auto_first = (uint16_t)(20000 + getpid() % 10000);
	assert_int_equal(nano_listen_parse(listen, &nc, &e), 0);
	p->nano = nano_new(p->loop, &nc, &e);
	if (!p->nano)
		fail_msg("%s", e.text);
	return p;
}

static const struct endpoint *at(struct peer *p) { return nano_endpoint(p->nano); }

static void close_peer(struct peer *p)
{
	if (!p->loop)
		return;
	nano_free(p->nano);
	loop_free(p->loop);
	assert_int_equal(p->sent, p->back);
	p->loop = NULL;
}

static bool never(void *arg) { return false; }

static bool spin(struct bed *b, bool (*cond)(struct bed *b), uint64_t limit_us)
{
	struct timespec a, t;
	clock_gettime(CLOCK_MONOTONIC, &a);
	for (;;) {
		if (cond(b))
			return true;
		clock_gettime(CLOCK_MONOTONIC, &t);
		if ((uint64_t)(t.tv_sec - a.tv_sec) * SECOND + (uint64_t)(t.tv_nsec / 1000) - (uint64_t)(a.tv_nsec / 1000) > limit_us)
			return false;
		for (int i = 0; i < b->n; i++)
			if (b->p[i].loop)
				loop_run_until(b->p[i].loop, never, NULL, 300);
	}
}

static int setup(void **state) { *state = xcalloc(1, sizeof(struct bed)); return 0; }

static int teardown(void **state)
{
	struct bed *b = *state;
	for (int i = 0; i < b->n; i++)
		close_peer(&b->p[i]);
	free(b);
	return 0;
}

/* ---- cases ---- */
static void test_listen(void **state)
{
	struct nano_conf c = {0};
	struct err e;
	char text[ENDPOINT_TEXT];
	struct endpoint ep = {0};

	assert_int_equal(nano_listen_parse("127.0.0.1:auto", &c, &e), 0);
	assert_int_equal(c.port, 0);
	assert_int_equal(nano_listen_parse("[::1]:4237", &c, &e), 0);
	assert_int_equal(c.port, 4237);
	assert_int_equal(nano_listen_parse("localhost:4237", &c, &e), -1);
	assert_non_null(strstr(e.text, "localhost"));
	assert_int_equal(nano_listen_parse("127.0.0.1:65534", &c, &e), -1);
	assert_int_equal(nano_listen_parse("nonsense", &c, &e), -1);
	assert_int_equal(endpoint_ip("10.1.2.3", ep.ip), 0);
	ep.port[1] = 7;
	assert_string_equal(endpoint_text(&ep, CHAN_BULK, text), "10.1.2.3:7");
	assert_int_equal(endpoint_ip("::1", ep.ip), 0);
	assert_string_equal(endpoint_text(&ep, CHAN_BULK, text), "[::1]:7");
}

static bool all_there(struct bed *b) { return b->p[1].got[CHAN_CTRL] == 500 && b->p[1].got[CHAN_BULK] == 100; }

static void test_order(void **state)
{
	struct bed *b = *state;
	struct peer *x = open_peer(b, "127.0.0.1:auto", false, NULL), *y = open_peer(b, "127.0.0.1:auto", false, NULL);

	assert_int_not_equal(at(x)->port[0], at(y)->port[0]);
	for (uint32_t i = 1; i <= 500; i++) {
		say(x, at(y), CHAN_CTRL, 0, i, 100);
		if (i <= 100)
			say(x, at(y), CHAN_BULK, 0, i, i == 100 ? WIRE_MAX : 100000);
	}
	assert_int_equal(x->back, 0);
	assert_true(spin(b, all_there, 5 * SECOND));
	assert_int_equal(y->disorder, 0);
	assert_int_equal(y->last[CHAN_CTRL], 500);
	assert_int_equal(y->last_len, WIRE_MAX);
	assert_int_equal(x->back, 600);
	assert_int_equal(x->unsent, 0);
}

static bool v6_there(struct bed *b) { return b->p[1].got[CHAN_CTRL] == 1 && b->p[0].got[CHAN_DOOR] == 1; }

static void test_v6(void **state)
{
	struct bed *b = *state;
	int fd = socket(AF_INET6, SOCK_STREAM, 0);
	struct sockaddr_in6 a = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };

	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a))) {
		if (fd >= 0)
			close(fd);
		print_message("no IPv6 here\n");
		skip();
	}
	close(fd);
	struct peer *x = open_peer(b, "[::1]:auto", false, NULL), *y = open_peer(b, "[::1]:auto", false, NULL);
	y->echo_door = true;
	say(x, at(y), CHAN_CTRL, 0, 1, 100);
	say(x, at(y), CHAN_DOOR, 0, 1, 100);
	assert_true(spin(b, v6_there, 2 * SECOND));
}

static bool came_back(struct bed *b) { return b->p[0].back == b->p[0].sent; }

static void test_refused(void **state)
{
	struct bed *b = *state;
	struct nano_conf small = { .ctrl_queue_max = 1000, .stuck_us = 100000, .sweep_us = 50000 };
	struct peer *x = open_peer(b, "127.0.0.1:auto", false, &small), *y = open_peer(b, "127.0.0.1:auto", false, NULL);
	struct endpoint nobody = *at(x), client = *at(x);
	struct linkinfo li;

	nobody.port[CHAN_CTRL] = 1;
	memset(client.port, 0, sizeof(client.port));
	say(x, &client, CHAN_CTRL, 0, 1, 100);          /* cannot be dialled */
	say(x, at(y), CHAN_CTRL, 0, 1, WIRE_MAX + 1);   /* too long */
	say(x, at(y), CHAN_CTRL, 0, 1, 1001);           /* longer than the queue */
	say(x, at(y), CHAN_DOOR, (uint64_t)1 << 63 | 99, 1, 100);      /* a door that nobody has dialled */
	say_(x, at(y), CHAN_CTRL, 0, 1, 100, 1);        /* cannot be sealed */
	assert_int_equal(x->back, 0);
	assert_true(spin(b, came_back, SECOND));
	assert_int_equal(x->unsent, 5);
	say(x, &nobody, CHAN_CTRL, 0, 1, 100);          /* nobody answers: comes back after stuck_us */
	assert_true(spin(b, came_back, 3 * SECOND));
	assert_int_equal(x->unsent, 6);
	assert_false(x->env->ops->linkinfo(x->env, &nobody, &li));
	say(x, &nobody, CHAN_CTRL, 0, 1, 100);          /* comes back when the transport goes */
}

static bool connected(struct bed *b)
{
	struct linkinfo li = {0};
	return b->p[0].env->ops->linkinfo(b->p[0].env, at(&b->p[1]), &li) && li.connected && b->p[1].got[0];
}

static bool suspicious(struct bed *b)
{
	struct linkinfo li = {0};
	return b->p[0].env->ops->linkinfo(b->p[0].env, nano_endpoint(b->p[1].nano), &li) && li.maybe_dead;
}

/* A process of its own is killed; the survivor's linkinfo must tell within 50 ms (it takes about 1). */
static bool child_up(struct bed *b)
{
	struct linkinfo li = {0};
	return b->p[0].env->ops->linkinfo(b->p[0].env, at(&b->p[0]), &li);
}

static struct endpoint child_at;
static bool child_connected(struct bed *b)
{
	struct linkinfo li = {0};
	return b->p[0].env->ops->linkinfo(b->p[0].env, &child_at, &li) && li.connected;
}
static bool child_dead(struct bed *b)
{
	struct linkinfo li = {0};
	return b->p[0].env->ops->linkinfo(b->p[0].env, &child_at, &li) && li.maybe_dead;
}

static void test_death(void **state)
{
	struct bed *b = *state;
	int pipefd[2];
	pid_t pid;
	struct peer *x;

	assert_int_equal(pipe(pipefd), 0);
	pid = fork();                           /* before this process has any nanomsg socket */
	if (!pid) {
		struct peer *c = open_peer(b, "127.0.0.1:auto", false, NULL);
		ssize_t rc = write(pipefd[1], at(c), sizeof(struct endpoint));
		for (;;)
			rc += spin(b, child_up, SECOND);
	}
	assert_int_equal(read(pipefd[0], &child_at, sizeof(child_at)), sizeof(child_at));
	x = open_peer(b, "127.0.0.1:auto", false, NULL);
	say(x, &child_at, CHAN_CTRL, 0, 1, 100);
	assert_true(spin(b, child_connected, 2 * SECOND));
	assert_false(child_dead(b));
	kill(pid, SIGKILL);
	assert_true(spin(b, child_dead, 50000));
	waitpid(pid, NULL, 0);
	close(pipefd[0]);
	close(pipefd[1]);
}

static bool got_second(struct bed *b) { return b->p[1].got[CHAN_CTRL] == 2; }

/* Fresh sockets and a reborn peer on the same ports: new connection numbers. */
static void test_again(void **state)
{
	struct bed *b = *state;
	struct peer *x = open_peer(b, "127.0.0.1:auto", false, NULL), *y = open_peer(b, "127.0.0.1:auto", false, NULL);
	struct endpoint where = *at(y);
	char text[ENDPOINT_TEXT];
	struct linkinfo li;
	uint32_t connection;

	say(x, &where, CHAN_CTRL, 0, 1, 100);
	assert_true(spin(b, connected, SECOND));
	connection = y->last_connection[CHAN_CTRL];
	x->env->ops->close_link(x->env, &where);
	assert_false(x->env->ops->linkinfo(x->env, &where, &li));
	say(x, &where, CHAN_CTRL, 0, 2, 100);
	assert_true(spin(b, got_second, SECOND));
	assert_true(y->last_connection[CHAN_CTRL] > connection);
	connection = y->last_connection[CHAN_CTRL];
	close_peer(y);
	b->n--;
	endpoint_text(&where, CHAN_CTRL, text);
	y = open_peer(b, text, false, NULL);
	assert_true(spin(b, suspicious, SECOND));
	say(x, &where, CHAN_CTRL, 0, 3, 100);
	assert_true(spin(b, connected, 3 * SECOND));
	assert_true(y->last_connection[CHAN_CTRL] > connection);
	assert_int_equal(y->last[CHAN_CTRL], 3);
}

static bool door_three(struct bed *b) { return b->p[0].got[CHAN_DOOR] == 3; }
static bool door_four(struct bed *b) { return b->p[1].got[CHAN_DOOR] == 4; }
static bool door_all(struct bed *b) { return b->p[0].got[CHAN_DOOR] == 1 && b->p[2].got[CHAN_DOOR] == 1; }

static void test_door(void **state)
{
	struct bed *b = *state;
	struct peer *x = open_peer(b, "127.0.0.1:auto", true, NULL), *y = open_peer(b, "127.0.0.1:auto", false, NULL);
	struct peer *z = open_peer(b, "127.0.0.1:auto", true, NULL);

	assert_int_equal(at(x)->port[CHAN_DOOR], 0);
	y->echo_door = true;
	say(x, at(y), CHAN_DOOR, 0, 1, 100);
	say(z, at(y), CHAN_DOOR, 0, 7, 5000);
	assert_true(spin(b, door_all, SECOND));
	assert_int_equal(x->last[CHAN_DOOR], 1001);     /* each its own */
	assert_int_equal(z->last[CHAN_DOOR], 1007);
	assert_int_equal(z->last_len, 5000);
	y->echo_door = false;
	say(x, NULL, CHAN_DOOR, x->token, 2, 100);      /* the way back works for the dialler too */
	say(x, at(y), CHAN_DOOR, 0, 3, WIRE_MAX);
	assert_true(spin(b, door_four, SECOND));
	say(y, NULL, CHAN_DOOR, y->token, 50, WIRE_MAX);        /* unasked, back to back: spaced, so both arrive */
	say(y, NULL, CHAN_DOOR, y->token, 51, 100);
	assert_true(spin(b, door_three, SECOND));
	assert_int_equal(x->last[CHAN_DOOR], 51);
	say(y, NULL, CHAN_DOOR, 12345, 52, 100);        /* nobody: vanishes, and the packet comes back */
}

static bool four_out(struct bed *b) { return b->p[0].back == 4; }
static bool gone_five(struct bed *b) { return b->p[0].back == 5; }

static void test_lru(void **state)
{
	struct bed *b = *state;
	struct nano_conf tight = { .sockets_max = 4, .idle_us = 100000 };
	struct peer *x = open_peer(b, "127.0.0.1:auto", false, &tight);
	struct nano_stats st;
	struct linkinfo li;

	for (int i = 1; i <= 5; i++)
		open_peer(b, "127.0.0.1:auto", false, NULL);
	for (int i = 1; i <= 4; i++)
		say(x, at(&b->p[i]), CHAN_CTRL, 0, 1, 100);
	assert_true(spin(b, four_out, 2 * SECOND));
	say(x, at(&b->p[5]), CHAN_CTRL, 0, 1, 100);     /* all are young: refused */
	assert_true(spin(b, gone_five, SECOND));
	assert_int_equal(x->unsent, 1);
	loop_run_until(x->loop, never, NULL, 120000);
	say(x, at(&b->p[1]), CHAN_CTRL, 0, 2, 100);     /* now 2 is the least recently used */
	say(x, at(&b->p[5]), CHAN_CTRL, 0, 2, 100);
	assert_true(spin(b, came_back, SECOND));
	assert_int_equal(x->unsent, 1);
	assert_false(x->env->ops->linkinfo(x->env, at(&b->p[2]), &li));
	assert_true(x->env->ops->linkinfo(x->env, at(&b->p[1]), &li));
	nano_stats(x->nano, &st);
	assert_int_equal(st.lru_closed, 1);
	assert_int_equal(st.sockets, 4);
}

/* ---- strangers ---- */
static int dial_raw(const struct endpoint *to, enum chan chan)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(to->port[chan]) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (connect(fd, (struct sockaddr *)&a, sizeof(a))) {
		close(fd);
		return -1;
	}
	fcntl(fd, F_SETFL, O_NONBLOCK);
	return fd;
}

static size_t resident_kib(void)
{
	size_t pages = 0, all = 0;
	FILE *f = fopen("/proc/self/statm", "r");
	if (f && fscanf(f, "%zu %zu", &all, &pages) != 2)
		pages = 0;
	if (f)
		fclose(f);
	return pages * 4;
}

static bool honest(struct bed *b) { return b->p[0].last[CHAN_CTRL] == 424242; }

/* Garbage of many kinds on every port; afterwards an honest message still arrives. */
static void test_garbage(void **state)
{
	struct bed *b = *state;
	struct peer *y = open_peer(b, "127.0.0.1:auto", false, NULL), *x;
	static const uint8_t pull_hello[] = { 0, 'S', 'P', 0, 0, 80, 0, 0 }, req_hello[] = { 0, 'S', 'P', 0, 0, 48, 0, 0 };
	uint8_t huge[8] = { 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff }, junk[4096];
	uint8_t small[16] = { 0, 0, 0, 0, 0, 0, 0, 3, 1, 2, 3 };
	int fd[60];

	for (size_t i = 0; i < sizeof(junk); i++)
		junk[i] = (uint8_t)(i * 7919 >> 3);
	for (int i = 0; i < 60; i++) {
		enum chan c = (enum chan)(i % CHANS);
		fd[i] = dial_raw(at(y), c);
		assert_true(fd[i] >= 0);
		if (i % 5)
			assert_int_equal(send(fd[i], c == CHAN_DOOR ? req_hello : pull_hello, 8, MSG_NOSIGNAL), 8);
		if (i % 5 == 1)
			send(fd[i], huge, 8, MSG_NOSIGNAL);     /* 2^63 bytes are announced */
		else if (i % 5 == 2)
			send(fd[i], small, 11, MSG_NOSIGNAL);   /* three bytes: less than a header */
		else
			send(fd[i], junk, sizeof(junk), MSG_NOSIGNAL);
	}
	x = open_peer(b, "127.0.0.1:auto", false, NULL);
	y->last[CHAN_CTRL] = 0;
	say(x, at(y), CHAN_CTRL, 0, 424242, 100);
	assert_true(spin(b, honest, 2 * SECOND));
	for (int i = 0; i < 60; i++)
		close(fd[i]);
}

static struct nano_stats seen;
static bool swept(struct bed *b)
{
	nano_stats(b->p[0].nano, &seen);
	return seen.inbound <= 16 && seen.shut_address >= 900;
}
static bool none_left(struct bed *b)
{
	nano_stats(b->p[0].nano, &seen);
	return seen.inbound == 0 && seen.shut_stranger >= 16;
}
static bool banned(struct bed *b)
{
	nano_stats(b->p[0].nano, &seen);
	return seen.shut_banned >= 1;
}

/* A thousand idle connections from one address: cut down to 16, then the strangers go; memory stays. */
static void test_thousand(void **state)
{
	struct bed *b = *state;
	struct nano_conf quick = { .sweep_us = 100000, .stranger_us = 700000 };
	struct peer *y = open_peer(b, "127.0.0.1:auto", false, &quick);
	size_t before = resident_kib();
	int fd[1000], n = 0;
	uint8_t loopback[16];

	for (int i = 0; i < 1000; i++) {
		fd[n] = dial_raw(at(y), (enum chan)(i % CHANS));
		if (fd[n] >= 0)
			n++;
		if (i % 50 == 49)
			spin(b, swept, 5000);
	}
	assert_true(n > 950);
	assert_true(spin(b, swept, 5 * SECOND));
	assert_true(spin(b, none_left, 5 * SECOND));
#if !defined(__SANITIZE_ADDRESS__)
	assert_true(resident_kib() - before < 40 * 1024);
#else
	(void)before;
#endif
	for (int i = 0; i < n; i++)
		close(fd[i]);
	endpoint_ip("127.0.0.1", loopback);
	fd[0] = dial_raw(at(y), CHAN_CTRL);
	y->env->ops->ban(y->env, loopback, env_now(y->env) + 60 * (uint64_t)SECOND);
	assert_true(spin(b, banned, SECOND));
	close(fd[0]);
}

/* A known address keeps its connections; a mailbox that has spoken is no stranger. */
static bool heard_enough(struct bed *b) { nano_stats(b->p[0].nano, &seen); return seen.shut_stranger >= 1; }

static void test_known(void **state)
{
	struct bed *b = *state;
	struct nano_conf quick = { .sweep_us = 50000, .stranger_us = 200000 };
	struct peer *y = open_peer(b, "127.0.0.1:auto", false, &quick), *x = open_peer(b, "127.0.0.1:auto", false, NULL);
	uint8_t loopback[16];
	int fd = dial_raw(at(y), CHAN_CTRL);

	endpoint_ip("127.0.0.1", loopback);
	y->env->ops->heard(y->env, loopback);
	say(x, at(y), CHAN_CTRL, 0, 1, 100);
	assert_true(spin(b, heard_enough, 2 * SECOND));
	loop_run_until(y->loop, never, NULL, 300000);
	nano_stats(y->nano, &seen);
	assert_int_equal(seen.shut_stranger, 1);        /* the silent one */
	assert_int_equal(seen.inbound, 1);
	close(fd);
}

static void test_port_in_use(void **state)
{
	struct bed *b = *state;
	struct peer *y = open_peer(b, "127.0.0.1:auto", false, NULL);
	struct loop_conf lc = {0};
	struct nano_conf nc = {0};
	struct err e = {0};
	char text[ENDPOINT_TEXT];
	struct loop *l = loop_new(&lc, &e);

	assert_int_equal(nano_listen_parse(endpoint_text(at(y), CHAN_CTRL, text), &nc, &e), 0);
	assert_null(nano_new(l, &nc, &e));
	assert_int_equal(e.code, ERR_EXISTS);
	assert_non_null(strstr(e.text, text));
	nc.port = 0;                            /* the loop is still good */
	nc.auto_first = (uint16_t)(at(y)->port[0]);
	struct nano *n = nano_new(l, &nc, &e);
	assert_non_null(n);
	assert_int_equal(nano_endpoint(n)->port[0] % 3, at(y)->port[0] % 3);
	nano_free(n);
	loop_free(l);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = { T(test_death), T(test_listen), T(test_order), T(test_v6), T(test_refused), T(test_again),
		T(test_door), T(test_lru), T(test_garbage), T(test_thousand), T(test_known), T(test_port_in_use) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
