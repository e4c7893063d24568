/* The real Unix socket around the control room. One for everybody of the group (0660), one that only reads. */
#ifndef CONTROL_SOCK_H
#define CONTROL_SOCK_H
#include <stdbool.h>
#include "common/err.h"

#define SOCK_CLIENTS_MAX 128

struct control;
struct loop;
struct sock;
/* A socket file that nobody listens on any more is replaced; one that answers is an error (ERR_BUSY). group: name
 * of the group that may connect, NULL or "" = the process's own. ERR_INVALID: the path is too long or the group is
 * unknown. */
struct sock *sock_open(struct loop *l, struct control *c, const char *path, const char *group, bool view_only,
	struct err *e);
/* sends what a client can take at once, closes all, removes the file; NULL is fine */
void sock_close(struct sock *s);

#endif
