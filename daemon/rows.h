/* Every key of the configuration file (hivemindd.conf(5)). */
#ifndef DAEMON_ROWS_H
#define DAEMON_ROWS_H
#include "common/conf.h"
extern const struct conf_row conf_rows[];
#endif
