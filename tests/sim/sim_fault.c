/* What a scenario does to its world: kills, pauses, cuts, broken links, full disks, jumping clocks, fail points. */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "common/hash.h"
#include "sim_int.h"

void sim_kill(struct sim *s, int node) { sim_stop(s->node[node], false); }
void sim_power_off(struct sim *s, int node) { sim_stop(s->node[node], true); }

void sim_restart(struct sim *s, int node)
{
	sim_stop(s->node[node], false);
	sim_start(s->node[node]);
}

void sim_pause(struct sim *s, int node)
{
	sim_mark(s, "pause", (uint64_t)node, 0);
	s->node[node]->paused = true;
	sim_wake(s->node[node]);
}

void sim_resume(struct sim *s, int node)
{
	sim_mark(s, "resume", (uint64_t)node, 0);
	s->node[node]->paused = false;
	sim_wake(s->node[node]);
}

bool sim_alive(const struct sim *s, int node) { return s->node[node]->alive && !s->node[node]->dying; }
int sim_nodes(const struct sim *s) { return s->nodes; }
void *sim_app(struct sim *s, int node) { return s->node[node]->self; }
struct env *sim_env(struct sim *s, int node) { return &s->node[node]->env; }
const struct endpoint *sim_endpoint(const struct sim *s, int node) { return &s->node[node]->at; }
uint64_t sim_seed(const struct sim *s) { return s->seed; }
uint64_t sim_now(const struct sim *s) { return s->now; }
struct rng *sim_rng(struct sim *s) { return &s->rng; }
struct sim_costs *sim_costs(struct sim *s) { return &s->costs; }
void sim_burn(struct env *env, uint64_t us) { snode_of(env)->burn += us; }
uint64_t sim_hash(const struct sim *s) { return s->hash; }
void sim_stats(const struct sim *s, struct sim_stats *ret) { *ret = s->stats; }
const char *sim_failed(const struct sim *s) { return s->failed[0] ? s->failed : NULL; }
const char *sim_was_late(const struct sim *s) { return s->late[0] ? s->late : NULL; }
const char *sim_trouble(const struct sim *s) { return s->failed[0] ? s->failed : sim_was_late(s); }

int sim_node_of(const struct sim *s, const struct env *env)
{
	for (int i = 0; i < s->nodes; i++)
		if (&s->node[i]->env == env)
			return i;
	return -1;
}

void sim_link(struct sim *s, int from, int to, const struct sim_link *l)
{
	struct rule *r = xcalloc(1, sizeof(*r));

	*r = (struct rule){ .from = from, .to = to, .l = *l };
	list_push(&s->rules, &r->link);
	for (int f = 0; f < s->nodes; f++)
		for (int t = 0; t < s->nodes; t++) {
			struct pair *p = s->pair[f * SIM_NODES_MAX + t];
			if (p && (from < 0 || from == f) && (to < 0 || to == t))
				p->l = *l;
		}
}

void sim_line(struct sim *s, const int *nodes, int n, uint64_t latency_us, uint64_t bytes_per_s)
{
	assert(s->nlines < SIM_LINES_MAX && bytes_per_s);
	s->lines[s->nlines++] = (struct line){ .latency_us = latency_us, .bytes_per_s = bytes_per_s };
	for (int i = 0; i < n; i++)
		s->node[nodes[i]]->line = s->nlines;
}

void sim_break(struct sim *s, int a, int b)
{
	sim_mark(s, "break", (uint64_t)a, (uint64_t)b);
	for (bool again = true; again;) {       /* breaking one may free another: look from the start each time */
		again = false;
		list_each(i, &s->pipes) {
			struct pipe *p = list_entry(i, struct pipe, all);
			if (p->owner && ((p->from == a && p->to == b) || (p->from == b && p->to == a))) {
				simnet_break(s, p);
				again = true;
				break;
			}
		}
	}
}

void sim_cut(struct sim *s, int from, int to)
{
	sim_mark(s, "cut", (uint64_t)from, (uint64_t)to);
	for (int f = from < 0 ? 0 : from; f < (from < 0 ? s->nodes : from + 1); f++)
		for (int t = to < 0 ? 0 : to; t < (to < 0 ? s->nodes : to + 1); t++)
			if (f != t)
				s->cut[f * SIM_NODES_MAX + t] = 1;
}

