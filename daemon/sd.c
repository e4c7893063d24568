/* sd_notify by hand: a datagram to the socket that NOTIFY_SOCKET names, abstract when it begins with @. */
#include "sd.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/text.h"

void sd_init(struct sd *s)
{
	const char *path = getenv("NOTIFY_SOCKET"), *dog = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
	uint64_t us, who;

	memset(s, 0, sizeof *s);
	s->fd = -1;
	if (path && (path[0] == '/' || path[0] == '@') && strlen(path) < sizeof s->path) {
		s->len = (unsigned)strlen(path);
		memcpy(s->path, path, s->len + 1);
		s->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	}
	if (dog && text_u64(dog, &us, NULL) == 0 &&
		(!pid || (text_u64(pid, &who, NULL) == 0 && who == (uint64_t)getpid())))
		s->watchdog_us = us;
}

void sd_done(struct sd *s)
{
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
}

void sd_say(const struct sd *s, const char *fmt, ...)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	char text[512];
	va_list ap;
	int n;

	if (s->fd < 0)
		return;
	va_start(ap, fmt);
	n = vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	memcpy(to.sun_path, s->path, s->len);
	if (to.sun_path[0] == '@')
		to.sun_path[0] = '\0';
	if (n > 0)
		sendto(s->fd, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1, MSG_NOSIGNAL,
			(struct sockaddr *)&to, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + s->len));
}
