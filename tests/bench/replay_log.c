/* replay_log SPEC DATA LOG...: runs again what daemons wrote down (run.log of each peer, in the order in which their
 * rounds sum) and compares every epoch's parameters with the digests in the logs. Used by tests/e2e/replay.sh. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "loop/loop.h"
#include "train/replay.h"

#define LOGS_MAX 16

static char *slurp(const char *path, size_t *ret_len)
{
	FILE *f = fopen(path, "rb");
	char *text = NULL;
	size_t len = 0, n;
	char part[65536];

	if (!f)
		return NULL;
	while ((n = fread(part, 1, sizeof(part), f)) > 0) {
		text = realloc(text, len + n);
		memcpy(text + len, part, n);
		len += n;
	}
	(void)fclose(f);
	*ret_len = len;
	return text;
}

static int run(struct loop *l, const char *spec_text, size_t spec_len, const char *data, const struct replay_log *log,
	size_t n, struct replay_result *ret, struct err *e)
{
	const struct par par = par_serial(CPU_PLAIN, NULL);
	struct spec *s = spec_parse(spec_text, spec_len, e);
	struct data *d = s ? data_open(loop_env(l)->files, data, s, e) : NULL;
	int rc = d ? replay(s, d, &par, log, n, ret, e) : -1;

	data_free(d);
	spec_free(s);
	return rc;
}

int main(int argc, char **argv)
{
	struct loop_conf conf = { 0 };
	struct replay_log log[LOGS_MAX];
	struct replay_result r = { 0 };
	size_t spec_len = 0, n = 0;
	struct err e = { 0 };
	struct loop *l;
	char *spec;
	int rc;

	if (argc < 4 || argc - 3 > LOGS_MAX) {
		(void)fprintf(stderr, "usage: replay_log SPEC DATA LOG...\n");
		return 3;
	}
	l = loop_new(&conf, &e);
	spec = slurp(argv[1], &spec_len);
	for (int i = 3; i < argc; i++, n++)
		if (!(log[n].text = slurp(argv[i], &log[n].len))) {
			(void)fprintf(stderr, "%s cannot be read\n", argv[i]);
			return 3;
		}
	rc = l && spec ? run(l, spec, spec_len, argv[2], log, n, &r, &e) : -1;
	if (rc < 0)
		(void)printf("%s\n", e.text);
	else
		(void)printf("%llu epochs, %llu samples: every digest is the same\n", (unsigned long long)r.epochs,
			(unsigned long long)r.samples);
	for (size_t i = 0; i < n; i++)
		free((char *)log[i].text);
	free(spec);
	loop_free(l);
	return rc < 0 ? 1 : 0;
}
