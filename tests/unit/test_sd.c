/* sd_notify by hand: plain and abstract sockets, nobody listening, the watchdog's variables. */
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "sd.h"
#include "tests/unit/t.h"

/* A socket at name ("@..." abstract) that systemd would have; NOTIFY_SOCKET is set. */
static int listener(const char *name)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);

	memcpy(at.sun_path, name, strlen(name));
	if (name[0] == '@')
		at.sun_path[0] = '\0';
	else
		unlink(name);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, (socklen_t)(offsetof(struct sockaddr_un,
		sun_path) + strlen(name))), 0);
	setenv("NOTIFY_SOCKET", name, 1);
	return fd;
}

static void messages_arrive(void **state)
{
	char path[64], abstract[64], text[1024];
	const char *names[] = { path, abstract };

	(void)state;
	snprintf(path, sizeof path, "/tmp/hm-sd-%d", (int)getpid());
	snprintf(abstract, sizeof abstract, "@hm-sd-%d", (int)getpid());
	for (int i = 0; i < 2; i++) {
		int fd = listener(names[i]);
		struct sd s;
		ssize_t n;

		sd_init(&s);
		sd_say(&s, "READY=1\nSTATUS=listening on %s", "127.0.0.1:4237");
		n = recv(fd, text, sizeof text, 0);
		assert_true(n > 0);
		text[n] = '\0';
		assert_string_equal(text, "READY=1\nSTATUS=listening on 127.0.0.1:4237");
		sd_say(&s, "STATUS=%0700d", 1);         /* cut, not dropped, not overrun */
		assert_int_equal(recv(fd, text, sizeof text, 0), 511);
		close(fd);
		sd_say(&s, "READY=1");                  /* nobody there any more */
		sd_done(&s);
	}
	unlink(path);
}

static void nobody_listens(void **state)
{
	static const char *const bad[] = { "", "relative", NULL };
	char longer[300];
	struct sd s;

	(void)state;
	unsetenv("NOTIFY_SOCKET");
	sd_init(&s);
	assert_int_equal(s.fd, -1);
	sd_say(&s, "READY=1");
	sd_done(&s);
	memset(longer, '/', sizeof longer - 1);
	longer[sizeof longer - 1] = '\0';
	for (int i = 0; i < 3; i++) {
		setenv("NOTIFY_SOCKET", bad[i] ? bad[i] : longer, 1);
		sd_init(&s);
		assert_int_equal(s.fd, -1);
		sd_done(&s);
	}
}

static void the_watchdog_is_ours_only_if_it_says_so(void **state)
{
	char pid[32];
	struct sd s;

	(void)state;
	setenv("WATCHDOG_USEC", "30000000", 1);
	unsetenv("WATCHDOG_PID");
	sd_init(&s);
	assert_int_equal(s.watchdog_us, 30000000);
	sd_done(&s);
	snprintf(pid, sizeof pid, "%d", (int)getpid());
	setenv("WATCHDOG_PID", pid, 1);
	sd_init(&s);
	assert_int_equal(s.watchdog_us, 30000000);
	sd_done(&s);
	setenv("WATCHDOG_PID", "1", 1);
	sd_init(&s);
	assert_int_equal(s.watchdog_us, 0);
	sd_done(&s);
	unsetenv("WATCHDOG_PID");
	setenv("WATCHDOG_USEC", "soon", 1);
	sd_init(&s);
	assert_int_equal(s.watchdog_us, 0);
	sd_done(&s);
	unsetenv("WATCHDOG_USEC");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_arrive), cmocka_unit_test(nobody_listens),
		cmocka_unit_test(the_watchdog_is_ours_only_if_it_says_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
