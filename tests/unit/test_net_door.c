/* What a peer that only dials out can make this daemon keep for it: answers that wait at the door, and answers in case
 * they are asked for again. Both are bounded in number and bytes, have their time, and leave others their share. */
#include "t.h"
#include "net/inner.h"
#include "../sim/net_app.h"

#define BLOB (200 * 1024)
#define MIB ((size_t)1 << 20)
#define FRAMES 4096                     /* the table's figures (hivemind-protocol(7), Bounds), not the code's */
#define BYTES (32 * MIB)
#define ALL (256 * MIB)
#define OF_ONE (4 * MIB)                /* answers kept in case they are asked for again */
struct bed { struct sim *s; struct net_world w; struct net_app *a, *client; struct peer *p, *to; uint64_t first; };

static const uint8_t zeros[BLOB];

static bool one_ended(struct sim *s, void *arg) { return ((struct ended *)arg)->times; }

static bool asks(struct bed *b, int from)
{
	static struct ended d;

	memset(&d, 0, sizeof d);
	net_app_call(sim_app(b->s, from), net_self(b->a->net), 1, NO_BLOB, 3000000, &d);
	sim_run_until(b->s, one_ended, &d, 5000000);
	return d.ok;
}

static int setup(void **state)
{
	struct bed *b = calloc(1, sizeof *b);

	*state = b;
	b->s = sim_new(78);
	b->w.client[1] = true;
	b->a = net_app_add(b->s, &b->w);
	b->client = net_app_add(b->s, &b->w);
	net_app_add(b->s, &b->w);
	net_app_know(b->s, 1, 0);
	net_app_know(b->s, 2, 0);
	assert_true(asks(b, 1) && asks(b, 2));
	sim_run_for(b->s, 100000);
	b->p = peer_find(b->a->net, net_self(b->client->net));
	assert_true(b->p->client && b->p->door_token && !b->p->door_busy);
	b->to = peer_find(b->client->net, net_self(b->a->net));
	b->first = b->to->next_request;
	return 0;
}

static int teardown(void **state)
{
	struct bed *b = *state;

	assert_null(sim_failed(b->s));
	sim_free(b->s);
	free(b);
	return 0;
}

/* A call that comes by the mailbox; its caller, who is from `first` on without an answer, has node 0 as `to`. */
static void call(struct bed *b, struct net_app *caller, struct peer *to, uint64_t first, enum kind k)
{
	uint64_t request = to->next_request++;
	struct header h = { .pre = { .version = 1, .kind = k, .flags = FLAG_CALL, .oldest = 1,
		.length = (uint32_t)frame_bytes(0, 0, false) }, .request = request, .boot = caller->net->conf.boot_id,
		.span = (uint32_t)(request - first), .chan = CHAN_CTRL, .sender = *net_self(caller->net) };
	uint8_t wire[HEADER_BYTES + AEAD_TAG];

	session_seal(peer_session(to), &h, 1000, NULL, 0, wire);
	b->a->env->recv(b->a->env->recv_arg, (struct via){ .chan = CHAN_CTRL }, wire, h.pre.length);
}

/* The client's: nothing at the door shows that it takes its answers. */
static void knock(struct bed *b, enum kind k) { call(b, b->client, b->to, b->first, k); }

/* Its connection has taken a frame and says nothing more. Who looks every two seconds at what is over will do so
 * at once, and then not when five are. */
static void stand(struct bed *b)
{
	sim_run_for(b->s, b->a->net->tick.at_us - 1 - sim_now(b->s));
	b->p->door_busy = true;
	env_timer(b->a->env, &b->p->door_timer, 0);
}

static uint64_t first_waiting(struct bed *b)
{
	return list_entry(b->p->door_queue.next, struct out, wait)->m->request;
}

/* All that waits has been there since now, and so many in all will have been dropped. */
static void time_is_over(struct bed *b, uint64_t dropped)
{
	sim_run_for(b->s, 4999999);
	assert_int_equal(b->p->door_frames, FRAMES);
	sim_run_for(b->s, 1);
	assert_true(asks(b, 1));
	assert_int_equal(b->p->door_frames + b->p->door_bytes + b->a->net->door_bytes, 0);
	assert_int_equal(b->a->net->count.door_dropped, dropped);
}

static void test_answers(void **state)
{
	struct bed *b = *state;

	stand(b);
	for (int i = 0; i < 3 * FRAMES; i++)
		knock(b, KIND_PING);
	assert_int_equal(list_len(&b->p->door_queue), FRAMES);
	assert_int_equal(b->a->net->count.door_dropped, 2 * FRAMES);
	assert_int_equal(b->p->door_frames, FRAMES);
	/* the newest are there, and nothing waits for ever */
	assert_int_equal(first_waiting(b), b->to->next_request - FRAMES);
	assert_int_equal(list_entry(b->p->door_queue.prev, struct out, wait)->m->request, b->to->next_request - 1);
	time_is_over(b, 3 * FRAMES);
	assert_true(list_empty(&b->p->door_queue));
	assert_int_equal(b->p->door_frames + b->p->door_bytes + b->a->net->door_bytes, 0);
	assert_true(asks(b, 1) && asks(b, 2));
}

