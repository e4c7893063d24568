/* Measured times, and deadlines by them (times.c). */
#ifndef AVG_TIMES_H
#define AVG_TIMES_H
#include <stdbool.h>
#include <stdint.h>

struct avg;
#define TIMES 64
/* Measured times; deadlines are three times the worst of the last ones.
 * least_us: something was under way when its deadline came (times_short); 0 when the times measured say more. */
struct times { uint64_t v[TIMES], least_us; unsigned n; };
void times_add(struct times *t, uint64_t us);
bool times_longer(uint64_t us, uint64_t floor_us);      /* is a deadline by that time longer than floor_us? */
/* A deadline of `us` was too short: `times` as long the next time, at least twice, up to 16 times unmeasured_us. */
void times_short(struct times *t, uint64_t times, uint64_t us, uint64_t unmeasured_us);
uint64_t times_deadline(const struct times *t, uint64_t floor_us, uint64_t unmeasured_us);
uint64_t unmeasured_us(const struct avg *a);    /* what is assumed before that */
uint64_t farthest_us(const struct avg *a);      /* the longest round trip to a member */

#endif
