/* Which planted bug is in force in tests of the averager: PLANTED=n in the environment, none without. */
#include <stdlib.h>
#define PLANTED_BUGS 1
#include "avg/planted.h"
#include "common/text.h"

int planted_bug(void)
{
	const char *text = getenv("PLANTED");
	uint64_t n;
	return text && !text_u64(text, &n, NULL) ? (int)n : 0;
}
