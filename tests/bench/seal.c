/* What sealing costs: frames with a blob of 256 KiB sealed and opened as the wire does it (header, JSON and blob
 * gathered, counters, replay memory), beside libcrypto's AES-256-GCM and ChaCha20-Poly1305 alone on the same bytes, in
 * turns; medians of 15, one core. Prints JSON; all_reduce_100MB_ms is the sealing and opening that each of two peers
 * does for one exchange of 100 MB, to be held against bench_net's transfer_100MB_ms. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "common/mem.h"
#include "net/net.h"
#include "net/session.h"
#include "seal.h"
#include "usage.h"

#define TURNS 15
#define FRAMES 64                       /* of 256 KiB, a turn */
#define ALL_REDUCE 100e6

static uint8_t *blob, *wire, *plain;

static double seal_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double alone_run(struct alone *a)
{
	double t = seal_seconds();

	for (uint32_t i = 0; i < FRAMES; i++)
		alone_one(a, i, blob, NET_BLOB_MAX, wire);
	return seal_seconds() - t;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(double *v)
{
	qsort(v, TURNS, sizeof *v, by_value);
	return v[TURNS / 2];
}

static double rate(double s) { return FRAMES * (double)NET_BLOB_MAX / s / 1e9; }

static const char json[] = "{\"t\":\"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\",\"s\":1,"
	"\"o\":0}";

static size_t seal_one(struct session *a)
{
	size_t len = frame_bytes(sizeof json - 1, NET_BLOB_MAX, false);
	struct piece pieces[3] = { { NULL, 0 }, { json, sizeof json - 1 }, { blob, NET_BLOB_MAX } };
	struct header h = { .pre = { .version = a->version, .kind = KIND_CHUNK, .length = (uint32_t)len },
		.json_len = sizeof json - 1, .blob_len = NET_BLOB_MAX, .chan = CHAN_BULK };

	session_seal(a, &h, 1, pieces, 3, wire);
	return len;
}

static void ours(struct session *a, struct session *b, double *ret_seal, double *ret_open)
{
	double t = seal_seconds();

	for (int i = 0; i < FRAMES; i++)
		seal_one(a);
	*ret_seal = seal_seconds() - t;
	*ret_open = 0;
	for (int i = 0; i < FRAMES; i++) {
		size_t len = seal_one(a);
		struct header got;
		struct err e;

		t = seal_seconds();
		if (header_read(&got, wire, len, &e) || session_open(b, &got, wire, len, plain) != OPEN_OK) {
			fprintf(stderr, "a frame does not open: %s\n", e.text);
			_exit(1);
		}
		*ret_open += seal_seconds() - t;
	}
}

static void suite(unsigned which, const char *end)
{
	static const uint8_t dh[32] = { 1 }, mac[32] = { 2 }, transcript[32] = { 3 }, key[32] = { 4 };
	struct session *a = session_new(true, which, dh, mac, transcript);
	struct session *b = session_new(false, which, dh, mac, transcript);
	struct alone *enc = alone_new(which == SUITE_AES_256_GCM, key, true);
	struct alone *dec = alone_new(which == SUITE_AES_256_GCM, key, false);
	double v[4][TURNS], seal, open;

	a->version = b->version = PROTOCOL_VERSION;
	ours(a, b, &seal, &open);               /* warm */
	for (int i = 0; i < TURNS; i++) {
		v[0][i] = alone_run(enc);
		ours(a, b, &v[1][i], &v[2][i]);
		v[3][i] = alone_run(dec);
	}
	seal = median(v[1]);
	open = median(v[2]);
	printf("\"%s\":{\"seal_GB_per_s\":%.2f,\"open_GB_per_s\":%.2f,\"libcrypto_encrypt_GB_per_s\":%.2f,"
		"\"libcrypto_decrypt_GB_per_s\":%.2f,\"seal_over_libcrypto\":%.3f,\"open_over_libcrypto\":%.3f,"
		"\"all_reduce_100MB_ms\":%.1f}%s\n", suite_name(which), rate(seal), rate(open), rate(median(v[0])),
		rate(median(v[3])), median(v[0]) / seal, median(v[3]) / open,
		(seal + open) / FRAMES / NET_BLOB_MAX * ALL_REDUCE * 1e3, end);
	alone_free(enc);
	alone_free(dec);
	session_unref(a);
	session_unref(b);
}

int main(int argc, char **argv)
{
	bench_words(argc, argv, 0, 0, "bench_seal");
	blob = xmalloc(WIRE_MAX);
	wire = xmalloc(WIRE_MAX);
	plain = xmalloc(WIRE_MAX);
	memset(blob, 0x5a, WIRE_MAX);
	printf("{");
	suite(SUITE_AES_256_GCM, ",");
	suite(SUITE_CHACHA20_POLY1305, "}");
	free(blob);
	free(wire);
	free(plain);
	return 0;
}
