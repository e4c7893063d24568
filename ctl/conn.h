/* The connection to the daemon: one JSON object per line, both ways. */
#ifndef CTL_CONN_H
#define CTL_CONN_H
#include <jansson.h>
#include "common/buf.h"
#include "common/err.h"

#define CONN_LINE_MAX (64u << 20)       /* of a reply; the daemon's own limits are far below */

struct conn { int fd; struct buf in; size_t seen; int id; };
int conn_open(struct conn *c, const char *path, struct err *e);         /* errors say what to do */
void conn_close(struct conn *c);
int conn_send(struct conn *c, const char *method, json_t *params, struct err *e);       /* steals params */
/* The next message of the daemon; timeout_ms -1: for ever. NULL: ERR_UNREACHABLE at the end of the connection,
 * ERR_TIMEOUT, ERR_PROTOCOL. */
json_t *conn_read(struct conn *c, int timeout_ms, struct err *e);
/* The answer to the last conn_send; notifications before it are dropped. error (the object) is left in *ret_error. */
json_t *conn_answer(struct conn *c, int timeout_ms, json_t **ret_error, struct err *e);

#endif
