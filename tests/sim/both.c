/* Forty scripted protocols, each on the simulated and on the real env: the traces must be equal. A step is VERB A B X;
 * the verbs are in stage.c. Arguments name scripts; with -v the traces are printed. */
#include <stdio.h>
#include <string.h>
#include "stage.h"

struct script { const char *name; int nodes; const char *clients, *steps; };

static const struct script scripts[] = {
	{ "hello", 2, "ss", "dial 0 1 0" },
	{ "call", 2, "ss", "know 0 1 0; call 0 1 0" },
	{ "call_again", 2, "ss", "know 0 1 0; call 0 1 0; call 0 1 0; call 0 1 0" },
	{ "call_blob", 2, "ss", "know 0 1 0; call 0 1 1000; call 0 1 200000" },
	{ "call_back", 2, "ss", "know 0 1 0; call 0 1 0; call 1 0 0" },
	{ "cross", 2, "ss", "know 0 1 0; know 1 0 0; call 0 1 0; cross 0 1 0" },
	{ "refuse", 2, "ss", "know 0 1 0; refuse 0 1 0; call 0 1 0" },
	{ "no_handler", 2, "ss", "know 0 1 0; nobody 0 1 0" },
	{ "no_answer", 2, "ss", "know 0 1 0; call 0 1 0; silence 0 1 0" },
	{ "post", 2, "ss", "know 0 1 0; call 0 1 0; post 0 1 0; post 0 1 0" },
	{ "many_calls", 2, "ss", "know 0 1 0; call 0 1 0; calls 0 1 50" },
	{ "transfer_small", 2, "ss", "know 0 1 0; call 0 1 0; move 0 1 10" },
	{ "transfer_chunk", 2, "ss", "know 0 1 0; call 0 1 0; move 0 1 262144" },
	{ "unknown_peer", 2, "ss", "call 0 1 0" },
	{ "nobody_there", 2, "ss", "kill 1 0 0; dial 0 1 0" },
	{ "transfer_big", 2, "ss", "know 0 1 0; call 0 1 0; move 0 1 3000000" },
	{ "transfer_empty", 2, "ss", "know 0 1 0; call 0 1 0; move 0 1 0" },
	{ "transfer_cold", 2, "ss", "know 0 1 0; know 1 0 0; move 0 1 1000" },
	{ "transfer_back", 2, "ss", "know 0 1 0; call 0 1 0; move 0 1 70000; move 1 0 70001" },
	{ "transfer_dead", 2, "ss", "know 0 1 0; call 0 1 0; care 0 1 0; drop 0 1 500000" },
	{ "dead_told", 2, "ss", "know 0 1 0; call 0 1 0; care 0 1 0; kill 1 0 0; dead 0 1 0" },
	{ "dead_call", 2, "ss", "know 0 1 0; call 0 1 0; care 0 1 0; kill 1 0 0; dead 0 1 0; call 0 1 0" },
	{ "dead_both", 3, "sss", "know 0 1 0; know 0 2 0; call 0 1 0; call 0 2 0; care 0 1 0; care 0 2 0; kill 1 0 0; "
		"dead 0 1 0; kill 2 0 0; dead 0 2 0" },
	{ "reborn", 2, "ss", "know 0 1 0; call 0 1 0; care 0 1 0; kill 1 0 0; dead 0 1 0; start 1 0 0; back 0 1 0; call 0 1 0" },
	{ "reborn_calls", 2, "ss", "know 0 1 0; call 0 1 0; care 0 1 0; kill 1 0 0; dead 0 1 0; start 1 0 0; know 1 0 0; call 1 0 0" },
	{ "fresh", 2, "ss", "know 0 1 0; call 0 1 0; fresh 0 1 0; call 0 1 0; fresh 1 0 0; call 0 1 0" },
	{ "fresh_bulk", 2, "ss", "know 0 1 0; call 0 1 0; move 0 1 400000; fresh 0 1 0; move 0 1 300000" },
	{ "three", 3, "sss", "know 0 1 0; know 1 2 0; know 2 0 0; call 0 1 0; call 1 2 0; call 2 0 0; post 0 1 0; post 1 2 0" },
	{ "star", 4, "ssss", "know 1 0 0; know 2 0 0; know 3 0 0; call 1 0 0; call 2 0 0; call 3 0 0; call 0 1 0; call 0 2 0" },
	{ "star_moves", 4, "ssss", "know 1 0 0; know 2 0 0; know 3 0 0; call 1 0 0; call 2 0 0; call 3 0 0; move 0 1 9999; move 2 0 8888" },
	{ "dial_many", 4, "ssss", "dial 0 1 0; dial 0 2 0; dial 0 3 0; dial 1 2 0" },
	{ "client_hello", 2, "sc", "dial 1 0 0" },
	{ "client_call", 2, "sc", "know 1 0 0; call 1 0 0; call 1 0 0" },
	{ "client_called", 2, "sc", "know 1 0 0; call 1 0 0; call 0 1 0" },
	{ "client_blob", 2, "sc", "know 1 0 0; call 1 0 100000" },
	{ "client_post", 2, "sc", "know 1 0 0; call 1 0 0; post 1 0 0; post 0 1 0" },
	{ "client_refused", 2, "sc", "know 1 0 0; refuse 1 0 0; nobody 1 0 0" },
	{ "client_move", 2, "sc", "know 1 0 0; call 1 0 0; move 1 0 5000; move 0 1 5000" },
	{ "two_clients", 3, "scc", "know 1 0 0; know 2 0 0; call 1 0 0; call 2 0 0; call 0 1 0; call 0 2 0" },
	{ "client_unreachable", 3, "scc", "dial 1 2 0" },
	{ "late_third", 3, "sss", "kill 2 0 0; know 0 1 0; call 0 1 0; start 2 0 0; know 2 0 0; call 2 0 0; call 0 2 0" },
	{ "talk_on", 3, "sss", "know 0 1 0; know 0 2 0; call 0 1 0; call 0 2 0; care 0 2 0; kill 2 0 0; dead 0 2 0; call 0 1 0; post 0 1 0" },
};

static bool play(const struct script *c, struct stage *s, struct buf *out)
{
	bool ok = stage_play(s, c->steps);
	for (int i = 0; i < c->nodes; i++)
		buf_put(out, s->cast[i].trace.p, s->cast[i].trace.len);
	buf_u8(out, 0);
	stage_free(s);
	return ok;
}

int main(int argc, char **argv)
{
	bool verbose = argc > 1 && !strcmp(argv[1], "-v");
	int failed = 0, ran = 0;

	for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
		const struct script *c = &scripts[i];
		struct buf sim = {0}, real = {0};
		bool wanted = argc < 2 + verbose, ok;

		for (int k = 1; k < argc; k++)
			wanted |= !strcmp(argv[k], c->name);
		if (!wanted)
			continue;
		ran++;
		ok = play(c, stage_sim(c->nodes, c->clients, 1), &sim);
		ok &= play(c, stage_real(c->nodes, c->clients), &real);
		if (!ok || strcmp((char *)sim.p, (char *)real.p)) {
			failed++;
			printf("not ok %s%s\n-- simulated\n%s-- real\n%s", c->name, ok ? "" : ": a step did not end", sim.p, real.p);
		} else {
			printf("ok %s\n%s", c->name, verbose ? (char *)sim.p : "");
		}
		fflush(stdout);
		buf_free(&sim);
		buf_free(&real);
	}
	printf("%d scripts, %d failed\n", ran, failed);
	return failed || !ran;
}
