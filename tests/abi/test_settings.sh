#!/usr/bin/env bash
# NCCL's settings: those that mean something here are taken where Strait's own are not set; the others are named once.
#   test_settings.sh <strait> <a program of NCCL's for host ranks>
set -euo pipefail

strait="$1" program="$2"
fail() { echo "$1" && exit 1; }
for name in $(compgen -e | grep -E '^(NCCL|STRAIT)_' || true); do unset "$name"; done
export STRAIT_NCCL_HOST_RANKS=1 STRAIT_NCCL_PROOF=0

run() { env "$@" "$strait" run --quiet -- "$program" 2>&1; }

# Silence without a reason to speak.
[[ "$(run A=B)" == "sums are right, NCCL 22809" ]] || fail "it says more than it should: $(run A=B)"
[[ "$(run NCCL_DEBUG=WARN NCCL_P2P_LEVEL=SYS)" == "sums are right, NCCL 22809" ]] || fail "WARN says too much"

# NCCL_DEBUG is Strait's log level, which names the library and what is ignored, once.
said="$(run NCCL_DEBUG=INFO NCCL_P2P_DISABLE=1 NCCL_ALGO=Ring NCCL_NET_PLUGIN=x NCCL_SOCKET_IFNAME=lo NCCL_HOSTID=one)"
grep -q "NCCL 2.28.9 is served by Strait" <<<"$said" || fail "no line on the library: $said"
[[ "$(grep -c "ignored settings" <<<"$said")" == 1 ]] || fail "not one line on what is ignored: $said"
grep "ignored settings" <<<"$said" | grep -q NCCL_ALGO || fail "NCCL_ALGO is not named: $said"
grep "ignored settings" <<<"$said" | grep -q NCCL_NET_PLUGIN || fail "NCCL_NET_PLUGIN is not named: $said"
grep "ignored settings" <<<"$said" | grep -Eq "NCCL_(DEBUG|SOCKET_IFNAME|HOSTID|P2P_DISABLE)" && fail "a known one is named: $said"

# InfiniBand's have no effect where data goes by TCP: told once, unless the user asks for sockets.
said="$(run STRAIT_TRANSPORT=tcp NCCL_IB_HCA=mlx5 NCCL_NET=IB NCCL_ALGO=Ring)"
[[ "$(grep -c "data goes by tcp: NCCL_IB_HCA, NCCL_NET has no effect. For RDMA try STRAIT_UCX=on" <<<"$said")" == 1 ]] ||
  fail "not one warning on InfiniBand's settings: $said"
for sockets in NCCL_IB_DISABLE=1 NCCL_NET=socket; do
  [[ "$(run STRAIT_TRANSPORT=tcp NCCL_IB_HCA=mlx5 "$sockets")" == "sums are right, NCCL 22809" ]] || fail "a warning with $sockets"
done
[[ "$(run NCCL_IB_HCA=mlx5)" == "sums are right, NCCL 22809" ]] || fail "a warning on InfiniBand's settings within a host"

# Who relies on this one would wait for half an hour.
[[ "$(run NCCL_COMM_ID=localhost:4711)" == *"NCCL_COMM_ID means nothing here"*"sums are right, NCCL 22809" ]] ||
  fail "NCCL_COMM_ID: $(run NCCL_COMM_ID=localhost:4711)"

# Strait's own win, and an empty one is none.
[[ "$(run NCCL_DEBUG=INFO STRAIT_DEBUG=warn)" == "sums are right, NCCL 22809" ]] || fail "STRAIT_DEBUG does not win"
grep -q "served by" <<<"$(run NCCL_DEBUG=INFO STRAIT_DEBUG=)" || fail "an empty STRAIT_DEBUG counts"

# The interface that is asked for must be there.
said="$(run NCCL_SOCKET_IFNAME==nowhere0 || true)"
grep -q "nowhere0" <<<"$said" || fail "NCCL_SOCKET_IFNAME is not taken: $said"
run NCCL_SOCKET_IFNAME==nowhere0 STRAIT_SOCKET_IFNAME=lo >/dev/null || fail "STRAIT_SOCKET_IFNAME does not win"

