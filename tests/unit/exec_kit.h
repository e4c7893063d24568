/* Runs the paper plans of plan_kit.h with the executor of train/ in virtual time and holds it against the predictor:
 * the programs test_exec_* are the sources of test_plan_* again, compiled with -DKIT_EXEC. The world here (clock,
 * lanes, links, mail, collectives) is written anew from predict.h's words. */
#ifndef TESTS_EXEC_KIT_H
#define TESTS_EXEC_KIT_H
#include "exec_mail.h"

static inline int x_plan(void *arg, const struct plan_results *r, uint64_t first, struct plan *ret, struct err *e)
{
	struct xpeer *p = arg;

	if (p->planned) {
		p->over = true;
		plan_init(ret, "none", p->rank, p->plan->nmembers, p->plan->member);
		return 0;
	}
	json_t *j = plan_to_json(p->plan);
	int rc = plan_from_json(ret, j, e);

	json_decref(j);
	p->planned = true;
	if (p->world->conf->iterations)
		ret->iterations = p->world->conf->iterations;
	return rc;
}

static inline void x_log(void *arg, const char *line, size_t len)
{
	struct xpeer *p = arg;
	const char *kind = strstr(line, "\"kind\":\"");

	if (!strstr(line, "\"ev\":\"end\"") || !kind)
		return;
	p->finish = p->world->now;
	for (int k = 0; k < PLAN_KINDS_COUNT; k++)
		if (!strncmp(kind + 8, plan_kind_name((enum plan_kind)k), strcspn(kind + 8, "\"")) &&
		    !plan_kind_name((enum plan_kind)k)[strcspn(kind + 8, "\"")])
			p->ran[k]++;
}

static inline void x_broken(void *arg, const struct err *e) { fail_msg("executor: %s", e->text); }

static inline void x_die(struct timer *t)
{
	struct xdone *d = container_of(t, struct xdone, t);
	struct xworld *w = d->p->world;

	d->p->dead = true;
	for (uint32_t i = 0; i < w->n; i++)
		if (!w->peer[i].dead)
			x_deliver(&w->peer[i]);
	free(d);
}

static inline void kit_compare(const struct kit *k, const struct xworld *w)
{
	for (uint32_t i = 0; i < k->n; i++) {
		const struct predict_peer *o = &k->out.peer[i];
		const struct xpeer *p = &w->peer[i];
		struct exec_view v;

		exec_view(p->x, &v);
		if (o->died)
			continue;
		if ((p->finish ? p->finish - X0 : 0) != o->finish_us)
			fail_msg("peer %u ends at %llu us, predicted %llu", i, (unsigned long long)p->finish,
				(unsigned long long)o->finish_us);
		assert_int_equal(v.arena_peak_bytes, o->peak[0]);       /* T5 */
		for (int t = 0; t <= PLAN_FILE; t++)
			assert_int_equal(v.tier[t].peak_bytes, o->peak[t]);
		for (int c = 0; c < PLAN_CLASSES_COUNT; c++) {          /* T4 */
			assert_int_equal(p->sent[c], o->sent[c]);
			assert_int_equal(p->received[c], o->received[c]);
		}
		for (int c = 0; c < PLAN_KINDS_COUNT; c++)
			assert_int_equal(p->ran[c], o->ran[c]);
		assert_true(p->over == o->finished);
	}
}

static inline void x_close(struct xworld *w)
{
	for (uint32_t i = 0; i < w->n; i++) {
		struct xpeer *p = &w->peer[i];

		list_each_safe(it, &p->mail)
			free(list_entry(it, struct xmail, link));
		list_each_safe(it, &p->waits) {
			struct xwait *v = list_entry(it, struct xwait, link);

			heap_set(&w->heap, &v->limit, 0);
			free(v->from);
			free(v->want);
			free(v);
		}
		free(p->seen);
	}
	for (uint32_t i = 0; i < w->n; i++) {
		w->peer[i].dead = true;
		exec_free(w->peer[i].x, NULL, NULL);
	}
	for (struct timer *t; (t = heap_pop(&w->heap)); )
		t->fire(t);
	list_each_safe(it, &w->limbo) {         /* jobs end unheard */
		struct xdone *d = list_entry(it, struct xdone, link);

		d->job->done(d->job);
		free(d);
	}
	heap_done(&w->heap);
	free(w->peer);
}

static inline void kit_execute(struct kit *k)
{
	static const struct env_ops env_ops = { .now = x_now, .timer = x_arm, .work = x_work, .lane = x_lane };
	static const struct exec_ops ops = { .load = x_load, .net = x_net, .cancel = x_cancel };
	const struct exec_cb cb = { .plan = x_plan, .log = x_log, .broken = x_broken };
	struct xworld w = { .n = k->n, .conf = &k->conf, .nmembers = k->plan[0].nmembers, .now = X0 };

	heap_init(&w.heap);
	list_init(&w.limbo);
	list_init(&w.ends);
	w.peer = xcalloc(k->n, sizeof(*w.peer));
	for (uint32_t i = 0; i < k->n; i++) {
		struct xpeer *p = &w.peer[i];
		struct exec_conf conf = { .env = &p->env, .profile = &k->profile, .ops = &ops, .ops_arg = p,
			.speed = k->conf.speed ? k->conf.speed[k->plan[i].me] : 1 };

		*p = (struct xpeer){ .env = { .ops = &env_ops }, .k = k, .world = &w, .plan = &k->plan[i],
			.rank = k->plan[i].me };
		list_init(&p->mail);
		list_init(&p->waits);
		if (k->conf.hooks)
			conf.hooks = &k->conf.hooks[p->rank];
		p->x = exec_new(&conf, &cb, p);
		exec_wake(p->x);
		if (k->conf.dies_at_us && k->conf.dies_at_us[p->rank]) {
			struct xdone *d = xcalloc(1, sizeof(*d));

			*d = (struct xdone){ .t = { .fire = x_die }, .p = p };
			heap_set(&w.heap, &d->t, X0 + k->conf.dies_at_us[p->rank]);
		}
	}
	/* Everything that ends at one instant ends before anything starts, as in the predictor. */
	for (struct timer *t; (t = heap_peek(&w.heap)) && !(k->conf.horizon_us && t->at_us > X0 + k->conf.horizon_us); ) {
		w.now = t->at_us > w.now ? t->at_us : w.now;
		for (uint32_t i = 0; i < k->n; i++)
			exec_hold(w.peer[i].x, true);
		for (; t && t->at_us <= w.now; t = heap_peek(&w.heap)) {
			(void)heap_pop(&w.heap);
			t->fire(t);
		}
		for (uint32_t i = 0; i < k->n; i++)
			exec_hold(w.peer[i].x, w.peer[i].dead);
	}
	kit_compare(k, &w);
	x_close(&w);
}

#endif
