/* What must hold in everybody's part of the table, whatever dies: a record is not kept longer than its life, by any
 * clock; the newer is never replaced by the older; no quota is exceeded, and what is counted is what is there; a key
 * has no more subkeys than it may; that nobody has a key is believed for a second; the routing table is a tree of
 * buckets in which everybody stands once, where its id belongs. After every event: of the peer whose code has run, what
 * can be seen at once (what has ended goes, no count is exceeded), and all of it when something there has changed, as
 * soon as so many events were its own as that costs. */
#ifndef TESTS_SIM_TABLE_CHECK_H
#define TESTS_SIM_TABLE_CHECK_H
#include "dht/dht.h"
#include "sim.h"

struct table_check;
/* of: a node's table, NULL while it has none. per_event: records looked at for each event; large tables wait. */
struct table_check *table_check_new(struct sim *s, struct dht *(*of)(void *arg, int node), void *arg, size_t per_event);
void table_check_free(struct table_check *c);
void table_check_all(struct table_check *c);            /* every peer now */
/* Records that outlive a restart may live so much longer: wall clocks jump by that. */
void table_check_clocks(struct table_check *c, uint64_t us);
uint64_t table_check_records(const struct table_check *c);      /* different ones seen */

#endif
