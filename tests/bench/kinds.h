/* Messages of the simulator counted by their kind: a tap (sim.h), and the members of a JSON object. */
#ifndef TESTS_BENCH_KINDS_H
#define TESTS_BENCH_KINDS_H
#include <stdio.h>
#include "net/frame.h"
#include "sim.h"

static inline void count_kind(void *arg, int from, int to, enum chan chan, const uint8_t *wire, size_t len)
{
	uint64_t *kind = arg;                   /* 256 of them */
	if (len > 8)
		kind[wire[6]]++;
}

static inline void print_kinds(const uint64_t kind[256])
{
	const char *comma = "";
	for (int k = 0; k < 256; k++)
		if (kind[k]) {
			printf("%s\"%s\": %llu", comma, kind_name((enum kind)k), (unsigned long long)kind[k]);
			comma = ", ";
		}
}

#endif
