/* What must hold in everybody's part of the table, whatever dies: a record is not kept longer than its life, by any
 * clock; the newer is never replaced by the older; no quota is exceeded, and what is counted is what is there. After
 * every event the peers are looked through in turn, a few records' worth of them: what breaks a rule stays to be
 * seen. */
#ifndef TESTS_SIM_TABLE_CHECK_H
#define TESTS_SIM_TABLE_CHECK_H
#include "dht/dht.h"
#include "sim.h"

struct table_check;
/* of: a node's table, NULL while it has none. */
struct table_check *table_check_new(struct sim *s, struct dht *(*of)(void *arg, int node), void *arg);
void table_check_free(struct table_check *c);
void table_check_all(struct table_check *c);            /* every peer now */
/* Records that outlive a restart may live so much longer: wall clocks jump by that. */
void table_check_clocks(struct table_check *c, uint64_t us);
uint64_t table_check_records(const struct table_check *c);      /* different ones seen */

#endif
