/* A run's specification as a record of the DHT carries it: as it is, or, when that would be too much, deflated (zlib,
 * RFC 1950) as {"deflated": hex}. */
#ifndef RUN_PACKED_H
#define RUN_PACKED_H
#include "common/jrpc.h"

#define PACKED_MOST (1u << 20)          /* bytes of a specification that is deflated */

/* Of at most that many bytes of JSON; NULL: not even deflated. *ret_bytes: as it is. */
json_t *spec_packed(const json_t *shared, size_t most, size_t *ret_bytes);
/* Of remote bytes: the specification, a new reference; NULL and ERR_PROTOCOL. One that is as it is comes back. */
json_t *spec_unpacked(const json_t *packed, struct err *e);

#endif
