/* The control room, sans-IO: bytes of a client go in, requests are checked and handed to commands, replies and
 * notifications come out as bytes. It opens no socket; sock.c is the real socket around it, tests call it directly.
 * JSON-RPC 2.0, one object per line.
 *
 * Limits: a line has at most CONTROL_LINE_MAX bytes, a longer one is answered with an error and skipped to its end;
 * CONTROL_CALLS_MAX requests of a client may be unanswered, and when CONTROL_OUT_MAX bytes wait for it no further
 * request of it is looked at (client_hungry says no, so that the socket is not read either); notifications
 * beyond CONTROL_OUT_MAX are dropped and counted in the next one that fits ("lost"). Commands that are CMD_ALONE: one
 * of a client at a time, CONTROL_ALONE_MAX in all, half of them of the read-only socket; one more is ERR_BUSY. Whoever
 * comes through the read-only socket gets a tenth of the loop's time for all of them together: after
 * CONTROL_VIEW_BURST_US in advance their next requests wait. */
#ifndef CONTROL_CONTROL_H
#define CONTROL_CONTROL_H
#include <stdbool.h>
#include <stddef.h>
#include "control/cmd.h"

#define CONTROL_LINE_MAX 65536
#define CONTROL_CALLS_MAX 64
#define CONTROL_OUT_MAX 1048576
#define CONTROL_FOLLOWS_MAX 16          /* topics one client follows */
#define CONTROL_ALONE_MAX 16
/* Lines of the log or of events at once: the loop waits. */
#define CONTROL_LINES_MAX(call) (client_only_views((call)->client) ? 1000 : 10000)
#define CONTROL_VIEW_SHARE 10           /* one of so many microseconds */
#define CONTROL_VIEW_BURST_US 200000

struct control;
/* ctx is copied; its control is set to the new one. */
struct control *control_new(const struct cmd_ctx *ctx);
void control_free(struct control *c);           /* clients must be gone; NULL is fine */
void control_set_api(struct control *c, const struct api *api);     /* when the node comes up; NULL: it is going */
/* api_news_fn: to everybody who follows topic and key. */
void control_news(void *arg, const char *topic, const char *key, const json_t *news);
bool control_heard(void *arg, const char *topic, const char *key);      /* does anybody? */

/* --- one connection. wake: there are bytes to send, or the client is hungry again; never called from within
 * client_bytes or client_sent (look afterwards). */
struct client *client_new(struct control *c, bool view_only, void (*wake)(void *arg), void *arg);
void client_bytes(struct client *cl, const void *p, size_t n);
bool client_hungry(const struct client *cl);
bool client_idle(const struct client *cl);      /* owes no answer and has none to send */
bool client_only_views(const struct client *cl);
/* May its place be given to another that comes: it has said nothing whole for a while, is owed nothing, follows
 * nothing? */
bool client_gives_way(const struct client *cl);
const void *client_out(const struct client *cl, size_t *ret_n);     /* what waits to be sent */
void client_sent(struct client *cl, size_t n);
void client_free(struct client *cl);            /* the connection is gone; answers that come later go nowhere */

/* For commands: whoever waits for this reply follows news from now on. log: every line at or above level.
 * ERR_LIMIT when it follows too much; 0 when the client is gone. */
int control_follow(struct control *c, struct reply *r, const char *topic, const char *key, struct err *e);
int control_follow_log(struct control *c, struct reply *r, enum log_level min, struct err *e);

#endif
