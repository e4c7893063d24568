/* A small chatty application for the simulator's own scenarios: it sends numbered messages, answers what comes through
 * its door, and checks that every packet comes back exactly once. */
#ifndef TESTS_SIM_CHAT_H
#define TESTS_SIM_CHAT_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "sim.h"

struct msg { struct packet p; struct chat *c; uint8_t body[24]; size_t pad; };
struct chat {
	struct env *env;
	int node, sent, back, unsent, got, out_of_order, answers, done;
	uint32_t last[64], connections;         /* highest number by sender; connections heard */
	struct { int from; uint32_t connection, last; } heard[512];
	uint64_t token, got_at;
	int runs, from;                         /* how often a sender came twice in a row */
	struct timer t;
	struct job job;
	struct resolving r;
	int ran;
};

static inline int msg_seal(struct packet *p, uint32_t connection, uint8_t *out)
{
	struct msg *m = (struct msg *)p;
	memset(out, 0, p->wire_len);
	memcpy(out, m->body, sizeof(m->body));
	memcpy(out + 8, &connection, 4);
	return 0;
}

static inline void msg_gone(struct packet *p, bool sent)
{
	struct msg *m = (struct msg *)p;
	m->c->back++;
	m->c->unsent += !sent;
	free(m);
}

/* body: 'S', node, -, -, number(4), connection(4) */
static inline void say(struct chat *c, const struct endpoint *to, enum chan chan, uint64_t token, char what,
	uint32_t number, size_t size)
{
	struct msg *m = xcalloc(1, sizeof(*m));
	m->c = c;
	m->p.wire_len = size;
	m->p.seal = msg_seal;
	m->p.gone = msg_gone;
	m->body[0] = (uint8_t)what;
	m->body[1] = (uint8_t)c->node;
	memcpy(m->body + 4, &number, 4);
	c->sent++;
	c->env->ops->send(c->env, to, chan, token, &m->p);
}

static inline void chat_recv(void *arg, struct via via, uint8_t *msg, size_t len)
{
	struct chat *c = arg;
	uint32_t number, connection, k = 0;
	int from = msg[1];

	memcpy(&number, msg + 4, 4);
	memcpy(&connection, msg + 8, 4);
	c->got++;
	c->runs += c->from == from;
	c->from = from;
	c->got_at = env_now(c->env);
	while (k < c->connections && (c->heard[k].from != from || c->heard[k].connection != connection))
		k++;
	if (k == 512)
		abort();
	if (k == c->connections) {
		c->connections++;
		c->heard[k].from = from;
		c->heard[k].connection = connection;
	} else if (number <= c->heard[k].last && msg[0] != 'A') {       /* an answer has its question's number */
		c->out_of_order++;
	}
	c->heard[k].last = number;
	if (number > c->last[from])
		c->last[from] = number;
	c->token = via.door_token;
	if (msg[0] == 'Q')
		say(c, NULL, CHAN_DOOR, via.door_token, 'A', number, 64);
	if (msg[0] == 'A')
		c->answers++;
}

static inline void job_run(struct job *j) { container_of(j, struct chat, job)->ran++; }

static inline void job_done(struct job *j)
{
	struct chat *c = container_of(j, struct chat, job);
	c->done++;
	c->got_at = env_now(c->env);
}

static inline void *chat_start(struct env *env, int node, void *arg)
{
	struct chat *c = xcalloc(1, sizeof(*c));
	c->env = env;
	c->node = node;
	env->recv = chat_recv;
	env->recv_arg = c;
	return c;
}

static inline void chat_stop(void *app)
{
	struct chat *c = app;
	c->env->ops->detach(c->env);
	if (c->sent != c->back) {
		fprintf(stderr, "node %d: %d packets sent, %d came back\n", c->node, c->sent, c->back);
		abort();
	}
	env_timer(c->env, &c->t, 0);
	free(c);
}

static const struct sim_app chat = { chat_start, chat_stop, NULL };

static inline struct chat *of(struct sim *s, int node) { return sim_app(s, node); }

static inline void add(struct sim *s, int n)
{
	for (int i = 0; i < n; i++)
		sim_node_add(s, NULL, &chat);
}

#endif
