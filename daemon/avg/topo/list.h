TOPO(flat)
TOPO(two_level)
TOPO(moshpit)
