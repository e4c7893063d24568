/* What a peer that only dials out can make this daemon keep for it: answers that wait at the door, and answers in case
 * they are asked for again. Both are bounded in number and bytes, have their time, and leave others their share. */
#include "t.h"
#include "net/inner.h"
#include "../sim/net_app.h"

#define BLOB (200 * 1024)
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

/* A call of the client's that comes by the mailbox: nothing at the door shows that it takes its answers. */
static void knock(struct bed *b, enum kind k)
{
	uint64_t request = b->to->next_request++;
	struct header h = { .pre = { .version = 1, .kind = k, .flags = FLAG_CALL, .oldest = 1,
		.length = (uint32_t)frame_bytes(0, 0, false) }, .request = request, .boot = b->client->net->conf.boot_id,
		.span = (uint32_t)(request - b->first), .chan = CHAN_CTRL, .sender = *net_self(b->client->net) };
	uint8_t wire[HEADER_BYTES + AEAD_TAG];

	session_seal(peer_session(b->to), &h, 1000, NULL, 0, wire);
	b->a->env->recv(b->a->env->recv_arg, (struct via){ .chan = CHAN_CTRL }, wire, h.pre.length);
}

/* Its connection has taken a frame and says nothing more. */
static void stand(struct bed *b)
{
	b->p->door_busy = true;
	env_timer(b->a->env, &b->p->door_timer, 0);
}

static void test_answers(void **state)
{
	struct bed *b = *state;

	stand(b);
	for (int i = 0; i < 3 * DOOR_WAIT_MAX; i++)
		knock(b, KIND_PING);
	assert_true(list_len(&b->p->door_queue) <= DOOR_WAIT_MAX);
	assert_int_equal(b->a->net->count.door_dropped, 3 * DOOR_WAIT_MAX - list_len(&b->p->door_queue));
	assert_int_equal(b->p->door_frames, list_len(&b->p->door_queue));
	/* the newest are there, and nothing waits for ever */
	assert_int_equal(list_entry(b->p->door_queue.prev, struct out, wait)->m->request, b->to->next_request - 1);
	sim_run_for(b->s, 10000000);
	assert_true(list_empty(&b->p->door_queue));
	assert_int_equal(b->p->door_frames + b->p->door_bytes + b->a->net->door_bytes, 0);
	assert_true(asks(b, 1) && asks(b, 2));
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
	assert_true(b->p->lanes && b->p->door_frames <= DOOR_WAIT_BYTES / BLOB + 4);    /* it was asked for lanes */
	assert_true(b->p->door_bytes <= DOOR_WAIT_BYTES && b->p->door_bytes > DOOR_WAIT_BYTES / 2);
	assert_true(taken > 100 && refused > 100);
	assert_int_equal(b->a->net->count.door_dropped, refused);
	door_give_up(b->p);
	assert_int_equal(b->p->door_frames + b->p->door_bytes + b->a->net->door_bytes, 0);
}

/* Whatever many others have taken, a part of what is left is this one's, and it leaves as much. */
static void test_all(void **state)
{
	struct bed *b = *state;
	size_t others = DOOR_ALL_BYTES - 20 * BLOB;
	int taken = 0;

	stand(b);
	b->a->net->door_bytes += others;
	for (int i = 0; i < 20; i++)
		taken += !post(b);
	assert_in_range(taken, 8, 10);
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
	assert_true(b->p->cached_bytes <= CACHED_PEER_BYTES && b->p->cached_bytes > CACHED_PEER_BYTES / 2);
	assert_int_equal(other->cached_bytes, before);
	assert_true(b->a->net->cached_bytes <= CACHED_PEER_BYTES + 100000);
	assert_int_equal(list_len(&b->p->cached), CACHED_PEER_BYTES / BLOB);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = { T(test_answers), T(test_bytes), T(test_all), T(test_cache) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
