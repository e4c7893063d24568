/* The real world under the stage: one loop and one transport per actor in this process, run in turns; a kill closes all
 * its sockets, as the kernel would. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "common/mem.h"
#include "loop/loop.h"
#include "net/nano.h"
#include "stage.h"

struct real { struct loop *loop[CAST_MAX]; struct nano *nano[CAST_MAX]; };

static int real_raise(struct stage *s, int node)
{
	struct real *r = s->world;
	struct actor *a = &s->cast[node];
	struct loop_conf lc = {0};
	struct nano_conf nc = { .client = a->client, .auto_first = (uint16_t)(30000 + getpid() % 9000) };
	char text[ENDPOINT_TEXT] = "127.0.0.1:auto";
	struct err e;

	if (a->at.port[CHAN_CTRL])              /* again where it was */
		endpoint_text(&a->at, CHAN_CTRL, text);
	r->loop[node] = loop_new(&lc, &e);
	if (!r->loop[node] || nano_listen_parse(text, &nc, &e) || !(r->nano[node] = nano_new(r->loop[node], &nc, &e))) {
		fprintf(stderr, "node %d: %s\n", node, e.text);
		abort();
	}
	a->at = *nano_endpoint(r->nano[node]);
	stage_enter(a, loop_env(r->loop[node]));
	return 0;
}

static void real_fell(struct stage *s, int node)
{
	struct real *r = s->world;
	if (!r->loop[node])
		return;
	stage_leave(&s->cast[node]);
	nano_free(r->nano[node]);
	loop_free(r->loop[node]);
	r->nano[node] = NULL;
	r->loop[node] = NULL;
}

static bool never(void *arg) { return false; }

static uint64_t clock_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static bool real_until(struct stage *s, bool (*cond)(void *arg), void *arg, uint64_t limit_us)
{
	struct real *r = s->world;
	uint64_t end = clock_us() + limit_us;

	while (!cond(arg)) {
		if (clock_us() > end)
			return false;
		for (int i = 0; i < s->n; i++)
			if (r->loop[i])
				loop_run_until(r->loop[i], never, NULL, 100);
	}
	return true;
}

static void real_close(struct stage *s)
{
	for (int i = 0; i < s->n; i++)
		real_fell(s, i);
	free(s->world);
}

static const struct world_ops real_ops = { real_raise, real_fell, real_until, real_close };

struct stage *stage_real(int n, const char *clients)
{
	struct stage *s = xcalloc(1, sizeof(*s));
	s->ops = &real_ops;
	s->world = xcalloc(1, sizeof(struct real));
	s->n = n;
	for (int i = 0; i < n; i++) {
		s->cast[i].stage = s;
		s->cast[i].index = i;
		s->cast[i].client = clients[i] == 'c';
	}
	for (int i = 0; i < n; i++)
		real_raise(s, i);
	return s;
}
