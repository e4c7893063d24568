#!/bin/bash
# The thin link of link.sh, where one of the three only dials out, as behind a NAT: what it asks and what is asked of it
# does not wait behind its own bulk, every round counts it in, and it gets the state like the others.
LINK_CLIENT=c
. "$(dirname "$0")/link.sh"
