/* Inside of the search for where data begins to be another than the run's: differ.c asks, differ_end.c lets go. */
#ifndef RUN_DIFFER_H
#define RUN_DIFFER_H
#include "run/int.h"
#include "train/data/manifest.h"

#define DIFFER_PEERS 8

struct differ {
	struct run *r;                  /* NULL: it is gone, and the job frees what is here */
	struct runs *rs;
	struct data_source *here;
	struct err e; char path[80];    /* where the data is here, as much as a message holds */
	struct id who[DIFFER_PEERS]; size_t npeers, at;
	struct seek *seek;              /* in the DHT */
	struct call *call;
	struct job job; bool hashing;
	uint64_t lo, hi, there; unsigned answers;
	uint32_t nparts; uint8_t theirs[MANIFEST_PARTS][MANIFEST_HASH], ours[MANIFEST_PARTS][MANIFEST_HASH];
	struct timer timer;
};
struct seek { struct differ *d; };

/* When no job reads it, else at that job's end. */
void differ_end(struct differ *d);

#endif
