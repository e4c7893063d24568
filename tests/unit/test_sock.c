/* The control socket on the real loop: its file and mode, stale files, a living rival, strangers' files, more
 * clients than there is room for, half-closed clients, a reader that stops reading, the end with clients still
 * there. */
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "common/jrpc.h"
#include "control/control.h"
#include "control/sock.h"
#include "loop/files.h"
#include "loop/loop.h"
#include "tests/unit/t.h"

struct t {
	char dir[40], path[64];
	struct log *log;
	struct loop *loop;
	struct conf *conf;
	struct control *control;
	struct sock *sock;
};

static const struct conf_row rows[] = { { NULL, NULL, 0, NULL, 0, 0, false, NULL } };
static uint64_t no_clock(void *arg) { (void)arg; return 1; }

static int setup(void **state)
{
	struct t *t = calloc(1, sizeof *t);
	struct cmd_ctx x = { .version = "1", .socket = "s", .state_dir = "d" };
	struct err e;

	snprintf(t->dir, sizeof t->dir, "/tmp/hm-sock-XXXXXX");
	if (!mkdtemp(t->dir))
		return -1;
	snprintf(t->path, sizeof t->path, "%s/c.sock", t->dir);
	t->log = log_new(100, LOG_DEBUG_, no_clock, NULL);
	t->loop = loop_new(&(struct loop_conf){ .log = t->log }, &e);
	loop_env(t->loop)->files = files_real();
	t->conf = conf_new(rows);
	x.env = loop_env(t->loop);
	x.log = t->log;
	x.conf = t->conf;
	t->control = control_new(&x);
	t->sock = sock_open(t->loop, t->control, t->path, NULL, false, &e);
	if (!t->sock)
		print_message("%s\n", e.text);
	*state = t;
	return t->sock ? 0 : -1;
}

static int teardown(void **state)
{
	struct t *t = *state;

	sock_close(t->sock);
	control_free(t->control);
	loop_free(t->loop);
	conf_free(t->conf);
	log_free(t->log);
	unlink(t->path);
	rmdir(t->dir);
	free(t);
	return 0;
}

static int dial(struct t *t)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);

	snprintf(at.sun_path, sizeof at.sun_path, "%s", t->path);
	if (connect(fd, (struct sockaddr *)&at, sizeof at) == 0)
		return fd;
	close(fd);
	return -1;
}

struct reading { int fd; char *text; size_t n, cap; bool eof; int lines, want; };

/* Takes what is there; true when `want` lines have come or the connection has ended. */
static bool has_read(void *arg)
{
	struct reading *r = arg;
	ssize_t k;

	while ((k = recv(r->fd, r->text + r->n, r->cap - r->n, 0)) > 0) {
		for (ssize_t i = 0; i < k; i++)
			r->lines += r->text[r->n + (size_t)i] == '\n';
		r->n += (size_t)k;
	}
	r->eof = k == 0 && r->n < r->cap;
	return r->eof || r->lines >= r->want;
}

