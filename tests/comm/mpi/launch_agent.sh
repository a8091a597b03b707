#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What mpirun takes for ssh: `launch_agent.sh [FLAGS] HOST COMMAND...` runs the command in the network
# namespace of HOST, an address that network.py gave, under a host name of its own.
while [ "${1#-}" != "$1" ]; do shift; done
node=$((${1##*.} - 1))
shift
exec ip netns exec "$STRETTO_TEST_NETWORK-$node" unshare --uts sh -c "hostname node$node; $*"
