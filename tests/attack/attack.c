/* A member of the swarm that behaves badly towards a real daemon: it says HELLO over raw nanomsg sockets, then forges,
 * replays, reflects, flips, floods. usage: attack HOST PORT WHAT [RUN]. Prints what came back; the counters are the
 * daemon's. */
#include <arpa/inet.h>
#include <nanomsg/nn.h>
#include <nanomsg/pipeline.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "wire.h"
#include "common/hash.h"
#include "common/rng.h"

/* ---- attacks ---- */

static void forged(int fd)
{
	struct id other = { .b = { 1, 2, 3 } };
	uint8_t w[1024], a[1024];

	give(fd, w, seal(w, KIND_PING, 500, "", &other, false));
	printf("answers %d\n", hear(KIND_REPLY, a, sizeof a, 300) != 0);
}

static void replayed(int fd)
{
	uint8_t w[1024], a[1024];
	size_t n = ping(fd, w, a, sizeof a);
	int again = dial();

	for (int i = 0; i < 10; i++)
		give(again, w, n);
	printf("answers %d\n", hear(KIND_REPLY, a, sizeof a, 300) != 0);
}

static void reflected(int fd)
{
	uint8_t w[1024], a[1024];
	struct prelude p;

	ping(fd, w, a, sizeof a);
	prelude_read(&p, a, ((size_t)a[8] | (size_t)a[9] << 8));
	give(fd, a, p.length);                  /* its own frame, back to it */
	printf("answers %d\n", hear(KIND_REPLY, a, sizeof a, 300) != 0);
}

static void flipped(int fd)
{
	uint8_t w[1024], a[1024];
	size_t n = seal(w, KIND_PING, 900, "{}", &me.id, false);

	for (size_t i = 0; i < n; i++) {
		w[i] ^= 1;
		give(fd, w, n);
		w[i] ^= 1;
	}
	printf("answers %d\n", hear(KIND_REPLY, a, sizeof a, 300) != 0);
}

static void truncated(int fd)
{
	uint8_t w[1024], a[1024];
	size_t n = seal(w, KIND_PING, 900, "{}", &me.id, false);
	struct prelude p;

	prelude_read(&p, w, n);
	for (size_t i = PRELUDE_BYTES; i < n; i++) {
		give(fd, w, i);
		p.length = (uint32_t)i;                 /* and with a prelude that fits */
		prelude_write(&p, w);
		give(fd, w, i);
		p.length = (uint32_t)n;
		prelude_write(&p, w);
	}
	printf("answers %d\n", hear(KIND_REPLY, a, sizeof a, 300) != 0);
}

/* The last sealed comes first: of twenty one is answered. */
static void reordered(int fd)
{
	static uint8_t w[20][1024];
	uint8_t a[1024];
	size_t n[20];
	int answers = 0;

	for (unsigned i = 0; i < 20; i++)
		n[i] = seal(w[i], KIND_PING, 600 + i, "{}", &me.id, true);
	for (int i = 20; i--;)
		give(fd, w[i], n[i]);
	while (hear(KIND_REPLY, a, sizeof a, 500))
		answers++;
	printf("answers %d\n", answers);
}

/* Sealed with keys that the daemon does not have, under the session's own number. */
static void other_key(int fd)
{
	uint8_t w[1024], a[1024], dh[32] = { 5 }, transcript[32] = { 6 };
	struct session *mine = s;

	s = session_new(true, SUITE_CHACHA20_POLY1305, dh, swarm, transcript);
	s->id = mine->id;
	s->tx_counter[0] = mine->tx_counter[0];
	for (unsigned i = 0; i < 20; i++)
		give(fd, w, seal(w, KIND_PING, 700 + i, "{}", &me.id, i % 2));
	printf("answers %d\n", hear(KIND_REPLY, a, sizeof a, 300) != 0);
	session_unref(s);
	s = mine;
}

/* Larger than any frame: refused one by one; much larger: the connection breaks. Whatever else this member says goes
 * on. */
static void oversized(int fd)
{
	static uint8_t w[2 * WIRE_MAX];
	uint8_t a[1024];

	for (int i = 0; i < 20; i++)
		give(fd, w, WIRE_MAX + (i ? 65536 : 1));
	for (int i = 0; i < 20; i++) {
		int other = dial();

		nn_send(other, w, sizeof w, 0);
		poll(NULL, 0, 20);
		nn_close(other);
	}
	ping(fd, w, a, sizeof a);
	printf("answers 1\n");
}

static void stale(int fd)
{
	uint8_t w[1024], a[1024];
	unsigned resets = 0;

	ping(fd, w, a, sizeof a);               /* so that it knows where we are */
	s->id++;
	for (int i = 0; i < 200; i++)
		give(fd, w, seal(w, KIND_PING, 900, "{}", &me.id, false));
	/* one a second: an earlier attack may have had it */
	for (int i = 0; i < 10 && !resets; i++) {
		resets += hear(KIND_RESET, a, sizeof a, 300) != 0;
		if (!resets)
			give(fd, w, seal(w, KIND_PING, 900, "{}", &me.id, false));
	}
	while (hear(KIND_RESET, a, sizeof a, 300))
		resets++;
	printf("resets %u\n", resets);
}

