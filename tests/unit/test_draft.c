/* A spec from few words: what is seen of the data, and what is made of it. */
#include "images_kit.h"
#include <math.h>
#include "images_odd.h"
#include "train/spec/draft.h"

#define SIXTEEN "{\"model\":\"resnet18\",\"with\":{\"width\":4,\"blocks\":[1],\"pixels\":16}," \
	"\"data\":\"folder:/x\"}"

#define R18 "{\"model\":\"resnet18\",\"with\":{\"stem\":\"cifar\"},\"data\":\"cifar10-jpeg:/x\""

static struct data_about look(struct world *w, const char *kind, const char *path)
{
	struct data_about a;
	struct err e;

	if (data_about(w->env->files, kind, path, NULL, &a, &e) < 0)
		fail_msg("%s", e.text);
	return a;
}

/* The spec that comes of these words, checked as one from a file would be. */
static struct spec *drafted(const struct data_about *a, const char *words)
{
	json_t *params = json_loads(words, 0, NULL), *j;
	struct spec *s;
	struct err e;

	assert_non_null(params);
	j = draft_spec(params, a, &e);
	if (!j)
		fail_msg("%s", e.text);
	(void)json_object_set_new(j, "name", json_string("d"));
	s = spec_of_json(j, &e);
	if (!s)
		fail_msg("%s", e.text);
	json_decref(j);
	json_decref(params);
	return s;
}

static void test_rows(void **state)
{
	struct world w;
	struct data_about a;
	struct spec *s;
	double sum = 0, squares = 0;

	world_open(&w);
	put_set(&w, "train-images-idx3-ubyte", "train-labels-idx1-ubyte", 30, 2);
	a = look(&w, "idx", "d");
	assert_true(a.count[DATA_TRAIN] == 30 && a.classes == 3 && !a.images && a.channels == 1);
	assert_true(a.shape.nd == 2 && a.shape.d[0] == 4 && a.shape.d[1] == 4);
	for (unsigned i = 0; i < 30; i++)
		for (unsigned k = 0; k < 16; k++) {
			double v = (uint8_t)(i * 7 + k);

			sum += v / 480;
			squares += v * v / 480;
		}
	assert_true(fabs(a.mean[0] - sum) < 1e-9 && fabs(a.std[0] - sqrt(squares - sum * sum)) < 1e-9);
	s = drafted(&a, "{\"model\":\"mlp\",\"with\":{\"widths\":[5]},\"data\":\"idx:/d\",\"lr\":0.5,\"tbs\":12,"
		"\"epochs\":3,\"seed\":4}");
	assert_true(s->input.nd == 1 && s->input.d[0] == 16 && s->target_batch == 12 && s->stop_epochs == 3);
	assert_int_equal(s->seed, 4);
	assert_true(s->hyper[0] == 0.5 && !strcmp(s->optim->name, "sgd") && s->objective.n == 3);
	assert_true(s->nsteps == 1 && !strcmp(s->step[0].ops->name, "normalize"));
	assert_true(fabs(s->step[0].mean[0] - sum) < 0.006);
	spec_free(s);
	s = drafted(&a, "{\"model\":\"resnet18\",\"with\":{\"width\":4,\"blocks\":[1],\"classes\":7},\"data\":\"idx:/d\","
		"\"optimizer\":\"adam\"}");
	assert_true(s->input.nd == 3 && s->input.d[0] == 1 && s->input.d[1] == 4 && s->objective.n == 7);
	assert_true(!strcmp(s->optim->name, "adam") && s->target_batch == 256 && !s->stop_epochs);
	spec_free(s);
	put(&w, "t.csv", "a,b,label\n1,2.5,0\n3,4,2\n5,6,1\n", 30);
	a = look(&w, "csv", "d/t.csv");
	assert_true(a.classes == 3 && a.count[DATA_TRAIN] == 3 && a.shape.nd == 1 && a.shape.d[0] == 2 && !a.channels);
	s = drafted(&a, "{\"model\":\"mlp\",\"data\":\"csv:/d/t.csv\"}");
	assert_true(s->input.d[0] == 2 && s->objective.n == 3 && !s->nsteps);
	spec_free(s);
	sim_free(w.sim);
}

