/* Bugs on purpose, to prove that the checkers of tests/sim see them. Only tests compile this room with PLANTED_BUGS. */
#ifndef AVG_PLANTED_H
#define AVG_PLANTED_H
#include <stdbool.h>

#ifdef PLANTED_BUGS
int planted_bug(void);                          /* the test's: which one is in force */
#define PLANTED(n) (planted_bug() == (n))
#else
#define PLANTED(n) false
#endif

enum planted {
	PLANT_APPLY_WITHOUT_COMMIT = 10, PLANT_DOUBLE_COUNT, PLANT_LOST_RANGE, PLANT_WRONG_ORDER, PLANT_OWN_SUM,
		PLANT_NO_TIMER,
	PLANT_OLD_RESULT, PLANT_GRANT_TWICE,
};

#endif
