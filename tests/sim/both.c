/* Forty scripted protocols, each on the simulated and on the real env: the traces must be equal. A step is VERB A B X;
 * the verbs are in stage.c. Arguments name scripts; with -v the traces are printed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "stage.h"

/* any_order: the script does several things at once, so what happened to a node is compared as a set, and which way its
 * messages came is left out. */
struct script { const char *name; int nodes; const char *clients, *steps; bool any_order; };

static const struct script scripts[] = {
	{ "hello", 2, "ss", "dial 0 1 0" },
	{ "call", 2, "ss", "know 0 1 0; call 0 1 0" },
	{ "call_again", 2, "ss", "know 0 1 0; call 0 1 0; call 0 1 0; call 0 1 0" },
	{ "call_blob", 2, "ss", "know 0 1 0; call 0 1 1000; call 0 1 200000" },
	{ "call_back", 2, "ss", "know 0 1 0; call 0 1 0; call 1 0 0" },
	{ "cross", 2, "ss", "know 0 1 0; know 1 0 0; call 0 1 0; cross 0 1 0", true },
	{ "refuse", 2, "ss", "know 0 1 0; refuse 0 1 0; call 0 1 0" },
	{ "no_handler", 2, "ss", "know 0 1 0; nobody 0 1 0" },
	{ "no_answer", 2, "ss", "know 0 1 0; call 0 1 0; silence 0 1 0" },
	{ "post", 2, "ss", "know 0 1 0; call 0 1 0; post 0 1 0; post 0 1 0" },
	{ "many_calls", 2, "ss", "know 0 1 0; call 0 1 0; calls 0 1 50", true },
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
	{ "dead_both", 3, "sss", "know 0 1 0; know 0 2 0; call 0 1 0; call 0 2 0; care 0 1 0; kill 1 0 0; dead 0 1 0; "
		"care 0 2 0; kill 2 0 0; dead 0 2 0" },
	{ "reborn", 2, "ss",
		"know 0 1 0; call 0 1 0; care 0 1 0; kill 1 0 0; dead 0 1 0; start 1 0 0; back 0 1 0; call 0 1 0" },
	{ "reborn_calls", 2, "ss",
		"know 0 1 0; call 0 1 0; care 0 1 0; kill 1 0 0; dead 0 1 0; start 1 0 0; know 1 0 0; call 1 0 0" },
	{ "fresh", 2, "ss", "know 0 1 0; call 0 1 0; fresh 0 1 0; call 0 1 0; fresh 1 0 0; call 0 1 0" },
	{ "fresh_bulk", 2, "ss", "know 0 1 0; call 0 1 0; move 0 1 400000; fresh 0 1 0; move 0 1 300000" },
	{ "three", 3, "sss",
		"know 0 1 0; know 1 2 0; know 2 0 0; call 0 1 0; call 1 2 0; call 2 0 0; post 0 1 0; post 1 2 0" },
	{ "star", 4, "ssss",
		"know 1 0 0; know 2 0 0; know 3 0 0; call 1 0 0; call 2 0 0; call 3 0 0; call 0 1 0; call 0 2 0" },
	{ "star_moves", 4, "ssss",
		"know 1 0 0; know 2 0 0; know 3 0 0; call 1 0 0; call 2 0 0; call 3 0 0; move 0 1 9999; move 2 0 8888" },
	{ "dial_many", 4, "ssss", "dial 0 1 0; dial 0 2 0; dial 0 3 0; dial 1 2 0" },
	{ "client_hello", 2, "sc", "dial 1 0 0" },
	{ "client_call", 2, "sc", "know 1 0 0; call 1 0 0; call 1 0 0" },
	{ "client_called", 2, "sc", "know 1 0 0; call 1 0 0; call 0 1 0" },
	{ "client_blob", 2, "sc", "know 1 0 0; call 1 0 0; call 1 0 100000" },
	{ "client_blob_cold", 2, "sc", "know 1 0 0; call 1 0 100000" },
	{ "client_post", 2, "sc", "know 1 0 0; call 1 0 0; post 1 0 0; post 0 1 0" },
	{ "client_refused", 2, "sc", "know 1 0 0; refuse 1 0 0; nobody 1 0 0" },
	{ "client_move", 2, "sc", "know 1 0 0; call 1 0 0; move 1 0 5000; move 0 1 5000" },
	{ "two_clients", 3, "scc", "know 1 0 0; know 2 0 0; call 1 0 0; call 2 0 0; call 0 1 0; call 0 2 0" },
	{ "client_unreachable", 3, "scc", "dial 1 2 0" },
	{ "late_third", 3, "sss", "kill 2 0 0; know 0 1 0; call 0 1 0; start 2 0 0; know 2 0 0; call 2 0 0; call 0 2 0" },
	{ "talk_on", 3, "sss",
		"know 0 1 0; know 0 2 0; call 0 1 0; call 0 2 0; care 0 2 0; kill 2 0 0; dead 0 2 0; call 0 1 0; post 0 1 0" },
};

