/* What is called and posted to a run's averager goes to who handles it. Also the small change of messages: endpoints,
 * events, measured times. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "avg/int.h"
#include "avg/audit.h"
#include "avg/proof.h"
#include "avg/sent.h"
#include "common/jrpc.h"

#define HANDLERS(X) X(JOIN, join_on) X(PROGRESS, progress_on) X(BEGIN, member_begin_on) \
	X(ATTEMPT, member_attempt_on) X(MISSING, member_missing_on) X(COMMIT, member_commit_on) X(RECOVER, recover_on) \
	X(LEAVE, leave_on) X(PROPOSE, propose_on) X(GRANT, grant_on) X(REDIRECT, redirect_on) X(SHOW, show_on) \
	X(PROOF, proof_on) X(SENT, sent_on) X(AUDIT, audit_on) X(WRONG, wrong_on)

static const enum kind kinds[] = {
#define X(kind, fn) KIND_AVG_##kind,
	HANDLERS(X)
#undef X
};

static void hand(void *avg, struct request *req)
{
	switch (req->f.kind) {
#define X(kind, fn) case KIND_AVG_##kind: fn(avg, req); break;
	HANDLERS(X)
#undef X
	default: break;
	}
}

int hub_enter(struct avg *a, struct err *e)
{
	if (by_run_enter(&a->hub, a->net, kinds, sizeof kinds / sizeof *kinds, &a->conf.run, hand, a, e))
		return err_wrap(e, "averaging");
	return 0;
}

void hub_leave(struct avg *a)
{
	by_run_leave(&a->hub);
}

json_t *hub_json(const struct avg *a)
{
	return json_pack("{s:s}", "run", a->hex);
}

void hub_event(struct avg *a, enum log_level level, const char *code, const struct id *peer, const char *fmt, ...)
{
	char text[256];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	if (a->cb.event)
		a->cb.event(a->arg, level, code, peer, text);
}

json_t *json_endpoint(const struct endpoint *at)
{
	uint8_t v[22];
	memcpy(v, at->ip, 16);
	for (int i = 0; i < 3; i++) {
		v[16 + 2 * i] = (uint8_t)(at->port[i] >> 8);
		v[17 + 2 * i] = (uint8_t)at->port[i];
	}
	return json_hex(v, sizeof v);
}

bool endpoint_of(const json_t *o, const char *key, struct endpoint *ret)
{
	uint8_t v[22];
	if (json_get_hex(o, key, v, sizeof v, NULL))
		return false;
	memcpy(ret->ip, v, 16);
	for (int i = 0; i < 3; i++)
		ret->port[i] = (uint16_t)(v[16 + 2 * i] << 8 | v[17 + 2 * i]);
	return true;
}

bool id_of_json(const json_t *o, const char *key, struct id *ret)
{
	return !json_get_hex(o, key, ret->b, 32, NULL);
}

/* ---- measured times ---- */

#define SHORT_MAX 5                             /* a third and half of that again */
#define MEASURED 5                              /* times; fewer say nothing */

void times_add(struct times *t, uint64_t us)
{
	t->v[t->n++ % TIMES] = us;
	if (t->n >= MEASURED)
		t->least_us = 0;
}

void times_short(struct times *t, uint64_t times, uint64_t us, uint64_t unmeasured_us)
{
	uint64_t least = us * (times < 2 ? 2 : times > SHORT_MAX ? SHORT_MAX : times);
	least = least < 16 * unmeasured_us ? least : 16 * unmeasured_us;
	t->least_us = least > t->least_us ? least : t->least_us;
}

uint64_t times_deadline(const struct times *t, uint64_t floor_us, uint64_t unmeasured_us)
{
	uint64_t worst = 0, least = t->least_us > floor_us ? t->least_us : floor_us;
	unsigned n = t->n < TIMES ? t->n : TIMES;
	for (unsigned i = 0; i < n; i++)
		if (t->v[i] > worst)
			worst = t->v[i];
	if (n < MEASURED)
		return unmeasured_us > least ? unmeasured_us : least;
	return worst * 3 > least ? worst * 3 : least;
}
