/* A peer that is told what others have truly said, changed on the way: between its network and its rooms every
 * frame of the kinds given, asked or answered, passes an editor. The input is a list of edits: how many frames pass
 * first, what is done, where (two bytes), how many bytes, those. */
#ifndef TESTS_FUZZ_CROOKED_H
#define TESTS_FUZZ_CROOKED_H
#include "common/buf.h"
#include "net/net.h"
#include "sim.h"

struct crooked;
/* Frames of kinds first .. last that reach the node (its net: net_of(arg), NULL while there is none) from now on. */
struct crooked *crooked_new(struct sim *s, struct net *(*net_of)(void *arg), void *arg, enum kind first, enum kind last,
	const uint8_t *in, size_t n);
/* Nothing is changed any more, or all of the input has been. */
bool crooked_over(const struct crooked *c);
void crooked_free(struct crooked *c);           /* after the simulator */

#endif
