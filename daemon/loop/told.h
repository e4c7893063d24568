/* What status says of the loop: how long callbacks held it; nothing else is done meanwhile. */
#ifndef DAEMON_LOOP_TOLD_H
#define DAEMON_LOOP_TOLD_H
#include <jansson.h>

struct loop;
/* {callbacks, half_under_us, p999_under_us, longest_us, longest_in, slow: over loop_conf.slow_us}. New reference. */
json_t *loop_told(const struct loop *l);

#endif