void sim_cut_both(struct sim *s, int a, int b)
{
	sim_cut(s, a, b);
	sim_cut(s, b, a);
}

void sim_partition(struct sim *s, const int *side, int n)
{
	sim_mark(s, "split", (uint64_t)n, 0);
	for (int f = 0; f < n; f++)
		for (int t = 0; t < n; t++)
			if (side[f] != side[t])
				s->cut[f * SIM_NODES_MAX + t] = 1;
}

void sim_heal(struct sim *s)
{
	sim_mark(s, "heal", 0, 0);
	for (int i = 0; i < s->nodes; i++)
		memset(s->cut + (size_t)i * SIM_NODES_MAX, 0, (size_t)s->nodes);
	simnet_release(s);
}

void sim_address(struct sim *s, int node, const struct endpoint *at, bool up)
{
	uint8_t key[18];

	sim_mark(s, up ? "up" : "down", (uint64_t)node, at->ip[15]);
	memcpy(key, at->ip, 16);
	for (int c = 0; c < CHANS; c++) {
		memcpy(key + 16, &at->port[c], 2);
		map_del(s->ports, key, sizeof(key));
		if (up && at->port[c])
			map_put(s->ports, key, sizeof(key), s->node[node]);
	}
	list_each(i, &s->pipes) {
		struct pipe *p = list_entry(i, struct pipe, all);

		if (p->to != node || !p->owner || memcmp(p->owner->to.ip, at->ip, 16))
			continue;
		if (up) {                       /* those of before are reset at their next message */
			p->mute = false;
			if (p->notice.at_us)
				heap_set(&s->heap, &p->notice, s->now + 2 * simpipe_delay(s, p->from, p->to));
			continue;
		}
		simpipe_lose(p, 0);
		p->dead = p->mute = true;
	}
}

void sim_files_fail(struct sim *s, int node, int nth, enum err_code code)
{
	s->node[node]->disk.fail_in = nth;
	s->node[node]->disk.fail_code = code;
	s->node[node]->struck = false;
}

void sim_files_kill(struct sim *s, int node, int nth)
{
	s->node[node]->disk.kill_in = nth;
	s->node[node]->struck = false;
}

void sim_disk_full(struct sim *s, int node, int64_t free_bytes) { s->node[node]->disk.free = free_bytes; }

void sim_shelf_fail(struct sim *s, int node, int nth, enum err_code code)
{
	s->node[node]->cupboard.fail_in = nth;
	s->node[node]->cupboard.fail_code = code;
	s->node[node]->struck = false;
}

/* The allocator knows no node: who runs is who asks. */
static int starve(void *arg, size_t bytes, int big)
{
	struct sim *s = arg;
	if (!big || s->on != s->starved || s->starve_in <= 0 || --s->starve_in > 0)
		return 0;
	s->starved->struck = true;
	return -1;
}

void sim_memory_fail(struct sim *s, int node, int nth)
{
	s->starved = nth ? s->node[node] : NULL;
	s->starve_in = nth;
	s->node[node]->struck = false;
	mem_set_fault(nth ? starve : NULL, s);
}

bool sim_struck(const struct sim *s, int node) { return s->node[node]->struck; }

void sim_wall_jump(struct sim *s, int node, int64_t ms) { s->node[node]->wall_ms += ms; }

void sim_failpoint(struct sim *s, int node, const char *point, enum sim_fate fate, int nth)
{
	struct failpoint *f = xcalloc(1, sizeof(*f));
	*f = (struct failpoint){ .node = node, .fate = fate, .left = nth };
	snprintf(f->name, sizeof(f->name), "%s", point);
	list_push(&s->failpoints, &f->link);
}

void sim_failpoint_of(struct sim *s, sim_who_fn *who, void *arg, const char *point, enum sim_fate fate, int nth)
{
	sim_failpoint(s, -1, point, fate, nth);
	struct failpoint *f = list_entry(s->failpoints.prev, struct failpoint, link);
	f->who = who;
	f->arg = arg;
}

bool sim_failpoint_hit(const struct sim *s, const char *point)
{
	list_each(i, &s->failpoints) {
		struct failpoint *f = list_entry(i, struct failpoint, link);
		if (f->hit && !strcmp(f->name, point))
			return true;
	}
	return false;
}

