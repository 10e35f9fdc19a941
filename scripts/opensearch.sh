#!/usr/bin/env bash
# An OpenSearch of one or three nodes on this machine, for tests and measurements: no TLS, no passwords, loopback only.
#
#   scripts/opensearch.sh start [1|3]   download what is missing (180 MB, with the query side 570), start, wait until green
#   scripts/opensearch.sh urls          the nodes, as $SPARTA_OPENSEARCH_URL wants them
#   scripts/opensearch.sh kill N        kill -9 node N; `start` with the same number brings it back
#   scripts/opensearch.sh stop          stop all nodes, keep what they hold
#   scripts/opensearch.sh clean         stop, and remove what they hold, but not the downloads
#
# $SPARTA_OPENSEARCH_FOLDER (default: a cache folder) holds everything; $SPARTA_OPENSEARCH_HEAP is a node's heap
# (512m), $SPARTA_OPENSEARCH_PORT the first port (9200). SPARTA_OPENSEARCH_ML=1 adds the plugin that tokenizes
# questions inside OpenSearch. Needs curl, unzip and a JDK of at least 21, and says which of them is missing; as root,
# the nodes run as `nobody`.
set -euo pipefail
unset CDPATH
version=3.6.0
maven=https://repo.maven.apache.org/maven2/org/opensearch
if [ "$(id -u)" = 0 ]; then cache=/var/cache; else cache=${XDG_CACHE_HOME:-$HOME/.cache}; fi
folder=${SPARTA_OPENSEARCH_FOLDER:-$cache/sparta/opensearch}
heap=${SPARTA_OPENSEARCH_HEAP:-512m}
port=${SPARTA_OPENSEARCH_PORT:-9200}
home=$folder/opensearch-$version${SPARTA_OPENSEARCH_ML:+-ml}
zips=(
  "a91faa1dc1cadc78cb278b4f63847e19e1627a4e9de698e14e7efc14ee37b286 distribution/integ-test-zip/opensearch/$version"
  "ac392ca28a39b3bf290648a422ef30cb149dda2963a9d7feb26060e932341c9a plugin/opensearch-knn/$version.0"
  "6ef1b206e79391e2e36268e32dc34d27fd8b8a59a8eb0a7393c97d53b038e433 plugin/neural-search/$version.0"
)
if [ -n "${SPARTA_OPENSEARCH_ML:-}" ]; then
  zips+=(
    "f81d0aa9fc850b18f803292bd7ae68bd33561f6c1d12db0f68529d40eddcee24 plugin/opensearch-job-scheduler/$version.0"
    "c051d436fe1936da1477bb999db829eb2bc92b12989e376c300d0a874fb90f9d plugin/opensearch-ml-plugin/$version.0"
  )
fi

fail() {
  echo "error: $1" >&2
  echo "  → $2" >&2
  exit 1
}

