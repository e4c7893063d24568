/* RECV of any when something is odd: senders that have much and those that are slow, batches, the same work done twice,
 * senders that are not meant or bring another length, and peers that lie to whoever asks and ask what is not theirs. */
#include "any_sim.h"
#include "kernels/vec.h"

#define FLOATS 9000
#define PUSH (-0.1f)
#define STEP 0.5f

/* --- feed: workers push d = c - 0.1 w and go on with w' = w + 0.5 c; the server adds what has come, part by part */

static void feed(const struct world *w, struct plan *p, uint32_t rank)
{
	uint32_t bytes = FLOATS * sizeof(float), most = w->most ? w->most : 1, lo = w->outsider ? 1 : 0;
	struct plan_instr *i;

	init(w, p, "feed", rank);
	if (rank < w->workers) {
		uint32_t odd = w->odd_length && rank == 0 ? 2 : 1;

		buf(p, PLAN_WEIGHT, "w", bytes / odd, 1, true, false);
		buf(p, PLAN_WEIGHT, "c", bytes / odd, 1, true, false);
		buf(p, PLAN_WEIGHT_GRAD, "d", bytes / odd, 4, false, false);
		plan_section(p, PLAN_BODY);
		p->iterations = w->silent && rank ? 0 : w->steps;
		plan_vec(p, 0, "axpy", "w c<=* -> d")->scale = PUSH;
		plan_vec(p, 0, "axpy", "c<=* w -> w'")->scale = STEP;
		plan_do(p, PLAN_COMMIT, 0, "w'");
		i = plan_send(p, 0, w->workers, "d!");
		i->deadline_us = w->deadline_us;
		return;
	}
	buf(p, PLAN_WEIGHT_GRAD, "d", most * bytes, 1, false, false);
	buf(p, PLAN_WEIGHT, "acc", most * bytes, 1, true, false);
	plan_section(p, PLAN_BODY);
	p->iterations = w->silent ? w->steps : 100000;
	i = any(p, w, group(p, "workers", lo, w->workers), "d");
	i->unique = w->unique;
	i->deadline_us = w->silent;
	i->on_missing = w->strict ? PLAN_FAIL : PLAN_WITHOUT;
	plan_vec(p, 0, "axpy", "d! acc -> acc'")->scale = STEP;
	plan_do(p, PLAN_COMMIT, 0, "acc'")->scope = PLAN_SHARD;
}

static void feed_bind(struct peer *p)
{
	const struct world *w = p->world;
	size_t n = w->odd_length && !p->node ? FLOATS / 2 : FLOATS;

	if ((uint32_t)p->node < w->workers) {
		bind_floats(p, "w", n);
		floats(bind_floats(p, "c", n), n, w->unique ? 7 : (uint64_t)p->node + 10);
		return;
	}
	bind_floats(p, "acc", FLOATS * (size_t)(w->most ? w->most : 1));
}

/* What the server has logged, once more. Each worker's values have come in their order, and `all` of them. */
static void replay(struct sim *s, const struct world *w, int64_t all)
{
	const struct peer *p = at(s, w->workers);
	uint32_t most = w->most ? w->most : 1;
	float *acc = xcalloc((size_t)FLOATS * most, sizeof(float)), *d = xcalloc(FLOATS, sizeof(float));
	float *have[NODES_MAX], *c[NODES_MAX];
	int64_t next[NODES_MAX] = { 0 };

	for (uint32_t k = 0; k < w->workers; k++) {
		have[k] = xcalloc(FLOATS, sizeof(float));
		floats(c[k] = xcalloc(FLOATS, sizeof(float)), FLOATS, k + 10);
	}
	for (uint32_t k = 0; k < p->ntook; k++)
		for (uint32_t n = 0; n < p->took[k].n; n++) {
			uint32_t from = p->took[k].peer[n];

			sim_check(s, p->took[k].n <= most && from < w->workers && p->took[k].index[n] == next[from]++);
			vec_copy(&w->par, FLOATS, c[from], d);
			vec_axpy(&w->par, FLOATS, PUSH, have[from], d);
			vec_axpy(&w->par, FLOATS, STEP, c[from], have[from]);
			vec_axpy(&w->par, FLOATS, STEP, d, acc + (size_t)n * FLOATS);
		}
	sim_check(s, !memcmp(acc, bound(p, "acc"), (size_t)FLOATS * most * sizeof(float)));
	for (uint32_t k = 0; k < w->workers; k++) {
		bool odd = w->liar[k] || (k == 0 && (w->outsider || w->odd_length));

		if (w->quorum > 1)              /* what one alone has at the end is never taken */
			sim_in_time(s, odd || next[k] >= all);
		else
			sim_check(s, odd || next[k] >= all);
		free(have[k]);
		free(c[k]);
	}
	free(acc);
	free(d);
}

