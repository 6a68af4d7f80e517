#!/bin/sh
# Debian's MPICH 5.0.2 and Open MPI 6.0.0rc2: choosing an mpirun does not choose the library of the standard ABI.
#
# Both MPIs have a libmpi_abi.so.1, so that one binary runs with either. Debian's packages keep them as
# libmpi_abi_mpich.so.1.0.0 and libmpi_abi_openmpi.so.1.0.0 with one soname, and no package, and no alternative, has
# the name that the loader looks for: ldconfig makes it, for the later of the two names. So installing Open MPI beside
# MPICH changes what every program of the ABI loads, and `update-alternatives --set mpirun` does not change it back.
# MPICH's mpiexec then starts N worlds of one rank, with status 0.
#
# Seen: before "rank 0 of 2" and "rank 1 of 2"; after installing Open MPI, with mpirun set to MPICH's, twice
# "rank 0 of 1", status 0
# Needs root, debootstrap, and a mirror that has these versions.
set -eu
. "$(dirname "$0")/sid-root"
sid_root gcc,libc6-dev,mpich,libmpich-dev,openmpi-bin "libmpich12=5.0.2-2 libopenmpi40=6.0.0~rc2-2"
hello
lib=/usr/lib/x86_64-linux-gnu
mkdir "$dir/root/include"
ln -s $lib/mpich/include/mpi_abi.h "$dir/root/include/mpi.h"
inside "gcc -I/include -o /hello /hello.c -lmpi_abi && update-alternatives --set mpirun /usr/bin/mpirun.mpich" >/dev/null
run='mpirun -n 2 /hello'
both=$(inside "$run" 2>/dev/null) # a status but 0 ends the script
alone=$(inside "mv $lib/libmpi_abi_openmpi.so.1.0.0 /; ldconfig; $run")
printf 'with both installed:\n%s\nwithout the library of Open MPI:\n%s\n' "$both" "$alone"
[ "$both" = "rank 0 of 1
rank 0 of 1" ] && [ "$(echo "$alone" | sort)" = "rank 0 of 2
rank 1 of 2" ] && ! chroot "$dir/root" dpkg-query -S $lib/libmpi_abi.so.1 2>/dev/null