# The first Java of at least 21 with all its locales (OpenSearch makes a Thai analyzer at the first index).
find_java() {
  local candidate release
  for candidate in "${SPARTA_JAVA_HOME:-}" "${OPENSEARCH_JAVA_HOME:-}" "${JAVA_HOME:-}" /usr/lib/jvm/* \
    "$HOME"/.sdkman/candidates/java/current /opt/jdk* /Library/Java/JavaVirtualMachines/*/Contents/Home; do
    release=$candidate/release
    [ -n "$candidate" ] && [ -x "$candidate/bin/java" ] && grep -q jdk.localedata "$release" 2>/dev/null || continue
    [ "$(sed -n 's/^JAVA_VERSION="\([0-9]*\).*/\1/p' "$release")" -ge 21 ] || continue
    echo "$candidate"
    return
  done
  fail "expected a JDK of at least 21, found none" \
    "install one (Debian 13: apt-get install openjdk-21-jdk; elsewhere https://adoptium.net), and set JAVA_HOME"
}

check_tools() {
  local tool tools=(curl unzip sha256sum setsid) missing=()
  [ "$(id -u)" != 0 ] || tools+=(setpriv)
  for tool in "${tools[@]}"; do command -v "$tool" >/dev/null || missing+=("$tool"); done
  [ ${#missing[@]} = 0 ] || fail "expected the programs ${tools[*]}; missing: ${missing[*]}" \
    "install them (Debian: apt-get install curl unzip coreutils util-linux)"
}

download() {
  local line sum path name
  mkdir -p "$folder/zips"
  for line in "${zips[@]}"; do
    read -r sum path <<<"$line"
    name=$(basename "$(dirname "$path")")-$(basename "$path").zip
    if ! [ -f "$folder/zips/$name" ]; then
      echo "downloading $name"
      curl -fL --retry 3 --silent --show-error -o "$folder/zips/$name.part" "$maven/$path/$name" ||
        fail "could not download $name" "is there a network? $maven/$path/$name"
      mv "$folder/zips/$name.part" "$folder/zips/$name"
    fi
    echo "$sum  $folder/zips/$name" | sha256sum --check --quiet ||
      fail "$folder/zips/$name is not what it should be" "remove it and start again"
  done
}

install() {
  local line path name plugins=()
  [ -e "$home/.complete" ] && return
  rm -rf "$home" "$folder/new"
  mkdir -p "$folder/new"
  for line in "${zips[@]}"; do
    path=${line#* }
    name=$folder/zips/$(basename "$(dirname "$path")")-$(basename "$path").zip
    if [[ $path = plugin/* ]]; then plugins+=("file://$name"); else unzip -q "$name" -d "$folder/new"; fi
  done
  mv "$folder/new/opensearch-$version" "$home"
  OPENSEARCH_JAVA_HOME=$java "$home/bin/opensearch-plugin" install --batch "${plugins[@]}" >"$folder/plugins.log" 2>&1 ||
    fail "the plugins could not be installed" "see $folder/plugins.log"
  touch "$home/.complete"
}

# OpenSearch refuses to run as root.
as_user() {
  if [ "$(id -u)" != 0 ]; then exec "$@"; fi
  exec setpriv --reuid=nobody --regid="$(id -g nobody)" --clear-groups -- "$@"
}

running() { [ -f "$folder/node-$1/pid" ] && kill -0 "$(cat "$folder/node-$1/pid")" 2>/dev/null; }

start_node() {
  local n=$1 nodes=$2 node=$folder/node-$1 i seeds="" names=""
  running "$n" && return
  mkdir -p "$node/data" "$node/logs" "$node/tmp"
  rm -rf "$node/config" && cp -r "$home/config" "$node/config"
  sed -i.old "/Xlog:gc/d; s|=data|=$node/data|; s|=logs/|=$node/logs/|" "$node/config/jvm.options"
  for ((i = 1; i <= nodes; i++)); do
    seeds+="${seeds:+, }127.0.0.1:$((port + 100 + i - 1))"
    names+="${names:+, }node-$i"
  done
  {
    echo "cluster.name: sparta-$nodes"
    echo "node.name: node-$n"
    echo "path.data: $node/data"
    echo "path.logs: $node/logs"
    echo "network.host: 127.0.0.1"
    echo "http.port: $((port + n - 1))"
    echo "transport.port: $((port + 100 + n - 1))"
    echo "cluster.routing.allocation.disk.threshold_enabled: false"
    if [ "$nodes" = 1 ]; then
      echo "discovery.type: single-node"
    else
      echo "discovery.seed_hosts: [$seeds]"
      echo "cluster.initial_cluster_manager_nodes: [$names]"
    fi
    if [ -n "${SPARTA_OPENSEARCH_ML:-}" ]; then
      echo "plugins.ml_commons.only_run_on_ml_node: false"
      echo "plugins.ml_commons.allow_registering_model_via_local_file: true"
      echo "plugins.ml_commons.native_memory_threshold: 100"
    fi
  } >"$node/config/opensearch.yml"
  [ "$(id -u)" = 0 ] && chown -R nobody "$node"
  as_user env OPENSEARCH_JAVA_HOME="$java" OPENSEARCH_PATH_CONF="$node/config" OPENSEARCH_TMPDIR="$node/tmp" \
    HOME="$node" OPENSEARCH_JAVA_OPTS="-Xms$heap -Xmx$heap" \
    setsid "$home/bin/opensearch" >"$node/start.log" 2>&1 </dev/null &
  echo $! >"$node/pid" # every program before Java becomes the next one, so this is Java's
}

count_nodes() {
  local node count=0
  for node in "$folder"/node-*; do [ ! -d "$node" ] || count=$((count + 1)); done
  echo "$count"
}

wait_until_green() {
  local nodes=$1 i health
  for ((i = 0; i < 300; i++)); do
    health=$(curl -s -m 5 "http://127.0.0.1:$port/_cluster/health" || true)
    if [[ $health = *'"status":"green"'* && $health = *"\"number_of_nodes\":$nodes,"* ]]; then
      echo "green: $nodes node(s) at $(urls "$nodes")"
      return
    fi
    for ((n = 1; n <= nodes; n++)); do
      running "$n" || fail "node $n ended" "see $folder/node-$n/start.log and $folder/node-$n/logs"
    done
    sleep 1
  done
  fail "expected a green cluster of $nodes node(s) within 5 minutes, found: ${health:-nothing}" "see $folder/node-*/logs"
}

urls() {
  local i found=""
  for ((i = 0; i < $1; i++)); do found+="${found:+,}http://127.0.0.1:$((port + i))"; done
  echo "$found"
}

stop() {
  local signal=$1 node
  shift
  for node in "$@"; do
    running "$node" || continue
    kill "-$signal" "$(cat "$folder/node-$node/pid")"
    for _ in {1..60}; do running "$node" && sleep 0.5 || break; done
  done
}

case ${1:-} in
start)
  nodes=${2:-1}
  [[ $nodes = [13] ]] || fail "expected 1 or 3 nodes, found $nodes" "scripts/opensearch.sh start 3"
  known=$(count_nodes)
  [ "$known" = 0 ] || [ "$known" = "$nodes" ] ||
    fail "expected the $known node(s) that are here, found $nodes" "scripts/opensearch.sh clean, then start $nodes"
  check_tools
  java=$(find_java)
  download
  install
  for ((n = 1; n <= nodes; n++)); do start_node "$n" "$nodes"; done
  wait_until_green "$nodes"
  ;;
urls) urls "$(count_nodes)" ;;
kill) stop KILL "${2:?the number of a node}" ;;
stop) stop TERM 1 2 3 ;;
clean)
  stop TERM 1 2 3
  rm -rf "$folder"/node-*
  ;;
*) sed -n '2,15s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
