/* One training step of ResNet-18 in double against PyTorch's float64 (torchvision's resnet18; row A06): outputs and all
 * 62 gradients agree to 1e-9, so nothing but rounding separates the float kernels from PyTorch's float32. There one
 * value of a million that falls on the other side of a ReLU changes early gradients by 1e-3 of the largest.
 *
 * Parameters and images are those of tests/data/make-golden-models.py. Golden: of each gradient, in torchvision's
 * order, the norm and the sum of g[i] cos(0.7 i + 0.3); of the outputs the first four. */
#include <math.h>
#include "kernels_util.h"

struct golden { const char *name; double norm, along; };

static const struct golden imagenet[] = {
	{ "conv1.weight", 204.15284573377312, 117.70225241582297 },
	{ "bn1.weight", 5.6739025425763137, 1.0556591014046253 },
	{ "bn1.bias", 2.3313164490004241, -0.42011336012814327 },
	{ "layer1.0.conv1.weight", 227.3236761652654, 266.58722419202553 },
	{ "layer1.0.bn1.weight", 4.5128375847217148, 0.89273418294813212 },
	{ "layer1.0.bn1.bias", 4.1223913387507016, 2.9442318814089119 },
	{ "layer1.0.conv2.weight", 190.48303473768212, -435.95985979355987 },
	{ "layer1.0.bn2.weight", 3.9430920359161235, 3.038112696472584 },
	{ "layer1.0.bn2.bias", 1.8456989253467584, 0.48596939028363967 },
	{ "layer1.1.conv1.weight", 165.21132184997455, 248.52948673832566 },
	{ "layer1.1.bn1.weight", 2.4898651982854965, 0.25530491276319156 },
	{ "layer1.1.bn1.bias", 2.8494666794497405, 0.55772851828727998 },
	{ "layer1.1.conv2.weight", 138.16593110995939, -63.929770021295496 },
	{ "layer1.1.bn2.weight", 2.952977987501697, 3.2135845972909443 },
	{ "layer1.1.bn2.bias", 1.4191912452046584, 1.4071709813931941 },
	{ "layer2.0.conv1.weight", 150.35045695343308, 336.38519833447174 },
	{ "layer2.0.bn1.weight", 2.8205854806882455, -0.78152590171983127 },
	{ "layer2.0.bn1.bias", 2.583926524522687, -1.3022247634517428 },
	{ "layer2.0.conv2.weight", 179.3455036274602, 288.94572342410999 },
	{ "layer2.0.bn2.weight", 3.1259306505274793, 1.3434607123188897 },
	{ "layer2.0.bn2.bias", 2.2741173264570151, -1.7210847701990897 },
	{ "layer2.0.downsample.0.weight", 42.545740257478585, 13.24106262305261 },
	{ "layer2.0.downsample.1.weight", 2.8183602576799913, -3.1283726904925353 },
	{ "layer2.0.downsample.1.bias", 2.2741173264570151, -1.7210847701990897 },
	{ "layer2.1.conv1.weight", 173.58601832342305, -143.70726678083037 },
	{ "layer2.1.bn1.weight", 2.2988072392367642, -0.37694155403203272 },
	{ "layer2.1.bn1.bias", 2.0491150449920585, -1.982971369938733 },
	{ "layer2.1.conv2.weight", 145.24228845319962, 243.64326582309414 },
	{ "layer2.1.bn2.weight", 2.0155261394436539, -2.4031314682672633 },
	{ "layer2.1.bn2.bias", 1.5410958403228041, -0.34797362220237199 },
	{ "layer3.0.conv1.weight", 141.26905947899149, 161.65835852256572 },
	{ "layer3.0.bn1.weight", 2.0786798043227965, -2.088968990511999 },
	{ "layer3.0.bn1.bias", 1.6337505620224495, -2.1234164630419423 },
	{ "layer3.0.conv2.weight", 169.73638822542287, 45.63148736481152 },
	{ "layer3.0.bn2.weight", 2.031058606122035, -0.74947516761342103 },
	{ "layer3.0.bn2.bias", 1.5281949716476941, 0.2459590097071308 },
	{ "layer3.0.downsample.0.weight", 40.116046436427574, 43.504414230494731 },
	{ "layer3.0.downsample.1.weight", 1.8675329671962895, -0.33262317477352954 },
	{ "layer3.0.downsample.1.bias", 1.5281949716476941, 0.2459590097071308 },
	{ "layer3.1.conv1.weight", 157.94607161271324, 213.08233820270172 },
	{ "layer3.1.bn1.weight", 1.5276825952529118, 0.28444734441528152 },
	{ "layer3.1.bn1.bias", 1.2093980576154204, -0.61435656889488266 },
	{ "layer3.1.conv2.weight", 136.65819344161599, -233.34318547906003 },
	{ "layer3.1.bn2.weight", 1.4258578063538836, -0.42811319692666305 },
	{ "layer3.1.bn2.bias", 1.0160707850009898, 0.40717921007840757 },
	{ "layer4.0.conv1.weight", 131.21736864217311, -301.91659884749362 },
	{ "layer4.0.bn1.weight", 1.3739515731261076, 0.79880627016636541 },
	{ "layer4.0.bn1.bias", 1.1847908334187365, 0.051522175532415282 },
	{ "layer4.0.conv2.weight", 159.01332366938905, -485.28316821466865 },
	{ "layer4.0.bn2.weight", 1.2514287398668711, 0.14298677566092743 },
	{ "layer4.0.bn2.bias", 1.11878837604524, 0.083650703236016644 },
	{ "layer4.0.downsample.0.weight", 36.855281070159997, 40.105383880517337 },
	{ "layer4.0.downsample.1.weight", 1.1576549740473958, -0.26177799685504666 },
	{ "layer4.0.downsample.1.bias", 1.11878837604524, 0.083650703236016644 },
	{ "layer4.1.conv1.weight", 143.9047284100279, 233.09644463098175 },
	{ "layer4.1.bn1.weight", 1.0128643822628791, 0.73793652330199411 },
	{ "layer4.1.bn1.bias", 0.86711570911162417, -0.26751089063148581 },
	{ "layer4.1.conv2.weight", 121.30546170352196, 108.97574947368179 },
	{ "layer4.1.bn2.weight", 0.83230861563915393, -0.53186473839306236 },
	{ "layer4.1.bn2.bias", 0.93331838074069351, -0.46907859628402637 },
	{ "fc.weight", 60.304459222224153, -72.207340166458522 },
	{ "fc.bias", 1.9532693247635109, -2.2133826931930796 },
};
static const double imagenet_y[] = {
	0.13086747031671153, 0.11873066328643578, -0.67439199624127466, -0.20798687044267222
};
static const struct golden cifar[] = {
	{ "conv1.weight", 82.249042330092124, 58.702759104975293 },
	{ "bn1.weight", 8.789047676641605, 19.912471386469718 },
	{ "bn1.bias", 7.5153842577665264, 13.391503270788419 },
	{ "layer1.0.conv1.weight", 279.38439417256893, -230.59635707339439 },
	{ "layer1.0.bn1.weight", 5.0436342733504356, -2.460624223059658 },
	{ "layer1.0.bn1.bias", 4.3431554507728993, -0.28333292264283383 },
	{ "layer1.0.conv2.weight", 233.60750390860099, 797.55481962424267 },
	{ "layer1.0.bn2.weight", 4.4215244776017721, 4.4041565577306212 },
	{ "layer1.0.bn2.bias", 3.6096865295805278, 2.8973057859795226 },
	{ "layer1.1.conv1.weight", 198.49725202995523, -164.67388779841116 },
	{ "layer1.1.bn1.weight", 3.9813854882236903, -1.4994616066790891 },
	{ "layer1.1.bn1.bias", 3.8716145123071799, -1.098984178750841 },
	{ "layer1.1.conv2.weight", 166.92168564536254, 261.65316230358548 },
	{ "layer1.1.bn2.weight", 3.4966552347039133, -2.1698148184559516 },
	{ "layer1.1.bn2.bias", 1.9475716376082188, 0.27865235287228929 },
	{ "layer2.0.conv1.weight", 157.29243548232199, -52.166694106207004 },
	{ "layer2.0.bn1.weight", 3.1736463121038141, 0.56111544567456706 },
	{ "layer2.0.bn1.bias", 2.9147059472909898, 0.3159069004456847 },
	{ "layer2.0.conv2.weight", 188.72216892651608, -4.2345824507818683 },
	{ "layer2.0.bn2.weight", 2.8208897099086094, -2.978214554219266 },
	{ "layer2.0.bn2.bias", 2.2155370721497381, 0.29675018150102878 },
	{ "layer2.0.downsample.0.weight", 46.263635358384512, -4.5868065152632838 },
	{ "layer2.0.downsample.1.weight", 2.7119291369970777, 0.81805917326147148 },
	{ "layer2.0.downsample.1.bias", 2.2155370721497381, 0.29675018150102878 },
	{ "layer2.1.conv1.weight", 184.92371656924664, -222.61213766911015 },
	{ "layer2.1.bn1.weight", 2.2828172194927845, -3.0927488160730667 },
	{ "layer2.1.bn1.bias", 2.1019584648368475, -0.89426962124947962 },
	{ "layer2.1.conv2.weight", 155.99802501495103, -195.32900980508344 },
	{ "layer2.1.bn2.weight", 2.3959976430313219, 1.3338059655974561 },
	{ "layer2.1.bn2.bias", 1.6958294212153389, 0.6508067815536005 },
	{ "layer3.0.conv1.weight", 144.2551468133509, -37.169047660276156 },
	{ "layer3.0.bn1.weight", 2.128135534063178, 1.2588312309908611 },
	{ "layer3.0.bn1.bias", 1.7307400797247097, 1.4343103085542759 },
	{ "layer3.0.conv2.weight", 178.47082344622777, -362.31650378358205 },
	{ "layer3.0.bn2.weight", 2.1728078490386289, -1.4447970028395245 },
	{ "layer3.0.bn2.bias", 1.6020131123861585, -2.1018586493980047 },
	{ "layer3.0.downsample.0.weight", 42.844518262615615, 32.83026647218712 },
	{ "layer3.0.downsample.1.weight", 1.8975915229077496, -2.0392731489469078 },
	{ "layer3.0.downsample.1.bias", 1.6020131123861585, -2.1018586493980047 },
	{ "layer3.1.conv1.weight", 170.02811486359977, -82.060569768031826 },
	{ "layer3.1.bn1.weight", 1.7143369032113751, 1.6934749263597946 },
	{ "layer3.1.bn1.bias", 1.3790722936252824, 1.5267974113947615 },
	{ "layer3.1.conv2.weight", 141.1720725324023, 190.8413400720228 },
	{ "layer3.1.bn2.weight", 1.4488207708560712, 0.61279470552168913 },
	{ "layer3.1.bn2.bias", 1.0548777527760396, -0.47997148702239822 },
	{ "layer4.0.conv1.weight", 132.2692074627528, -293.06726746317349 },
	{ "layer4.0.bn1.weight", 1.3354905033678304, -0.19103455031648581 },
	{ "layer4.0.bn1.bias", 1.1837873832127557, -0.31774162888326851 },
	{ "layer4.0.conv2.weight", 154.96671439367108, 313.92216516842296 },
	{ "layer4.0.bn2.weight", 1.2034618187819348, -0.93761594917180657 },
	{ "layer4.0.bn2.bias", 1.0955526114936902, -0.31618832789010543 },
	{ "layer4.0.downsample.0.weight", 36.09648495868295, 23.256572200931025 },
	{ "layer4.0.downsample.1.weight", 1.1944271064793794, 0.3089403865738819 },
	{ "layer4.0.downsample.1.bias", 1.0955526114936902, -0.31618832789010543 },
	{ "layer4.1.conv1.weight", 139.93299302306903, 243.05578859175 },
	{ "layer4.1.bn1.weight", 1.004627310209449, -1.3436338988833996 },
	{ "layer4.1.bn1.bias", 0.87491502858076442, -0.90277199127318453 },
	{ "layer4.1.conv2.weight", 116.13219679031899, -191.24223590713365 },
	{ "layer4.1.bn2.weight", 0.81091269434440716, 0.50091497752410974 },
	{ "layer4.1.bn2.bias", 0.86106627765909949, -0.42127612071802345 },
	{ "fc.weight", 59.623516421145077, 117.85753150640141 },
	{ "fc.bias", 1.9532693247635109, -2.2133826931930796 },
};
static const double cifar_y[] = {
	0.39925056395210617, 0.25579461655947733, -0.67846320043352726, -0.042666302608522721
};

