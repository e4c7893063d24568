/* What the owner is told: events, lines of the log, that it is broken; and what is to be looked at soon. All of the
 * trainer calls this, and it calls nothing of it. */
#include <stdarg.h>
#include <stdio.h>
#include "train/trainer_int.h"

void trainer_event(struct trainer *t, enum log_level level, const char *code, const char *fmt, ...)
{
	char text[300];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (t->cb.event)
		t->cb.event(t->arg, level, code, text);
}

void trainer_line(struct trainer *t, const char *fmt, ...)
{
	char text[800];
	va_list ap;
	int n;

	if (!t->cb.log)
		return;
	n = snprintf(text, sizeof(text), "{\"t\":%llu,", (unsigned long long)env_now(t->env));
	va_start(ap, fmt);
	n += vsnprintf(text + n, sizeof(text) - (size_t)n - 2, fmt, ap);
	va_end(ap);
	text[n++] = '}';
	t->cb.log(t->arg, text, (size_t)n);
}

const char *trainer_hyper_text(const struct trainer *t, const double hyper[OPTIM_KEYS_MAX], char out[TRAINER_HYPER])
{
	size_t n = 0;

	out[0] = 0;
	for (int i = 0; i < t->s->optim->nkeys; i++)
		n += (size_t)snprintf(out + n, TRAINER_HYPER - n, "%s\"%a\"", i ? "," : "", hyper[i]);
	return out;
}

void trainer_break(struct trainer *t, const struct err *e)
{
	if (t->broken || t->dying)
		return;
	t->broken = true;
	sums_cut(&t->sums);
	exec_stop(t->x);
	t->cb.broken(t->arg, e);
}

void trainer_later(struct trainer *t)
{
	if (!t->dying)                          /* a job that ends late may ask for it */
		env_after(t->env, &t->later, 0);
}
