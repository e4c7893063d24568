/* What a daemon costs before it does anything: start to READY, resident memory when idle, `hivectl status` as a whole
 * process. usage: bench_daemon HIVEMINDD HIVECTL [REPEATS]; JSON out, medians with spread. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "usage.h"

enum { MAX = 101 };
static char dir[] = "/tmp/hm-bench-XXXXXX";

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void say(const char *name, double *v, int n, const char *unit)
{
	qsort(v, (size_t)n, sizeof *v, by_value);
	printf("  \"%s\": {\"median\": %.3f, \"min\": %.3f, \"max\": %.3f, \"n\": %d, \"unit\": \"%s\"},\n", name,
		v[n / 2], v[0],
		v[n - 1], n, unit);
}

static pid_t start(const char *const *argv)
{
	posix_spawn_file_actions_t fa;
	pid_t pid;
	int rc;

	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_addopen(&fa, 1, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_addopen(&fa, 2, "/dev/null", O_WRONLY, 0);
	extern char **environ;
	rc = posix_spawn(&pid, argv[0], &fa, NULL, (char *const *)(uintptr_t)argv, environ);
	posix_spawn_file_actions_destroy(&fa);
	if (rc != 0) {
		fprintf(stderr, "%s: %s\n", argv[0], strerror(rc));
		abort();
	}
	return pid;
}

static int notify_socket(char *path, size_t cap)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	struct timeval limit = { .tv_sec = 20 };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	snprintf(path, cap, "%s/notify", dir);
	snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) < 0 ||
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) < 0) {
		perror("notify socket");
		abort();
	}
	return fd;
}

static double wait_ready(int fd)
{
	char text[1024];
	ssize_t n;

	while ((n = recv(fd, text, sizeof text - 1, 0)) > 0) {
		text[n] = '\0';
		if (strstr(text, "READY=1"))
			return now_ms();
	}
	fprintf(stderr, "the daemon did not say READY\n");
	abort();
}

static double resident_kb(pid_t pid)
{
	char path[64], line[256];
	double kb = 0;
	FILE *f;

	snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof line, f))
		if (strncmp(line, "VmRSS:", 6) == 0)
			kb = strtod(line + 6, NULL);
	if (f)
		fclose(f);
	return kb;
}

static int rm(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st; (void)flag; (void)ftw;
	return remove(path);
}

int main(int argc, char **argv)
{
	double fresh[MAX], again[MAX], status[MAX], kb = 0;
	char state[80], sock[112], notify[80];
	static const char usage[] = "bench_daemon HIVEMINDD HIVECTL [REPEATS]";
	bench_words(argc, argv, 2, 3, usage);
	int n = bench_number(argc, argv, 3, 9, 1, MAX, usage), fd;

	if (!mkdtemp(dir)) {
		perror(dir);
		return 3;
	}
	fd = notify_socket(notify, sizeof notify);
	setenv("NOTIFY_SOCKET", notify, 1);
	for (int i = 0; i < 2 * n; i++) {
		double begun;
		pid_t pid;

		snprintf(state, sizeof state, "%s/%d", dir, i / 2);     /* odd turns find the state of the one before */
		snprintf(sock, sizeof sock, "%s/control.sock", state);
		begun = now_ms();
		pid = start((const char *const[]){ argv[1], "--config", "/dev/null", "--state-dir", state, NULL });
		(i % 2 ? again : fresh)[i / 2] = wait_ready(fd) - begun;
		if (i == 2 * n - 1) {
			for (int k = 0; k < n; k++) {
				begun = now_ms();
				waitpid(start((const char *const[]){ argv[2], "-s", sock, "status", NULL }), NULL, 0);
				status[k] = now_ms() - begun;
			}
			kb = resident_kb(pid);
		}
		kill(pid, SIGTERM);
		waitpid(pid, NULL, 0);
	}
	printf("{\n");
	say("start_to_ready", again, n, "ms");
	say("start_to_ready_new_state", fresh, n, "ms");
	say("hivectl_status", status, n, "ms");
	printf("  \"resident_idle\": {\"value\": %.0f, \"unit\": \"KiB\"}\n}\n", kb);
	close(fd);
	nftw(dir, rm, 16, FTW_DEPTH | FTW_PHYS);
	return 0;
}
