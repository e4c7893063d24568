/* Run logs of a peer or two, from wherever they come, that a replay runs again (train/replay.h). First byte of the
 * input: two logs when it is odd, the first as long as the next two bytes say. Whatever they say is run on the data
 * that is here, or refused with a text; so is what they say of the run that they are of. */
#include <stdlib.h>
#include "common/buf.h"
#include "train/replay.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char json[] =
	"{\"name\":\"r\",\"input\":[3],\"model\":[{\"type\":\"linear\",\"out\":3},{\"type\":\"tanh\"},"
	"{\"type\":\"linear\",\"out\":2}],\"loss\":\"cross_entropy\",\"optimizer\":{\"name\":\"adam\",\"lr\":0.01},"
	"\"clip_norm\":0.3,\"target_batch\":4,\"seed\":3,\"data\":{\"name\":\"x\",\"kind\":\"synthetic\",\"count\":20},"
	"\"local\":{\"batch\":2,\"deterministic\":true}}";

static void check(bool ok)
{
	if (!ok)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct par par = par_serial(CPU_PLAIN, NULL);
	struct rd r = rd_of(data, size);
	bool two = rd_u8(&r) & 1;
	size_t first = two ? rd_u16(&r) : SIZE_MAX;
	struct err e = { 0 };
	struct spec *s = spec_parse(json, sizeof json - 1, &e);
	struct data *d = s ? data_open(NULL, "x", s, &e) : NULL;
	struct replay_log log[2];
	struct replay_result ret;

	check(d != NULL);
	first = first < rd_left(&r) ? first : rd_left(&r);
	log[0] = (struct replay_log){ (const char *)rd_bytes(&r, first), first };
	size_t rest = rd_left(&r);
	log[1] = (struct replay_log){ (const char *)rd_bytes(&r, rest), rest };
	if (log[0].text && replay(&(struct replay_conf){ .spec = s, .data = d, .par = &par, .log = log, .n = two ? 2 : 1 },
		&ret, &e) < 0)
		check(e.code && e.text[0]);
	data_free(d);
	spec_free(s);
	e = (struct err){ 0 };
	s = log[0].text ? replay_spec(log, two ? 2 : 1, &e) : NULL;
	check(s || !log[0].text || (e.code && e.text[0]));
	spec_free(s);
	return 0;
}
