/* For tests of tiers: the small network of exec_bed.h trained for a few steps, in plain order or with all that FWD
 * makes for BWD sent away to a tier and fetched one layer ahead (vDNN, test_plan_vdnn.c). */
#ifndef TESTS_TIERS_KIT_H
#define TESTS_TIERS_KIT_H
#include "exec_bed.h"
#include "plan_kit.h"

#define STEPS 3
#define LAYERS 5
#define FOLDER "/far"

static inline void tiers_profile(struct kit *k)
{
	kit_open(k, 1);
	kit_chain(k, LAYERS, 1009, 2003, 0, 0);
	kit_fn(k, "MOVE", 101, 0.1);
	kit_fn(k, "SAVE", 211, 0.1);
}

/* tier NULL: nothing moves. Each BWD writes the gradients of its own parameters. */
static inline void tiers_plan(struct bed *b, struct plan *p, const char *tier, uint64_t steps)
{
	uint32_t out = plan_lane(p, "copy-out", 1, 4), in = plan_lane(p, "copy-in", 1, 4);
	uint32_t disk = plan_lane(p, "disk", 1, 4);     /* a lane more: two may need the file first */
	char text[96], from[16], to[16];

	buffers(b, p);
	p->iterations = steps;
	for (uint32_t i = 1; i <= LAYERS && tier; i++) {
		uint32_t t = plan_tier(p, tier, 0);

		plan_buf(p, &(struct plan_buf){ .class = PLAN_ACTIVATION, .bytes = 4096, .tier = t }, "fk%u", i);
		(void)snprintf(text, sizeof(text), "a%u", i);
		plan_buf(p, &(struct plan_buf){ .class = PLAN_ACTIVATION, .bytes = p->buf[plan_find(p, text)].bytes,
			.tier = t }, "fa%u", i);
	}
	plan_do(p, PLAN_LOAD, 0, "-> batch");
	for (uint32_t i = 0; i < LAYERS; i++) {
		(void)snprintf(from, sizeof(from), i ? "a%u" : "batch", i);
		(void)snprintf(text, sizeof(text), "%s w -> a%u save:k%u", from, i + 1, i + 1);
		pass(p, PLAN_FWD, i, i, PLAN_KEEP_ALL, false, text);
		if (tier)
			plan_do(p, PLAN_MOVE, 0, "k%u! -> fk%u", i + 1, i + 1)->lane = out;
		if (tier && i)
			plan_do(p, PLAN_MOVE, 0, "a%u! -> fa%u", i, i)->lane = disk;
	}
	plan_vec(p, 0, "loss", "a5! batch -> d5 loss correct");
	for (uint32_t i = LAYERS; i-- > 0;) {
		if (tier)
			plan_do(p, PLAN_MOVE, 0, "fk%u! -> k%u", i + 1, i + 1)->lane = in;
		if (tier && i)
			plan_do(p, PLAN_MOVE, 0, "fa%u! -> a%u", i, i)->lane = in;
		(void)snprintf(from, sizeof(from), i ? "a%u!" : "batch", i);
		(void)snprintf(to, sizeof(to), i ? "d%u " : "", i);
		(void)snprintf(text, sizeof(text), "save:k%u! d%u! %s w -> %sg", i + 1, i + 1, from, to);
		pass(p, PLAN_BWD, i, i, PLAN_KEEP_ALL, false, text);
	}
	plan_vec(p, 0, "axpy", "g! w -> w'")->scale = -0.125;
	plan_do(p, PLAN_COMMIT, 0, "batch! w'");
}

#endif
