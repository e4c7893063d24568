/* The simulator itself: what it gives a node beside the network. Lanes and their cost, names, files and shelf through a
 * crash, fail points, scripts. */
#include <fcntl.h>
#include "chat.h"

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

static void mark_fire(struct sim *s, void *arg) { *(uint64_t *)arg = sim_now(s); }
static bool marked(struct sim *s, void *arg) { return *(uint64_t *)arg != 0; }

static void scn_script(struct sim *s)
{
	uint64_t at = 0, t0 = sim_now(s);
	sim_at(s, t0 + 5000, mark_fire, &at);
	sim_check(s, sim_run_until(s, marked, &at, 1000000) && at == t0 + 5000 && sim_now(s) == at);
	sim_check(s, !sim_run_until(s, NULL, NULL, 1000) && sim_now(s) == at + 1000);
}

static void *broken_start(struct env *env, int node, void *arg)
{
	struct err e;
	int fd = env->files->open(env->files, "/state/x", O_CREAT | O_RDWR, 0600, &e);
	return fd < 0 ? NULL : chat_start(env, node, arg);
}

static void scn_start(struct sim *s)
{
	struct sim_app app = { broken_start, chat_stop, NULL };
	sim_node_add(s, NULL, &app);
	sim_files_fail(s, 0, 1, ERR_IO);
	sim_kill(s, 0);
	sim_files_fail(s, 0, 1, ERR_IO);
	sim_restart(s, 0);
	sim_check(s, !sim_alive(s, 0) && !sim_app(s, 0));
	sim_restart(s, 0);
	sim_check(s, sim_alive(s, 0));
}

static const struct scn list[] = { SCN(lanes), SCN(resolve), SCN(disk), SCN(shelf), SCN(failpoint), SCN(script),
	SCN(start), {0} };

int main(int argc, char **argv) { return scn_main(list, argc, argv); }
