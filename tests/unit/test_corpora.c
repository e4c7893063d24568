/* CIFAR-10 as JPEG in its archive, and tiny Shakespeare, as they come: sizes, classes, each image decodes, and how many
 * images a core prepares in a second. They are looked for in $HIVEMIND_DATA and beside the source tree; without them
 * the test is skipped. */
#include "t.h"
#include <time.h>
#include <unistd.h>
#include "loop/files.h"
#include "common/mem.h"
#include "train/data/data.h"
#include "skip.h"

#define FORM "{\"name\":\"a\",\"input\":%s,\"model\":[{\"type\":\"flatten\"},{\"type\":\"linear\",\"out\":%s}]," \
	"\"loss\":\"cross_entropy\",\"target_batch\":8,\"optimizer\":{\"name\":\"sgd\"},\"seed\":3," \
	"\"data\":{\"name\":\"d\",\"kind\":\"%s\",\"broken_max\":0,\"steps\":[%s]}}"

static char root[600] = SOURCE_ROOT "/../shared/data";

static struct data *open_(const char *input, const char *out, const char *kind, const char *steps, const char *file,
	struct spec **ret_s)
{
	char json[1000], path[800];
	struct data *d;
	struct err e;

	(void)snprintf(json, sizeof(json), FORM, input, out, kind, steps);
	(void)snprintf(path, sizeof(path), "%s/%s", root, file);
	*ret_s = spec_parse(json, strlen(json), &e);
	if (!*ret_s)
		fail_msg("%s", e.text);
	if (access(path, R_OK)) {
		spec_free(*ret_s);
		skip_because("no %s (set HIVEMIND_DATA)", path);
	}
	d = data_open(files_real(), path, *ret_s, &e);
	if (!d)
		fail_msg("%s", e.text);
	return d;
}

static double seconds(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void test_cifar(void **state)
{
	enum { N = 4096 };
	struct spec *s;
	struct data *d = open_("[3,32,32]", "10", "tar",
		"{\"type\":\"crop\",\"size\":32,\"padding\":4},{\"type\":\"flip\"},"
		"{\"type\":\"normalize\",\"mean\":[125.3,123,113.9],\"std\":[63,62.1,66.7]}",
			"cifar10-jpeg/cifar10-jpeg.tar.gz", &s);
	unsigned of[10] = { 0 };
	uint64_t position[64];
	real *x = malloc(64 * data_x_bytes(d));
	double sum = 0, squares = 0, at = seconds();
	int32_t y[64];
	struct err e;

	assert_int_equal(data_count(d, DATA_TRAIN), 50000);
	assert_int_equal(data_count(d, DATA_VALIDATION), 10000);
	assert_int_equal(data_source(d)->classes, 10);
	for (uint64_t p = 0; p < N; p += 64) {
		for (uint64_t i = 0; i < 64; i++)
			position[i] = p + i;
		if (data_read(d, DATA_TRAIN, position, 64, x, y, &e) < 0)
			fail_msg("%s", e.text);
		for (int i = 0; i < 64; i++)
			of[y[i]]++;
		for (int i = 0; i < 64 * 3072; i++) {
			sum += (double)x[i];
			squares += (double)x[i] * (double)x[i];
		}
	}
	printf("CIFAR-10 as JPEG: %.0f images a second and core\n", N / (seconds() - at));
	for (int i = 0; i < 10; i++)
		assert_true(of[i] > N / 10 * 0.8 && of[i] < N / 10 * 1.2);
	/* normalized, but for the black that crops bring in */
	assert_true(sum / N / 3072 > -0.4 && sum / N / 3072 < 0.1 && squares / N / 3072 > 0.8 && squares / N / 3072 < 1.6);
	free(x);
	data_free(d);
	spec_free(s);
}

static void test_shakespeare(void **state)
{
	static const char begin[] = "First Citizen:";
	struct spec *s;
	struct data *d = open_("[14]", "256", "text", "", "tinyshakespeare/input.txt", &s);
	uint64_t found = 0;
	real x[14];
	int32_t y;
	struct err e;

	assert_int_equal(data_count(d, DATA_TRAIN), 1115394 - 111539 - 14);
	assert_int_equal(data_count(d, DATA_VALIDATION), (111539 - 1) / 14);
	for (uint64_t p = 0; p < data_count(d, DATA_TRAIN); p++) {
		bool same = true;

		if (data_index(d, p))
			continue;
		assert_int_equal(data_read(d, DATA_TRAIN, &p, 1, x, &y, &e), 0);
		for (int i = 0; i < 14; i++)
			same &= x[i] == (real)begin[i];
		assert_true(same && y == '\n');
		found++;
	}
	assert_int_equal(found, 1);
	data_free(d);
	spec_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_cifar), cmocka_unit_test(test_shakespeare) };

	if (getenv("HIVEMIND_DATA"))
		(void)snprintf(root, sizeof(root), "%s", getenv("HIVEMIND_DATA"));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
