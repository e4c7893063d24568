/* What peers tell of their histories: whole, thinned by leaps, forgotten, cut off and garbage; against plain arrays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "avg/fork.h"
#include "common/rng.h"

#define ROUNDS 400

static uint64_t no_time(struct env *e) { return 1; }
static const struct env_ops ops = { .now = no_time };
static struct env env = { .ops = &ops };

/* The digest of an epoch of branch b. */
static void digest_of(uint64_t epoch, uint64_t b, uint8_t out[DIGEST])
{
	memset(out, 0, DIGEST);
	for (size_t i = 0; epoch && i < DIGEST; i++)
		out[i] = (uint8_t)(rng_at(epoch * 7919 + b, i) >> 13);
}

/* A peer at `to` of branch b, which left branch 0 behind epoch `parted`; it remembers from `from` on. */
static struct avg *peer(uint64_t from, uint64_t parted, uint64_t b, uint64_t to)
{
	struct avg *a = xcalloc(1, sizeof *a);
	a->env = &env;
	a->kicked = true;                       /* nobody listens */
	for (uint64_t e = from; e <= to; e++) {
		a->point.epoch = a->point.samples = e;
		digest_of(e, e > parted ? b : 0, a->point.prev);
		past_add(a);
	}
	return a;
}

static void done(struct avg *a)
{
	free(a->was);
	free(a->tail);
	free(a);
}

/* The loser is at the winner's point already, as when it is welcomed. */
static void move(struct avg *a, const struct avg *to)
{
	a->point.epoch = to->point.epoch;
	a->point.samples = to->point.samples;
	memcpy(a->point.prev, to->point.prev, DIGEST);
}

/* It makes the epoch that the other has made. */
static void follow(struct avg *a, const struct avg *as, uint64_t epoch)
{
	a->point.epoch = a->point.samples = epoch;
	memset(a->point.prev, 0, DIGEST);
	memcpy(a->point.prev, past_of(as, epoch)->mark, PAST_MARK);
	past_add(a);
}

static void forks(void **state)
{
	struct rng r;
	rng_seed(&r, 1);
	for (int k = 0; k < ROUNDS; k++) {
		uint64_t parted = rng_below(&r, 60), mine = parted + 1 + rng_below(&r, 30);
		uint64_t theirs = mine + 1 + rng_below(&r, 1400);
		struct avg *x = peer(rng_below(&r, parted + 1), parted, 1, mine);
		struct avg *y = peer(rng_below(&r, parted + 1), parted, 2, theirs), *z = peer(0, 1000000, 0, parted);
		struct buf b = { 0 }, c = { 0 };
		past_put(y, &b);
		past_put(x, &c);
		bool told = theirs < HISTORY + parted;
		if (told) {
			struct avg_point *px = &x->point, *py = &y->point;
			assert_int_equal(past_compare(x, py->epoch, py->prev, py->samples, b.p, b.len), REL_FORK_LOST);
			assert_int_equal(past_compare(y, px->epoch, px->prev, px->samples, c.p, c.len), REL_FORK_WON);
			assert_int_equal(past_compare(y, z->point.epoch, z->point.prev, parted, NULL, 0), REL_BEHIND);
		}
		move(x, y);
		past_welcomed(x, b.p, b.len);
		if (told) {
			assert_true(x->forked_pending);
			assert_int_equal(x->forked, parted);
		} else {                        /* it is kept or given up in part, never more than is known */
			assert_true(!x->forked_pending || x->forked >= parted);
		}
		/* From now on x knows what y told, and tells it to the next. */
		struct buf d = { 0 };
		past_put(x, &d);
		assert_int_equal(d.len, b.len);
		assert_memory_equal(d.p, b.p, b.len);
		buf_free(&b);
		buf_free(&c);
		buf_free(&d);
		done(x);
		done(y);
		done(z);
	}
}

/* Who leapt has gaps, which say nothing; who enters further back forgets what came after. */
static void leaps(void **state)
{
	struct avg *x = peer(0, 10, 1, 20), *y = peer(0, 10, 1, 50);
	struct buf b = { 0 };
	move(x, y);
	past_enter(x);
	assert_non_null(x->was);
	assert_null(past_of(x, 20));
	past_put(y, &b);
	past_welcomed(x, b.p, b.len);           /* the same history: nothing is lost */
	assert_false(x->forked_pending);
	assert_null(x->was);
	for (uint64_t e = 0; e <= 50; e++)
		assert_non_null(past_of(x, e));
	assert_null(past_of(x, 51));
	struct avg *z = peer(0, 10, 1, 30);
	move(y, z);
	past_enter(y);
	assert_null(y->was);
	assert_non_null(past_of(y, 30));
	assert_null(past_of(y, 31));
	buf_free(&b);
	done(x);
	done(y);
	done(z);
}

