/* The matrix of message, lie and role (liar.h): one scenario a message, one cell a seed. */
#include "liar.h"

#define MESSAGE(name) static void scn_##name(struct sim *s) { liar_message(s, #name); }
MESSAGE(commit)
MESSAGE(begin)
MESSAGE(lead)
MESSAGE(crowd)
MESSAGE(recover)
MESSAGE(attempt)
MESSAGE(ack)
MESSAGE(propose)
MESSAGE(ready)
MESSAGE(mean)
MESSAGE(missing)
MESSAGE(report)
MESSAGE(join)
MESSAGE(redirect)
MESSAGE(stranger)

static const struct scn list[] = { SCN(commit), SCN(begin), SCN(lead), SCN(crowd), SCN(recover), SCN(attempt),
	SCN(ack), SCN(propose), SCN(ready), SCN(mean), SCN(missing), SCN(report), SCN(join), SCN(redirect),
	SCN(stranger), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
