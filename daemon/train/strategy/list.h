STRATEGY(hivemind)
STRATEGY(single)
