/* The rest after an instruction that has failed: no program until it is over. */
#include "train/trainer_int.h"

static void rest_fire(struct timer *tm)
{
	struct trainer *t = container_of(tm, struct trainer, rest);

	t->resting = false;
	exec_wake(t->x);
}

void trouble_init(struct trainer *t)
{
	t->rest = (struct timer){ .fire = rest_fire, .name = "trainer.rest" };
}

void trouble_over(struct trainer *t)
{
	t->troubles = 0;
	t->resting = false;
	env_timer(t->env, &t->rest, 0);
}
