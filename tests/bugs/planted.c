/* Which planted bugs are awake in this test program: PLANTED=name+name in the environment, none without. An unknown
 * name ends the program with 99, so that a row of meson.build with a spelling mistake does not look like a bug that was
 * seen. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/planted.h"

static const char *const names[] = { "",
#define X(n) #n,
	PLANTED_BUGS(X)
#undef X
};
static bool awake[sizeof names / sizeof *names];

static void wake(const char *name, size_t len)
{
	for (size_t i = 1; i < sizeof names / sizeof *names; i++)
		if (strlen(names[i]) == len && !memcmp(name, names[i], len)) {
			awake[i] = true;
			return;
		}
	fprintf(stderr, "PLANTED=%.*s: common/planted.h has no such bug\n", (int)len, name);
	_Exit(99);
}

__attribute__((constructor)) static void wake_all(void)
{
	const char *text = getenv("PLANTED");

	while (text) {
		size_t len = strcspn(text, "+");
		wake(text, len);
		text = text[len] ? text + len + 1 : NULL;
	}
}

bool planted_bug(enum planted bug)
{
	return awake[bug];
}
