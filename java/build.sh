#!/usr/bin/env bash
# Builds the Lucene jar that ships inside the Python package.
#
#   java/build.sh [--skip-tests] [JAR]   build, test, copy to JAR (default: sparta/resources/sparta-lucene.jar)
#   java/build.sh --check                fail when the committed jar is not made from these sources
set -euo pipefail
cd "$(dirname "$0")"
committed=../sparta/resources/sparta-lucene.jar
lucene=$(sed -n 's/^LUCENE_VERSION = "\(.*\)"$/\1/p' ../sparta/lucene/__init__.py)
needed=21

die() { printf 'build.sh: %s\n' "$*" >&2; exit 1; }

# The feature version of the JDK in folder $1; nothing when there is no compiler in it.
version_of() {
  [ -x "$1/bin/javac" ] && [ -f "$1/release" ] || return 0
  sed -n 's/^JAVA_VERSION="\([0-9]*\).*/\1/p' "$1/release"
}

# JAVA_HOME when it is new enough, else the newest JDK in the usual places.
find_jdk() {
  local home version best=0 found=""
  version=$(version_of "${JAVA_HOME:-/nonexistent}")
  if [ "${version:-0}" -ge "$needed" ]; then
    printf '%s\n' "$JAVA_HOME"
    return
  fi
  for home in /usr/lib/jvm/* "$HOME"/.sdkman/candidates/java/* "$HOME"/.jdks/* \
    /Library/Java/JavaVirtualMachines/*/Contents/Home; do
    version=$(version_of "$home")
    if [ "${version:-0}" -gt "$best" ]; then
      best=$version
      found=$home
    fi
  done
  [ "$best" -ge "$needed" ] || die "a JDK of version $needed or newer is needed and none was found." \
    "Install one (Debian 13: apt install openjdk-21-jdk; or https://adoptium.net) and set JAVA_HOME to it."
  printf '%s\n' "$found"
}

sha256() { if command -v sha256sum >/dev/null; then sha256sum "$@"; else shasum -a 256 "$@"; fi; }

# One hash over pom.xml and src/main: of the list of their hashes and paths, sorted by path.
sources_hash() {
  { echo pom.xml; find src/main -type f; } | LC_ALL=C sort | while IFS= read -r file; do
    sha256 "$file"
  done | sha256 | cut -d' ' -f1
}

# The value of manifest entry $2 of jar $1 (a long line goes on in the next, behind a blank).
manifest() {
  unzip -p "$1" META-INF/MANIFEST.MF | tr -d '\r' | sed -e ':a' -e 'N' -e '$!ba' -e 's/\n //g' \
    | sed -n "s/^$2: //p"
}

# Name and hash of everything in jar $1 but what tells of its making.
contents() {
  local folder
  folder=$(mktemp -d)
  unzip -q "$1" -d "$folder"
  (cd "$folder" && find . -type f ! -path './META-INF/MANIFEST.MF' ! -path './META-INF/maven/*' | LC_ALL=C sort | while IFS= read -r file; do sha256 "$file"; done)
  rm -rf "$folder"
}

# Builds in folder $1, tests unless $2 is true, and leaves the jar at $1/sparta-lucene.jar.
build() {
  command -v mvn >/dev/null || die "Maven (mvn) was not found. Install it (Debian: apt install maven)."
  mvn -q -B -Dstyle.color=never clean package "-Dlucene.version=$lucene" "-Dsources.sha256=$(sources_hash)" \
    "-DbuildDirectory=$1" "-DskipTests=$2"
}

check() {
  [ -f "$committed" ] || die "$committed is missing; java/build.sh makes it."
  local expected found
  expected=$(sources_hash)
  found=$(manifest "$committed" Sources-SHA256)
  [ "$expected" = "$found" ] || die "$committed is not made from these sources:" \
    "expected Sources-SHA256 $expected, found ${found:-none}. Run java/build.sh and commit the jar."
  [ "$(manifest "$committed" Lucene-Version)" = "$lucene" ] || die "$committed is not made for Lucene $lucene." \
    "Run java/build.sh and commit the jar."
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  build "$scratch" false
  if [ "$(manifest "$committed" Build-Jdk-Spec)" = "$(manifest "$scratch/sparta-lucene.jar" Build-Jdk-Spec)" ]; then
    diff <(contents "$committed") <(contents "$scratch/sparta-lucene.jar") >&2 \
      || die "$committed holds something else than its sources give. Run java/build.sh and commit the jar."
  else
    echo "note: built by Java $(manifest "$scratch/sparta-lucene.jar" Build-Jdk-Spec), the committed jar by" \
      "Java $(manifest "$committed" Build-Jdk-Spec): their sources are compared, their classes are not" >&2
  fi
}

skip=false
target=$committed
action=make
for argument in "$@"; do
  case $argument in
    --skip-tests) skip=true ;;
    --check) action=check ;;
    -*) die "unknown option $argument" ;;
    /*) target=$argument ;;
    *) target=$OLDPWD/$argument ;;
  esac
done
# Not in one line with export, which would hide that there is no JDK.
JAVA_HOME=$(find_jdk)
export JAVA_HOME
# Maven's own libraries draw warnings from newer runtimes; older runtimes do not know the option.
[ "$(version_of "$JAVA_HOME")" -lt 23 ] || export MAVEN_OPTS="${MAVEN_OPTS:-} --sun-misc-unsafe-memory-access=allow --enable-native-access=ALL-UNNAMED"
if [ "$action" = check ]; then
  check
else
  build target "$skip"
  mkdir -p "$(dirname "$target")"
  cp target/sparta-lucene.jar "$target.new"
  mv "$target.new" "$target" # a runtime that has the old one open keeps it
fi
