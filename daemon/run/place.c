/* Where on this machine things of a run lie: its folder, its data. */
#include <stdio.h>
#include <string.h>
#include "run/int.h"

void runs_dir(const struct runs *rs, const char *hex, char *out, size_t cap)
{
	snprintf(out, cap, "%s/runs/%s", rs->ctx.state_dir, hex);
}

void run_dir(const struct run *r, char *out, size_t cap) { runs_dir(r->rs, r->hex, out, cap); }

/* Where this machine keeps data: a path, else the [data] table, else below data_dir. */
const char *run_place_path(const struct runs *rs, const char *of_kind, const char *name, char *out, size_t cap,
	struct err *e)
{
	const struct conf *c = rs->ctx.conf;
	const char *value = NULL, *key;
	size_t kind = strlen(of_kind);
	char of[32];
	int rc = data_place(name, of, sizeof of, &name, e);
	if (rc < 0)
		return NULL;
	if (!rc && strcmp(of, of_kind)) {
		err_set(e, ERR_MISMATCH, "data: the run's data is of kind %s, and \"%.200s\" is %s", of_kind, name, of);
		return NULL;
	}
	if (name[0] == '/') {
		snprintf(out, cap, "%s", name);
		return out;
	}
	for (size_t i = 0; (key = conf_each(c, "data", i, &value)); i++)
		if (!strcmp(key, name)) {
			bool prefixed = !strncmp(value, of_kind, kind) && value[kind] == ':';
			snprintf(out, cap, "%s", prefixed ? value + kind + 1 : value);
			return out;
		}
	const char *dir = conf_str(c, "data", "dir");
	if (strstr(name, "..") || !dir[0]) {
		err_set(e, ERR_NOT_FOUND,
			"data \"%s\" is not known on this machine: name it in [data] of the configuration (%s = %s:PATH), "
			"or give its absolute path: --data=/PATH", name, name, of_kind);
		return NULL;
	}
	snprintf(out, cap, "%s/%s", dir, name);
	return out;
}

const char *run_data_path(const struct runs *rs, const struct spec *s, char *out, size_t cap, struct err *e)
{
	const struct data_ops *kind = data_find(s->data_kind);
	if (kind && kind->unplaced && !s->local.data[0] && cap) {
		*out = 0;
		return out;
	}
	return run_place_path(rs, s->data_kind, s->local.data[0] ? s->local.data : s->data_name, out, cap, e);
}
