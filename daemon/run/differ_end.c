/* Nobody looks any more where data begins to be another than the run's. */
#include <stdlib.h>
#include "run/differ.h"

void differ_end(struct differ *d)
{
	if (d->hashing) {
		d->r = NULL;
		return;
	}
	data_source_close(d->here);
	free(d);
}

void differ_free(struct differ *d)
{
	if (!d)
		return;
	env_timer(d->rs->ctx.env, &d->timer, 0);
	if (d->call)
		net_cancel(d->rs->ctx.net, d->call);
	d->call = NULL;
	if (d->seek)
		d->seek->d = NULL;
	d->seek = NULL;
	differ_end(d);
}
