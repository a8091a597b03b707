#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs clang-tidy on the C++ files that changed since BASE (a commit), the working tree included.
#
#   tools/tidy.sh [BASE]
#
# BASE defaults to where this branch left main; on main itself, to the commit before. For a changed header
# the source of the same name is checked. All files at once: cmake --preset tidy && cmake --build --preset tidy
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

default_base() {
  local main base
  for main in origin/main main; do
    if base=$(git merge-base HEAD "$main" 2>/dev/null) && [[ $base != "$(git rev-parse HEAD)" ]]; then
      echo "$base"
      return
    fi
  done
  # The first parent: of a merge, all that it brought in.
  git rev-parse --verify --quiet HEAD^ || git hash-object -t tree /dev/null
}

base=${1:-$(default_base)}
mapfile -t changed < <(
  {
    git diff --name-only --diff-filter=d "$base" -- '*.cpp' '*.hpp'
    git ls-files --others --exclude-standard -- '*.cpp' '*.hpp'
  } | sed 's/\.hpp$/.cpp/' | sort -u
)
mkdir -p build
# Only what the build compiles: its flags are known.
cmake --preset tidy >build/tidy-configure.log 2>&1 || {
  cat build/tidy-configure.log >&2
  exit 5
}
sources=()
for file in "${changed[@]}"; do
  if [[ -f $file ]] && grep -qF "\"$PWD/$file\"" build/tidy/compile_commands.json; then
    sources+=("$file")
  fi
done
echo "clang-tidy on ${#sources[@]} files changed since ${base:0:12}"
if [[ ${#sources[@]} -gt 0 ]]; then
  printf '%s\0' "${sources[@]}" |
    xargs -0 -n 1 -P "$(nproc)" clang-tidy-14 --quiet -p build/tidy
fi
