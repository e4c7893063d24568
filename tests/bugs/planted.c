/* Which planted bug is awake in this test program: PLANTED=name in the environment, none without. An unknown name ends
 * the program with 99, so that a row of meson.build with a spelling mistake does not look like a bug that was seen. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/planted.h"

static enum planted awake;

__attribute__((constructor)) static void wake(void)
{
	static const char *const names[] = { "",
#define X(n) #n,
		PLANTED_BUGS(X)
#undef X
	};
	const char *text = getenv("PLANTED");

	for (size_t i = 0; text && i < sizeof names / sizeof *names; i++)
		if (!strcmp(text, names[i])) {
			awake = (enum planted)i;
			return;
		}
	if (text) {
		fprintf(stderr, "PLANTED=%s: common/planted.h has no such bug\n", text);
		_Exit(99);
	}
}

enum planted planted_bug(void)
{
	return awake;
}
