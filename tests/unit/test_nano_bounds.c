/* What strangers can have of the real transport: connections, room at the door, links that are dialled on their word.
 * Each is bounded, and of what is there peers have the better part. */
#include <fcntl.h>
#include <sys/socket.h>
#include "nano_bed.h"
#include "net/nano_int.h"

static struct nano_stats seen;

/* ---- who is shut when there are too many ---- */

static struct inbound *enter(struct nano *n, const char *ip, uint64_t since, int fd)
{
	struct inbound *c;

	n->inbound = xrealloc(n->inbound, (n->ninbound + 1) * sizeof(*n->inbound));
	n->cap_inbound = n->ninbound + 1;
	c = &n->inbound[n->ninbound++];
	*c = (struct inbound){ .fd = fd, .chan = CHAN_DOOR, .since = since };
	endpoint_ip(ip, c->ip);
	return c;
}

static struct inbound *stand(struct nano *n, const char *ip, uint64_t since, int fd[2])
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
	fcntl(fd[1], F_SETFL, O_NONBLOCK);
	return enter(n, ip, since, fd[0]);
}

static bool shut(int fd[2])
{
	char byte;
	bool over = recv(fd[1], &byte, 1, 0) == 0;

	close(fd[0]);
	close(fd[1]);
	return over;
}

/* A line of IPv6 has a /64 of addresses: they count as one, and the newest stay. Those of IPv4 are each their own. */
static void test_lines(void **state)
{
	struct bed *b = *state;
	struct nano *n = open_peer(b, "127.0.0.1:auto", false, NULL)->nano;
	uint64_t now = env_now(n->env);
	char ip[64];
	int fd[20][2];

	for (int i = 0; i < 20; i++) {
		snprintf(ip, sizeof(ip), "2001:db8:1:1:%x::1", i + 1);
		stand(n, ip, now - 1000 + (uint64_t)i, fd[i]);
	}
	sweep_judge(n, now);
	assert_int_equal(n->ninbound, 16);
	assert_int_equal(n->stats.shut_address, 4);
	for (int i = 0; i < 20; i++)
		assert_int_equal(shut(fd[i]), i < 4);
	n->ninbound = 0;
	for (int i = 0; i < 20; i++) {
		snprintf(ip, sizeof(ip), "10.0.0.%d", i + 1);
		stand(n, ip, now, fd[i]);
	}
	sweep_judge(n, now);
	assert_int_equal(n->ninbound, 20);
	for (int i = 0; i < 20; i++)
		assert_false(shut(fd[i]));
	n->ninbound = 0;
}

/* Ten stand about where eight may; two come, and one is a peer's: these three stay. */
static void test_worthy(void **state)
{
	struct bed *b = *state;
	struct nano_conf few = { .inbound_max = 8 };
	struct nano *n = open_peer(b, "127.0.0.1:auto", false, &few)->nano;
	uint64_t now = env_now(n->env);
	char ip[64];
	int fd[13][2];

	for (int i = 0; i < 13; i++) {
		snprintf(ip, sizeof(ip), "10.0.%d.1", i);
		stand(n, ip, now - 5000000 + 100000 * (uint64_t)i, fd[i])->token = i == 10;
	}
	sweep_judge(n, now);
	assert_int_equal(n->ninbound, 8);
	assert_int_equal(n->stats.shut_total, 5);
	for (int i = 0; i < 13; i++)
		assert_int_equal(shut(fd[i]), i < 5);
	n->ninbound = 0;
	/* and no stranger's age counts for more than a peer's */
	for (int i = 0; i < 9; i++) {
		snprintf(ip, sizeof(ip), "10.0.%d.1", i);
		stand(n, ip, i ? now : now - 9000000, fd[i])->token = i == 0;
	}
	sweep_judge(n, now);
	assert_false(shut(fd[0]));
	for (int i = 1, gone = 0; i < 9; i++) {
		gone += shut(fd[i]);
		assert_int_equal(i == 8 ? gone : 1, 1);
	}
	n->ninbound = 0;
}

/* With what is so when nobody says otherwise: strangers have ten seconds, 16 connections an address, and all 1024. */
static void test_defaults(void **state)
{
	struct bed *b = *state;
	struct nano *n = open_peer(b, "127.0.0.1:auto", false, NULL)->nano;
	uint64_t now = env_now(n->env);
	char ip[64];

	assert_int_equal(n->conf.idle_us, SECOND);
	for (int i = 0; i < 20; i++)
		enter(n, "10.1.0.1", now, -1);
	sweep_judge(n, now);
	assert_int_equal(n->ninbound, 16);
	n->ninbound = 0;
	for (int i = 0; i < 1100; i++) {
		snprintf(ip, sizeof(ip), "10.0.%d.%d", i / 100, i % 100);
		enter(n, ip, now - 10 * SECOND + 1, -1);
	}
	sweep_judge(n, now);
	assert_int_equal(n->ninbound, 1024);
	assert_int_equal(n->stats.shut_total, 76);
	assert_int_equal(n->stats.shut_stranger, 0);
	sweep_judge(n, now + 1);
	assert_int_equal(n->ninbound, 0);
	assert_int_equal(n->stats.shut_stranger, 1024);
}

