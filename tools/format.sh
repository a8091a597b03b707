#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Formats all C++ files, or with --check says which are not formatted and changes nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

format=${CLANG_FORMAT:-clang-format-14}  # Other versions format differently.
if ! command -v "$format" >/dev/null; then
  echo "format.sh: $format is not there. Install the Debian package clang-format-14." >&2
  exit 5
fi
mapfile -d '' -t files < <(git ls-files -z -co --exclude-standard -- '*.cpp' '*.hpp')
existing=()
for file in "${files[@]}"; do
  [[ -f $file ]] && existing+=("$file")
done
if [[ ${1:-} == --check ]]; then
  "$format" --dry-run -Werror "${existing[@]}"
elif [[ $# -eq 0 ]]; then
  "$format" -i "${existing[@]}"
else
  echo "usage: tools/format.sh [--check]" >&2
  exit 2
fi
