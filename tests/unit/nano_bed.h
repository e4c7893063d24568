/* Peers for the tests of the real transport: each is a loop of its own with a transport, all run in turns. */
#ifndef TESTS_UNIT_NANO_BED_H
#define TESTS_UNIT_NANO_BED_H
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "common/mem.h"
#include "loop/loop.h"
#include "net/nano.h"
#include "stolen.h"

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

static inline int msg_seal(struct packet *p, uint32_t connection, uint8_t *out)
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

static inline void msg_gone(struct packet *p, bool sent)
{
	struct msg *m = (struct msg *)p;
	assert_false(m->from->in_send);
	m->from->back++;
	m->from->unsent += !sent;
	free(m);
}

static inline void say_(struct peer *from, const struct endpoint *to, enum chan chan, uint64_t token, uint32_t number,
	size_t len, int fail)
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

static inline void say(struct peer *from, const struct endpoint *to, enum chan chan, uint64_t token, uint32_t number,
	size_t len)
{
	say_(from, to, chan, token, number, len, 0);
}

static inline void on_recv(void *arg, struct via via, uint8_t *msg, size_t len)
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

static inline struct peer *open_peer(struct bed *b, const char *listen, bool client, const struct nano_conf *more)
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

static inline const struct endpoint *at(struct peer *p) { return nano_endpoint(p->nano); }

static inline void close_peer(struct peer *p)
{
	if (!p->loop)
		return;
	nano_free(p->nano);
	loop_free(p->loop);
	assert_int_equal(p->sent, p->back);
	p->loop = NULL;
}

static inline bool never(void *arg) { return false; }

static inline bool spin(struct bed *b, bool (*cond)(struct bed *b), uint64_t limit_us)
{
	struct timespec a, t;
	double before = stolen(), limit = (double)limit_us * 1e-6;
	clock_gettime(CLOCK_MONOTONIC, &a);
	for (;;) {
		if (cond(b))
			return true;
		clock_gettime(CLOCK_MONOTONIC, &t);
		double took = (double)(t.tv_sec - a.tv_sec) + (double)(t.tv_nsec - a.tv_nsec) * 1e-9;
		if (took > limit && took > limit + stolen() - before)
			return false;
		for (int i = 0; i < b->n; i++)
			if (b->p[i].loop)
				loop_run_until(b->p[i].loop, never, NULL, 300);
	}
}

static inline int setup(void **state) { *state = xcalloc(1, sizeof(struct bed)); return 0; }

static inline int teardown(void **state)
{
	struct bed *b = *state;
	for (int i = 0; i < b->n; i++)
		close_peer(&b->p[i]);
	free(b);
	return 0;
}

#endif
