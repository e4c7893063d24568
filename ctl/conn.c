/* Connects to the daemon's socket and reads lines with a time limit. */
#include "conn.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "common/jrpc.h"

static int explain(const char *path, int no, struct err *e)
{
	const char *hint = no == EACCES ? "; only the daemon's user and group may use it (the read-only status.sock may "
		"be open to you)" :
		no == ENOENT || no == ECONNREFUSED ? "; is hivemindd running? Another socket: -s SOCKET or HIVEMIND_SOCKET"
			: "";

	return err_set(e, ERR_UNREACHABLE, "cannot reach hivemindd at %s: %s%s", path, strerror(no), hint);
}

int conn_open(struct conn *c, const char *path, struct err *e)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };

	memset(c, 0, sizeof *c);
	c->fd = -1;
	if (strlen(path) >= sizeof at.sun_path)
		return err_set(e, ERR_INVALID, "socket %s: the path is too long", path);
	memcpy(at.sun_path, path, strlen(path) + 1);
	c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&at, sizeof at) < 0) {
		explain(path, errno, e);
		conn_close(c);
		return -1;
	}
	return 0;
}

void conn_close(struct conn *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	buf_free(&c->in);
}

int conn_send(struct conn *c, const char *method, json_t *params, struct err *e)
{
	json_t *m = jrpc_request(++c->id, method, params);
	size_t n, at = 0;
	char *line = json_line(m, &n);
	int rc = 0;

	json_decref(m);
	if (n > JSON_SOCK.bytes)
		rc = err_set(e, ERR_LIMIT, "the request has %zu bytes, the daemon takes at most %zu: make the spec smaller", n,
			JSON_SOCK.bytes);
	line[n] = '\n';                 /* in the place of the NUL */
	while (rc == 0 && at < n + 1) {
		ssize_t k = send(c->fd, line + at, n + 1 - at, MSG_NOSIGNAL);

		if (k > 0)
			at += (size_t)k;
		else if (errno != EINTR)
			rc = err_set(e, ERR_UNREACHABLE, "the daemon closed the connection: %s", strerror(errno));
	}
	free(line);
	return rc;
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* More bytes, or the reason why not. */
static int fill(struct conn *c, int64_t until, struct err *e)
{
	struct pollfd p = { .fd = c->fd, .events = POLLIN };
	int64_t left = until < 0 ? -1 : until - now_ms();
	ssize_t n;
	int rc;

	rc = poll(&p, 1, left < 0 ? (until < 0 ? -1 : 0) : (int)left);
	if (rc < 0 && errno == EINTR)
		return 0;
	if (rc == 0)
		return err_set(e, ERR_TIMEOUT, "the daemon did not answer in time (--timeout SECONDS)");
	if (c->in.len > CONN_LINE_MAX)
		return err_set(e, ERR_PROTOCOL, "the daemon sent a line of over %u bytes", CONN_LINE_MAX);
	n = recv(c->fd, buf_grow(&c->in, 65536), 65536, 0);
	c->in.len -= 65536 - (n > 0 ? (size_t)n : 0);
	if (n == 0)
		return err_set(e, ERR_UNREACHABLE, "the daemon closed the connection");
	if (n < 0 && errno != EINTR)
		return err_set(e, ERR_UNREACHABLE, "the connection to the daemon broke: %s", strerror(errno));
	return 0;
}

json_t *conn_read(struct conn *c, int timeout_ms, struct err *e)
{
	int64_t until = timeout_ms < 0 ? -1 : now_ms() + timeout_ms;
	struct json_limits lim = { CONN_LINE_MAX, 64, 16u << 20 };

	for (;;) {
		uint8_t *end = c->in.len > c->seen ? memchr(c->in.p + c->seen, '\n', c->in.len - c->seen) : NULL;

		if (end) {
			size_t n = (size_t)(end - c->in.p);
			json_t *j = json_read((const char *)c->in.p, n, lim, e);

			buf_drop(&c->in, n + 1);
			c->seen = 0;
			if (!json_is_object(j)) {
				json_decref(j);
				err_set(e, ERR_PROTOCOL, "what answers at the socket is not a hivemindd");
				return NULL;
			}
			return j;
		}
		c->seen = c->in.len;
		if (fill(c, until, e) < 0)
			return NULL;
	}
}

json_t *conn_answer(struct conn *c, int timeout_ms, json_t **ret_error, struct err *e)
{
	json_t *m, *result, *error, *id;

	*ret_error = NULL;
	for (;;) {
		m = conn_read(c, timeout_ms, e);
		if (!m)
			return NULL;
		id = json_object_get(m, "id");
		error = json_object_get(m, "error");
		if ((json_is_integer(id) && json_integer_value(id) == c->id) || (error && json_is_null(id)))
			break;
		json_decref(m);
	}
	result = json_incref(json_object_get(m, "result"));
	if (error)
		*ret_error = json_incref(error);
	else if (!json_is_object(result)) {
		json_decref(result);
		result = NULL;
		err_set(e, ERR_PROTOCOL, "what answers at the socket is not a hivemindd");
	}
	json_decref(m);
	return result;
}
