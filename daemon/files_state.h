/* The folder in which a daemon keeps its identity, its database and its checkpoints. */
#ifndef DAEMON_FILES_STATE_H
#define DAEMON_FILES_STATE_H
#include "common/err.h"
#include "common/log.h"

/* Makes the folder and its parents when missing, and takes the lock in it, which names this process. ret_fd holds the
 * lock until it is closed; -1 when another daemon has it (e names that process) or it cannot be made. */
int files_state_take(const char *dir, struct log *log, int *ret_fd, struct err *e);

#endif