static bool made(struct sim *s, void *arg)
{
	const struct world *w = arg;

	for (uint32_t k = 0; k < w->workers; k++) {
		const struct peer *p = at(s, k);
		bool odd = k == 0 && (w->outsider || w->odd_length);

		if (!w->liar[k] && (odd ? !p->troubles : p->commits < w->steps || carry_open(p->carry)))
			return false;
	}
	return true;
}

static const struct world stream = { .n = 4, .workers = 3, .steps = 12, .plan = feed, .bind = feed_bind };

static void run(struct sim *s, struct world *w, uint64_t limit_us)
{
	open_world(s, w);
	go(s, w);
	sim_await(s, made, w, limit_us);
	sim_run_for(s, w->liar[0] ? 20000000 : 100000); /* the server's last step */
	sim_check(s, at(s, w->workers)->troubles == 0);
}

/* Each has four values on offer all the time. */
static void scn_in_turn(struct sim *s)
{
	struct world w = stream;
	uint32_t n[3] = { 0 };

	run(s, &w, 30000000);
	replay(s, &w, 12);
	for (uint32_t k = 0; k < 18; k++)
		n[at(s, 3)->took[k].peer[0]]++;
	sim_in_time(s, n[0] >= 4 && n[1] >= 4 && n[2] >= 4);
	close_world(&w);
}

static bool first_made(struct sim *s, void *arg)
{
	return at(s, 0)->commits == 12;
}

/* Who is slow comes into fewer batches, and two are enough after a while. */
static void scn_batches(struct sim *s)
{
	struct world w = stream;
	uint32_t of[4] = { 0 }, n[3] = { 0 };

	w.quorum = 2;
	w.most = 3;
	w.within_us = 3000;
	open_world(s, &w);
	sim_link(s, 2, 3, &(struct sim_link){ 40000, 20, 0, 0 });
	go(s, &w);
	(void)sim_run_until(s, made, &w, 60000000);     /* not when the last value is one's alone */
	sim_await(s, first_made, NULL, 0);
	for (uint32_t k = 0; k < at(s, 3)->ntook; k++) {
		of[at(s, 3)->took[k].n]++;
		for (uint32_t i = 0; i < at(s, 3)->took[k].n && k < 8; i++)
			n[at(s, 3)->took[k].peer[i]]++;
	}
	sim_check(s, of[1] == 0);
	sim_in_time(s, of[2] > 0 && n[2] < n[0] && n[2] < n[1]);
	replay(s, &w, 5);
	close_world(&w);
}

/* The same indexes by two: each counts once, and both go on. */
static void scn_unique(struct sim *s)
{
	struct world w = stream;
	bool seen[12] = { false };
	uint32_t all = 0;

	w.unique = true;
	w.most = 1 + sim_seed(s) % 3;
	run(s, &w, 30000000);
	for (uint32_t k = 0; k < at(s, 3)->ntook; k++)
		for (uint32_t n = 0; n < at(s, 3)->took[k].n; n++, all++) {
			int64_t j = at(s, 3)->took[k].index[n];

			sim_check(s, j >= 0 && j < 12 && !seen[j]);
			seen[j] = true;
		}
	sim_check(s, all == 12);
	for (uint32_t k = 0; k < 3; k++)
		sim_check(s, at(s, k)->troubles == 0);
	close_world(&w);
}

