/* Real files behind struct files of env.h. Paths are taken as they are; errors name the path, the call and errno's
 * text. */
#ifndef DAEMON_FILES_H
#define DAEMON_FILES_H
#include "env.h"
struct files *files_real(void);                         /* stateless; never freed */
#endif
