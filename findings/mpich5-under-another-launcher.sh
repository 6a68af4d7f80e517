#!/bin/sh
# MPICH 5.0.2: under its own mpiexec no program starts inside a job of Open MPI 6's mpirun.
#
# Hydra's mpiexec sets PMI_SIZE for its ranks and leaves them the PMIX_NAMESPACE of the job that it is in.
# MPIR_CVAR_PMI_VERSION, the variable that chooses a rank's protocol, was 1 by default up to MPICH 4.3 and is "auto"
# since 5.0: a rank looks for either variable, and where it finds both it is MPI_Init that fails. A script that
# mpirun -n 1 starts, or a program that starts another by mpiexec, gets there; with MPIR_CVAR_PMI_VERSION=1 the same
# line works.
#
# Seen: twice "Auto-detection of PMI version failed. Found both env vars PMI_SIZE and PMIX_NAMESPACE"; with the
# variable "rank 0 of 2" and "rank 1 of 2"
# Needs root, debootstrap, and a mirror that has these versions.
set -eu
. "$(dirname "$0")/sid-root"
sid_root gcc,libc6-dev,mpich,libmpich-dev,openmpi-bin "mpich=5.0.2-2 openmpi-bin=6.0.0~rc2-2"
hello
inside "mpicc.mpich -o /hello /hello.c"
nested='mpirun.openmpi --allow-run-as-root --oversubscribe -n 1 mpiexec.hydra -n 2 /hello'
status=0
plain=$(inside "$nested" 2>&1) || status=$?
set=$(inside "MPIR_CVAR_PMI_VERSION=1 $nested" 2>&1)
printf '%s\n(status %d)\nwith MPIR_CVAR_PMI_VERSION=1:\n%s\n' "$plain" $status "$set"
[ "$(echo "$plain" | grep -c 'Found both env vars PMI_SIZE and PMIX_NAMESPACE')" = 2 ] && [ $status != 0 ] &&
	[ "$(echo "$set" | grep -c 'rank [01] of 2')" = 2 ]