static void braces(int fd)
{
	static char text[8200];
	static uint8_t w[16384];
	uint8_t a[1024];
	int refused = 0;

	for (int i = 0; i + 3 < 8190; i += 3)
		memcpy(text + i, "{},", 3);
	for (int i = 0; i < 50; i++)
		give(fd, w, seal(w, KIND_DHT_FIND, 100 + (uint64_t)i, text, &me.id, true));
	while (refused < 50 && hear(KIND_REFUSE, a, sizeof a, 3000))    /* closing loses what is still under way */
		refused++;
	printf("refusals %d\n", refused > 0);
}

/* Ten thousand a second, sealed and sound, until the daemon has had enough. */
static void flood(int fd)
{
	uint8_t w[1024], a[1024];
	int sent = 0;

	for (int i = 0; i < 65; i++) {
		for (int k = 0; k < 1000; k++, sent++)
			give(fd, w, seal(w, KIND_PING, 1000 + (uint64_t)sent, "{}", &me.id, true));
		poll(NULL, 0, 100);
	}
	while (hear(KIND_REPLY, a, sizeof a, 300))
		;
	give(fd, w, seal(w, KIND_PING, 90000, "{}", &me.id, true));
	printf("sent %d, then answers %d\n", sent, hear(KIND_REPLY, a, sizeof a, 500) != 0);
}

/* As much as goes through, until the daemon bans us and takes nothing more. */
static void torrent(int fd)
{
	int sent = 0, wait = 1000;
	uint8_t w[1024];

	nn_setsockopt(fd, NN_SOL_SOCKET, NN_SNDTIMEO, &wait, sizeof wait);
	for (size_t n; sent < 400000; sent++) {
		n = seal(w, KIND_PING, 1000 + (uint64_t)sent, "{}", &me.id, true);
		if (nn_send(fd, w, n, 0) != (int)n)
			break;
	}
	printf("sent %d\n", sent);
}

static void halves(int fd)
{
	struct buf b = {0};

	for (uint64_t i = 0; i < 10000; i++) {
		memcpy(priv + 8, &i, 8);
		make_m1(&b, i, swarm);
		give(fd, b.p, b.len);
	}
	buf_free(&b);
	printf("sent 10000\n");
}

static void wrong_key(int fd)
{
	uint8_t key[32] = { 99 }, a[1024];
	struct buf b = {0};

	make_m1(&b, 5, key);
	give(fd, b.p, b.len);
	printf("answers %d\n", hear(KIND_HELLO2, a, sizeof a, 500) != 0);
	buf_free(&b);
}

static void garbage(int fd)
{
	uint8_t w[2048];
	struct rng r;

	rng_seed(&r, 7);
	for (int i = 0; i < 5000; i++) {
		size_t n = 1 + rng_below(&r, sizeof w - 1);

		for (size_t k = 0; k < n; k++)
			w[k] = (uint8_t)rng_u64(&r);
		if (i % 2 && n >= PRELUDE_BYTES) {
			struct prelude p = { .version = 1, .kind = (uint16_t)rng_below(&r, 80), .length = (uint32_t)n };

			prelude_write(&p, w);
		}
		give(fd, w, n);
	}
	printf("sent 5000\n");
}

/* Connections that never say anything, each of which holds a descriptor of the daemon. */
static void idle(int fd)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	static int v[1000];
	int open = 0;

	inet_pton(AF_INET, host, &at.sin_addr);
	for (int i = 0; i < 1000; i++) {
		v[i] = socket(AF_INET, SOCK_STREAM, 0);
		open += v[i] >= 0 && !connect(v[i], (struct sockaddr *)&at, sizeof at);
	}
	printf("opened %d\n", open);
	poll(NULL, 0, 2500);                    /* what the daemon's sweep needs to see them */
	for (int i = 0; i < 1000; i++)
		close(v[i]);
}

int main(int argc, char **argv)
{
	static const struct { const char *name; void (*run)(int fd); bool member; } list[] = {
		{ "forged", forged, true }, { "replayed", replayed, true }, { "reflected", reflected, true },
		{ "flipped", flipped, true }, { "truncated", truncated, true }, { "reordered", reordered, true },
		{ "other_key", other_key, true }, { "oversized", oversized, true }, { "stale", stale, true },
		{ "braces", braces, true }, { "flood", flood, true }, { "torrent", torrent, true },
		{ "halves", halves, false }, { "wrong_key", wrong_key, false }, { "garbage", garbage, false },
		{ "idle", idle, false },
	};
	static const struct { const char *name; void (*run)(int fd, const char *run); } in_run[] = {
		{ "forge", forge }, { "forge_signed", forge_signed } };
	uint8_t seed[32] = { 66 }, w[1024], a[1024];
	int fd;

	if (argc != 4 && argc != 5)
		die("usage: attack HOST PORT WHAT [RUN]");
	host = argv[1];
	port = (int)strtol(argv[2], NULL, 10);
	boot = (uint64_t)getpid() << 20 | 1;
	sha256_of("hivemind without a swarm key", 28, swarm);
	signer_init(&me, seed);
	listen_somewhere();
	fd = dial();
	for (size_t i = 0; i < sizeof in_run / sizeof *in_run; i++) {
		if (argc != 5 || strcmp(argv[3], in_run[i].name))
			continue;
		hello(fd);
		ping(fd, w, a, sizeof a);
		in_run[i].run(fd, argv[4]);
		return 0;
	}
	for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
		if (argc != 4 || strcmp(argv[3], list[i].name))
			continue;
		if (list[i].member) {
			hello(fd);
			ping(fd, w, a, sizeof a);
		}
		list[i].run(fd);
		session_unref(s);
		nn_close(fd);
		nn_close(in);
		return 0;
	}
	die("no such attack");
}
