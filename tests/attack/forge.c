/* A member of a run that forges: it is welcomed by JOIN as anybody is, brings nothing, and says what is not its to say:
 * who leads, what is decided, how fast to learn, that all others are behind; copies for the table, and asks for states
 * that it does not take. The simulator tells many more (tests/sim/liar.h); these meet a daemon's own sockets. */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "wire.h"
#include "avg/wire.h"
#include "common/hash.h"
#include "common/jrpc.h"
#include "dht/values.h"

#define TIMES 40
static struct id run_id;
static const char *run_hex;
static uint64_t epoch, len;
static uint8_t prev[DIGEST];
static unsigned answers, refusals;

static json_t *head(void)
{
	return json_pack("{s:s}", "run", run_hex);
}

static json_t *at_point(uint64_t term)
{
	json_t *j = head();

	json_object_set_new(j, "term", json_integer((json_int_t)term));
	json_object_set_new(j, "epoch", json_integer((json_int_t)epoch));
	json_object_set_new(j, "prev", json_hex(prev, DIGEST));
	return j;
}

static bool say(int fd, enum kind k, json_t *j, struct buf *b)
{
	int rc = ask(fd, k, j, b, NULL);

	answers += rc >= 0;
	refusals += rc == 0;
	return rc >= 0;
}

/* Where the daemon stands, of which everybody may ask. */
static bool look(int fd)
{
	json_t *j = NULL;
	bool ok = ask(fd, KIND_AVG_SHOW, head(), NULL, &j) == 1 && !json_get_u64(j, "epoch", &epoch, NULL) &&
		!json_get_hex(j, "prev", prev, DIGEST, NULL);

	json_decref(j);
	return ok;
}

static void join(int fd, bool ahead)
{
	json_t *j = at_point(0);
	uint8_t other[DIGEST] = { 7 };

	if (ahead) {
		json_object_set_new(j, "epoch", json_integer((json_int_t)epoch + 1000000));
		json_object_set_new(j, "prev", json_hex(other, DIGEST));
	}
	json_object_set_new(j, "samples", json_integer(ahead ? (json_int_t)1 << 40 : 0));
	json_object_set_new(j, "flags", json_integer(0));
	json_object_set_new(j, "micro", json_integer(UINT32_MAX));
	json_object_set_new(j, "in", json_boolean(ahead));
	json_object_set_new(j, "leading", json_boolean(ahead));
	json_object_set_new(j, "shows", json_boolean(ahead));
	say(fd, KIND_AVG_JOIN, j, NULL);
}

/* Of the two of them, of which it is the leader unless said. */
static void body(int fd, enum kind k, const struct id *leader, json_t *j)
{
	struct body b = { .what = k == KIND_AVG_BEGIN ? BODY_BEGIN : BODY_COMMIT, .run = run_id, .leader = *leader,
		.epoch = epoch + (k == KIND_AVG_COMMIT), .len = len, .rows = 1, .params = json_pack("{s:f}", "lr", 9.0),
		.params_version = 1, .ready_us = 1000000, .data_us = 1000000 };
	struct buf bytes = { 0 };
	uint8_t sig[SIG_BYTES];

	memcpy(b.prev, prev, DIGEST);
	b.n = 2;
	b.m = calloc(b.n, sizeof *b.m);
	b.m[0].id = daemon_id;
	b.m[1].id = me.id;
	if (b.what == BODY_COMMIT) {
		b.m[1].flags = MATE_IN;
		b.m[1].samples = b.weight = 16;
		ranges_add(&b.m[1].claimed, 5000000, 5000016);
	}
	b.part = calloc(2, sizeof *b.part);
	b.parts = 1;
	b.part[0] = (struct wire_part){ .owner = 1, .len = len };
	body_encode(&b, &bytes);
	body_free(&b);
	signer_sign(&me, bytes.p, bytes.len, sig);
	buf_put(&bytes, sig, SIG_BYTES);
	buf_u16(&bytes, 0);
	say(fd, k, j, &bytes);
}

