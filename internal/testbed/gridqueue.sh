# Has a gridengine's master make a queue: DIR SLOTS HOST..., and "mpi" for parallel jobs in it.
dir=$1 slots=$2
shift 2
for host; do
	qconf -as "$host"
	[ "$host" = "$1" ] || qconf -ah "$host"
done
sed 's/^pe_name .*/pe_name mpi/; s/^allocation_rule .*/allocation_rule $fill_up/' /usr/share/gridengine/util/resources/pe/make >"$dir/sge.pe"
qconf -Ap "$dir/sge.pe"
EDITOR=cat qconf -aq all.q 2>/dev/null | sed "s/^pe_list .*/pe_list mpi/; s/^hostlist .*/hostlist $*/; s/^slots .*/slots $slots/; s/^load_thresholds .*/load_thresholds NONE/" >"$dir/sge.queue"
qconf -Aq "$dir/sge.queue"
qconf -ssconf | sed "s/^schedule_interval .*/schedule_interval 0:0:1/; s/^flush_\(submit\|finish\)_sec .*/flush_\1_sec 1/" >"$dir/sge.scheduler"
qconf -Msconf "$dir/sge.scheduler"