static double noise_at(double i, double k)
{
	double u = sin(12.9898 * i + k) * 43758.5453;

	return 2 * (u - floor(u)) - 1;
}

static void put(char *to, size_t cap, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void put(char *to, size_t cap, const char *fmt, ...)
{
	size_t n = strlen(to);
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(to + n, cap - n, fmt, ap);
	va_end(ap);
}

static struct model *resnet18(bool small, size_t side)
{
	char t[8000] = "", x[40];
	struct kerr e;
	struct model *m;

	put(t, sizeof(t), small ? "conv2d out=64 kernel=3 padding=1 bias=0 :conv1; batchnorm :bn1; relu :r" :
		"conv2d out=64 kernel=7 stride=2 padding=3 bias=0 :conv1; batchnorm :bn1; relu; maxpool2d kernel=3 stride=2 "
		"padding=1 :r");
	(void)snprintf(x, sizeof(x), "r");
	for (int s = 1; s <= 4; s++)
		for (int b = 0; b < 2; b++) {
			int out = 32 << s, step = s > 1 && b == 0 ? 2 : 1;
			char l[20];

			(void)snprintf(l, sizeof(l), "layer%d.%d", s, b);
			put(t, sizeof(t), "; conv2d out=%d kernel=3 stride=%d padding=1 bias=0 :%s.conv1; batchnorm :%s.bn1; relu; "
				"conv2d out=%d kernel=3 padding=1 bias=0 :%s.conv2; batchnorm :%s.bn2", out, step, l, l, out, l, l);
			if (step == 2)
				put(t, sizeof(t), "; conv2d out=%d kernel=1 stride=2 bias=0 <%s :%s.downsample.0; batchnorm "
					":%s.downsample.1", out, x, l, l);
			put(t, sizeof(t), "; add <%s.bn2,%s%s; relu :%s.r", l, step == 2 ? l : x,
				step == 2 ? ".downsample.1" : "", l);
			(void)snprintf(x, sizeof(x), "%s.r", l);
		}
	put(t, sizeof(t), "; adaptiveavgpool2d out=1; flatten; linear out=10 :fc");
	m = model_text((struct shape){ 3, { 3, side, side } }, t, NULL, &e);
	if (!m)
		fail_msg("%s", e.text);
	return m;
}

/* The k-th of torchvision's parameters, which are the model's in the same order. */
static void fill(const struct model_param *t, int k, real *to)
{
	size_t fan = t->shape.nd > 1 ? t->count / t->shape.d[0] : 1;
	bool vector = t->shape.nd == 1, scale = vector && strstr(t->name, "weight");

	for (size_t i = 0; i < t->count; i++) {
		double v = noise_at((double)i, k) / sqrt((double)fan);

		to[i] = (real)(scale ? 1 + 0.2 * v : vector ? 0.2 * v : v);
	}
}

static void compare(const struct model *m, const real *grad, const struct golden *g, size_t n, double tolerance)
{
	assert_int_equal(m->nparams, n);
	for (int k = 0; k < m->nparams; k++) {
		const struct model_param *p = &m->param[k];
		double square = 0, along = 0;

		assert_string_equal(p->name, g[k].name);
		for (size_t i = 0; i < p->count; i++) {
			double v = (double)grad[p->offset + i];

			square += v * v;
			along += v * cos(0.7 * (double)i + 0.3);
		}
		if (!(fabs(sqrt(square) - g[k].norm) <= tolerance * g[k].norm) ||
		    !(fabs(along - g[k].along) <= tolerance * g[k].norm))
			fail_msg("%s: norm %.17g, PyTorch's %.17g; along %.17g, PyTorch's %.17g", p->name, sqrt(square), g[k].norm,
				along, g[k].along);
	}
}

/* fused: as the graph decides; else op by op. */
static void step(bool small, size_t side, bool apart, const struct golden *g, size_t n, const double *y_want)
{
	enum { BATCH = 4 };
	struct model *m = resnet18(small, side);
	struct par par = par_serial(CPU_PLAIN, NULL);
	real *param = reals(m->nparam), *grad = calloc(m->nparam, sizeof(real)), *buffer = buffers(m);
	real *x = reals(BATCH * 3 * side * side), y[BATCH * 10], dy[BATCH * 10];
	struct model_call c = { .batch = BATCH, .param = param, .buffer = buffer, .train = true };
	struct model_need need;

	(void)cpu_pick(NULL, &par.cpu, NULL);
	m->apart = apart;
	for (int k = 0; k < m->nparams; k++)
		fill(&m->param[k], k, param + m->param[k].offset);
	for (size_t i = 0; i < BATCH * 3 * side * side; i++)
		x[i] = (real)noise_at((double)i, 0.5);
	for (int i = 0; i < BATCH * 10; i++)
		dy[i] = (real)sin(0.37 * i + 0.9);
	model_need(m, 0, m->nops, BATCH, 1, &need);
	c.saved = bytes(need.saved);
	c.work = bytes(need.work_fwd > need.work_bwd ? need.work_fwd : need.work_bwd);
	model_forward(&par, m, 0, m->nops, &c, x, y);
	for (int i = 0; i < 4; i++)
		assert_true(fabs((double)y[i] - y_want[i]) <= 1e-9);
	model_backward(&par, m, 0, m->nops, &c, x, dy, NULL, grad);
	compare(m, grad, g, n, 1e-9);
	free(c.saved);
	free(c.work);
	free(param);
	free(grad);
	free(buffer);
	free(x);
	model_free(m);
}

static void torchvision_s(void **state)
{
	step(false, 64, false, imagenet, sizeof(imagenet) / sizeof(*imagenet), imagenet_y);
}

static void with_the_small_stem(void **state)
{
	step(true, 16, false, cifar, sizeof(cifar) / sizeof(*cifar), cifar_y);
	step(true, 16, true, cifar, sizeof(cifar) / sizeof(*cifar), cifar_y);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(torchvision_s), cmocka_unit_test(with_the_small_stem) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