/* To a mailbox, that all have spoken by: no stranger's, as long as their address is known. */
static void come(struct nano *n, const char *ip, int count, uint64_t since)
{
	n->ninbound = 0;
	for (int i = 0; i < count; i++) {
		struct inbound *c = enter(n, ip, since + (uint64_t)i, -1);

		c->chan = CHAN_CTRL;
		c->received = 1000;
	}
}

/* A peer's address has 256 connections, the first ones, for an hour; a line of IPv6 has them once. */
static void test_acquainted(void **state)
{
	static const char *const ips[] = { "10.0.0.1", "2001:db8:1:1::1" };
	const uint64_t hour = 3600 * (uint64_t)SECOND;
	struct bed *b = *state;
	struct nano *n = open_peer(b, "127.0.0.1:auto", false, NULL)->nano;
	uint64_t now = env_now(n->env);
	uint8_t ip[16];

	for (int k = 0; k < 2; k++) {
		endpoint_ip(ips[k], ip);
		n->env->ops->heard(n->env, ip, 0);
		n->stats.shut_address = 0;
		come(n, k ? "2001:db8:1:1:2::2" : ips[k], 300, now - 300);
		sweep_judge(n, now);
		assert_int_equal(n->ninbound, 256);
		assert_int_equal(n->stats.shut_address, 44);
		for (size_t i = 0; i < 256; i++)
			assert_true(n->inbound[i].since < now - 300 + 256);
	}
	come(n, ips[0], 300, now + hour - 300);
	sweep_judge(n, now + hour - 1);
	assert_int_equal(n->ninbound, 256);
	come(n, ips[0], 300, now + hour - 300);
	sweep_judge(n, env_now(n->env) + hour);
	assert_int_equal(n->ninbound, 16);
}

/* ---- the door's connections and queues ---- */

static bool answered(struct bed *b) { return b->p[1].got[CHAN_DOOR] == 1; }
static bool one_each(struct bed *b) { return b->p[1].got[CHAN_DOOR] && b->p[2].got[CHAN_DOOR]; }
static bool two(struct bed *b) { return b->p[2].last[CHAN_DOOR] == 7777; }
static bool all_back(struct bed *b) { return b->p[0].sent == b->p[0].back; }

/* Twenty thousand refusals for one connection: a share of the room is theirs, and a peer has its answer at once. */
static void test_displaced(void **state)
{
	struct bed *b = *state;
	struct nano_conf small = { .bulk_queue_max = 1 << 20 };
	struct peer *y = open_peer(b, "127.0.0.1:auto", false, &small), *x = open_peer(b, "127.0.0.1:auto", true, NULL);
	struct peer *z = open_peer(b, "127.0.0.1:auto", true, NULL);
	uint64_t junk;

	y->echo_door = true;
	say(x, at(y), CHAN_DOOR, 0, 1, 300);
	assert_true(spin(b, answered, 2 * SECOND));
	junk = y->token;
	say(z, at(y), CHAN_DOOR, 0, 2, 300);
	assert_true(spin(b, one_each, 2 * SECOND));
	y->env->ops->heard(y->env, (const uint8_t[16]){ 0 }, y->token);
	for (uint32_t i = 0; i < 20000; i++)
		say(y, NULL, CHAN_DOOR, junk, i + 1, 84);
	assert_in_range(y->nano->door_queued[false], 1, (1 << 20) / 16);
	say(y, NULL, CHAN_DOOR, y->token, 7777, 5000);
	assert_int_equal(y->nano->door_queued[true], 5000);
	assert_true(spin(b, two, 2 * SECOND));
	close_peer(x);
	assert_true(spin(b, all_back, 5 * SECOND));
	assert_int_equal(y->nano->door_queued[false] + y->nano->door_queued[true], 0);
}

static uint64_t made_up(uint32_t i) { return (uint64_t)(i + 1) << 32 | 0x80000001u; }

static void good(struct peer *y, uint64_t token)
{
	y->env->ops->heard(y->env, (const uint8_t[16]){ 0 }, token);
}

static bool remembered(struct peer *y, uint64_t token)
{
	uint64_t key = token >> 32;

	return map_get(y->nano->door_last, &key, sizeof(key));
}

static bool twice_z(struct bed *b) { return b->p[2].got[CHAN_DOOR] == 2; }
static bool twice_x(struct bed *b) { return b->p[1].got[CHAN_DOOR] == 2; }

