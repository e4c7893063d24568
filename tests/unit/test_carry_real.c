/* RECV of any, REPLY and ALLTOALL over the real transport: five peers on loopback in one process, run in turns, each
 * with its own lanes; what they hold at the end has the bits of what one process computes (tests/sim/any_plans.h). */
#include "t.h"
#include <time.h>
#include <unistd.h>
#include "../sim/any_plans.h"
#include "loop/loop.h"
#include "net/nano.h"
#include "stolen.h"

struct side { struct loop *loop; struct nano *nano; struct log *log; struct peer *p; };
static struct side v[NODES_MAX];

static void up(struct world *w, int i)
{
	struct side *x = &v[i];
	struct loop_conf lc = { 0 };
	struct nano_conf nc = { .sweep_us = 50000, .stranger_us = 1500000 };
	struct net_conf c = { .boot_id = 100 + (uint64_t)i, .has_swarm_key = true, .seed = { (uint8_t)(i + 1) } };
	struct err e;

	lc.log = x->log = log_new(16, LOG_ERROR_, NULL, NULL);
	x->loop = loop_new(&lc, &e);
	assert_non_null(x->loop);
	x->p = xcalloc(1, sizeof(*x->p));
	x->p->world = w;
	x->p->env = loop_env(x->loop);
	x->p->node = i;
	assert_int_equal(nano_listen_parse("127.0.0.1:auto", &nc, &e), 0);
	nc.auto_first = (uint16_t)(30000 + getpid() % 20000);
	x->nano = nano_new(x->loop, &nc, &e);
	if (!x->nano)
		fail_msg("%s", e.text);
	c.self = *nano_endpoint(x->nano);
	peer_open(x->p, &c);
}

static void down(int i)
{
	struct side *x = &v[i];

	if (!x->loop)
		return;
	peer_close(x->p);
	nano_free(x->nano);
	loop_free(x->loop);
	log_free(x->log);
	free(x->p);
	*x = (struct side){ 0 };
}

static bool never(void *arg) { return false; }

static bool made(const struct world *w)
{
	for (uint32_t k = 0; k < w->n; k++) {
		const struct peer *p = v[k].p;

		if (p && p->broken)
			fail_msg("peer %u: %s", k, p->error.text);
		if (p && (k < w->workers ? p->commits < w->steps * w->commits || carry_open(p->carry) || !exec_quiet(p->x) :
			carry_open(p->carry) > w->waits))
			return false;
	}
	return true;
}

static void spin(const struct world *w, bool (*cond)(const struct world *w), double limit_s)
{
	struct timespec a, t;
	double before = stolen(), took = 0;

	clock_gettime(CLOCK_MONOTONIC, &a);
	while (!cond(w)) {
		clock_gettime(CLOCK_MONOTONIC, &t);
		took = (double)(t.tv_sec - a.tv_sec) + (double)(t.tv_nsec - a.tv_nsec) * 1e-9;
		if (took > limit_s && took > limit_s + stolen() - before)
			fail_msg("not done after %.0f s", took);
		for (uint32_t i = 0; i < w->n; i++)
			if (v[i].loop)
				loop_run_until(v[i].loop, never, NULL, 300);
	}
}

static void begin(struct world *w)
{
	world_open(w, 7);
	for (uint32_t k = 0; k < w->n; k++)
		up(w, (int)k);
	for (uint32_t k = 0; k < w->n; k++)
		for (uint32_t j = 0; j < w->n; j++)
			if (j != k)
				net_learn(v[k].p->net, &w->id[j], net_endpoint(v[j].p->net));
	for (uint32_t k = 0; k < w->n; k++)
		exec_wake(v[k].p->x);
}

static void end(struct world *w)
{
	for (uint32_t k = 0; k < w->n; k++)
		down((int)k);
	close_world(w);
}

static void replayed(const struct world *w)
{
	struct peer *p[NODES_MAX];
	const char *wrong;

	for (uint32_t k = 0; k < w->n; k++)
		p[k] = v[k].p;
	for (uint32_t s = 0; s < SHARDS; s++)
		if ((wrong = replay_error(w, p, s)))
			fail_msg("shard %u: %s", s, wrong);
}

static const struct world rain = { .n = WORKERS + SHARDS, .workers = WORKERS, .steps = 8, .commits = SHARDS,
	.plan = downpour, .bind = downpour_bind, .waits = 2 };

static void test_downpour(void **state)
{
	struct world w = rain;

	begin(&w);
	spin(&w, made, 60);
	replayed(&w);
	end(&w);
}

static bool half(const struct world *w) { return v[WORKERS].p->commits >= 8; }

/* Its process is gone; the others notice it, and go on. */
static void test_worker_gone(void **state)
{
	struct world w = rain;

	begin(&w);
	spin(&w, half, 60);
	down(1);
	spin(&w, made, 60);
	replayed(&w);
	end(&w);
}

static void test_experts(void **state)
{
	struct world w = { .n = WORKERS + 2, .workers = WORKERS, .steps = 6, .commits = 1, .plan = experts,
		.bind = experts_bind, .before = gate, .waits = 2, .quorum = 1, .most = WORKERS, .within_us = 2000,
		.deadline_us = 20000000 };
	uint32_t without = 0;

	begin(&w);
	spin(&w, made, 60);
	for (uint32_t k = 0; k < WORKERS; k++)
		assert_true(computed(&w, v[k].p, &without));
	assert_int_equal(without, 0);
	end(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_downpour), cmocka_unit_test(test_worker_gone), cmocka_unit_test(test_experts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
