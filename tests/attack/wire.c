/* HELLO, sealed frames and answers over raw nanomsg sockets. */
#include <arpa/inet.h>
#include <nanomsg/nn.h>
#include <nanomsg/pipeline.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "wire.h"
#include "common/hash.h"

const char *host;
int port, in;
uint64_t boot;
uint8_t swarm[32], priv[32] = { 1 };
struct signer me;
struct session *s;
struct id daemon_id;
static uint16_t my_port;
static uint64_t requests;

void die(const char *what)
{
	printf("attack: %s\n", what);
	fflush(stdout);
	_exit(1);
}

int dial(void)
{
	int fd = nn_socket(AF_SP, NN_PUSH), wait = 3000;
	char at[64];

	snprintf(at, sizeof at, "tcp://%s:%d", host, port);
	nn_setsockopt(fd, NN_SOL_SOCKET, NN_SNDTIMEO, &wait, sizeof wait);
	if (fd < 0 || nn_connect(fd, at) < 0)
		die("cannot dial");
	return fd;
}

void give(int fd, const void *p, size_t len)
{
	if (nn_send(fd, p, len, 0) != (int)len)
		die("the daemon takes nothing");
}

void listen_somewhere(void)
{
	int max = WIRE_MAX;
	char at[64];

	in = nn_socket(AF_SP, NN_PULL);
	nn_setsockopt(in, NN_SOL_SOCKET, NN_RCVMAXSIZE, &max, sizeof max);
	for (my_port = (uint16_t)(50000 + getpid() % 5000); my_port < 60000; my_port++) {
		snprintf(at, sizeof at, "tcp://127.0.0.1:%d", my_port);
		if (nn_bind(in, at) >= 0)
			return;
	}
	die("no free port");
}

/* The next message of a kind, or 0 after wait_ms. */
size_t hear(unsigned kind, uint8_t *out, size_t cap, int wait_ms)
{
	struct prelude p;

	nn_setsockopt(in, NN_SOL_SOCKET, NN_RCVTIMEO, &wait_ms, sizeof wait_ms);
	for (;;) {
		int n = nn_recv(in, out, cap, 0);

		if (n < 0)
			return 0;
		if (prelude_read(&p, out, (size_t)n) == PRELUDE_OK && p.kind == kind)
			return (size_t)n;
	}
}

void make_m1(struct buf *b, uint64_t boot_id, const uint8_t key[32])
{
	struct hello1 m = { .version_min = 1, .version_max = 1, .suites = SUITE_CHACHA20_POLY1305, .boot = boot_id,
		.software = "attack" };

	x25519_public(priv, m.e);
	m.at.ip[10] = m.at.ip[11] = 0xff;
	m.at.ip[12] = 127;
	m.at.ip[15] = 1;
	m.at.port[0] = my_port;
	buf_clear(b);
	hello1_write(&m, key, b);
}

void hello(int fd)
{
	uint8_t m2[HELLO2_MAX], dh[32], hash[32], transcript[32];
	struct hello2 r;
	struct sha256 sum;
	struct buf b = {0};
	struct err e;
	size_t n;

	make_m1(&b, boot, swarm);
	give(fd, b.p, b.len);
	n = hear(KIND_HELLO2, m2, sizeof m2, 5000);
	sha256_of(b.p, b.len, hash);
	if (!n || hello2_look(&r, m2, n, &e) || hello2_verify(&r, m2, n, hash, swarm, &e) || x25519_dh(priv, r.e, dh))
		die("no HELLO2");
	sha256_init(&sum);
	sha256_add(&sum, b.p, b.len);
	sha256_add(&sum, m2, n);
	sha256_end(&sum, transcript);
	s = session_new(true, r.suite, dh, swarm, transcript);
	m3_make(s->m3, &me, transcript);
	daemon_id = r.id;
	buf_free(&b);
}

size_t seal_blob(uint8_t *out, enum kind k, uint64_t request, const char *json, const void *blob, size_t len,
	const struct id *sender, bool m3)
{
	size_t n = strlen(json);
	struct header h = { .pre = { .version = 1, .kind = k, .flags = FLAG_CALL | (m3 ? FLAG_M3 : 0), .oldest = 1,
		.length = (uint32_t)frame_bytes(n, len, m3) }, .request = request, .boot = boot, .json_len = (uint32_t)n,
		.blob_len = (uint32_t)len, .sender = *sender };
	struct piece p[3] = { { s->m3, m3 ? M3_BYTES : 0 }, { json, n }, { blob, len } };

	session_seal(s, &h, 1, p, 3, out);
	return h.pre.length;
}

size_t seal(uint8_t *out, enum kind k, uint64_t request, const char *json, const struct id *sender, bool m3)
{
	return seal_blob(out, k, request, json, NULL, 0, sender, m3);
}

/* A call that is answered properly: the daemon is alive, and we are a member. */
size_t ping(int fd, uint8_t *sent, uint8_t *answer, size_t cap)
{
	size_t n = seal(sent, KIND_PING, ++requests, "", &me.id, true);
	struct header h;
	uint8_t plain[1024];
	size_t k;

	give(fd, sent, n);
	k = hear(KIND_REPLY, answer, cap, 5000);
	if (!k || header_read(&h, answer, k, NULL) || h.request != requests || session_open(s, &h, answer, k,
		plain) != OPEN_OK)
		die("no answer to PING");
	return n;
}

/* Until its answer comes: 1, or 0 when it is refused, -1 when there is none. ret: the JSON of either, or NULL. */
int ask(int fd, enum kind k, json_t *json, struct buf *blob, json_t **ret)
{
	static uint8_t w[WIRE_MAX], plain[WIRE_MAX];
	char *text = json_dumps(json, JSON_COMPACT);
	size_t n = seal_blob(w, k, ++requests, text, blob ? blob->p : NULL, blob ? blob->len : 0, &me.id, true);
	int wait_ms = 2000, rc = -1;
	struct header h;

	free(text);
	json_decref(json);
	if (blob)
		buf_free(blob);
	give(fd, w, n);
	nn_setsockopt(in, NN_SOL_SOCKET, NN_RCVTIMEO, &wait_ms, sizeof wait_ms);
	while (rc < 0) {
		int got = nn_recv(in, w, sizeof w, 0);

		if (got < 0)
			break;
		if (header_read(&h, w, (size_t)got, NULL) || h.request != requests || h.pre.flags & FLAG_PENDING ||
				(h.pre.kind != KIND_REPLY && h.pre.kind != KIND_REFUSE) || session_open(s, &h, w, (size_t)got,
				plain) != OPEN_OK)
			continue;               /* what it asks us is not answered */
		rc = h.pre.kind == KIND_REPLY;
		if (ret)
			*ret = json_loadb((const char *)plain, h.json_len, 0, NULL);
	}
	return rc;
}
