/* Configuration: an INI file (libinih) read through a table of rows; one row gives parsing, range, default,
 * help, reload rule and the check that the man page and the example know the key. */
#ifndef COMMON_CONF_H
#define COMMON_CONF_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <jansson.h>
#include "common/err.h"

enum conf_type { CONF_STR, CONF_INT, CONF_DOUBLE, CONF_BOOL, CONF_DURATION, CONF_SIZE, CONF_LIST };
struct conf_row {
	const char *section, *key;
	enum conf_type type;
	const char *def;                    /* text, parsed like the file's */
	double min, max;                    /* numbers, microseconds or bytes; equal = no range */
	bool reload;                        /* may change on SIGHUP */
	const char *help;                   /* one line */
};                                          /* a table ends with section == NULL */

struct conf;
struct conf *conf_new(const struct conf_row *rows);                 /* all defaults */
void conf_free(struct conf *c);
/* Errors say FILE:LINE: [section] key: what, and the nearest known key. Nothing changes when it fails. */
/* A value whose origin starts with "--" (the command line) is not replaced by a file. A list key may stand in several
 * lines of a file, which add up; any other key only once. Lines end at 4000 characters; " ;" starts a comment. */
int conf_load(struct conf *c, const char *path, struct err *e);
int conf_load_text(struct conf *c, const char *name, const char *text, size_t n, struct err *e);
int conf_set(struct conf *c, const char *section, const char *key, const char *value, const char *origin,
	struct err *e);
/* Reload: reads path into a copy; keys that changed and may not are an error naming them; else swaps.
 * ret_changed ("section.key" of each; may be NULL) is a new reference. */
int conf_reload(struct conf *c, const char *path, json_t **ret_changed, struct err *e);
const char *conf_str(const struct conf *c, const char *section, const char *key);   /* unknown key: assert */
/* INT, DURATION (us), SIZE (bytes) */
int64_t conf_int(const struct conf *c, const char *section, const char *key);
double conf_double(const struct conf *c, const char *section, const char *key);
bool conf_bool(const struct conf *c, const char *section, const char *key);
/* comma or blank separated */
size_t conf_list(const struct conf *c, const char *section, const char *key, const char *const **ret);
/* "default", "FILE:12", "--listen" */
const char *conf_origin(const struct conf *c, const char *section, const char *key);
/* {section: {key: {value, text, origin, default, help, reload}}} */
json_t *conf_json(const struct conf *c);
/* [data] and other free-form sections: rows with key "*" accept any key; walk them here. */
const char *conf_each(const struct conf *c, const char *section, size_t i, const char **ret_value); /* key or NULL */

#endif