static void scn_outsider(struct sim *s)
{
	struct world w = stream;

	w.outsider = true;
	w.deadline_us = 3000000;
	run(s, &w, 30000000);
	sim_check(s, at(s, 0)->error.code == ERR_TIMEOUT);
	replay(s, &w, 12);
	close_world(&w);
}

static void scn_other_length(struct sim *s)
{
	struct world w = stream;

	w.odd_length = true;
	run(s, &w, 3000000);
	sim_check(s, at(s, 0)->error.code == ERR_MISMATCH);
	sim_check(s, strstr(at(s, 0)->error.text, "36000 bytes are taken, it has 18000"));
	replay(s, &w, 12);
	close_world(&w);
}

static bool server_done(struct sim *s, void *arg)
{
	return at(s, 3)->troubles && at(s, 3)->commits >= (((const struct world *)arg)->strict ? 1 : 3);
}

/* Two are wanted, and there are three, then no more: a value of what has come, or an error; of nothing no value. */
static void too_few(struct sim *s, bool strict)
{
	struct world w = stream;

	w.quorum = w.most = 2;
	w.silent = 200000;
	w.steps = 3;
	w.strict = strict;
	open_world(s, &w);
	go(s, &w);
	sim_await(s, server_done, &w, 5000000);
	sim_check(s, at(s, 3)->troubles == 1 && at(s, 3)->commits == (strict ? 1 : 3));
	sim_check(s, at(s, 3)->error.code == ERR_TIMEOUT &&
		strstr(at(s, 3)->error.text, strict ? "1 of 2 have come" : "0 of 2 have come"));
	if (!strict)
		replay(s, &w, 0);
	close_world(&w);
}

static void scn_too_few(struct sim *s) { too_few(s, false); }
static void scn_too_few_strict(struct sim *s) { too_few(s, true); }

/* --- worker 0 lies */

struct lies { uint32_t kind, serial; struct peer *p; struct timer timer; bool told; uint32_t asked, refused; };

static void lie(void *arg, struct request *r)
{
	static const json_int_t bytes[] = { FLOATS * 4, (json_int_t)1 << 41, 8, FLOATS * 4, FLOATS * 4, FLOATS * 4, -1 };
	struct lies *l = arg;
	uint32_t k = l->kind % 10;
	struct err e;

	l->serial++;
	if (k == 7) {
		(void)err_set(&e, ERR_BUSY, "no");
		net_refuse(r, &e);
	} else if (k == 8) {
		net_reply(r, json_pack("{s:s,s:[i,i]}", "s", "x", "b", 1, 2), NO_BLOB);
	} else if (k == 9) {
		net_reply(r, json_object(), NO_BLOB);
	} else {
		net_reply(r, json_pack("{s:I,s:I,s:I,s:I,s:I,s:I}", "b", (json_int_t)(k == 5 ? l->serial : 1), "s",
			(json_int_t)(k == 4 ? 1 : l->serial), "i", (json_int_t)l->serial, "m",
			(json_int_t)(k == 3 ? (json_int_t)1 << 33 : 0), "v", (json_int_t)-5, "n", bytes[k]), NO_BLOB);
	}
}

static void told(void *arg, const struct frame *f, const struct err *e)
{
	struct lies *l = arg;

	l->told = l->told || (f && json_object_get(f->json, "s"));
	l->refused += e && e->code == ERR_FULL;
}

/* It asks everybody for everything, other people's values among it. */
static void ask(struct timer *t)
{
	struct lies *l = container_of(t, struct lies, timer);
	const struct world *w = l->p->world;
	struct id run = { { 5 } };
	char label[16];

	for (uint32_t k = 1; k < w->n; k++)
		for (int n = 0; n < 3; n++, l->asked++) {
			(void)snprintf(label, sizeof(label), l->asked % 5 ? "x%u" : "d", l->asked);
			(void)net_call(l->p->net, &w->id[k], KIND_PLAN_DATA, json_pack("{s:o,s:I,s:s,s:I,s:I,s:I,s:s}", "run",
				json_hex(run.b, 32), "g", (json_int_t)1, "l", label, "b", (json_int_t)0, "a", (json_int_t)0, "d",
				(json_int_t)(l->asked % 7), "w", "because"), NO_BLOB, CLASS_control, 9000000, told, l);
		}
	env_after(l->p->env, &l->timer, l->asked < 1000 ? 5000 : 500000);
}