static void say(int fd, const char *text)
{
	assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

#define ASK "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"status\"}\n"

static void it_answers(void **state)
{
	struct t *t = *state;
	char text[65536] = "";
	struct reading r = { .text = text, .cap = sizeof text - 1, .want = 2 };
	struct stat st;

	assert_int_equal(stat(t->path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0660);
	r.fd = dial(t);
	say(r.fd, "garbage\n" ASK);
	assert_true(loop_run_until(t->loop, has_read, &r, 5000000));
	assert_non_null(strstr(text, "\"error\""));
	assert_non_null(strstr(text, "\"result\""));
	close(r.fd);
	sock_close(t->sock);
	t->sock = NULL;
	assert_int_not_equal(access(t->path, F_OK), 0);
}

/* printf '...' | nc -U: it has said all and still wants the answer; then the connection ends. */
static void a_half_closed_client_gets_its_answer(void **state)
{
	struct t *t = *state;
	char text[65536] = "";
	struct reading r = { .fd = dial(t), .text = text, .cap = sizeof text - 1, .want = 99 };

	say(r.fd, ASK);
	shutdown(r.fd, SHUT_WR);
	assert_true(loop_run_until(t->loop, has_read, &r, 5000000));
	assert_true(r.eof);
	assert_int_equal(r.lines, 1);
	close(r.fd);
}

static void stale_files_go_and_living_ones_stay(void **state)
{
	struct t *t = *state;
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	char other[64], longer[300];
	struct sock *s;
	struct err e;
	int fd;

	assert_null(sock_open(t->loop, t->control, t->path, NULL, false, &e));
	assert_err(e, ERR_BUSY, "another daemon answers there");
	assert_int_equal(access(t->path, F_OK), 0);
	snprintf(other, sizeof other, "%s/other", t->dir);
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	snprintf(at.sun_path, sizeof at.sun_path, "%s", other);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
	close(fd);                              /* its owner was killed */
	s = sock_open(t->loop, t->control, other, NULL, true, &e);
	assert_non_null(s);
	sock_close(s);
	fd = open(other, O_CREAT | O_WRONLY, 0600);
	close(fd);
	assert_null(sock_open(t->loop, t->control, other, NULL, false, &e));
	assert_err(e, ERR_EXISTS, "not a socket");
	assert_int_equal(access(other, F_OK), 0);
	unlink(other);
	memset(longer, 'x', sizeof longer - 1);
	longer[sizeof longer - 1] = '\0';
	assert_null(sock_open(t->loop, t->control, longer, NULL, false, &e));
	assert_err(e, ERR_INVALID, "at most 107");
	assert_null(sock_open(t->loop, t->control, other, "no-such-group", false, &e));
	assert_err(e, ERR_INVALID, "no group no-such-group");
	unlink(other);
}

static void there_is_room_for_so_many(void **state)
{
	struct t *t = *state;
	int fd[SOCK_CLIENTS_MAX + 1];
	char text[4096] = "";
	struct reading r = { .text = text, .cap = sizeof text - 1, .want = 1 };

	for (int i = 0; i <= SOCK_CLIENTS_MAX; i++) {
		struct pollfd p;

		fd[i] = dial(t);
		for (int tries = 0; fd[i] < 0 && tries < 100; tries++) {        /* the queue of the kernel is shorter */
			loop_run_until(t->loop, (bool (*)(void *))has_read, &(struct reading){ .fd = -1, .want = 1 }, 1000);
			fd[i] = dial(t);
		}
		p = (struct pollfd){ .fd = fd[i] };
		assert_int_equal(poll(&p, 1, 0), 0);
	}
	r.fd = fd[SOCK_CLIENTS_MAX];
	assert_true(loop_run_until(t->loop, has_read, &r, 5000000));
	assert_non_null(strstr(text, "too many connections"));
	close(fd[SOCK_CLIENTS_MAX]);
	close(fd[0]);
	memset(&r, 0, sizeof r);
	r = (struct reading){ .fd = fd[1], .text = text, .cap = sizeof text - 1, .want = 1 };
	say(fd[1], ASK);
	assert_true(loop_run_until(t->loop, has_read, &r, 5000000));
	for (int i = 1; i < SOCK_CLIENTS_MAX; i++)
		close(fd[i]);
}

static bool never(void *arg) { (void)arg; return false; }

/* All places are taken by those who say nothing, or half a line: after two seconds the oldest makes room. */
static void who_says_nothing_makes_room(void **state)
{
	struct t *t = *state;
	int fd[SOCK_CLIENTS_MAX], more;
	char text[65536] = "";
	struct reading r = { .text = text, .cap = sizeof text - 1, .want = 1 };

	for (int i = 0; i < SOCK_CLIENTS_MAX; i++) {
		fd[i] = dial(t);
		for (int tries = 0; fd[i] < 0 && tries < 100; tries++) {
			loop_run_until(t->loop, never, NULL, 1000);
			fd[i] = dial(t);
		}
		if (i % 2)
			say(fd[i], "{\"jsonrpc\":");
	}
	loop_run_until(t->loop, never, NULL, 2200000);
	more = dial(t);
	say(more, ASK);
	r.fd = more;
	assert_true(loop_run_until(t->loop, has_read, &r, 5000000));
	assert_non_null(strstr(text, "\"result\""));
	r = (struct reading){ .fd = fd[0], .text = text, .cap = sizeof text - 1, .want = 1 };
	assert_true(loop_run_until(t->loop, has_read, &r, 1000000));
	assert_true(r.eof);
	close(more);
	for (int i = 0; i < SOCK_CLIENTS_MAX; i++)
		close(fd[i]);
}

static void a_reader_that_stops_reading_is_not_read_either(void **state)
{
	struct t *t = *state;
	int fd = dial(t), sent = 0;
	char *text = malloc(64u << 20);
	struct reading r = { .fd = fd, .text = text, .cap = 64u << 20 };

	for (int idle = 0; idle < 5; ) {
		ssize_t k = send(fd, ASK, sizeof ASK - 1, MSG_NOSIGNAL);

		if (k == (ssize_t)sizeof ASK - 1) {
			sent++;
			idle = 0;
			continue;
		}
		assert_true(k < 0);
		loop_run_until(t->loop, never, NULL, 20000);
		idle++;
	}
	assert_true(sent > 1000 && sent < 100000);
	r.want = sent;
	assert_true(loop_run_until(t->loop, has_read, &r, 20000000));
	assert_int_equal(r.lines, sent);        /* nothing was lost: it only waited */
	close(fd);
	free(text);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(it_answers), T(a_half_closed_client_gets_its_answer), T(stale_files_go_and_living_ones_stay),
		T(there_is_room_for_so_many), T(who_says_nothing_makes_room),
		T(a_reader_that_stops_reading_is_not_read_either),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
