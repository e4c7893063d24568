/* Replicated stages (row D08) send a small part of what data parallelism sends: of VGG-16 the convolutions have 59 MB
 * of parameters, and the linear layers 495. What the plans of an epoch send is counted by the predictor. */
#include "t.h"
#include "pipe_kit.h"
#include "plan/check.h"
#include "plan/predict.h"
#include "train/profile.h"
#include "train/spec/spec.h"
#include "train/trainer.h"

#define MICRO 4
#define BATCH 64
#define SPEC "{'name':'v','input':[3,224,224],'model':{'zoo':'vgg16'},'loss':'cross_entropy'," \
	"'optimizer':{'name':'sgd','lr':0.1},'target_batch':256,'strategy':'pipeline','stages':2," \
	"'data':{'name':'x','kind':'synthetic','count':100},'local':{'batch':64,'data':'/x'}}"

struct vgg {
	struct spec *spec; struct model *model;
	struct profile_source source; struct profile profile;   /* asks the source */
	uint32_t convolutions;          /* ops before the first linear layer */
	uint64_t bytes;                 /* of all parameters */
};

static void vgg_open(struct vgg *g)
{
	char text[] = SPEC;
	struct err e;
	json_t *o;

	for (char *p = text; *p; p++)
		*p = *p == '\'' ? '"' : *p;
	o = json_loads(text, 0, NULL);
	assert_non_null(o);
	g->spec = spec_of_json(o, &e);
	json_decref(o);
	if (!g->spec)
		fail_msg("%s", e.text);
	g->model = spec_model(g->spec, NULL, &e);
	if (!g->model)
		fail_msg("%s", e.text);
	g->source = (struct profile_source){ .model = g->model, .parts = TRAINER_THREADS_MAX,
		.x_bytes = shape_count(&g->spec->input) * sizeof(real), .y_bytes = sizeof(int32_t) };
	profile_model(&g->profile, &g->source, BATCH);
	g->convolutions = g->profile.nops;
	g->bytes = 0;
	for (uint32_t k = g->profile.nops; k-- > 0; ) {
		g->bytes += g->profile.op[k].param_bytes;
		if (g->profile.op[k].param_bytes > 400e6)
			g->convolutions = k;
	}
	assert_int_equal(g->bytes, 138357544ull * sizeof(real));
}

static void vgg_close(struct vgg *g)
{
	profile_free(&g->profile);
	model_free(g->model);
	spec_free(g->spec);
}

/* Bytes that all members send in this program; round: in the one that ends the epoch. */
static uint64_t sent(const struct vgg *g, struct pipe_kit *x, bool round, uint64_t ret[PLAN_CLASSES_COUNT])
{
	struct plan p[PIPE_MAX] = { 0 };
	const struct plan *list[PIPE_MAX];
	struct predict_conf conf = { .profile = &g->profile };
	struct prediction out;
	uint64_t all = 0;
	struct err e;

	x->v.begun = round;
	x->v.samples = round ? MICRO * BATCH : 0;
	for (uint32_t r = 0; r < x->v.nmembers; r++) {
		if (pipe_plan(x, r, &p[r], &e) < 0)
			fail_msg("%s", e.text);
		list[r] = &p[r];
		for (uint32_t b = 0; b < p[r].nbufs; b++)       /* the flush has left them */
			p[r].buf[b].initial |= round && !strncmp(p[r].buf[b].name, "acc", 3);
	}
	if (predict(list, x->v.nmembers, &conf, &out, &e) < 0)
		fail_msg("%s", e.text);
	assert_false(out.stuck);
	for (uint32_t r = 0; r < x->v.nmembers; r++)
		for (int c = 0; c < PLAN_CLASSES_COUNT; c++) {
			ret[c] += out.peer[r].sent[c];
			all += out.peer[r].sent[c];
		}
	for (uint32_t r = 0; r < x->v.nmembers; r++)
		plan_free(&p[r]);
	prediction_free(&out);
	return all;
}

/* n members: all but one have the convolutions. */
static void fewer(const struct vgg *g, uint32_t n, double least)
{
	struct pipe_kit x;
	uint64_t by[PLAN_CLASSES_COUNT] = { 0 }, all, conv = 0, edge = g->profile.op[g->convolutions - 1].out_bytes;
	uint64_t parallel = 2 * (n - 1) * g->bytes;             /* row B01: 2 (N - 1) / N of the gradient, N times */

	for (uint32_t k = 0; k < g->convolutions; k++)
		conv += g->profile.op[k].param_bytes;
	pipe_open(&x, &g->profile, n, MICRO * BATCH);
	pipe_values(&x, "{'stages':[{'layers':%u,'replicas':%u},{'layers':%u}],'micro_batches':%u}", g->convolutions, n - 1,
		g->profile.nops - g->convolutions, MICRO);
	all = sent(g, &x, false, by);
	all += sent(g, &x, true, by);
	assert_int_equal(by[PLAN_WEIGHT_GRAD], 2 * (n - 2) * conv);
	assert_int_equal(by[PLAN_ACTIVATION], MICRO * edge);
	assert_int_equal(by[PLAN_ACTIVATION_GRAD], MICRO * edge);
	print_message("%u members: %llu bytes, %llu with data parallelism: %.1f %% fewer\n", n, (unsigned long long)all,
		(unsigned long long)parallel, 100 * (1 - (double)all / (double)parallel));
	assert_true((double)all <= (1 - least) * (double)parallel);
	pipe_close(&x);
}

static void vgg(void **state)
{
	struct vgg g;

	vgg_open(&g);
	fewer(&g, 4, 0.8);
	vgg_close(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(vgg) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
