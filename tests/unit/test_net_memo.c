/* Names of transfers that a receiver remembers: a share for each sender, and none that has lost its meaning. */
#include "common/jrpc.h"
#include "common/xxh.h"
#include "net_bed.h"
#include "net/chunk_int.h"

static struct xfer_key key_of(const struct id *peer, unsigned n)
{
	struct xfer_key k = { .peer = *peer };

	k.tag.b[0] = (uint8_t)n;
	k.tag.b[1] = (uint8_t)(n >> 8);
	return k;
}

/* One sender names thousands: another's name is remembered. So it is in the memory of all when hundreds do a little. */
static void test_shares(void **state)
{
	struct id a = { .b = { 1 } }, many = { .b = { 2 } };
	struct xfer_key first = key_of(&a, 7);
	struct memos m;

	memos_init(&m, 5);
	memo_put(&m, &first, 3, NULL);
	for (unsigned i = 0; i < 3 * MEMOS_MAX; i++) {
		struct xfer_key k = key_of(&many, i);

		memo_put(&m, &k, i, NULL);
	}
	assert_non_null(memo_get(&m, &first));
	assert_int_equal(map_len(m.map), 1 + MEMOS_PEER_MAX);
	for (unsigned i = 0; i < 3 * MEMOS_MAX; i++) {
		struct xfer_key k = key_of(&many, i);

		assert_int_equal(memo_get(&m, &k) != NULL, i >= 3 * MEMOS_MAX - MEMOS_PEER_MAX);
	}
	memo_put(&m, &first, 4, NULL);          /* again: one memo, the new one */
	assert_int_equal(memo_get(&m, &first)->serial, 4);
	assert_int_equal(map_len(m.map), 1 + MEMOS_PEER_MAX);
	for (unsigned i = 0; i < 2 * MEMOS_MAX; i++) {
		struct id x = { .b = { 3, (uint8_t)i, (uint8_t)(i >> 8) } };
		struct xfer_key k = key_of(&x, i);

		memo_put(&m, &k, i, NULL);
		assert_true(map_len(m.map) <= MEMOS_MAX && map_len(m.peers) <= MEMOS_MAX);
	}
	memos_free(&m);
}

/* A sender that has restarted counts from 1 again: what was over before says nothing of what it sends now. */
static void test_restart(void **state)
{
	struct bed *b = *state;
	struct id other = { .b = { 9 } };
	struct xfer_key k = key_of(net_self(b->a->net), 1), o = key_of(&other, 1);
	struct chunks *c = b->b->chunks;

	memo_put(&c->over, &k, 1, NULL);
	memo_put(&c->waits, &k, 1, NULL);
	memo_put(&c->over, &o, 1, NULL);
	sim_restart(b->s, 0);
	b->a = sim_app(b->s, 0);
	net_app_know(b->s, 0, 1);
	assert_true(ask(b, b->a, b->b, 2).ok);
	assert_int_equal(b->b->news[NEWS_RESTARTED], 1);
	assert_null(memo_get(&c->over, &k));
	assert_null(memo_get(&c->waits, &k));
	assert_non_null(memo_get(&c->over, &o));
}

#define PART (256 * 1024)
enum { PARTS = 120 };

struct lines { unsigned answered, whole; };
static void on_part(void *arg, const struct frame *f, const struct err *e)
{
	struct lines *l = arg;

	l->answered++;
	l->whole += f && json_is_true(json_object_get(f->json, "d"));
}

static void send_part(struct bed *b, const struct id *tag, uint8_t *data, unsigned i, const char *hash, struct lines *l)
{
	json_t *j = json_pack("{s:o,s:i,s:I,s:I}", "t", json_hex(tag->b, 32), "s", 1, "o", (json_int_t)i * PART, "n",
		(json_int_t)(hash ? PARTS : 5) * PART);

	if (i == PARTS - 1)
		json_object_set_new(j, "h", json_string(hash));
	net_call(b->a->net, net_self(b->b->net), KIND_CHUNK, j,
		(struct blob){ .data = data + (size_t)i * PART, .len = PART }, CLASS_weight, 5000000, on_part, l);
}

/* A part of it has come in small chunks when its sender begins anew with large ones: of the old ones nothing stays,
 * also when the sending has the number that it had (a sender that has restarted counts from 1 again). */