#define LINES_MAX 512
#define ATTEMPTS 6

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Adds a node's trace: what happened to it, in order; then which messages it saw, as a set, because HELLOs and re-sends
 * go on beside what the script does. */
static void add_trace(struct buf *out, struct buf *trace, bool any_order)
{
	char *line[LINES_MAX], *wire[LINES_MAX], *save = NULL;
	int lines = 0, wires = 0;

	buf_u8(trace, 0);
	for (char *p = strtok_r((char *)trace->p, "\n", &save); p; p = strtok_r(NULL, "\n", &save)) {
		if (strstr(p, "wire") && wires < LINES_MAX)
			wire[wires++] = p;
		else if (lines < LINES_MAX)
			line[lines++] = p;
	}
	if (any_order)
		qsort(line, (size_t)lines, sizeof(line[0]), by_text);
	qsort(wire, (size_t)wires, sizeof(wire[0]), by_text);
	for (int i = 0; i < lines; i++)
		buf_printf(out, "%s\n", line[i]);
	for (int i = 0; i < wires && !any_order; i++)
		if (!i || strcmp(wire[i], wire[i - 1]))
			buf_printf(out, "%s\n", wire[i]);
}

static bool play(const struct script *c, struct stage *s, struct buf *out)
{
	bool ok = stage_play(s, c->steps) && stage_play(s, "wait 0 0 40");

	buf_clear(out);
	for (int i = 0; i < c->nodes; i++)
		add_trace(out, &s->cast[i].trace, c->any_order);
	stage_free(s);
	return ok;
}

static bool same(const struct script *c, bool verbose)
{
	struct buf sim = {0}, real = {0};
	bool ok = play(c, stage_sim(c->nodes, c->clients, 1), &sim), equal = false;

	/* On a machine with too much to do a deadline passes now and then; a real difference is there every time. */
	for (int i = 0; i < ATTEMPTS && ok && !equal; i++)
		equal = play(c, stage_real(c->nodes, c->clients), &real) && !strcmp((char *)sim.p, (char *)real.p);
	if (equal)
		printf("ok %s\n%s", c->name, verbose ? (char *)sim.p : "");
	else
		printf("not ok %s\n-- simulated\n%s-- real\n%s", c->name, (char *)sim.p, ok ? (char *)real.p : "not run\n");
	fflush(stdout);
	buf_free(&sim);
	buf_free(&real);
	return equal;
}

int main(int argc, char **argv)
{
	bool verbose = argc > 1 && !strcmp(argv[1], "-v");
	int failed = 0, ran = 0;

	for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
		bool wanted = argc < 2 + verbose;
		for (int k = 1; k < argc; k++)
			wanted |= !strcmp(argv[k], scripts[i].name);
		if (!wanted)
			continue;
		ran++;
		failed += !same(&scripts[i], verbose);
	}
	printf("%d scripts, %d failed\n", ran, failed);
	return failed || !ran;
}
