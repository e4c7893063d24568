/* normalize: x = (x - mean) / std on raw values (bytes are 0..255), one mean and std for all channels or one each. */
#include "train/step.h"

static int read_list(const json_t *o, const struct place *at, const char *key, double lo, double *ret, uint32_t *ret_n,
	struct err *e)
{
	const struct place p = place_key(at, key);
	const json_t *v = json_object_get(o, key);

	if (!v)
		return place_err(at, e, "normalize needs \"mean\" and \"std\" of the raw values");
	*ret_n = 1;
	if (!json_is_array(v))
		return read_number(v, &p, lo, 1e30, ret, e);
	*ret_n = (uint32_t)json_array_size(v);
	if (!*ret_n || *ret_n > STEP_CHANNELS)
		return place_err(&p, e, "must be a number or an array of one number a channel (at most %d), and has %u",
			STEP_CHANNELS, *ret_n);
	for (uint32_t i = 0; i < *ret_n; i++) {
		const struct place q = place_index(&p, i);

		if (read_number(json_array_get(v, i), &q, lo, 1e30, &ret[i], e) < 0)
			return -1;
	}
	return 0;
}

static int read_(struct spec_step *st, const json_t *o, const struct place *at, struct err *e)
{
	static const char *const known[] = { "type", "mean", "std", NULL };
	uint32_t means = 0, stds = 0;

	if (read_known(o, at, known, e) < 0 || read_list(o, at, "mean", -1e30, st->mean, &means, e) < 0 ||
	    read_list(o, at, "std", 1e-30, st->std, &stds, e) < 0)
		return -1;
	if (means != stds && means > 1 && stds > 1)
		return place_err(at, e, "%u values of \"mean\" and %u of \"std\"", means, stds);
	st->channels = means > stds ? means : stds;
	for (uint32_t i = means; i < st->channels; i++)
		st->mean[i] = st->mean[0];
	for (uint32_t i = stds; i < st->channels; i++)
		st->std[i] = st->std[0];
	return 0;
}

/* Plain loops that the compiler makes vectors of: one subtraction and one product, so all widths give the same bits. */
static void of_bytes(const uint8_t *restrict from, size_t n, real mean, real scale, real *restrict to)
{
	for (size_t i = 0; i < n; i++)
		to[i] = ((real)from[i] - mean) * scale;
}

static void of_reals(const real *from, size_t n, real mean, real scale, real *to)
{
	for (size_t i = 0; i < n; i++)
		to[i] = (from[i] - mean) * scale;
}

static int run(const struct spec_step *st, struct sample *s, uint64_t key, bool train, struct err *e)
{
	size_t n = s->h * s->w;
	const void *from = s->p;
	real *to = s->p;

	if (st->channels > 1 && st->channels != s->c)
		return err_set(e, ERR_MISMATCH, "normalize has values for %u channels, and a sample has %zu", st->channels,
			s->c);
	if (s->out)                             /* the last step */
		to = s->out;
	else if (s->bytes)
		to = sample_room(s, sample_count(s) * sizeof(*to));
	for (size_t c = 0; c < s->c; c++) {
		size_t k = st->channels > 1 ? c : 0;
		real mean = (real)st->mean[k], scale = (real)(1 / st->std[k]);

		if (s->bytes)
			of_bytes((const uint8_t *)from + c * n, n, mean, scale, to + c * n);
		else
			of_reals((const real *)from + c * n, n, mean, scale, to + c * n);
		if (c < STEP_CHANNELS)
			s->zero[c] = (s->zero[c] - mean) * scale;
	}
	s->p = to;
	s->bytes = false;
	return 0;
}

const struct step_ops step_normalize = { "normalize", "subtracts the mean, divides by std",
	false, false, false, read_, run, NULL, false };