static void test_other_chunks(void **state)
{
	enum { LEN = 5 * PART };
	struct bed *b = *state;
	static uint8_t data[LEN], out[LEN];
	uint8_t digest[16];
	XXH128_canonical_t canonical;

	for (int same = 0; same < 2; same++) {
		struct id tag = { .b = { 10, (uint8_t)same } };
		struct moved m = { .times = 0 };
		struct lines l = { 0, 0 };

		memset(data, 1, LEN);
		memset(out, 0, LEN);
		xfer_recv(b->b->chunks, net_self(b->a->net), &tag, out, LEN, 0, net_app_moved, &m);
		for (unsigned i = 0; i < 4; i++)        /* all but the last; as large ones, all but half of them */
			send_part(b, &tag, data, i, NULL, &l);
		sim_run_for(b->s, 200000);
		assert_true(l.answered == 4 && !m.times);
		for (size_t i = 0; i < LEN; i++)
			data[i] = (uint8_t)(i * 2654435761u >> 13);
		XXH128_canonicalFromHash(&canonical, XXH3_128bits(data, LEN));
		memcpy(digest, canonical.digest, 16);
		for (size_t at = 0; at < LEN; at += 2 * PART) {
			bool last = at + 2 * PART >= LEN;
			json_t *j = json_pack("{s:o,s:i,s:I,s:I,s:i}", "t", json_hex(tag.b, 32), "s", same ? 1 : 2, "o",
				(json_int_t)at, "n", (json_int_t)LEN, "z", 2 * PART);

			if (last)
				json_object_set_new(j, "h", json_hex(digest, 16));
			net_call(b->a->net, net_self(b->b->net), KIND_CHUNK, j,
				(struct blob){ .data = data + at, .len = last ? LEN - at : 2 * PART }, CLASS_weight, 5000000, on_part,
				&l);
		}
		sim_run_for(b->s, 200000);
		assert_true(l.answered == 7 && l.whole == 1);
		assert_true(m.times == 1 && m.ok);
		assert_memory_equal(data, out, LEN);
	}
}

/* The first piece comes last: what it lets the receiver hash is hashed some at a time, whatever becomes of it
 * meanwhile. */
static void test_first_last(void **state)
{
	struct bed *b = *state;
	uint8_t *data = malloc(PARTS * PART), *out = malloc(PARTS * PART), digest[16];
	XXH128_canonical_t canonical;
	char hash[33];

	for (size_t i = 0; i < PARTS * PART; i++)
		data[i] = (uint8_t)(i * 2654435761u >> 13);
	XXH128_canonicalFromHash(&canonical, XXH3_128bits(data, PARTS * PART));
	memcpy(digest, canonical.digest, 16);
	for (int i = 0; i < 16; i++)
		snprintf(hash + 2 * i, 3, "%02x", digest[i]);
	for (int how = 0; how < 3; how++) {             /* to its end; cancelled in the middle; corrupt */
		struct id tag = { .b = { 9, (uint8_t)how } };
		struct moved m = { .times = 0 };
		struct lines l = { 0, 0 };
		struct xfer *x = xfer_recv(b->b->chunks, net_self(b->a->net), &tag, out, PARTS * PART, 0, net_app_moved, &m);
		unsigned steps = 0;

		if (how == 2)
			hash[0] ^= 1;
		for (unsigned i = PARTS; i-- > 0;) {
			send_part(b, &tag, data, i, hash, &l);
			sim_run_for(b->s, 200000);
			assert_true(!i || x->hashed == 0);
			assert_true(!i || l.answered == PARTS - i);
			if (i == 1)                     /* the rest is looked at step by step */
				break;
		}
		send_part(b, &tag, data, 0, hash, &l);
		for (uint64_t before = 0; steps < 100000 && !m.times; steps++) {
			sim_run_for(b->s, 1);
			if (m.times)
				break;
			assert_true(x->hashed - before <= 16);
			before = x->hashed;
			if (how == 1 && x->hashed) {
				xfer_cancel(x);
				break;
			}
		}
		sim_run_for(b->s, 1000000);
		assert_int_equal(l.answered, PARTS);
		assert_int_equal(l.whole, how == 0);
		assert_int_equal(m.times, how != 1);
		assert_true(how || (m.ok && !memcmp(out, data, PARTS * PART)));
		assert_true(how != 2 || (!m.ok && m.code == ERR_CORRUPT));
	}
	free(data);
	free(out);
}

struct mute { unsigned parts, questions; };
static void says_nothing(void *arg, struct request *r)
{
	struct mute *n = arg;

	if (!r->wants_reply)
		return;
	if (json_is_true(json_object_get(r->f.json, "q")))
		n->questions++;
	else
		n->parts++;
	net_reply(r, json_pack("{s:i}", "c", 6), NO_BLOB);
}

/* Who acknowledges every piece and never that it has them all gets them again, but not without a pause. */
static void test_never_whole(void **state)
{
	enum { FOUR = 4 * PART, SECONDS = 3 };
	struct bed *b = *state;
	uint8_t *data = calloc(1, FOUR);
	struct id tag = { .b = { 10 } };
	struct moved m = { .times = 0 };
	struct mute n = { 0, 0 };

	net_on(b->b->net, KIND_CHUNK, says_nothing, &n);
	xfer_send(b->a->chunks, net_self(b->b->net), &tag, data, FOUR, CLASS_weight,
		sim_now(b->s) + SECONDS * 1000000, net_app_moved, &m);
	sim_run_for(b->s, (SECONDS + 1) * 1000000);
	assert_true(m.times == 1 && !m.ok && m.code == ERR_TIMEOUT);
	if (n.parts < 10 || n.parts > SECONDS * 10 * 5 || !n.questions)
		fail_msg("%u pieces and %u questions in %d seconds", n.parts, n.questions, SECONDS);
	free(data);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_shares), T(test_restart), T(test_other_chunks),
		T(test_first_last), T(test_never_whole) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
