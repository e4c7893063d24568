/* The Unix socket: accepts, reads when the client is hungry, writes when it has something, all on the loop. */
#include "control/sock.h"

#include <assert.h>
#include <errno.h>
#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/list.h"
#include "common/mem.h"
#include "control/control.h"
#include "loop/loop.h"

#define ACCEPT_AGAIN_US 500000u
#define READ_BYTES 65536

struct sock {
	struct loop *loop;
	struct control *control;
	char *path;
	dev_t dev;
	ino_t ino;                      /* of our file: another one at the path is not ours to remove */
	struct watch watch;
	struct timer again;             /* accepting was stopped for want of descriptors */
	struct list conns;
	size_t n;
	bool view_only;
};

struct conn {
	struct list link;
	struct sock *sock;
	struct watch watch;
	struct deferred flush;
	struct client *client;
	bool eof;                       /* it sends nothing more, but may still read */
};

static void conn_free(struct conn *c)
{
	loop_undefer(&c->flush);
	loop_unwatch(&c->watch);
	client_free(c->client);
	close(c->watch.fd);
	list_del(&c->link);
	c->sock->n--;
	free(c);
}

/* Sends what the kernel takes; false: the connection is gone. */
static bool push(struct conn *c)
{
	size_t n;
	const void *p;

	while (p = client_out(c->client, &n), n > 0) {
		ssize_t k = send(c->watch.fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return errno == EAGAIN || errno == EWOULDBLOCK;
		client_sent(c->client, (size_t)k);
	}
	return true;
}

static void flush(struct conn *c)
{
	size_t n;

	if (!push(c)) {
		conn_free(c);
		return;
	}
	client_out(c->client, &n);
	if (c->eof && n == 0 && client_idle(c->client)) {
		conn_free(c);
		return;
	}
	loop_watch_fd(c->sock->loop, &c->watch, (n > 0 ? WATCH_WRITE : 0) |
		(!c->eof && client_hungry(c->client) ? WATCH_READ : 0));
}

static void flush_later(struct deferred *d)
{
	flush(container_of(d, struct conn, flush));
}

static void on_wake(void *arg)
{
	struct conn *c = arg;

	loop_defer(c->sock->loop, &c->flush);
}

static void ready(struct watch *w, int what)
{
	struct conn *c = container_of(w, struct conn, watch);
	char bytes[READ_BYTES];

	if ((what & WATCH_READ) && client_hungry(c->client)) {
		ssize_t n = recv(w->fd, bytes, sizeof bytes, MSG_DONTWAIT);

		if (n < 0 && errno != EAGAIN && errno != EINTR) {
			conn_free(c);
			return;
		}
		if (n == 0)
			c->eof = true;
		if (n > 0)
			client_bytes(c->client, bytes, (size_t)n);
	}
	flush(c);
}

static void refuse(int fd)
{
	static const char line[] = "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32012,\"message\":"
		"\"too many connections to the control socket: close some\",\"data\":{\"name\":\"limit\"}}}\n";

	send(fd, line, sizeof line - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	close(fd);
}

/* Who has been half open, or silent, for long makes room for somebody who has something to say; the oldest first. */
static void give_way(struct sock *s)
{
	list_each(it, &s->conns) {
		struct conn *c = list_entry(it, struct conn, link);

		if (client_gives_way(c->client)) {
			conn_free(c);
			return;
		}
	}
}

static void accept_one(struct sock *s, int fd)
{
	struct conn *c;

	if (s->n >= SOCK_CLIENTS_MAX)
		give_way(s);
	if (s->n >= SOCK_CLIENTS_MAX) {
		refuse(fd);
		return;
	}
	c = xcalloc(1, sizeof *c);
	c->sock = s;
	c->watch = (struct watch){ .fd = fd, .name = "control client", .ready = ready };
	c->flush = (struct deferred){ .name = "control flush", .fn = flush_later };
	list_init(&c->flush.link);
	c->client = client_new(s->control, s->view_only, on_wake, c);
	list_push(&s->conns, &c->link);
	s->n++;
	loop_watch_fd(s->loop, &c->watch, WATCH_READ);
}

static void accepting(struct watch *w, int what)
{
	struct sock *s = container_of(w, struct sock, watch);

	(void)what;
	for (int i = 0; i < 16; i++) {
		int fd = accept4(w->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0) {
			accept_one(s, fd);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
			struct env *env = loop_env(s->loop);

			log_write(env->log, LOG_WARN_, "control", "%s: cannot accept: %s", s->path, strerror(errno));
			loop_watch_fd(s->loop, w, 0);
			env_after(env, &s->again, ACCEPT_AGAIN_US);
		}
		return;
	}
}

static void accept_again(struct timer *t)
{
	struct sock *s = container_of(t, struct sock, again);

	loop_watch_fd(s->loop, &s->watch, WATCH_READ);
}

/* --- the file */

/* Removes a socket that nobody answers on. */
static int make_room(const char *path, const struct sockaddr_un *at, struct err *e)
{
	struct stat st;
	int fd, rc;

	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0 : err_set(e, ERR_IO, "socket %s: %s", path, strerror(errno));
	if (!S_ISSOCK(st.st_mode))
		return err_set(e, ERR_EXISTS, "socket %s: there is a file that is not a socket; remove it or choose another "
			"--socket",
			path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	rc = fd < 0 ? -1 : connect(fd, (const struct sockaddr *)at, sizeof *at);
	if (rc == 0 || errno == EAGAIN)
		rc = err_set(e, ERR_BUSY, "socket %s: another daemon answers there; stop it (hivectl -s %s stop) or choose "
			"another "
			"--socket", path, path);
	else if (errno == ECONNREFUSED || errno == ENOENT)
		rc = unlink(path) == 0 || errno == ENOENT ? 0 : err_set(e, ERR_IO, "socket %s: %s", path, strerror(errno));
	else
		rc = err_set(e, ERR_IO, "socket %s: %s", path, strerror(errno));
	if (fd >= 0)
		close(fd);
	return rc;
}

static int give_to_group(const char *path, const char *group, struct err *e)
{
	char *end;
	unsigned long gid;
	struct group *g;

	if (!group || !*group)
		return 0;
	gid = strtoul(group, &end, 10);
	if (*end) {
		g = getgrnam(group);
		if (!g)
			return err_set(e, ERR_INVALID, "socket %s: there is no group %.60s", path, group);
		gid = g->gr_gid;
	}
	if (chown(path, (uid_t)-1, (gid_t)gid) < 0)
		return err_set(e, ERR_IO, "socket %s: cannot give it to group %.60s: %s", path, group, strerror(errno));
	return 0;
}

static int bind_at(struct sock *s, const char *group, struct err *e)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	struct stat st;
	mode_t old;
	int rc;

	if (strlen(s->path) >= sizeof at.sun_path)
		return err_set(e, ERR_INVALID, "socket %.80s...: the path has %zu bytes, at most %zu are possible: choose a "
			"shorter "
			"--socket", s->path, strlen(s->path), sizeof at.sun_path - 1);
	memcpy(at.sun_path, s->path, strlen(s->path) + 1);
	if (make_room(s->path, &at, e) < 0)
		return -1;
	s->watch.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s->watch.fd < 0)
		return err_set(e, ERR_IO, "socket %s: %s", s->path, strerror(errno));
	old = umask(0117);              /* 0660 from the first moment on */
	rc = bind(s->watch.fd, (struct sockaddr *)&at, sizeof at);
	umask(old);
	if (rc < 0)
		return err_set(e, ERR_IO, "socket %s: %s", s->path, strerror(errno));
	if (stat(s->path, &st) == 0) {
		s->dev = st.st_dev;
		s->ino = st.st_ino;
	}
	if (give_to_group(s->path, group, e) < 0)
		return -1;
	if (listen(s->watch.fd, 64) < 0)
		return err_set(e, ERR_IO, "socket %s: %s", s->path, strerror(errno));
	return 0;
}

struct sock *sock_open(struct loop *l, struct control *c, const char *path, const char *group, bool view_only,
	struct err *e)
{
	struct sock *s = xcalloc(1, sizeof *s);

	s->loop = l;
	s->control = c;
	s->path = xstrdup(path);
	s->view_only = view_only;
	s->watch = (struct watch){ .fd = -1, .name = "control socket", .ready = accepting };
	s->again = (struct timer){ .fire = accept_again, .name = "control accept" };
	list_init(&s->conns);
	if (bind_at(s, group, e) < 0) {
		sock_close(s);
		return NULL;
	}
	loop_watch_fd(l, &s->watch, WATCH_READ);
	return s;
}

void sock_close(struct sock *s)
{
	struct stat st;

	if (!s)
		return;
	env_timer(loop_env(s->loop), &s->again, 0);
	while (!list_empty(&s->conns)) {
		struct conn *c = list_entry(s->conns.next, struct conn, link);

		push(c);
		conn_free(c);
	}
	loop_unwatch(&s->watch);
	if (s->watch.fd >= 0)
		close(s->watch.fd);
	if (s->ino && stat(s->path, &st) == 0 && st.st_ino == s->ino && st.st_dev == s->dev)
		unlink(s->path);
	free(s->path);
	free(s);
}