static void begin_lies(struct peer *p)
{
	struct lies *l = p->lies = xcalloc(1, sizeof(*l));

	*l = (struct lies){ .kind = (uint32_t)p->world->seed, .p = p, .timer = { .fire = ask, .name = "lies" } };
	net_on(p->net, KIND_PLAN_DATA, lie, l);
	ask(&l->timer);
}

static void end_lies(struct peer *p)
{
	env_timer(p->env, &((struct lies *)p->lies)->timer, 0);
}

/* The others get through, in not much more time, and nobody is told what is not for it. */
static void scn_liar(struct sim *s)
{
	struct world w = stream;
	const struct lies *l;

	w.liar[0] = true;
	w.lie = begin_lies;
	w.unlie = end_lies;
	w.most = 2;
	w.within_us = 2000;
	run(s, &w, 60000000);
	l = at(s, 0)->lies;
	sim_check(s, !l->told);
	for (uint32_t k = 1; k < 4; k++)
		sim_check(s, at(s, k)->troubles == 0);
	for (uint32_t k = 0; k < at(s, 3)->ntook; k++)
		for (uint32_t n = 0; n < at(s, 3)->took[k].n; n++)
			sim_check(s, at(s, 3)->took[k].peer[n] != 0);
	replay(s, &w, 12);
	close_world(&w);
}

/* So many questions are held, and no more. */
static bool refused(struct sim *s, void *arg)
{
	return ((const struct lies *)at(s, 0)->lies)->refused > 0;
}

static void scn_flood(struct sim *s)
{
	struct world w = stream;

	w.liar[0] = true;
	w.lie = begin_lies;
	w.unlie = end_lies;
	w.steps = 100;
	open_world(s, &w);
	go(s, &w);
	sim_await(s, refused, &w, 30000000);
	sim_await(s, made, &w, 60000000);
	close_world(&w);
}

/* --- a transfer of which some has come is cancelled by who receives it and taken anew, as a RECV of any does */

static void over(void *arg, struct xfer *x, const struct err *e) { *(int *)arg += e ? 100 : 1; }

static bool both_over(struct sim *s, void *arg) { return ((const int *)arg)[0] && ((const int *)arg)[1]; }

static void nothing(struct peer *p) { }

static void scn_taken_anew(struct sim *s)
{
	struct world w = { .n = 2, .liar = { true, true }, .lie = nothing };
	size_t len = (size_t)2 << 20;
	char *out = xcalloc(2, len), *data = out + len;
	struct id tag = { { 9 } };
	int ends[2] = { 0 }, *sent = &ends[0], *come = &ends[1];
	struct xfer *x;

	open_world(s, &w);
	sim_link(s, -1, -1, &(struct sim_link){ 500, 100, 50000000, 0 });
	for (size_t k = 0; k < len; k++)
		data[k] = (char)rng_at(1, k);
	(void)xfer_send(at(s, 0)->chunks, &w.id[1], &tag, data, len, CLASS_weight, 0, over, sent);
	x = xfer_recv(at(s, 1)->chunks, &w.id[0], &tag, out, len, 0, over, come);
	for (uint64_t turn = 0; turn < 3; turn++) {
		uint64_t some = 1 + rng_below(sim_rng(s), len - 300000);

		for (int k = 0; k < 20000 && !*come && xfer_bytes(x) < some; k++)
			sim_run_for(s, 100);
		xfer_cancel(x);
		x = xfer_recv(at(s, 1)->chunks, &w.id[0], &tag, out, len, 0, over, come);
	}
	sim_run_for(s, 2000000);
	sim_await(s, both_over, ends, 0);
	sim_check(s, *come == 1 && *sent == 1 && !memcmp(out, data, len));
	free(out);
	close_world(&w);
}

static const struct scn list[] = { SCN(in_turn), SCN(batches), SCN(unique), SCN(outsider), SCN(other_length),
	SCN(too_few), SCN(too_few_strict), SCN(liar), SCN(flood), SCN(taken_anew), { 0 } };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
