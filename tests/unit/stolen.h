/* What the host of a virtual machine has kept from it: limits of time do not count it, as in tests/run. */
#ifndef TESTS_STOLEN_H
#define TESTS_STOLEN_H
#include <stdio.h>
#include <unistd.h>

/* Seconds of each processor, in the mean, since the start of the machine; 0 where nobody tells. */
static inline double stolen(void)
{
	unsigned long long v[8];
	FILE *f = fopen("/proc/stat", "r");
	int n = f ? fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", v, v + 1, v + 2, v + 3, v + 4, v + 5, v + 6,
		v + 7) : 0;

	if (f)
		fclose(f);
	return n == 8 ? (double)v[7] / (double)sysconf(_SC_CLK_TCK) / (double)sysconf(_SC_NPROCESSORS_ONLN) : 0;
}

#endif