static struct avg_point point_of(const struct avg *a)
{
	struct avg_point p;
	avg_point_init(&p);
	p.epoch = a->point.epoch;
	memcpy(p.prev, a->point.prev, DIGEST);
	p.params = json_object();
	avg_past_of(a, &p);
	return p;
}

static void knows_as(const struct avg *a, const struct avg *b)
{
	struct buf x = { 0 }, y = { 0 };
	past_put(a, &x);
	past_put(b, &y);
	assert_int_equal(x.len, y.len);
	assert_memory_equal(x.p, y.p, x.len);
	buf_free(&x);
	buf_free(&y);
}

/* A state that is given comes with what led to it: that takes the place of all that the loser had, once, whether it has
 * followed meanwhile or not, and nobody has to tell it again. */
static void given(void **state)
{
	for (unsigned k = 0; k < 4; k++) {
		bool follows = k & 1, elsewhere = k & 2;
		struct avg *x = peer(0, 10, 1, 20), *y = peer(0, 10, 2, 50), *z = peer(0, 5, 3, 40);
		struct buf b = { 0 };
		uint64_t common = 0;
		past_put(elsewhere ? z : y, &b);
		x->follower = true;
		past_enter(x);
		if (follows) {                  /* the state comes of another history, perhaps, than it has followed */
			move(x, elsewhere ? z : y);
			past_welcomed(x, b.p, b.len);
		}
		struct avg_point at = point_of(y), here = point_of(x);
		assert_true(avg_given(x, &at, &common));
		assert_int_equal(common, 10);
		x->follower = false;
		move(x, y);
		avg_point_copy(&x->point, &at);
		past_enter(x);
		assert_null(x->was);
		knows_as(x, y);
		past_welcomed(x, NULL, 0);
		past_welcomed(x, b.p, b.len);
		assert_false(x->forked_pending);
		assert_false(avg_given(x, &at, &common));       /* its own: nothing is lost */
		assert_null(x->point.past);
		avg_point_done(&at);
		avg_point_done(&here);
		avg_point_done(&x->point);
		buf_free(&b);
		done(x);
		done(y);
		done(z);
	}
}

/* It is welcomed where z is, and what is committed then is y's. */
static void follow_on(struct avg *x, struct avg *z, struct avg *y)
{
	struct buf b = { 0 };
	past_put(z, &b);
	move(x, z);
	past_welcomed(x, b.p, b.len);
	buf_free(&b);
	for (uint64_t e = 16; e <= 25; e++)
		follow(x, y, e);
}

/* A state of its own history, from before its newest: nothing is lost by that. What comes on top of it then is what was
 * there, or its owner hears from where on it is not; also when it has passed while this peer only followed. */
static void back(void **state)
{
	for (unsigned k = 0; k < 8; k++) {
		bool other = k & 1, follows = k & 2, before = k & 4;    /* before: it has passed when the state comes */
		struct avg *x = peer(0, 100, 1, 20), *y = peer(0, 17, other ? 2 : 0, 25), *z = peer(0, 100, 1, 15);
		struct avg_point at = point_of(z);
		uint64_t common = 0;
		bool lost;
		x->follower = follows;
		past_enter(x);
		if (before && follows)
			follow_on(x, z, y);
		assert_false(x->forked_pending);
		if (k % 3 == 1) {               /* once more before it goes on */
			lost = avg_given(x, &at, &common);
			x->follower = false;
			if (!lost && !(before && follows)) {
				avg_point_copy(&x->point, &at);
				past_enter(x);
			}
		}
		lost = avg_given(x, &at, &common);
		assert_int_equal(lost, before && follows && other);
		assert_true(!lost || common == 17);
		x->follower = false;
		if (!(before && follows)) {
			avg_point_copy(&x->point, &at);
			past_enter(x);
			for (uint64_t e = 16; e <= 25; e++) {
				follow(x, y, e);
				assert_int_equal(x->forked_pending, other && e > 17);
			}
			assert_true(!other || (x->forked == 17 && x->forked_last == 20));
		} else {
			past_enter(x);          /* where it has come to by following */
			assert_int_equal(x->forked_pending, 0);
		}
		assert_null(x->tail);
		avg_point_done(&at);
		avg_point_done(&x->point);
		done(x);
		done(y);
		done(z);
	}
}

/* It follows a history that leads past its own, is given an earlier point of it, and goes on from there by another:
 * whom it followed is gone. */
