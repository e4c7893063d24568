/* nanomsg binds each outgoing connection to port 0 before it connects, and sets SO_REUSEADDR. The kernel must then
 * find a port that nobody uses for anything, among a quarter of them first: with a few thousand connections on one
 * machine, those in TIME-WAIT included, each bind() walks all of them (measured: 60 to 90 ms on the loop, half of
 * the processor time of 64 daemons). With IP_BIND_ADDRESS_NO_PORT the port is chosen by connect(), which only needs
 * the pair of ends to be new. nanomsg has no option for it, so this bind() stands before libc's; it does nothing
 * else. */
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef IP_BIND_ADDRESS_NO_PORT
#define IP_BIND_ADDRESS_NO_PORT 24
#endif

static int wants_any_port(const struct sockaddr *at, socklen_t len)
{
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;

	if (at->sa_family == AF_INET && len >= sizeof v4) {
		memcpy(&v4, at, sizeof v4);
		return v4.sin_port == 0;
	}
	if (at->sa_family == AF_INET6 && len >= sizeof v6) {
		memcpy(&v6, at, sizeof v6);
		return v6.sin6_port == 0;
	}
	return 0;
}

/* An old kernel refuses the option and goes on as before. */
int bind(int fd, const struct sockaddr *at, socklen_t len)
{
	int on = 1, type = 0;
	socklen_t size = sizeof type;

	if (wants_any_port(at, len) && !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) && type == SOCK_STREAM)
		(void)setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
	return (int)syscall(SYS_bind, fd, at, len);
}
