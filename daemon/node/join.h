/* The addresses of the configuration: names are resolved, for ever, then the DHT dials them, for ever. Each has a state
 * of its own, which `hivectl status` shows; that one cannot be reached, and that it can be again, are events. */
#ifndef DAEMON_NODE_JOIN_H
#define DAEMON_NODE_JOIN_H
#include "common/conf.h"
#include "dht/dht.h"

struct joins;
typedef void join_event_fn(void *arg, enum log_level level, const char *code, const struct id *peer, const char *text);
/* name: "host:port", borrowed during the call. NULL: one of them is no address (e says which). */
struct joins *joins_new(struct env *env, struct net *net, struct dht *d, const char *const *name, size_t n,
	join_event_fn *event, void *arg, struct err *e);
/* The same mistakes, found before anything is made. */
int joins_check(const struct conf *c, struct err *e);
void joins_free(struct joins *js);              /* NULL is fine */
/* [{address, state, peer?, error?, next_s?}]: state is joined, connecting, unreachable, resolving, unresolved or
 * this peer; peer who answered there, and who is asked whether it is still there when it has been silent; error why
 * not; next_s when it is tried again. */
json_t *joins_json(struct joins *js);

#endif
