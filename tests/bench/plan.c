/* What a plan costs beside the work it plans: building, checking, reading from JSON, one instruction through the
 * readiness
 * rules, and a pipeline of 16 peers in the predictor. JSON out, medians of 9 with spread. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "common/mem.h"
#include "plan/check.h"
#include "usage.h"

enum { N = 9, STAGES = 16, MICRO = 64 };

static double now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

static void say(const char *name, double *v, const char *unit, const char *end)
{
	qsort(v, N, sizeof *v, by_value);
	printf("  \"%s\": {\"median\": %.3f, \"min\": %.3f, \"max\": %.3f, \"n\": %d, \"unit\": \"%s\"}%s\n", name,
		v[N / 2], v[0],
		v[N - 1], N, unit, end);
}

/* The plainest step: LOAD FWD BWD OPT COMMIT. */
static void single(struct plan *p, uint64_t iterations)
{
	struct id me = {{1}};
	plan_init(p, "single", 0, 1, &me);
	plan_buf(p, &(struct plan_buf){ .class = PLAN_BATCH, .bytes = 100, .depth = 2 }, "x");
	plan_buf(p, &(struct plan_buf){ .class = PLAN_ACTIVATION, .bytes = 100 }, "kept");
	plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT_GRAD, .bytes = 100 }, "g");
	plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT, .bytes = 100, .initial = true }, "w");
	plan_section(p, PLAN_BODY);
	p->iterations = iterations;
	plan_do(p, PLAN_LOAD, 0, "-> x");
	plan_piece(plan_do(p, PLAN_FWD, 0, "x! w -> save:kept"), 0, 0);
	plan_piece(plan_do(p, PLAN_BWD, 0, "save:kept! w -> g"), 0, 0);
	plan_vec(p, 0, "opt", "g! w -> w'");
	plan_do(p, PLAN_COMMIT, 0, "w'");
}

/* 1F1B, unrolled: 2 x MICRO x 3 instructions a peer. */
static void stage(struct plan *p, uint32_t s, const struct id *member)
{
	plan_init(p, "1f1b", s, STAGES, member);
	for (uint32_t k = s; k <= s + 1; k++) {
		plan_buf(p, &(struct plan_buf){ .class = PLAN_ACTIVATION, .bytes = 100, .depth = 2 }, "a%u", k);
		plan_buf(p, &(struct plan_buf){ .class = PLAN_ACTIVATION_GRAD, .bytes = 100, .depth = 2 }, "g%u", k);
	}
	plan_buf(p, &(struct plan_buf){ .class = PLAN_ACTIVATION, .bytes = 100, .depth = STAGES }, "kept");
	uint32_t warm = STAGES - 1 - s;
	for (uint32_t f = 0, b = 0; b < MICRO;) {
		if (f < MICRO) {
			if (s > 0)
				plan_recv(p, f, s - 1, "a%u", s);
			else
				plan_do(p, PLAN_LOAD, f, "-> a0");
			plan_piece(plan_do(p, PLAN_FWD, f, "a%u! -> a%u save:kept", s, s + 1), s, s);
			if (s + 1 < STAGES)
				plan_send(p, f, s + 1, "a%u!", s + 1);
			else
				plan_vec(p, f, "loss", "a%u! -> g%u", s + 1, s + 1);
			f++;
		}
		if (f <= warm && f < MICRO)
			continue;
		if (s + 1 < STAGES)
			plan_recv(p, b, s + 1, "g%u", s + 1);
		plan_piece(plan_do(p, PLAN_BWD, b, "save:kept! g%u! -> g%u", s + 1, s), s, s);
		if (s > 0)
			plan_send(p, b, s - 1, "g%u!", s);
		else
			plan_do(p, PLAN_DROP, b, "g0");
		b++;
	}
}

static void one(double *build, double *check, double *json, double *run, int i)
{
	struct plan p, q;
	struct err e = {0};
	double t = now_us();
	single(&p, 100000);
	build[i] = now_us() - t;
	const struct plan *list[] = { &p };
	t = now_us();
	if (plan_check(list, 1, NULL, NULL, &e) < 0) {
		fprintf(stderr, "%s\n", e.text);
		abort();
	}
	check[i] = now_us() - t;
	t = now_us();
	json_t *j = plan_to_json(&p);
	if (plan_from_json(&q, j, &e) < 0)
		abort();
	json[i] = now_us() - t;
	json_decref(j);
	plan_free(&q);
	t = now_us();
	struct tokens *k = tokens_new(&p, NULL, NULL);
	uint64_t n = 0;
	for (struct token_run *r; (r = tokens_start(k)); n++)
		tokens_end(k, r, NULL);
	run[i] = (now_us() - t) / (double)n;
	tokens_free(k);
	plan_free(&p);
}

static double pipeline(void)
{
	struct plan p[STAGES];
	const struct plan *list[STAGES];
	struct id member[STAGES] = {{{0}}};
	struct predict_conf conf = { .link = { 10, 0.001 } };
	struct prediction out;
	struct err e = {0};
	double n = 0;
	for (uint32_t s = 0; s < STAGES; s++) {
		member[s].b[0] = (uint8_t)(s + 1);
		list[s] = &p[s];
	}
	for (uint32_t s = 0; s < STAGES; s++) {
		stage(&p[s], s, member);
		n += p[s].ninstrs;
	}
	double t = now_us();
	if (predict(list, STAGES, &conf, &out, &e) < 0 || out.stuck) {
		fprintf(stderr, "%s%s\n", e.text, out.stuck ? (const char *)out.why.p : "");
		abort();
	}
	t = (now_us() - t) / n;
	prediction_free(&out);
	for (uint32_t s = 0; s < STAGES; s++)
		plan_free(&p[s]);
	return t;
}

int main(int argc, char **argv)
{
	bench_words(argc, argv, 0, 0, "bench_plan");
	double build[N], check[N], json[N], run[N], predicted[N];
	for (int i = 0; i < N; i++) {
		one(build, check, json, run, i);
		predicted[i] = pipeline();
	}
	printf("{\n");
	say("build the plan of a plain step", build, "us", ",");
	say("check it", check, "us", ",");
	say("to JSON and back", json, "us", ",");
	say("one instruction through the readiness rules", run, "us", ",");
	say("one instruction predicted, 16 peers of 1F1B", predicted, "us", "");
	printf("}\n");
	return 0;
}
