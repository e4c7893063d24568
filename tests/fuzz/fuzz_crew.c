/* Crews that agree on generations, of whom one hears what the others say changed on the way (crooked.h): proposals,
 * answers, gos, what they say of themselves. First byte of the input: how many peers (bits 0 and 1), who hears it (bits
 * 2 and 3), that one comes later (bit 4), one dies in the middle (bit 5), there are COMMITs (bit 6). Whatever is said:
 * what must hold of crews does (crew_world_see.c), and everybody can be asked and freed. */
#include <stdio.h>
#include <stdlib.h>
#include "crooked.h"
#include "crew_world.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct hears { struct cworld *w; int node; };

static struct net *net_of(void *arg)
{
	struct hears *h = arg;
	struct cpeer *p = h->node < sim_nodes(h->w->s) ? cworld_peer(h->w, h->node) : NULL;

	return p ? p->net : NULL;
}

static void ask_all(struct cworld *w)
{
	for (int i = 0; i < sim_nodes(w->s); i++)
		if (cworld_peer(w, i))
			json_decref(crew_json(cworld_peer(w, i)->crew));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t how = size ? data[0] : 0;
	struct sim *s = sim_new(1);
	struct cworld *w = cworld_new(s);
	int n = 2 + how % 4;
	struct hears h = { w, (how >> 2) % 4 % n };

	w->commit_us = how & 64 ? 100 * MSEC : 0;
	cworld_add(w, n - (how & 16 ? 1 : 0));
	struct crooked *c = crooked_new(s, net_of, &h, KIND_CREW_PROPOSE, KIND_CREW_SHOW, size ? data + 1 : data,
		size ? size - 1 : 0);
	for (int i = 0; i < 24; i++) {
		sim_run_for(s, 50 * MSEC);
		ask_all(w);
		if (i == 8 && how & 16)
			cworld_add(w, 1);
		if (i == 12 && how & 32)
			cworld_kill(w, n > 1);
		if (i > 16 && crooked_over(c))
			break;
	}
	if (sim_failed(s)) {
		fprintf(stderr, "%s\n", sim_failed(s));
		abort();
	}
	sim_free(s);
	cworld_free(w);
	crooked_free(c);
	return 0;
}