static void followed_in_vain(void **state)
{
	struct avg *x = peer(0, 100, 1, 20), *y = peer(0, 100, 1, 25), *z = peer(0, 100, 1, 15), *w = peer(0, 15, 2, 25);
	struct avg_point at = point_of(z);
	uint64_t common;
	x->follower = true;
	past_enter(x);
	follow_on(x, z, y);
	assert_false(avg_given(x, &at, &common));
	x->follower = false;
	avg_point_copy(&x->point, &at);
	past_enter(x);
	assert_false(x->forked_pending);
	for (uint64_t e = 16; e <= 25; e++) {
		follow(x, w, e);
		assert_true(x->forked_pending && x->forked == 15 && x->forked_last == 20);
	}
	assert_null(x->tail);
	avg_point_done(&at);
	avg_point_done(&x->point);
	done(x);
	done(y);
	done(z);
	done(w);
}

/* Of one who does not tell: the first who does is believed, not the first who says nothing. */
static void not_told(void **state)
{
	struct avg *x = peer(0, 10, 1, 20), *y = peer(0, 10, 2, 50);
	struct avg_point at = point_of(y);
	struct buf b = { 0 };
	uint64_t common;
	free(at.past);
	at.past = NULL;
	at.npast = 0;
	assert_false(avg_given(x, &at, &common));
	move(x, y);
	past_enter(x);
	past_welcomed(x, NULL, 0);
	assert_false(x->forked_pending);
	past_put(y, &b);
	past_welcomed(x, b.p, b.len);
	assert_true(x->forked_pending && x->forked == 10 && x->forked_last == 20);
	buf_free(&b);
	avg_point_done(&at);
	done(x);
	done(y);
}

/* With a point that travels or is saved; what cannot lead to it is refused. */
static void with_the_point(void **state)
{
	struct avg *y = peer(3, 10, 2, 1500);
	struct avg_point p = point_of(y), q;
	struct err e;
	avg_point_init(&q);
	json_t *j = avg_point_json(&p);
	assert_int_equal(avg_point_parse(&q, j, &e), 0);
	assert_int_equal(q.npast, 8 + 2 + HISTORY * PAST_MARK);
	assert_memory_equal(q.past, p.past, p.npast);
	for (size_t i = 0; i < 12; i++) {       /* another epoch, another number of them, another mark of the point */
		p.past[i] ^= 0x41;
		json_decref(j);
		j = avg_point_json(&p);
		assert_int_equal(avg_point_parse(&q, j, &e), -1);
		assert_non_null(strstr(e.text, "past"));
		p.past[i] ^= 0x41;
	}
	p.npast--;                              /* cut short */
	json_decref(j);
	j = avg_point_json(&p);
	assert_int_equal(avg_point_parse(&q, j, &e), -1);
	assert_int_equal(q.npast, 8 + 2 + HISTORY * PAST_MARK);
	p.prev[0] ^= 1;                         /* not of its history any more */
	avg_past_of(y, &p);
	assert_true(!p.past && !p.npast);
	json_decref(j);
	avg_point_done(&p);
	avg_point_done(&q);
	done(y);
}

static void garbage(void **state)
{
	struct rng r;
	rng_seed(&r, 2);
	struct avg *y = peer(3, 5, 2, 40);
	struct buf b = { 0 };
	past_put(y, &b);
	for (int k = 0; k < ROUNDS; k++) {
		struct avg *x = peer(0, 5, 1, 20);
		size_t n = (size_t)rng_below(&r, b.len + 1);
		uint8_t *v = malloc(n ? n : 1);         /* of the exact size, so that a read past the end is seen */
		memcpy(v, b.p, n);
		for (unsigned i = 0; n && i < (unsigned)k % 8; i++)
			v[rng_below(&r, n)] = (uint8_t)rng_u64(&r);
		past_compare(x, y->point.epoch, y->point.prev, y->point.samples, v, n);
		past_deeper(x, v, n);
		move(x, y);
		past_welcomed(x, v, n);
		assert_non_null(past_of(x, 40));
		uint64_t last = 0;
		for (size_t i = 0; i < x->past.n; i++) {        /* whatever was told, epochs ascend */
			assert_true(!i || x->past.v[i].epoch > last);
			last = x->past.v[i].epoch;
		}
		free(v);
		done(x);
	}
	buf_free(&b);
	done(y);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(forks), cmocka_unit_test(leaps), cmocka_unit_test(given),
		cmocka_unit_test(back), cmocka_unit_test(followed_in_vain), cmocka_unit_test(not_told),
		cmocka_unit_test(with_the_point), cmocka_unit_test(garbage) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