/* Inside of the loop, as whoever sends: nothing goes out meanwhile. */
static void come_and_go(struct peer *y, uint32_t from, uint32_t to)
{
	loop_enter(y->loop, "test");
	for (uint32_t i = from; i < to; i++) {
		say(y, NULL, CHAN_DOOR, made_up(i), i + 1, 84);
		assert_true(map_len(y->nano->door_last) <= 4096);
	}
	loop_leave(y->loop);
}

/* Thousands come and go, and are forgotten, who was silent longest first. Who has spoken meanwhile is not, and the peer
 * never: it has its answer. */
static void test_connections(void **state)
{
	struct bed *b = *state;
	struct nano_conf still = { .sweep_us = 3600 * (uint64_t)SECOND };
	struct peer *y = open_peer(b, "127.0.0.1:auto", false, &still), *x = open_peer(b, "127.0.0.1:auto", true, NULL);
	struct peer *z = open_peer(b, "127.0.0.1:auto", true, NULL);
	uint64_t peer, other;

	y->echo_door = true;
	say(x, at(y), CHAN_DOOR, 0, 1, 300);
	assert_true(spin(b, answered, 2 * SECOND));
	peer = y->token;
	good(y, peer);
	say(z, at(y), CHAN_DOOR, 0, 1, 300);
	assert_true(spin(b, one_each, 2 * SECOND));
	other = y->token;
	come_and_go(y, 0, 3000);
	say(z, at(y), CHAN_DOOR, 0, 2, 300);
	assert_true(spin(b, twice_z, 2 * SECOND));
	come_and_go(y, 3000, 6000);
	assert_int_equal(map_len(y->nano->door_last), 4096);
	assert_int_equal(list_len(&y->nano->door_peers) + list_len(&y->nano->door_strangers), 4096);
	assert_true(remembered(y, peer) && remembered(y, other));
	assert_false(remembered(y, made_up(6000 - 4095)));
	assert_true(remembered(y, made_up(6000 - 4094)));
	say(x, at(y), CHAN_DOOR, 0, 2, 300);
	assert_true(spin(b, twice_x, 2 * SECOND));
	assert_int_equal(y->token, peer);
}

/* So many of those finds room. */
static unsigned room(struct peer *y, uint64_t token, unsigned count)
{
	size_t before = y->nano->door_queued[false] + y->nano->door_queued[true];

	for (uint32_t i = 0; i < count; i++)
		say(y, NULL, CHAN_DOOR, token, i + 1, WIRE_MAX);
	return (unsigned)((y->nano->door_queued[false] + y->nano->door_queued[true] - before) / WIRE_MAX);
}

/* What one connection has waiting, strangers together, and all; each comes to its own end. */
static void test_room(void **state)
{
	struct bed *b = *state;
	struct peer *y = open_peer(b, "127.0.0.1:auto", false, NULL);
	unsigned most = (16 << 20) / WIRE_MAX, all;

	assert_int_equal(room(y, made_up(0), 1), 1);
	good(y, made_up(0));
	assert_int_equal(room(y, made_up(0), 10), 3);
	assert_int_equal(y->nano->door_queued[true], 4 * WIRE_MAX);
	assert_int_equal(room(y, made_up(1), 1) + room(y, made_up(2), 1) + room(y, made_up(3), 1), 3);
	assert_int_equal(room(y, made_up(4), 1), 0);
	assert_int_equal(y->nano->door_queued[false], 3 * WIRE_MAX);
	all = 7;
	for (uint32_t i = 1; i < 20; i++) {
		all += i < 5 ? 0 : room(y, made_up(i), 1);
		good(y, made_up(i));
		all += room(y, made_up(i), 10);
	}
	assert_int_equal(all, most);
	assert_int_equal(y->nano->door_queued[false] + y->nano->door_queued[true], most * WIRE_MAX);
	assert_int_equal(y->nano->stats.refused, y->sent - (int)most);
}

/* ---- dialling on somebody's word ---- */

static void asked(struct peer *x, const struct endpoint *to)
{
	struct msg *m = xcalloc(1, sizeof(*m));

	m->from = x;
	m->p = (struct packet){ .wire_len = 100, .seal = msg_seal, .gone = msg_gone, .asked = true };
	x->sent++;
	x->env->ops->send(x->env, to, CHAN_CTRL, 0, &m->p);
}

static uint32_t links(struct peer *x)
{
	nano_stats(x->nano, &seen);
	return seen.links;
}

static bool back_one(struct bed *b) { return b->p[0].back >= 1; }
static bool all_gone(struct bed *b) { return links(&b->p[0]) <= 1; }

