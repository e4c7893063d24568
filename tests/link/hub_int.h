/* What hub.c and hub_words.c share. */
#ifndef TESTS_LINK_HUB_INT_H
#define TESTS_LINK_HUB_INT_H
#include <stdio.h>
#include "link/hub.h"

#define HUB_LINE_MAX 512
#define HUB_REPLY_MAX 512

struct later { struct list link; uint64_t at_ns; char line[HUB_LINE_MAX]; };
struct hub {
	uint64_t seed, begun_ns;
	int n;
	struct hub_node node[HUB_NODES_MAX];
	/* [i][i]: from everybody; [i][j]: what i sends to j */
	bool cut[HUB_NODES_MAX][HUB_NODES_MAX];
	struct list later;
	uint8_t packet[65536];
};

#endif
