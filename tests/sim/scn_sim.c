/* The simulator itself, proved with a small chatty application: every node sends numbered messages to the others and
 * answers what comes through its door. Loss, order, partitions, kills, fail points, lanes, files and shelf. */
#include <fcntl.h>
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
	struct timer t;
	struct job job;
	struct resolving r;
	int ran;
};

static int msg_seal(struct packet *p, uint32_t connection, uint8_t *out)
{
	struct msg *m = (struct msg *)p;
	memset(out, 0, p->wire_len);
	memcpy(out, m->body, sizeof(m->body));
	memcpy(out + 8, &connection, 4);
	return 0;
}

static void msg_gone(struct packet *p, bool sent)
{
	struct msg *m = (struct msg *)p;
	m->c->back++;
	m->c->unsent += !sent;
	free(m);
}

/* body: 'S', node, -, -, number(4), connection(4) */
static void say(struct chat *c, const struct endpoint *to, enum chan chan, uint64_t token, char what, uint32_t number,
	size_t size)
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

static void chat_recv(void *arg, struct via via, const uint8_t *msg, size_t len)
{
	struct chat *c = arg;
	uint32_t number, connection, k = 0;
	int from = msg[1];

	memcpy(&number, msg + 4, 4);
	memcpy(&connection, msg + 8, 4);
	c->got++;
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

static void job_run(struct job *j) { container_of(j, struct chat, job)->ran++; }

static void job_done(struct job *j)
{
	struct chat *c = container_of(j, struct chat, job);
	c->done++;
	c->got_at = env_now(c->env);
}

static void *chat_start(struct env *env, int node, void *arg)
{
	struct chat *c = xcalloc(1, sizeof(*c));
	c->env = env;
	c->node = node;
	env->recv = chat_recv;
	env->recv_arg = c;
	return c;
}

static void chat_stop(void *app)
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

static struct chat *of(struct sim *s, int node) { return sim_app(s, node); }

static void add(struct sim *s, int n)
{
	for (int i = 0; i < n; i++)
		sim_node_add(s, NULL, &chat);
}

static void scn_delivery(struct sim *s)
{
	struct sim_stats st;
	add(s, 3);
	for (uint32_t i = 1; i <= 100; i++) {
		say(of(s, 0), sim_endpoint(s, 1), CHAN_CTRL, 0, 'S', i, 200);
		say(of(s, 2), sim_endpoint(s, 1), CHAN_BULK, 0, 'S', i, 100000);
	}
	sim_check(s, of(s, 0)->back == 0);      /* nothing re-enters */
	sim_run_for(s, 2000000);
	sim_check(s, of(s, 1)->got == 200 && of(s, 1)->out_of_order == 0 && of(s, 0)->unsent == 0);
	sim_stats(s, &st);
	sim_check(s, st.lost == 0 && st.delivered == 200 && st.lag_us_max >= 10);
}

/* A broken connection loses one suffix at most as long as the buffers, and what is left overlaps with the next. */
static void scn_break(struct sim *s)
{
	struct chat *c;
	struct sim_stats st;
	struct sim_link slow = { .latency_us = 20000, .bytes_per_s = 50000000 };

	add(s, 2);
	sim_link(s, -1, -1, &slow);
	say(of(s, 0), sim_endpoint(s, 1), CHAN_BULK, 0, 'S', 1, 64);
	sim_run_for(s, 500000);
	for (uint32_t i = 2; i <= 40; i++)
		say(of(s, 0), sim_endpoint(s, 1), CHAN_BULK, 0, 'S', i, 50000);
	sim_run_for(s, 25000);
	sim_break(s, 0, 1);
	for (uint32_t i = 41; i <= 60; i++)
		say(of(s, 0), sim_endpoint(s, 1), CHAN_BULK, 0, 'S', i, 64);
	sim_run_for(s, 3000000);
	c = of(s, 1);
	sim_stats(s, &st);
	sim_check(s, of(s, 0)->unsent == 0);
	sim_check(s, c->out_of_order == 0);
	sim_check(s, c->got + (int)st.lost == 60);
	sim_check(s, c->connections >= 2 && c->last[0] == 60);
	sim_check(s, st.lost <= 40);
}

static void scn_partition(struct sim *s)
{
	struct linkinfo li;
	int side[3] = { 0, 1, 1 };

	add(s, 3);
	say(of(s, 0), sim_endpoint(s, 1), CHAN_CTRL, 0, 'S', 1, 64);
	sim_run_for(s, 100000);
	sim_partition(s, side, 3);
	say(of(s, 0), sim_endpoint(s, 1), CHAN_CTRL, 0, 'S', 2, 64);
	say(of(s, 0), sim_endpoint(s, 2), CHAN_CTRL, 0, 'S', 1, 64);
	say(of(s, 1), sim_endpoint(s, 2), CHAN_CTRL, 0, 'S', 1, 64);
	sim_run_for(s, 5000000);
	sim_check(s, of(s, 1)->got == 1 && of(s, 2)->got == 1);
	sim_check(s, of(s, 0)->unsent == 0);            /* it said yes to what nobody has */
	sim_check(s, env_now(of(s, 0)->env) == sim_now(s));
	sim_check(s, of(s, 0)->env->ops->linkinfo(of(s, 0)->env, sim_endpoint(s, 1), &li) && li.connected &&
		!li.maybe_dead);
	sim_heal(s);
	sim_run_for(s, 500000);
	sim_check(s, of(s, 1)->got == 1);               /* TCP's next retransmission is at 6.2 s */
	sim_run_for(s, 9000000);
	sim_check(s, of(s, 1)->got == 2);
	sim_check(s, of(s, 2)->got + of(s, 0)->unsent == 2);
}

static void scn_one_way(struct sim *s)
{
	add(s, 2);
	say(of(s, 0), sim_endpoint(s, 1), CHAN_CTRL, 0, 'S', 1, 64);
	say(of(s, 1), sim_endpoint(s, 0), CHAN_CTRL, 0, 'S', 1, 64);
	sim_run_for(s, 100000);
	sim_cut(s, 0, 1);
	for (uint32_t i = 2; i < 8; i++) {              /* 0 to 1 is silent; 1 to 0 flows until its buffers are full */
		say(of(s, 0), sim_endpoint(s, 1), CHAN_CTRL, 0, 'S', i, 150000);
		say(of(s, 1), sim_endpoint(s, 0), CHAN_CTRL, 0, 'S', i, 150000);
	}
	sim_run_for(s, 1000000);
	sim_check(s, of(s, 1)->got == 1);
	sim_check(s, of(s, 0)->got == 5);
	sim_heal(s);
	sim_run_for(s, 3000000);
	sim_check(s, of(s, 1)->got == 7 && of(s, 0)->got == 7);
}

static void scn_death(struct sim *s)
{
	struct linkinfo li;
	struct env *e;

	add(s, 2);
	e = sim_env(s, 0);
	say(of(s, 0), sim_endpoint(s, 1), CHAN_CTRL, 0, 'S', 1, 64);
	sim_run_for(s, 100000);
	sim_kill(s, 1);
	sim_check(s, !sim_app(s, 1) && !sim_alive(s, 1));
	sim_check(s, e->ops->linkinfo(e, sim_endpoint(s, 1), &li) && !li.maybe_dead);
	say(of(s, 0), sim_endpoint(s, 1), CHAN_CTRL, 0, 'S', 2, 64);
	sim_run_for(s, 5000);
	sim_check(s, of(s, 0)->unsent == 0);
	sim_check(s, e->ops->linkinfo(e, sim_endpoint(s, 1), &li) && li.maybe_dead && !li.connected);
	say(of(s, 0), sim_endpoint(s, 1), CHAN_CTRL, 0, 'S', 3, 64);
	sim_run_for(s, 3000000);
	sim_restart(s, 1);
	sim_run_for(s, 3000000);
	sim_check(s, of(s, 1)->got == 1 && of(s, 1)->last[0] == 3);
	sim_check(s, e->ops->linkinfo(e, sim_endpoint(s, 1), &li) && li.connected && !li.maybe_dead);
	e->ops->close_link(e, sim_endpoint(s, 1));
	sim_check(s, !e->ops->linkinfo(e, sim_endpoint(s, 1), &li));
	sim_power_off(s, 1);
	say(of(s, 0), sim_endpoint(s, 1), CHAN_CTRL, 0, 'S', 4, 64);
	sim_run_for(s, 30000000);
	sim_check(s, of(s, 0)->unsent == 1);            /* waited for a connection, came back */
}

static void scn_pause(struct sim *s)
{
	add(s, 2);
	say(of(s, 0), sim_endpoint(s, 1), CHAN_CTRL, 0, 'S', 1, 64);
	sim_run_for(s, 100000);
	sim_pause(s, 1);
	for (uint32_t i = 2; i <= 11; i++)
		say(of(s, 0), sim_endpoint(s, 1), CHAN_CTRL, 0, 'S', i, 100000);
	sim_run_for(s, 1000000);
	sim_check(s, of(s, 1)->got == 1 && of(s, 0)->back > 5 && of(s, 0)->back < 11);
	sim_resume(s, 1);
	sim_run_for(s, 1000000);
	sim_check(s, of(s, 1)->got == 11 && of(s, 0)->back == 11);
}

static void scn_door(struct sim *s)
{
	struct endpoint client;
	struct sim_stats st;

	sim_costs(s)->door_drop = 0;
	sim_node_add(s, NULL, &chat);
	memset(&client, 0, sizeof(client));
	client.ip[0] = 0xfd;
	sim_node_add(s, &client, &chat);
	say(of(s, 1), sim_endpoint(s, 0), CHAN_DOOR, 0, 'Q', 1, 64);
	sim_run_for(s, 100000);
	sim_check(s, of(s, 1)->answers == 1 && of(s, 0)->token);
	say(of(s, 0), NULL, CHAN_DOOR, of(s, 0)->token, 'S', 7, 64);    /* unasked */
	sim_run_for(s, 100000);
	sim_check(s, of(s, 1)->got == 2);
	say(of(s, 1), NULL, CHAN_DOOR, of(s, 1)->token, 'S', 8, 64);    /* the way back works on both sides */
	sim_run_for(s, 100000);
	sim_check(s, of(s, 0)->last[1] == 8);
	for (uint32_t i = 10; i < 14; i++)
		say(of(s, 0), NULL, CHAN_DOOR, of(s, 0)->token, 'S', i, 64);
	sim_run_for(s, 100000);
	sim_stats(s, &st);
	sim_check(s, st.door_drops == 0 && of(s, 1)->got == 6 && of(s, 1)->last[0] == 13);      /* spaced */
	sim_costs(s)->door_drop = 1;
	say(of(s, 0), NULL, CHAN_DOOR, of(s, 0)->token, 'S', 20, 64);
	sim_run_for(s, 100000);
	sim_stats(s, &st);
	sim_check(s, st.door_drops == 1 && of(s, 1)->got == 6 && of(s, 0)->unsent == 0);
	say(of(s, 0), &client, CHAN_CTRL, 0, 'S', 1, 64);
	sim_run_for(s, 100000);
	sim_check(s, of(s, 0)->unsent == 1);            /* nobody can dial a client */
	sim_kill(s, 1);
	say(of(s, 0), NULL, CHAN_DOOR, of(s, 0)->token, 'S', 9, 64);
	sim_run_for(s, 100000);
	sim_check(s, of(s, 0)->unsent == 1);            /* vanishes, as nanomsg's does */
}

static int alarm_free(struct sim *s, void *arg, struct err *e)
{
	struct sim_stats st;
	sim_stats(s, &st);
	return st.loop_alarms ? err_set(e, ERR_STATE, "alarm") : 0;
}

static void burn_fire(struct timer *t) { sim_burn(container_of(t, struct chat, t)->env, 60000); }

static void scn_lanes(struct sim *s)
{
	struct chat *c;
	uint64_t t0 = sim_now(s);

	add(s, 1);
	c = of(s, 0);
	c->job = (struct job){ .name = "j", .lane = env_lane(c->env, "train"), .cost_us = 300000, .run = job_run,
		.done = job_done };
	sim_check(s, c->job.lane >= 0 && env_lane(c->env, "none") == -1);
	env_work(c->env, &c->job);
	sim_check(s, c->ran == 0);
	sim_run_for(s, 299999);
	sim_check(s, c->ran == 1 && c->done == 0);
	sim_run_for(s, 10);
	sim_check(s, c->done == 1 && c->got_at >= t0 + 300000);
	sim_check(s, alarm_free(s, NULL, NULL) == 0);
	c->t.fire = burn_fire;
	env_after(c->env, &c->t, 1000);
	sim_run_for(s, 100000);
	sim_check(s, alarm_free(s, NULL, NULL) == -1);
	env_work(c->env, &c->job);                      /* stop must end it */
}

static void resolved(struct resolving *r) { (void)r; }

static void scn_resolve(struct sim *s)
{
	struct chat *c;

	add(s, 2);
	c = of(s, 0);
	c->r = (struct resolving){ .name = "n1", .done = resolved, .at.port = { 1, 2, 3 }, .rc = 5 };
	c->env->ops->resolve(c->env, &c->r);
	sim_run_for(s, 100000);
	sim_check(s, c->r.rc == 0 && !memcmp(c->r.at.ip, sim_endpoint(s, 1)->ip, 16) && c->r.at.port[2] == 3);
	snprintf(c->r.name, sizeof(c->r.name), "nowhere");
	c->env->ops->resolve(c->env, &c->r);
	sim_run_for(s, 100000);
	sim_check(s, c->r.rc == -1 && c->r.error.code == ERR_NOT_FOUND);
}

/* tmp, fsync, rename: after any kill there is the old file or the new one, whole; without fsync perhaps not. */
static void scn_disk(struct sim *s)
{
	struct files *f;
	struct err e;
	char buf[16];
	int fd;

	add(s, 1);
	f = sim_env(s, 0)->files;
	fd = f->open(f, "/state/a.tmp", O_CREAT | O_RDWR, 0600, &e);
	sim_check(s, fd >= 0 && !f->pwrite(f, fd, "synced", 6, 0, &e) && !f->fsync(f, fd, &e) && !f->close(f, fd, &e));
	sim_check(s, !f->rename(f, "/state/a.tmp", "/state/a", &e));
	fd = f->open(f, "/state/a", O_RDWR, 0, &e);
	sim_check(s, !f->pwrite(f, fd, "LOSABLE!", 8, 0, &e));
	fd = f->open(f, "/state/b", O_CREAT | O_RDWR, 0600, &e);
	sim_check(s, !f->pwrite(f, fd, "new", 3, 0, &e));
	sim_check(s, f->open(f, "/none/x", O_CREAT | O_RDWR, 0600, &e) == -1 && e.code == ERR_NOT_FOUND);
	sim_restart(s, 0);
	fd = f->open(f, "/state/a", O_RDONLY, 0, &e);
	memset(buf, 0, sizeof(buf));
	sim_check(s, fd >= 0 && f->pread(f, fd, buf, sizeof(buf), 0, &e) >= 6);
	for (int i = 0; i < 6; i++)
		sim_check(s, buf[i] == "synced"[i] || buf[i] == "LOSABL"[i]);
	sim_check(s, f->size(f, "/state/a.tmp", &e) == -1 && e.code == ERR_NOT_FOUND);
	sim_check(s, f->pwrite(f, fd, "x", 1, 0, &e) == -1);
	sim_files_fail(s, 0, 2, ERR_IO);
	sim_check(s, f->mkdir(f, "/state/d", 0700, &e) == 0 && f->mkdir(f, "/state/d", 0700, &e) == -1);
	sim_disk_full(s, 0, 4);
	fd = f->open(f, "/state/d/c", O_CREAT | O_RDWR, 0600, &e);
	sim_check(s, fd >= 0 && !f->pwrite(f, fd, "1234", 4, 0, &e) && f->pwrite(f, fd, "5", 1, 4, &e) == -1);
	sim_check(s, f->free_bytes(f, "/state", &e) == 0);
}

static void scn_shelf(struct sim *s)
{
	struct shelf *h;
	struct err e;
	char buf[8];
	size_t len;

	add(s, 1);
	h = sim_env(s, 0)->shelf;
	sim_check(s, !h->put(h, "t", "k", 1, "value", 5, &e));
	sim_shelf_fail(s, 0, 1, ERR_IO);
	sim_check(s, h->put(h, "t", "k", 1, "other", 5, &e) == -1 && e.code == ERR_IO);
	sim_restart(s, 0);
	sim_check(s, !h->get(h, "t", "k", 1, buf, sizeof(buf), &len, &e) && len == 5 && !memcmp(buf, "value", 5));
	sim_check(s, h->get(h, "t", "k", 1, buf, 2, &len, &e) == -1 && e.code == ERR_LIMIT);
	sim_check(s, !h->del(h, "t", "k", 1, &e) && h->get(h, "t", "k", 1, buf, 8, &len, &e) == -1 &&
		e.code == ERR_NOT_FOUND);
}

/* A kill at a fail point: what the node does in the rest of that callback reaches nobody and no disk. */
static void point_fire(struct timer *t)
{
	struct chat *c = container_of(t, struct chat, t);
	struct err e;

	if (c->env->ops->fail(c->env, "chat.send.before") == 0)
		say(c, sim_endpoint((struct sim *)c->r.link.next, 1), CHAN_CTRL, 0, 'S', 1, 64);
	say(c, sim_endpoint((struct sim *)c->r.link.next, 1), CHAN_CTRL, 0, 'S', 2, 64);
	c->env->shelf->put(c->env->shelf, "t", "k", 1, "v", 1, &e);
	env_after(c->env, t, 1000);
}

static void scn_failpoint(struct sim *s)
{
	struct chat *c;
	char buf[4];
	size_t len;
	struct err e;

	add(s, 2);
	c = of(s, 0);
	c->r.link.next = (struct list *)s;
	c->t.fire = point_fire;
	sim_failpoint(s, 0, "chat.send.before", SIM_ERROR, 1);
	sim_failpoint(s, 0, "chat.send.before", SIM_KILL, 2);
	env_after(c->env, &c->t, 1000);
	sim_run_for(s, 1000000);
	sim_check(s, sim_failpoint_hit(s, "chat.send.before") && !sim_failpoint_hit(s, "other"));
	sim_check(s, !sim_alive(s, 0) && of(s, 1)->got <= 3);
	sim_restart(s, 0);
	sim_check(s, !sim_env(s, 0)->shelf->get(sim_env(s, 0)->shelf, "t", "k", 1, buf, 4, &len, &e));
}

/* Thirty nodes, random traffic, breaks, kills, cuts: nothing may ever come out of order within a connection, and every
 * packet comes back to its owner (chat_stop). */
static int ordered(struct sim *s, void *arg, struct err *e)
{
	for (int i = 0; i < sim_nodes(s); i++)
		if (sim_app(s, i) && of(s, i)->out_of_order)
			return err_set(e, ERR_STATE, "node %d: out of order", i);
	return 0;
}

static void scn_storm(struct sim *s)
{
	struct sim_link bad = { .latency_us = 2000, .jitter_us = 3000, .bytes_per_s = 10000000, .break_every = 40 };
	struct rng *r = sim_rng(s);
	struct sim_stats st;

	add(s, 30);
	sim_link(s, -1, -1, &bad);
	sim_after_event(s, ordered, NULL);
	for (uint32_t i = 1; i < 1500; i++) {
		int a = (int)rng_below(r, 30), b = (int)rng_below(r, 30);
		if (a != b && sim_app(s, a))
			say(of(s, a), sim_endpoint(s, b), rng_below(r, 3), 0, rng_below(r, 2) ? 'Q' : 'S', i,
				64 + rng_below(r, 20000));
		if (rng_below(r, 60) == 0)
			sim_kill(s, b);
		if (rng_below(r, 60) == 0)
			sim_restart(s, a);
		if (rng_below(r, 100) == 0)
			sim_cut(s, a, (int)rng_below(r, 31) - 1);
		if (rng_below(r, 100) == 0)
			sim_heal(s);
		if (rng_below(r, 50) == 0 && sim_app(s, a))
			sim_env(s, a)->ops->close_link(sim_env(s, a), sim_endpoint(s, b));
		sim_run_for(s, rng_below(r, 20000));
	}
	sim_heal(s);
	sim_run_for(s, 60000000);
	sim_stats(s, &st);
	sim_check(s, st.breaks > 10 && st.delivered > 500 && st.lost > 0);
}

static void mark_fire(struct sim *s, void *arg) { *(uint64_t *)arg = sim_now(s); }
static bool marked(struct sim *s, void *arg) { return *(uint64_t *)arg != 0; }

static void scn_script(struct sim *s)
{
	uint64_t at = 0, t0 = sim_now(s);
	sim_at(s, t0 + 5000, mark_fire, &at);
	sim_check(s, sim_run_until(s, marked, &at, 1000000) && at == t0 + 5000 && sim_now(s) == at);
	sim_check(s, !sim_run_until(s, NULL, NULL, 1000) && sim_now(s) == at + 1000);
}

static const struct scn list[] = { SCN(delivery), SCN(break), SCN(partition), SCN(one_way), SCN(death), SCN(pause),
	SCN(door), 	SCN(lanes), SCN(resolve), SCN(disk), SCN(shelf), SCN(failpoint), SCN(storm), SCN(script), {0} };

int main(int argc, char **argv) { return scn_main(list, argc, argv); }