/* Images: their size when all have one, grey or not; broken ones are left out; CIFAR-10's figures are known. */
static void test_images(void **state)
{
	struct world w;
	struct data_about a;
	struct spec *s;
	double mean = 0;

	world_open(&w);
	folder(&w, "set");
	folder(&w, "set/ant");
	folder(&w, "set/bee");
	put(&w, "set/ant/1.png", file_png, sizeof(file_png));
	put(&w, "set/bee/2.png", file_png, sizeof(file_png));
	put(&w, "set/bee/3.jpg", "nonsense", 8);
	a = look(&w, "folder", "d/set");
	assert_true(a.images && a.classes == 2 && a.count[DATA_TRAIN] == 3 && a.channels == 3);
	assert_true(a.shape.nd == 3 && a.shape.d[0] == 3 && a.shape.d[1] == H && a.shape.d[2] == W);
	{
		struct sample p = { .room = { NULL } };
		struct err e;

		assert_int_equal(image_decode(file_png, sizeof(file_png), 3, &p, &e), 0);
		for (size_t i = 0; i < H * W; i++)
			mean += (double)((uint8_t *)p.p)[i] / (H * W);
		sample_free(&p);
	}
	assert_true(fabs(a.mean[0] - mean) < 1e-9);
	s = drafted(&a, "{\"model\":\"resnet18\",\"with\":{\"width\":4,\"blocks\":[1]},\"data\":\"cifar10-jpeg:/x\"}");
	assert_true(s->nsteps == 3 && !strcmp(s->step[0].ops->name, "crop") && !strcmp(s->step[1].ops->name, "flip"));
	assert_true(s->step[0].h == H && s->step[0].w == W && s->step[0].pixels == H / 8);
	assert_true(s->step[2].mean[0] == 125.31 && s->step[2].std[2] == 66.7);
	assert_string_equal(s->data_name, "cifar10-jpeg");
	assert_string_equal(s->data_kind, "folder");
	spec_free(s);
	s = drafted(&a, "{\"model\":\"mlp\",\"data\":\"folder:/x\"}");       /* flattened by the model, not by the data */
	assert_true(s->input.nd == 3 && s->input.d[0] == 3 && s->input.d[1] == H && s->nsteps == 3);
	spec_free(s);
	s = drafted(&a, SIXTEEN);
	assert_true(fabs(s->step[s->nsteps - 1].mean[0] - mean) < 0.006);
	assert_true(s->input.d[1] == 16 && s->step[0].h == 16 && !strcmp(s->step[0].ops->name, "resized_crop"));
	spec_free(s);
	put(&w, "set/bee/3.jpg", file_jpeg_grey, sizeof(file_jpeg_grey));
	put(&w, "set/bee/4.jpg", odd_turned, sizeof(odd_turned));
	a = look(&w, "folder", "d/set");
	assert_int_equal(a.shape.nd, 0);                /* of several sizes */
	s = drafted(&a, SIXTEEN);
	assert_true(s->nsteps == 3 && !strcmp(s->step[0].ops->name, "resized_crop") && s->step[0].h == 16);
	spec_free(s);
	sim_free(w.sim);
}

/* Held-out samples are looked at as often as takes a tenth of the time, whatever the data: forward is a third of a
 * step, so that V of them cost as much as V / 3 samples of training. */
