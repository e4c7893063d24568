/* Identities of light cryptography: light_id.c has those that libcrypto makes of the same seed, so that a scenario has
 * the same history with either; cheap_id.c has others, for who tries many. */
#ifndef LIGHT_CRYPT_H
#define LIGHT_CRYPT_H
#include <stdint.h>

int light_id(const uint8_t seed[32], uint8_t ret[32]);   /* -1: no memory */

#endif
