/* What the net room gets out of long links, measured behind the emulator: prints JSON, one object a link. Without
 * arguments a list of links; else one: far WORDS MEGABYTES [client], with client to a peer that only dials out. */
#include "common/text.h"
#include "link/far_kit.h"

static int one(const char *words, size_t megabytes, double rate_mbit, bool client)
{
	struct far_conf c = { .a = words, .bytes = megabytes * 1000000, .client = client };
	struct far_result r;

	if (far_run(&c, &r)) {
		fprintf(stderr, "%s: %s\n", words, r.error);
		return 1;
	}
	printf("{\"link\":\"%s\",\"client\":%s,\"megabytes\":%zu,\"seconds\":%.3f,\"mbit_per_s\":%.2f,", words,
		client ? "true" : "false", megabytes, r.seconds, (double)c.bytes * 8e-6 / r.seconds);
	if (rate_mbit > 0)
		printf("\"share_of_rate\":%.3f,", (double)c.bytes * 8e-6 / r.seconds / rate_mbit);
	printf("\"call_ms\":{\"idle\":%.2f,\"median\":%.2f,\"p95\":%.2f,\"max\":%.2f,\"n\":%d},\"queue_ms_max\":%.1f,"
		"\"bytes_sent_a_byte\":%.3f}\n",
		r.idle * 1e3, r.median * 1e3, r.p95 * 1e3, r.max * 1e3, r.calls, (double)r.queue_us_max / 1e3,
		(double)r.wire_bytes / (double)c.bytes);
	fflush(stdout);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct { const char *words; size_t megabytes; double mbit; bool client; } links[] = {
		{ "rate=10mbit delay=50ms loss=1% queue=625000", 6, 10 },
		{ "rate=10mbit delay=50ms queue=625000", 6, 10 },
		{ "rate=10mbit delay=50ms loss=1% queue=625000", 6, 10, true },
		{ "rate=100mbit delay=20ms jitter=5ms loss=0.5%", 40, 100 },
		{ "rate=100mbit delay=20ms jitter=5ms loss=0.5%", 40, 100, true },
		{ "rate=1gbit delay=25ms mtu=9000", 400, 1000 },
		{ "rate=1gbit delay=25ms loss=0.01% mtu=9000", 400, 1000 } };
	uint64_t megabytes;
	struct err e;
	int rc = 0;

	if (hub_possible(&e)) {
		fprintf(stderr, "%s\n", e.text);
		return 77;
	}
	if (argc >= 3 && !text_u64(argv[2], &megabytes, &e))
		return one(argv[1], megabytes, 0, argc > 3 && !strcmp(argv[3], "client"));
	for (size_t i = 0; i < sizeof links / sizeof *links; i++)
		rc |= one(links[i].words, links[i].megabytes, links[i].mbit, links[i].client);
	return rc;
}
