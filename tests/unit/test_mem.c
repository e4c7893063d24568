/* Allocation: zeroing, alignment, overflow, and the fault hook: big ones fail cleanly, small ones abort. */
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "common/mem.h"
#include "tests/unit/t.h"
#include "skip.h"

static int nth(void *arg, size_t bytes, int big)
{
	int *left = arg;

	return --*left == 0;
}

static void small_ones(void **s)
{
	unsigned char *p = xcalloc(100, 3);
	char *a = xstrdup("hello"), *b = xasprintf("%s %d", a, 42), *c = xmemdup(b, 6);

	for (int i = 0; i < 300; i++)
		assert_int_equal(p[i], 0);
	p = xrealloc(p, 1000);
	p[999] = 1;
	assert_string_equal(b, "hello 42");
	assert_memory_equal(c, "hello ", 6);
	free(p);
	free(a);
	free(b);
	free(c);
	free(xmalloc(0));
	free(xmemdup(NULL, 0));
}

static void big_ones(void **s)
{
	static const size_t sizes[] = { 0, 1, 63, 64, 4097, 1 << 20, (5 << 20) + 3 };

	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		unsigned char *p = big_alloc(sizes[i]);

		assert_non_null(p);
		assert_int_equal((uintptr_t)p % 64, 0);
		for (size_t k = 0; k < sizes[i]; k += 97)
			assert_int_equal(p[k], 0);
		if (sizes[i])
			p[0] = p[sizes[i] - 1] = 1;
		big_free(p, sizes[i]);
	}
	big_free(NULL, 10);
	assert_null(big_alloc(SIZE_MAX));
	assert_null(big_alloc(SIZE_MAX / 2 + 1));
}

static void the_hook_fails_the_nth_big(void **s)
{
	int left = 2;
	void *p;

	mem_set_fault(nth, &left);
	p = big_alloc(10);
	assert_non_null(p);
	assert_null(big_alloc(2 << 20));
	mem_set_fault(NULL, NULL);
	big_free(p, 10);
	p = big_alloc(2 << 20);
	assert_non_null(p);
	big_free(p, 2 << 20);
}

/* Runs one allocation in a child with the hook set and says whether it aborted. */
static bool aborts(void (*fn)(void))
{
	int status, left = 1;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		if (!freopen("/dev/null", "w", stderr))
			_exit(3);
		signal(SIGABRT, SIG_DFL);
		mem_set_fault(nth, &left);
		fn();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void do_malloc(void) { free(xmalloc(1)); }
static void do_calloc(void) { free(xcalloc(1, 1)); }
static void do_overflow(void) { mem_set_fault(NULL, NULL); free(xcalloc(SIZE_MAX / 2, 3)); }
static void do_realloc(void) { free(xrealloc(NULL, 1)); }
static void do_strdup(void) { free(xstrdup("a")); }
static void do_printf(void) { free(xasprintf("a")); }
static void do_nothing(void) { }

static void small_ones_abort(void **s)
{
	assert_true(aborts(do_malloc));
	assert_true(aborts(do_calloc));
	assert_true(aborts(do_overflow));
	assert_true(aborts(do_realloc));
	assert_true(aborts(do_strdup));
	assert_true(aborts(do_printf));
	assert_false(aborts(do_nothing));
}

#define FRAMES 24
#define FRAME_BYTES (256 * 1024)

static long faults_of_frames(void)
{
	struct rusage before, after;
	char *p[FRAMES];

	getrusage(RUSAGE_SELF, &before);
	for (int i = 0; i < FRAMES; i++)
		memset(p[i] = xmalloc(FRAME_BYTES), i + 1, FRAME_BYTES);
	for (int i = 0; i < FRAMES; i++)
		free(p[i]);
	getrusage(RUSAGE_SELF, &after);
	return after.ru_minflt - before.ru_minflt;
}

/* In a process of its own: what it sets is for the whole process. */
static void frames_come_and_go_without_fresh_pages(void **s)
{
	const long pages = FRAMES * FRAME_BYTES / 4096;
	int status;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
	skip_because("the allocator of this build keeps by rules of its own");
#endif
	fflush(NULL);
	if (!fork()) {
		mem_keep();
		bool first = faults_of_frames() > pages / 2, kept = faults_of_frames() < pages / 10;
		mem_give_back();
		_exit(first << 2 | kept << 1 | (faults_of_frames() > pages / 2));
	}
	wait(&status);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(small_ones), cmocka_unit_test(big_ones), cmocka_unit_test(the_hook_fails_the_nth_big),
		cmocka_unit_test(small_ones_abort), cmocka_unit_test(frames_come_and_go_without_fresh_pages),
	};

	return cmocka_run_group_tests_name("mem", tests, NULL, NULL);
}
