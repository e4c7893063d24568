/* light_crypt.h: identities at the price of a hash, which are nobody's Ed25519 key. */
#include <string.h>
#include "common/hash.h"
#include "common/rng.h"
#include "light_crypt.h"

int light_id(const uint8_t seed[32], uint8_t ret[32])
{
	uint64_t h = siphash(1, 32, seed, 32);

	for (int i = 0; i < 32; i += 8) {
		uint64_t v = rng_mix(h, i);
		memcpy(ret + i, &v, 8);
	}
	return 0;
}
