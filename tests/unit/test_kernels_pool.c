/* Max pooling against its definition: every size of window, step and border, ties, NaN and infinities, on every
 * instruction set and number of workers; backward sends each number to where it came from. */
#include <math.h>
#include "kernels_util.h"

struct bed { size_t batch, c, h, w, oh, ow; int k, s, pad; };

/* The first of equals wins, and the first NaN over all. */
static size_t winner(const struct bed *b, const real *x, size_t i, size_t j)
{
	size_t at = SIZE_MAX;

	for (int r = 0; r < b->k; r++)
		for (int c = 0; c < b->k; c++) {
			long y = (long)i * b->s + r - b->pad, z = (long)j * b->s + c - b->pad;
			size_t p = (size_t)y * b->w + (size_t)z;

			if (y < 0 || z < 0 || y >= (long)b->h || z >= (long)b->w)
				continue;
			if (at == SIZE_MAX || (!isnan(x[at]) && (isnan(x[p]) || x[p] > x[at])))
				at = p;
		}
	return at;
}

static void check(const struct bed *b, const struct model *m, const struct par *par, const real *x, const real *dy)
{
	size_t planes = b->batch * b->c, in = b->h * b->w, out = b->oh * b->ow;
	struct model_need n;
	struct model_call c = { .batch = b->batch, .train = true };
	real *y = bytes(planes * out * sizeof(real)), *dx = bytes(planes * in * sizeof(real)), *want = reals(in);

	model_need(m, 0, 1, b->batch, par->n, &n);
	c.saved = bytes(n.saved);
	c.work = bytes(n.work_fwd + n.work_bwd + n.work_eval);
	model_forward(par, m, 0, 1, &c, x, y);
	model_backward(par, m, 0, 1, &c, x, dy, dx, NULL);
	for (size_t p = 0; p < planes; p++) {
		memset(want, 0, in * sizeof(*want));
		for (size_t o = 0; o < out; o++) {
			size_t at = winner(b, x + p * in, o / b->ow, o % b->ow);

			assert_memory_equal(&y[p * out + o], &x[p * in + at], sizeof(real));
			want[at] += dy[p * out + o];
		}
		assert_memory_equal(dx + p * in, want, in * sizeof(real));
	}
	free(c.saved);
	c.saved = NULL;
	memset(y, 0xff, planes * out * sizeof(real));
	model_forward(par, m, 0, 1, &c, x, y);
	for (size_t o = 0; o < planes * out; o++)
		assert_memory_equal(&y[o], &x[o / out * in + winner(b, x + o / out * in, o % out / b->ow, o % b->ow)],
			sizeof(real));
	free(c.work);
	free(y);
	free(dx);
	free(want);
}

static void the_largest_of_every_window(void **state)
{
	static const size_t side[][2] = { { 1, 1 }, { 3, 5 }, { 8, 8 }, { 9, 31 }, { 12, 140 } };
	enum cpu best;

	(void)cpu_pick(NULL, &best, NULL);
	for (size_t i = 0; i < sizeof(side) / sizeof(*side); i++)
		for (int k = 1; k <= 4; k++)
			for (int s = 1; s <= 3; s++)
				for (int pad = 0; pad <= k / 2; pad++) {
					struct bed b = { 2, 3, side[i][0], side[i][1], .k = k, .s = s, .pad = pad };
					size_t n = b.batch * b.c * b.h * b.w;
					char text[80];
					struct model *m;
					real *x = noise(i, 4, n), *dy;

					(void)snprintf(text, sizeof(text), "maxpool2d kernel=%d stride=%d padding=%d", k, s, pad);
					m = model_text((struct shape){ 3, { b.c, b.h, b.w } }, text, NULL, NULL);
					for (size_t j = 0; j < n; j++)
						x[j] = j % 41 == 7 ? (real)NAN : j % 37 == 5 ? -(real)INFINITY : floor(x[j]);
					if (m) {
						b.oh = m->out.d[1];
						b.ow = m->out.d[2];
						dy = noise(9, 1, b.batch * b.c * b.oh * b.ow);
						for (enum cpu cpu = CPU_PLAIN; cpu <= best; cpu++) {
							struct par par = team(1 + (int)cpu, cpu, NULL);

							check(&b, m, &par, x, dy);
						}
						free(dy);
					}
					model_free(m);
					free(x);
				}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(the_largest_of_every_window) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