static int word(struct bed *b)
{
	return net_post(b->a->net, &b->p->id, KIND_RUN_STATE, NULL, NO_BLOB, CLASS_control);
}

/* Answers make room, the oldest first; without one, what comes last is dropped. */
static void test_order(void **state)
{
	struct bed *b = *state;
	uint64_t first = b->to->next_request;

	stand(b);
	for (int i = 0; i < 10; i++)
		knock(b, KIND_PING);
	for (int i = 10; i < FRAMES; i++)
		assert_int_equal(word(b), 0);
	for (unsigned i = 0; i < 10; i++) {
		assert_int_equal(b->p->door_frames, FRAMES);
		assert_int_equal(list_len(&b->p->door_answers), 10 - i);
		assert_int_equal(first_waiting(b), first + i);
		assert_int_equal(word(b), 0);
		assert_int_equal(b->a->net->count.door_dropped, i + 1);
	}
	assert_true(word(b));
	knock(b, KIND_PING);
	assert_int_equal(b->a->net->count.door_dropped, 12);
	assert_true(list_empty(&b->p->door_answers));
	time_is_over(b, FRAMES + 12);
}

static int post(struct bed *b)
{
	return net_post(b->a->net, &b->p->id, KIND_RUN_STATE, NULL, (struct blob){ .data = zeros, .len = BLOB },
		CLASS_weight);
}

static void test_bytes(void **state)
{
	struct bed *b = *state;
	int taken = 0, refused = 0;

	stand(b);
	for (int i = 0; i < 300; i++)
		*(post(b) ? &refused : &taken) += 1;
	assert_non_null(b->p->lanes);           /* it was asked for them */
	assert_int_equal(taken, BYTES / (BLOB + 500));
	assert_in_range(b->p->door_bytes, taken * BLOB, BYTES);
	assert_int_equal(refused, 300 - taken);
	assert_int_equal(b->a->net->count.door_dropped, refused);
	door_give_up(b->p);
	assert_int_equal(b->p->door_frames + b->p->door_bytes + b->a->net->door_bytes, 0);
}

/* Whatever many others have taken, a part of what is left is this one's, and it leaves as much. */
static void test_all(void **state)
{
	struct bed *b = *state;
	size_t others = ALL - 20 * BLOB;
	int taken = 0;

	stand(b);
	b->a->net->door_bytes += others;
	for (int i = 0; i < 20; i++)
		taken += !post(b);
	assert_int_equal(taken, 10);
	b->a->net->door_bytes -= others;
}

static void large(void *arg, struct request *r)
{
	net_reply(r, NULL, (struct blob){ .data = zeros, .len = BLOB });
}

static void test_cache(void **state)
{
	struct bed *b = *state;
	struct peer *other = peer_find(b->a->net, net_self(((struct net_app *)sim_app(b->s, 2))->net));
	size_t before = other->cached_bytes;

	assert_true(before > 0);
	net_on(b->a->net, KIND_DHT_GET, large, NULL);
	stand(b);
	for (int i = 0; i < 200; i++)
		knock(b, KIND_DHT_GET);
	assert_in_range(b->p->cached_bytes, OF_ONE - 2 * BLOB, OF_ONE);
	assert_int_equal(other->cached_bytes, before);
	assert_true(b->a->net->cached_bytes <= OF_ONE + 100000);
	assert_int_equal(list_len(&b->p->cached), OF_ONE / BLOB);
}

/* Six peers that each have their share: what is kept for all of them is less, and the first ones' goes; the rest when
 * its time is over, which is looked for every ten seconds or so. */
static void test_cache_of_all(void **state)
{
	struct bed *b = *state;
	struct net *n = b->a->net;
	const size_t most = 16 << 20;
	struct peer *p[6];

	net_on(n, KIND_DHT_GET, large, NULL);
	for (int i = 0; i < 6; i++) {
		struct net_app *x = net_app_add(b->s, &b->w);
		struct peer *to;

		net_app_know(b->s, 3 + i, 0);
		assert_true(asks(b, 3 + i));
		p[i] = peer_find(n, net_self(x->net));
		to = peer_find(x->net, net_self(n));
		for (uint64_t k = 0, first = to->next_request; k < 30; k++) {
			call(b, x, to, first, KIND_DHT_GET);
			assert_true(n->cached_bytes <= most);
		}
	}
	assert_true(n->cached_bytes > most - 2 * BLOB);
	assert_true(list_empty(&p[0]->cached));
	for (int i = 2; i < 6; i++)
		assert_int_equal(list_len(&p[i]->cached), OF_ONE / BLOB);
	sim_run_for(b->s, 29000000);
	assert_true(n->cached_bytes > most - 2 * BLOB);
	sim_run_for(b->s, 21000000);
	assert_int_equal(n->cached_bytes, 0);
	assert_true(list_empty(&n->cached) && list_empty(&p[5]->cached));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = { T(test_answers), T(test_order), T(test_bytes), T(test_all), T(test_cache),
		T(test_cache_of_all) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