/* The daemon says how long its vector is when somebody has another. */
static void ask_len(int fd)
{
	struct buf bytes = { 0 };
	struct body b = { .what = BODY_BEGIN, .run = run_id, .leader = me.id, .len = 7, .rows = 1,
		.params = json_object() };
	json_t *j = NULL;
	const char *text, *here;

	b.n = b.parts = 1;
	b.m = calloc(1, sizeof *b.m);
	b.m[0].id = me.id;
	b.part = calloc(2, sizeof *b.part);
	b.part[0] = (struct wire_part){ .len = 7 };
	body_encode(&b, &bytes);
	body_free(&b);
	buf_put(&bytes, prev, DIGEST);
	buf_put(&bytes, prev, DIGEST);
	buf_u16(&bytes, 0);
	ask(fd, KIND_AVG_BEGIN, head(), &bytes, &j);
	text = json_string_value(json_object_get(j, "text"));
	here = text ? strstr(text, "here ") : NULL;
	if (!here)
		die(text ? text : "no answer to BEGIN");
	len = strtoull(here + 5, NULL, 10);
	json_decref(j);
}

static void propose(int fd, uint64_t nonce)
{
	json_t *j = head(), *patch = json_pack("{s:f}", "lr", 9.0);
	struct buf b = { 0 };
	uint8_t sig[SIG_BYTES];

	buf_put(&b, run_id.b, 32);
	buf_u64(&b, nonce);
	buf_u64(&b, epoch + 1);
	wire_put_json(&b, patch);
	signer_sign(&me, b.p, b.len, sig);
	buf_free(&b);
	json_object_set_new(j, "author", json_hex(me.id.b, 32));
	json_object_set_new(j, "nonce", json_integer((json_int_t)nonce));
	json_object_set_new(j, "epoch", json_integer((json_int_t)epoch + 1));
	json_object_set_new(j, "sig", json_hex(sig, SIG_BYTES));
	json_object_set_new(j, "patch", patch);
	say(fd, KIND_AVG_PROPOSE, j, &(struct buf){ 0 });
}

/* A copy of a value of 16 KiB under a key of its own: that nobody is in the run, or anything. */
static void copy(int fd, unsigned i)
{
	struct rec r = { .rank = UINT32_MAX, .life_ms = 600000, .ends_us = 600000000 };
	struct buf b = { 0 };
	char key[64 + ID_HEX], *value = malloc(16000);

	snprintf(key, sizeof key, i % 2 ? "run:%s:peers" : "run:%s:%u", run_hex, i);
	sha256_of(key, strlen(key), r.key.b);
	memset(value, 'x', 16000);
	value[0] = value[15999] = '"';
	r.value = value;
	r.vlen = 16000;
	buf_u16(&b, 1);
	buf_put(&b, r.key.b, 32);
	rec_write(&b, &r, 0);
	free(value);
	say(fd, KIND_DHT_STORE, json_pack("{s:b}", "copy", 1), &b);
}

static void begin(int fd, const char *run)
{
	run_hex = run;
	if (strlen(run) != 64 || id_parse(&run_id, run, NULL))
		die("RUN is the run's id, 64 digits");
	if (!look(fd))
		die("no run of that id there");
	ask_len(fd);
}

void forge(int fd, const char *run)
{
	begin(fd, run);
	for (unsigned i = 0; i < TIMES; i++) {
		if (!look(fd))
			die("the daemon does not answer any more");
		join(fd, false);
		join(fd, true);
		body(fd, KIND_AVG_COMMIT, &me.id, at_point(0));
		body(fd, KIND_AVG_BEGIN, &me.id, at_point(0));
		say(fd, KIND_AVG_RECOVER, at_point(i % 2 ? UINT32_MAX : 1000), NULL);
		propose(fd, i);
		copy(fd, i);
		say(fd, KIND_RUN_STATE, json_pack("{s:s,s:i}", "run", run_hex, "from", 0), NULL);
		poll(NULL, 0, 20);
	}
	printf("%u answers, %u refusals\n", answers, refusals);
}

/* In the daemon's own name, without its signature: as long as it listens. */
void forge_signed(int fd, const char *run)
{
	unsigned n = 0;

	begin(fd, run);
	for (answers = 1; answers && n < 300; n++) {
		answers = 0;
		body(fd, KIND_AVG_COMMIT, &daemon_id, at_point(0));
	}
	printf("heard %u times\n", n);
}