/* Two hundred addresses are named: few of them are dialled at a time, and no link to a peer that rests makes room. */
static void test_asked(void **state)
{
	struct bed *b = *state;
	struct nano_conf quick = { .sockets_max = 50, .idle_us = 300000, .stranger_us = 400000, .sweep_us = 50000 };
	struct peer *x = open_peer(b, "127.0.0.1:auto", false, &quick), *y = open_peer(b, "127.0.0.1:auto", false, NULL);
	struct endpoint to = *at(y), nobody = *at(y);

	say(x, &to, CHAN_CTRL, 0, 1, 100);
	assert_true(spin(b, back_one, 2 * SECOND));
	loop_run_until(x->loop, never, NULL, 350000);
	for (uint16_t i = 0; i < 100; i++) {    /* one address */
		nobody.port[CHAN_CTRL] = (uint16_t)(1 + i);
		asked(x, &nobody);
	}
	assert_int_equal(links(x), 1 + 32);
	assert_int_equal(seen.asked_refused, 68);
	for (uint8_t i = 0; i < 100; i++) {     /* and many */
		nobody.ip[15] = (uint8_t)(100 + i);
		asked(x, &nobody);
	}
	assert_int_equal(links(x), 50);
	assert_int_equal(seen.lru_closed, 0);
	loop_run_until(x->loop, never, NULL, 320000);
	nobody.ip[14] = 1;
	asked(x, &nobody);                      /* another has had its time */
	assert_int_equal(seen.asked_refused, 68 + 83);
	assert_int_equal(links(x), 50);
	asked(x, &to);                          /* and who is a peer's stays so */
	assert_true(spin(b, all_gone, 3 * SECOND));
	assert_int_equal(links(x), 1);
	assert_int_equal(seen.lru_closed, 0);
}

/* Without that many sockets being in the way sixty-four are dialled; one that turns out a peer's counts no more. */
static void test_asked_all(void **state)
{
	struct bed *b = *state;
	struct peer *x = open_peer(b, "127.0.0.1:auto", false, NULL);
	struct endpoint nobody = *at(x);

	for (int k = 0; k < 2; k++) {
		for (uint8_t i = 0; i < 100; i++) {
			nobody.ip[15] = (uint8_t)(100 + i);
			nobody.ip[14] = (uint8_t)k;
			asked(x, &nobody);
		}
		assert_int_equal(links(x), 64 + 10 * k);
		for (uint8_t i = 0; i < 10; i++) {
			nobody.ip[15] = (uint8_t)(100 + i);
			nobody.ip[14] = 0;
			say(x, &nobody, CHAN_CTRL, 0, 2, 100);
		}
	}
}

/* Of IPv6 a line counts as one address. These are multicast's: no kernel sends a packet on account of TCP there. */
static void test_asked_lines(void **state)
{
	struct bed *b = *state;
	struct peer *x = open_peer(b, "127.0.0.1:auto", false, NULL);
	struct endpoint nobody = *at(x);

	endpoint_ip("ff0e::1", nobody.ip);
	for (int k = 0; k < 2; k++) {
		nobody.ip[7] = (uint8_t)k;
		for (uint8_t i = 0; i < 50; i++) {
			nobody.ip[8 + i % 8] = (uint8_t)(i + 1);
			asked(x, &nobody);
		}
		assert_int_equal(links(x), 32 * (k + 1));
		assert_int_equal(seen.asked_refused, 18 * (k + 1));
	}
}

static bool handed_over(struct bed *b) { return b->p[0].back == b->p[0].sent; }

struct turns { const struct peer *p; int before, most; };
static bool turned(void *arg)
{
	struct turns *t = arg;
	int now = t->p->got[CHAN_BULK] - t->before;

	t->most = now > t->most ? now : t->most;
	t->before += now;
	return t->before == 16;
}

/* However much is there: a MiB or a little more in one turn of the loop. */
static void test_turns(void **state)
{
	struct bed *b = *state;
	struct peer *x = open_peer(b, "127.0.0.1:auto", false, NULL), *y = open_peer(b, "127.0.0.1:auto", false, NULL);
	struct turns t = { .p = y };
	struct loop *own = y->loop;

	for (uint32_t i = 1; i <= 16; i++)
		say(x, at(y), CHAN_BULK, 0, i, 300000);
	y->loop = NULL;                         /* it does not run yet */
	(void)spin(b, handed_over, SECOND / 2); /* as much as the kernel's buffers hold */
	y->loop = own;
	for (int i = 0; i < 5000 && !loop_run_until(own, turned, &t, 1000); i++)
		(void)loop_run_until(x->loop, never, NULL, 300);
	assert_int_equal(t.before, 16);
	assert_true(t.most <= 4);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = { T(test_lines), T(test_worthy), T(test_defaults), T(test_acquainted),
		T(test_displaced), T(test_connections), T(test_room), T(test_asked), T(test_asked_all),
		T(test_asked_lines), T(test_turns) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
