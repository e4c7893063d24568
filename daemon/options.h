/* The command line, the configuration file and the places of things. */
#ifndef DAEMON_OPTIONS_H
#define DAEMON_OPTIONS_H
#include <stdbool.h>
#include "common/conf.h"
#include "common/err.h"

#define EXIT_CONFIG 42                  /* the unit does not restart on it */

struct options {
	struct conf *conf;
	char *config;                       /* path that was read, or NULL: none */
	char *state_dir, *socket, *status_socket;   /* status_socket NULL: none */
	char *failpoints;                   /* test builds; NULL */
	bool check_only, move_corrupt_aside;
};
enum options_what { OPTIONS_RUN, OPTIONS_EXIT, OPTIONS_USAGE, OPTIONS_CONFIG };
/* RUN: go on. EXIT: something was printed, all is well. USAGE, CONFIG: e says what is wrong. options_done() always. */
enum options_what options_read(struct options *o, int argc, char **argv, struct err *e);
void options_done(struct options *o);
int options_reload(struct options *o, json_t **ret_changed, struct err *e);

#endif