# Settings of files: the environment's come first, those of the home folder before the machine's, and a file that is named
# stands for that of the home folder.
home="$(mktemp -d)"
trap 'rm -rf "$home"' EXIT
printf '# the fabric\nNCCL_SOCKET_IFNAME==nowhere1\r\nNCCL_TOPO_FILE=x\n' >"$home/.nccl.conf"
printf 'NCCL_SOCKET_IFNAME==nowhere2\n' >"$home/other.conf"
grep -q 'nowhere1"' <<<"$(run HOME="$home" || true)" || fail "the .nccl.conf of the home folder is not read"
grep -q "nowhere2" <<<"$(run HOME="$home" NCCL_CONF_FILE="$home/other.conf" || true)" || fail "NCCL_CONF_FILE is not read"
said="$(run HOME="$home" NCCL_SOCKET_IFNAME=lo NCCL_DEBUG=INFO)" || fail "the environment does not come first: $said"
grep "ignored settings" <<<"$said" | grep -q NCCL_TOPO_FILE || fail "NCCL_TOPO_FILE of the file is not named: $said"
# (The machine's own file is not touched: /etc is another one in a namespace, where this user may have one.)
# shellcheck disable=SC2016  # the inner shell's arguments
with_etc() { env "$@" unshare --user --map-root-user --mount bash -c 'mount --bind "$1" /etc && exec "$2" run --quiet -- "$3"' \
               - "$home/etc" "$strait" "$program" 2>&1; }
mkdir "$home/etc" && cp /etc/ld.so.cache /etc/hosts "$home/etc/"
if with_etc HOME=/ >/dev/null; then
  printf 'NCCL_SOCKET_IFNAME==nowhere3\nNCCL_TOPO_FILE=x\n' >"$home/etc/nccl.conf"
  printf 'NCCL_NET_PLUGIN=x\n' >"$home/more.conf"
  grep -q "nowhere3" <<<"$(with_etc HOME=/ || true)" || fail "/etc/nccl.conf is not read"
  grep -q "nowhere3" <<<"$(with_etc NCCL_CONF_FILE="$home/more.conf" || true)" || fail "NCCL_CONF_FILE hides /etc/nccl.conf"
  grep -q "nowhere1" <<<"$(with_etc HOME="$home" || true)" || fail "/etc/nccl.conf comes before the home folder's"
else
  echo "left out: /etc/nccl.conf, for this user may have no namespace of his own"
fi

# Configurations: ranks have one bound on thread blocks, and the environment's overrides theirs. Fields that mean nothing
# are named once.
configured() { env "${@:4}" "$strait" run --quiet -- "$program" "${@:1:3}" 2>&1; }
[[ "$(configured 4 4 4 A=B)" == "sums are right, NCCL 22809" ]] || fail "maxCTAs: $(configured 4 4 4 A=B)"
said="$(configured 4 8 4 A=B || true)"
grep -q "max_sms is" <<<"$said" || fail "maxCTAs does not reach Strait: $said"
for setting in NCCL_MAX_CTAS=16 STRAIT_MAX_SMS=16 NCCL_CTA_POLICY=2 "NCCL_CTA_POLICY=EFFICIENCY|ZERO"; do
  said="$(configured 4 8 4 "$setting" || true)"
  [[ "$said" == "sums are right, NCCL 22809" ]] || fail "$setting does not override maxCTAs: $said"
done
for setting in NCCL_CTA_POLICY=1 NCCL_CTA_POLICY=DEFAULT; do
  said="$(configured 4 8 4 "$setting" || true)"
  grep -q "max_sms is" <<<"$said" || fail "$setting asks for copy engines: $said"
done
said="$(run NCCL_CTA_POLICY=FEWER)"
grep -q "NCCL_CTA_POLICY is ignored: .*FEWER" <<<"$said" || fail "not a word on a policy that is none: $said"
grep -q "sums are right" <<<"$said" || fail "a policy that is none stops the program: $said"
said="$(configured 4 4 4 NCCL_DEBUG=INFO)"
[[ "$(grep -c "ignored fields" <<<"$said")" == 1 ]] || fail "not one line on ignored fields: $said"
grep -q "ignored fields .*: splitShare, commName$" <<<"$said" || fail "other fields are named: $said"

# NCCL_COMM_BLOCKING=0: programs must poll; this one does not.
said="$(run NCCL_COMM_BLOCKING=0 || true)"
grep -q "operation in progress" <<<"$said" || fail "NCCL_COMM_BLOCKING is not taken: $said"
