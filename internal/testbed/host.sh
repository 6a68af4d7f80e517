# The first process of a host: NAME ADDRESS DIR. It has new namespaces.
hostname "$1"
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /run
mount --bind "$3/hosts" /etc/hosts
mount --bind "$3/ssh_config" /etc/ssh/ssh_config
# Logins run no script of this machine's root.
[ ! -e ~/.bashrc ] || mount --bind /dev/null ~/.bashrc
mkdir /run/sshd
ip link set lo up
echo ready
read -r _ # until there is eth0
ip addr add "$2/24" dev eth0
ip addr add "fd09::${2##*.}/64" dev eth0 nodad || true # a kernel without IPv6
ip link set eth0 up
mkfifo /run/log
/usr/sbin/sshd -D -e -f /dev/null -h "$3/host" -o "AuthorizedKeysFile=$3/user.pub" \
	-o StrictModes=no -o PermitRootLogin=yes -o PidFile=none -o UsePAM=no 2>/run/log &
{
	while read -r line; do
		echo "$line" >>"$3/sshd.$1"
		case $line in *"Server listening"*) echo listens && break ;; esac
	done
	exec cat >>"$3/sshd.$1"
} </run/log
