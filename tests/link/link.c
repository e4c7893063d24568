/* The link emulator as a program: commands from the command line and from standard input, a reply a line. It ends with
 * its standard input or by a signal; the namespaces go with it and with whoever is in them. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "common/text.h"
#include "hub_int.h"

static const char usage[] =
"usage: link [--seed=N] [--check] [COMMAND...]     each COMMAND is one argument; more are read from standard input\n"
"\n"
"  node NAME ADDRESS [mtu=N] [cc=NAME] [KEY=VALUE...]   makes a namespace; reply: node NAME ADDRESS NAMESPACE\n"
"  set NAME KEY=VALUE...                 changes a node's link:\n"
"      rate=10mbit queue=256KiB burst=16KiB      both ways; up.rate= what it sends, down.rate= what it gets\n"
"      delay=50ms jitter=5ms loss=1% reorder=yes what it sends; down.delay= and so on what it gets\n"
"  cut NAME | heal NAME                  from everybody\n"
"  cut NAME OTHER... | heal NAME OTHER... from these\n"
"  stats NAME                            packets, bytes, losses, and the longest queue since the last stats\n"
"  at SECONDS COMMAND...                 later, counted from the start\n"
"\n"
"ADDRESS is one of 10.77.0.0/16; fd77::ADDRESS is the node's, too. nsenter --net=NAMESPACE PROGRAM runs one there.\n"
"--check says whether this machine can (0), or why not (77).\n";

static void one_line(struct hub *h, const char *line)
{
	char reply[HUB_REPLY_MAX];
	struct err e;

	if (hub_command(h, line, reply, sizeof reply, &e))
		printf("error: %s\n", e.text);
	else
		puts(reply);
	fflush(stdout);
}

static volatile sig_atomic_t stop;
static void on_signal(int sig) { stop = 1; }

/* False: there will be no more. */
static bool read_lines(struct hub *h, char *buf, size_t cap, size_t *len)
{
	ssize_t n = read(0, buf + *len, cap - 1 - *len);
	char *end;

	if (n <= 0)
		return n < 0 && errno == EINTR;
	*len += (size_t)n;
	buf[*len] = '\0';
	while ((end = strchr(buf, '\n'))) {
		*end = '\0';
		one_line(h, buf);
		*len -= (size_t)(end + 1 - buf);
		memmove(buf, end + 1, *len + 1);
	}
	if (*len == cap - 1) {
		puts("error: a line that is too long");
		*len = 0;
	}
	return true;
}

int main(int argc, char **argv)
{
	struct sigaction sa = { .sa_handler = on_signal };
	char line[2 * HUB_LINE_MAX];
	uint64_t seed = 1;
	size_t len = 0;
	struct hub *h;
	struct err e;
	int i = 1;

	for (; i < argc && !strncmp(argv[i], "--", 2); i++) {
		if (!strncmp(argv[i], "--seed=", 7) && !text_u64(argv[i] + 7, &seed, NULL))
			continue;
		if (!strcmp(argv[i], "--check")) {
			if (!hub_possible(&e))
				return 0;
			puts(e.text);
			return 77;
		}
		fputs(usage, stderr);
		return 3;
	}
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGINT, &sa, NULL);
	(void)setpriority(PRIO_PROCESS, 0, -10);        /* what waits for this process is time that no wire would take */
	h = hub_new(seed);
	for (; i < argc; i++)
		one_line(h, argv[i]);
	while (!stop && (!hub_run(h, 1000000, 0) || read_lines(h, line, sizeof line, &len)))
		;
	hub_free(h);
	return 0;
}
