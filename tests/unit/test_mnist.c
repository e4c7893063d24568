/* MNIST to 97 % on the ten thousand held-out digits, in one process, from the compressed files as they come. They are
 * looked for in $HIVEMIND_DATA/mnist and beside the source tree; without them the test is skipped. */
#include "real_kit.h"
#include <unistd.h>

static const char spec_json[] = "{\"name\":\"mnist\",\"input\":[1,28,28],\"model\":[{\"type\":\"flatten\"},"
	"{\"type\":\"linear\",\"out\":128},{\"type\":\"relu\"},{\"type\":\"linear\",\"out\":10}],"
	"\"loss\":\"cross_entropy\","
	"\"optimizer\":{\"name\":\"adam\",\"lr\":0.002},\"schedule\":{\"name\":\"cosine\",\"total\":1200,\"min\":0.05},"
	"\"target_batch\":128,\"strategy\":\"hivemind\",\"seed\":1,\"data\":{\"name\":\"mnist\",\"steps\":["
	"{\"type\":\"normalize\",\"mean\":33.3,\"std\":78.6}]},\"local\":{\"batch\":64}}";

static bool found(const char *folder)
{
	char path[1000];

	return snprintf(path, sizeof(path), "%s/train-images-idx3-ubyte.gz", folder) < (int)sizeof(path) && !access(path,
		R_OK);
}

int main(void)
{
	char folder[800] = SOURCE_ROOT "/../shared/data/mnist";
	const char *data = getenv("HIVEMIND_DATA");
	struct real r;
	struct err e;
	uint64_t us;

	if (data)
		(void)snprintf(folder, sizeof(folder), "%s/mnist", data);
	if (!found(folder)) {
		printf("skipped: no MNIST in %s (set HIVEMIND_DATA)\n", folder);
		return 77;
	}
	open_real(&r, spec_parse(spec_json, strlen(spec_json), &e), folder, 1);
	us = env_now(r.env);
	trainer_start(r.t);
	run_to(&r, 1200);
	trainer_validate(r.t, false);
	if (!loop_run_until(r.loop, is_validated, &r, 20000000))
		fail_msg("no validation");
	us = env_now(r.env) - us;
	printf("MNIST: %.2f %% of 10000 after 1200 epochs of 128 in %.1f s\n", 100 * r.accuracy, (double)us / 1e6);
	data = r.accuracy >= 0.97 ? NULL : "too few";
	close_real(&r);
	return data ? 1 : 0;
}
