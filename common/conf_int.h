/* Inside the configuration: what conf.c (rows, values, questions) and conf_file.c (loading, reloading) share. */
#ifndef COMMON_CONF_INT_H
#define COMMON_CONF_INT_H
#include "common/conf.h"

struct conf_value {
	const struct conf_row *row;
	char *key;                          /* the row's, or the one that a "*" row took */
	char *text, *origin;
	int64_t i;                          /* INT, DURATION, SIZE, BOOL */
	double d;
	char **items;                       /* LIST: one block, pointers then bytes */
	size_t n;
	unsigned line;                      /* of the file being read, 0 = not given in it */
};

struct conf {
	const struct conf_row *rows;
	struct conf_value *v;
	size_t n;
};

/* NULL when it has no value */
struct conf_value *conf_find(const struct conf *c, const char *section, const char *key);
int conf_put(struct conf *c, const char *section, const char *key, const char *text, const char *origin, struct err *e);
struct conf *conf_copy(const struct conf *c, bool command_line_only);
void conf_swap(struct conf *a, struct conf *b);

#endif
