/* Inside of opening a run: open.c begins it, opened.c goes on. */
#ifndef RUN_OPEN_H
#define RUN_OPEN_H
#include "run/int.h"

struct opening { struct job job; struct run *r; struct compute compute;
	struct files *files; struct spec *spec; char path[4096];
	struct data *data; struct origin *weights; struct err e, why; int rc; bool data_bad, absent;
	struct data_source *other; };           /* what is here instead of the run's data */

#endif
