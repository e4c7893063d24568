/* A connection chooses its port when it connects, not when it is bound; who wants a certain port gets it as ever. */
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include "tests/unit/t.h"

static in_port_t port_of(int fd)
{
	struct sockaddr_in at = { 0 };
	socklen_t len = sizeof at;

	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
	return at.sin_port;
}

static void later(void **s)
{
	struct sockaddr_in any = { .sin_family = AF_INET };
	struct sockaddr_in6 any6 = { .sin6_family = AF_INET6 };
	int fd = socket(AF_INET, SOCK_STREAM, 0), fd6 = socket(AF_INET6, SOCK_STREAM, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&any, sizeof any), 0);
	assert_int_equal(port_of(fd), 0);
	close(fd);
	if (fd6 >= 0)
		assert_int_equal(bind(fd6, (struct sockaddr *)&any6, sizeof any6), 0);
	close(fd6);
}

static void at_once(void **s)
{
	struct sockaddr_in any = { .sin_family = AF_INET }, same = { .sin_family = AF_INET };
	int udp = socket(AF_INET, SOCK_DGRAM, 0), tcp = socket(AF_INET, SOCK_STREAM, 0);

	assert_int_equal(bind(udp, (struct sockaddr *)&any, sizeof any), 0);    /* datagrams never connect */
	assert_int_not_equal(port_of(udp), 0);
	same.sin_port = port_of(udp);
	if (bind(tcp, (struct sockaddr *)&same, sizeof same) == 0)     /* else somebody else has that port */
		assert_int_equal(port_of(tcp), same.sin_port);
	assert_int_equal(bind(-1, (struct sockaddr *)&any, sizeof any), -1);
	close(udp);
	close(tcp);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(later), cmocka_unit_test(at_once) };

	return cmocka_run_group_tests_name("nano_bind", tests, NULL, NULL);
}
