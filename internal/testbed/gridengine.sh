# Makes the files of a gridengine: DIR HOST... The first host will be its master.
dir=$1
shift
cell=$SGE_ROOT/default spool=$dir/sge.spool
mkdir -p "$cell/common" "$spool/master/job_scripts" "$spool/execd" "$spool/db"
for link in bin lib utilbin util; do ln -s /var/lib/gridengine/$link "$SGE_ROOT/$link"; done
cat >"$cell/common/bootstrap" <<END
Version: 6.2
admin_user none
default_domain none
ignore_fqdn true
spooling_method berkeleydb
spooling_lib libspoolb
spooling_params $spool/db
binary_path /usr/sbin
qmaster_spool_dir $spool/master
security_mode none
listener_threads 2
worker_threads 2
scheduler_threads 1
END
echo "$1" >"$cell/common/act_qmaster"
sed "s|^execd_spool_dir .*|execd_spool_dir $spool/execd|; s/^load_report_time .*/load_report_time 00:00:01/; s/^min_\([ug]id\) .*/min_\1 0/" /usr/share/gridengine/default-configuration >"$dir/sge.conf"
make=/usr/lib/gridengine
"$make/spoolinit" berkeleydb libspoolb "$spool/db" init
"$make/spooldefaults" configuration "$dir/sge.conf"
"$make/spooldefaults" complexes /usr/share/gridengine/util/resources/centry
"$make/spooldefaults" usersets /usr/share/gridengine/util/resources/usersets
"$make/spooldefaults" managers root
