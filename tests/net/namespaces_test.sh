#!/bin/sh
# namespaces_test.sh <scenario> <net_rank>: ranks of one host in separate namespaces, and which transport they find. Two
# ranks, each in namespaces of its own:
#   everything_apart  network (joined by a veth pair), PID, IPC and mount namespaces, /dev/shm of 64 MB; 256 MB of data
#   same_network      PID and IPC namespaces only
#   ipv6_only         as everything_apart, but the hosts have IPv6 alone, and rank 0's name an IPv4 address besides
#   death             as everything_apart; rank 1 is killed
# and with a /tmp of their own as well, so that no unix socket reaches both:
#   no_socket         one /dev/shm for both, as containers with --ipc=host have it: a file there
#   no_socket_death   likewise; rank 1 is killed
#   small_dev_shm     likewise, but /dev/shm has 1 MB: TCP
#   nothing_shared    TCP
#   nothing_shared_death  likewise; rank 1 is killed
#   vanished          likewise; the network of rank 1 goes down
# or four that share nothing, ranks 0 and 1 in one network namespace, 2 and 3 in the other:
#   shrink            rank 2 is killed, and the others go on without it
#   shrink_first      rank 0 is, through which all have joined
# Nothing here needs the right to trace another process, so Yama's ptrace_scope, whatever it is, makes no difference:
# memory is shared by descriptors that its owner hands out, and death is seen through a pidfd that came the same way, a
# lock on a file or a connection.
set -eu
scenario=$1
rank_program=$2

skip() {
  echo "skipped: $*"
  exit 77
}
command -v ip >/dev/null || skip "ip (iproute2) is not installed"
unshare --net --pid --fork --ipc --mount true 2>/dev/null || skip "making namespaces (unshare) is not permitted here"
if [ "$scenario" = small_dev_shm ] && [ "${in_small_dev_shm:-}" = "" ]; then
  in_small_dev_shm=1 exec unshare --mount sh -c 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec sh "$@"' sh "$0" "$@"
fi

name=strait-test-$$
hosts=
cleanup() {
  [ -z "$hosts" ] || rm -f "$hosts"
  ip netns del "$name-0" 2>/dev/null || true
  ip netns del "$name-1" 2>/dev/null || true
}
trap cleanup EXIT

ranks=2
case $scenario in
  shrink*) ranks=4 ;;
esac
# Shell words that put a command into the network namespace of rank $1.
network_of() {
  [ "$scenario" = same_network ] || echo "ip netns exec $name-$(($1 * 2 / ranks))"
}

if [ "$scenario" = same_network ]; then
  root=127.0.0.1
else
  ip netns add "$name-0" 2>/dev/null || skip "making network namespaces (ip netns) is not permitted here"
  ip netns add "$name-1"
  ip link add eth0 netns "$name-0" type veth peer name eth0 netns "$name-1" 2>/dev/null ||
    skip "this kernel makes no veth pairs"
  for side in 0 1; do
    if [ "$scenario" = ipv6_only ]; then
      ip -n "$name-$side" address add "fd83::$((side + 1))/64" dev eth0 nodad 2>/dev/null ||
        skip "there is no IPv6 here"
    else
      ip -n "$name-$side" address add "10.83.0.$((side + 1))/24" dev eth0
    fi
    ip -n "$name-$side" link set eth0 up
    ip -n "$name-$side" link set lo up
  done
  root=10.83.0.1
fi

megabytes=256
victim=
then=
transport=shm
own_folders='mount -t tmpfs -o size=64m tmpfs /dev/shm'
private_tmp='mount -t tmpfs tmpfs /tmp'
case $scenario in
  ipv6_only)
    root=rank0.test
    hosts=$(mktemp)
    printf '10.83.0.1 rank0.test\nfd83::1 rank0.test\n' >"$hosts"
    own_folders="$own_folders && mount --bind $hosts /etc/hosts"
    ;;
  no_socket*) transport=shm_file own_folders=$private_tmp ;;
  small_dev_shm) transport=tcp own_folders=$private_tmp ;;
  nothing_shared* | vanished | shrink*) transport=tcp own_folders="$own_folders && $private_tmp" ;;
esac
case $scenario in
  *death) victim=1 ;;
  vanished) victim=network ;;
  shrink) victim=2 then=shrink ;;
  shrink_first) victim=0 then=shrink ;;
esac
[ -z "$victim" ] || megabytes=1

# The rank is not process 1 of its namespace: that one cannot kill itself. It starts from its folder, which a new /tmp
# may hide.
cd "$(dirname "$rank_program")/.."
start_rank() {
  # shellcheck disable=SC2046,SC2086
  STRAIT_RANK=$1 STRAIT_RANKS=$ranks STRAIT_ROOT=$root:$((20000 + $$ % 10000)) STRAIT_KEY=$(printf '%064d' $$) \
    LD_LIBRARY_PATH=lib \
    $(network_of "$1") unshare --pid --fork --ipc --mount --mount-proc sh -c \
    "$own_folders"' && "$@"; exit $?' sh "bin/$(basename "$rank_program")" $transport $megabytes $victim $then
}
processes=
rank=0
while [ $rank -lt $ranks ]; do
  start_rank $rank &
  processes="$processes $!"
  rank=$((rank + 1))
done
rank=0
failed=0
for process in $processes; do
  ended=well
  wait "$process" || ended=badly
  expected=well
  [ "$rank" != "$victim" ] || expected=badly
  if [ $ended != $expected ]; then
    echo "rank $rank ended $ended"
    failed=1
  fi
  rank=$((rank + 1))
done
[ $failed = 0 ]