void sim_after_event(struct sim *s, int (*check)(struct sim *s, void *arg, struct err *e), void *arg)
{
	if (s->nchecks == SIM_CHECKS_MAX)
		sim_fail(s, "more than %d checks", SIM_CHECKS_MAX);
	else
		s->checks[s->nchecks++] = (struct check){ check, arg };
}

void sim_at_end(struct sim *s, void (*fn)(void *arg), void *arg)
{
	struct last *x = xcalloc(1, sizeof *x);
	*x = (struct last){ .fn = fn, .arg = arg };
	list_push(&s->lasts, &x->link);
}

void sim_lasts(struct sim *s)
{
	struct list *l;
	while ((l = list_pop(&s->lasts))) {
		struct last *x = list_entry(l, struct last, link);
		x->fn(x->arg);
		free(x);
	}
}

void sim_tap(struct sim *s, void (*fn)(void *arg, int from, int to, enum chan chan, const uint8_t *wire, size_t len),
	void *arg)
{
	s->tap = fn;
	s->tap_arg = arg;
}

/* ---- hash ---- */
void sim_trace(struct sim *s, const void *p, size_t n) { s->hash = siphash(s->hash, 0x73696d, p, n); }

void sim_mark(struct sim *s, const char *what, uint64_t a, uint64_t b)
{
	uint64_t rec[4] = { s->now, 0, a, b };
	memcpy(&rec[1], what, strlen(what) < 8 ? strlen(what) : 8);
	sim_trace(s, rec, sizeof(rec));
}

static void say_once(char verdict[VERDICT], const char *fmt, va_list ap)
{
	if (!verdict[0])
		vsnprintf(verdict, VERDICT, fmt, ap);
}

void sim_fail(struct sim *s, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	say_once(s->failed, fmt, ap);
	va_end(ap);
}

void sim_late(struct sim *s, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	say_once(s->late, fmt, ap);
	va_end(ap);
}

void sim_told(struct sim *s, const struct sim *own)
{
	if (own->failed[0])
		sim_fail(s, "%s", own->failed);
	if (own->late[0])
		sim_late(s, "%s", own->late);
}

void sim_told_of(struct sim *s, const struct sim *own, const char *fmt, ...)
{
	char words[200];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(words, sizeof(words), fmt, ap);
	va_end(ap);
	if (own->failed[0])
		sim_fail(s, "%s: %s", words, own->failed);
	if (own->late[0])
		sim_late(s, "%s: %s", words, own->late);
}

bool sim_comes(struct sim *s, bool (*cond)(struct sim *s, void *arg), void *arg, uint64_t limit_us, uint64_t *late_us)
{
	uint64_t until = s->now + limit_us;
	bool came = sim_run_until(s, cond, arg, limit_us) || (!s->failed[0] && sim_run_until(s, cond, arg, SIM_NEVER_US));
	*late_us = s->now > until ? s->now - until : 0;
	return came;
}

bool sim_await_at(struct sim *s, bool (*cond)(struct sim *s, void *arg), void *arg, uint64_t limit_us, const char *file,
	int line, const char *what)
{
	return sim_await_or(s, cond, arg, limit_us, "%s:%d: not %s", file, line, what);
}

bool sim_await_or(struct sim *s, bool (*cond)(struct sim *s, void *arg), void *arg, uint64_t limit_us,
	const char *fmt, ...)
{
	char words[400];
	va_list ap;
	uint64_t late;
	va_start(ap, fmt);
	vsnprintf(words, sizeof(words), fmt, ap);
	va_end(ap);
	if (!sim_comes(s, cond, arg, limit_us, &late)) {
		sim_fail(s, "%s", words);
		return false;
	}
	if (late)
		sim_late(s, "%s, for %llu ms too long", words, (unsigned long long)(late / 1000));
	return true;
}

/* ---- scripts ---- */

static void script_fire(struct timer *t)
{
	struct script *c = container_of(t, struct script, t);
	list_del(&c->link);
	c->sim->touched = SIM_ANYBODY;
	c->fn(c->sim, c->arg);
	free(c);
}

void sim_at(struct sim *s, uint64_t at_us, void (*fn)(struct sim *s, void *arg), void *arg)
{
	struct script *c = xcalloc(1, sizeof(*c));
	c->sim = s;
	c->fn = fn;
	c->arg = arg;
	c->t.fire = script_fire;
	list_push(&s->scripts, &c->link);
	heap_set(&s->heap, &c->t, at_us < s->now ? s->now : at_us);
}
