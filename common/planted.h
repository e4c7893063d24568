/* Bugs on purpose (amendments, part 7, sentence 4): each proves that a checker of the tests sees it. Builds with fail
 * points have them, asleep; a test program, which links tests/bugs/planted.c, wakes what PLANTED=name+name says.
 * Elsewhere PLANTED() is false and costs nothing. tests/bugs/meson.build says which checker must see which. */
#ifndef COMMON_PLANTED_H
#define COMMON_PLANTED_H
#include <stdbool.h>

#define PLANTED_BUGS(X) \
	/* net */ \
	X(NONCE_REUSE) X(REPLAY_TAKEN) X(CALL_NO_TIMER) X(ANY_CHANNEL) X(M3_UNSIGNED) X(RUN_AGAIN) X(DEATH_UNHEARD) \
	X(CHUNK_UNHASHED) X(SESSION_CHOICE) X(CHUNK_HOLE) \
	/* dht */ \
	X(DHT_FORGED) X(DHT_NOT_OWNER) X(DHT_ENDED) X(DHT_OLDER_WINS) X(DHT_LOST_SUBKEY) \
	X(DHT_ACCOUNT_KEPT) X(DHT_NOBODY_LONG) \
	/* avg */ \
	X(APPLY_WITHOUT_COMMIT) X(DOUBLE_COUNT) X(LOST_RANGE) X(WRONG_ORDER) X(OWN_SUM) X(NO_TIMER) X(OLD_RESULT) \
	X(OLD_ROW) X(GRID_GAP) X(GRID_OWN) \
	X(GRANT_TWICE) X(TERM_IGNORED) X(PREV_UNCHECKED) X(LEFT_OUT_COUNTED) X(COMMIT_NOT_REPEATED) X(FORK_KEPT) \
	X(COMMIT_FROM_ANYBODY) X(TERMS_UNSIGNED) X(PARAMS_FROM_ANYBODY) X(CLAIM_NOT_GIVEN) X(SLEPT_AND_DECIDED) \
	X(ONE_WORD) X(TOLD_AND_BELIEVED) X(PROOF_UNCHECKED) X(ACK_AWAITED) X(LEAD_SEIZED) X(FORGED_UNNAMED) \
	X(LEFT_OUT_FOLLOWED) X(WRONG_BELIEVED) X(PROOFS_UNBOUNDED) X(ATTEMPT_UNCHECKED) X(ACK_AFTER_PROMISE) X(HALF_UNIT) \
	/* crew */ \
	X(CREW_UNBOUNDED) X(CREW_GO_UNSIGNED) X(CREW_TERM_IGNORED) X(CREW_ANY_LEADER) X(CREW_RUNS_ON) \
	X(CREW_NUMBER_IGNORED) X(CREW_ANY_DIGEST) X(CREW_NO_DEADLINE) X(CREW_NOBODY_ASKS) X(CREW_NO_BASE) \
	X(CREW_EARLY) X(CREW_UNPROMISED) X(CREW_OWN_ORDER) X(CREW_PATIENT) X(CREW_SLOW_AS_SAID) \
	X(CREW_BLAMES_LEADER) X(CREW_BASE_UNSEEN) X(CREW_ANY_CLAIM) \
	/* ckpt, store */ \
	X(CKPT_UNSYNCED) X(CKPT_TORN) X(STORE_LOST_WRITE) \
	/* plan, train */ \
	X(TOKEN_TOO_OLD) X(TOKEN_UNPINNED) X(TOKEN_EARLY_COMMIT) X(STALE_GRADIENT) \
	X(PASSES_UNCHECKED) X(REPLAY_AFRESH) X(SAVED_UNCOUNTED)

enum planted {
	PLANT_NOTHING,
#define X(n) PLANT_##n,
	PLANTED_BUGS(X)
#undef X
};

#ifdef FAILPOINTS
bool planted_bug(enum planted bug) __attribute__((weak));       /* is it awake? the test's, absent in the daemon */
#define PLANTED(n) (planted_bug && planted_bug(PLANT_##n))
#else
#define PLANTED(n) false
#endif

#endif