static void test_validation_takes_a_tenth(void **state)
{
	static const struct { const char *words; uint64_t held, every; } rows[] = {
		{ R18 ",\"tbs\":1250}", 10000, 25 },
		{ R18 "}", 10000, 118 },
		{ R18 ",\"tbs\":50000}", 10000, 1 },
		{ R18 "}", 0, SPEC_VALIDATION_AUTO },
	};
	struct data_about a = { .kind = "tar", .classes = 10, .images = true, .shape = { 3, { 3, 32, 32 } },
		.channels = 3, .mean = { 1, 1, 1 }, .std = { 1, 1, 1 } };

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct spec *s;

		a.count[DATA_TRAIN] = 50000;
		a.count[DATA_VALIDATION] = rows[i].held;
		s = drafted(&a, rows[i].words);
		assert_int_equal(s->validation_every, rows[i].every);
		spec_free(s);
	}
}

/* Texts and pairs of them: the vocabulary of the data, one more for the mask of who guesses hidden tokens, and
 * validation in samples: held-out bytes by the window, held-out pairs as they are. */
static void test_texts(void **state)
{
	enum { PAIRS = 640, BYTES = 64000 };
	static char pairs[4 * PAIRS], text[BYTES];
	struct world w;
	struct data_about a;
	struct spec *s;
	struct err e;

	for (size_t i = 0; i < PAIRS; i++)
		memcpy(pairs + 4 * i, "a\tb\n", 4);
	memset(text, 'x', sizeof text);
	world_open(&w);
	assert_int_equal(w.env->files->mkdir(w.env->files, "d/p", 0755, &e), 0);
	put(&w, "p/train.tsv", pairs, sizeof pairs);
	put(&w, "p/test.tsv", pairs, sizeof pairs);
	put(&w, "p/train.txt", text, sizeof text);
	put(&w, "p/test.txt", text, sizeof text);
	a = look(&w, "pairs", "d/p");
	assert_true(a.count[DATA_TRAIN] == PAIRS && a.count[DATA_VALIDATION] == PAIRS && a.classes == 259);
	s = drafted(&a, "{\"model\":\"transformer\",\"with\":{\"layers\":1,\"context\":100},\"data\":\"pairs:/x\"}");
	assert_true(s->objective.n == 259 && s->objective.ignores && s->validation_every == 3 * PAIRS / 64 + 1);
	spec_free(s);
	a = look(&w, "text", "d/p");
	s = drafted(&a, "{\"model\":\"gpt2\",\"with\":{\"layers\":1,\"context\":100},\"data\":\"text:/x\"}");
	assert_true(s->objective.n == 256 && !s->objective.ignores);
	assert_true(s->validation_every == 3 * ((BYTES - 1) / 100) / 64 + 1);
	spec_free(s);
	s = drafted(&a, "{\"model\":\"lstm\",\"with\":{\"layers\":1,\"context\":100},\"data\":\"text:/x\"}");
	assert_true(s->objective.n == 256 && !s->objective.ignores && !strcmp(s->optim->name, "adamw"));
	spec_free(s);
	s = drafted(&a, "{\"model\":\"bert\",\"with\":{\"layers\":1,\"context\":100},\"data\":\"text:/x\"}");
	assert_true(s->objective.n == 257 && s->objective.ignores);
	spec_free(s);
	sim_free(w.sim);
}

static void says(const char *kind, const char *path, enum err_code code, const char *text)
{
	struct data_about a;
	struct world w;
	struct err e;

	world_open(&w);
	put(&w, "one.csv", "1\n2\n", 4);
	assert_int_equal(data_about(w.env->files, kind, path, NULL, &a, &e), -1);
	assert_err(e, code, text);
	sim_free(w.sim);
}

static void test_wrong(void **state)
{
	says("synthetic", "d", ERR_INVALID, "synthetic data is made for a spec");
	says("folder", "d", ERR_NOT_FOUND, "d: no images; CLASS/*.jpg");
	says("csv", "d/one.csv", ERR_INVALID, "d/one.csv: 1 field a line; inputs and a label are wanted");
	says("cifar10", "d", ERR_NOT_FOUND, "d: no data_batch_1.bin");
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_rows), cmocka_unit_test(test_images),
		cmocka_unit_test(test_validation_takes_a_tenth), cmocka_unit_test(test_texts), cmocka_unit_test(test_wrong) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
