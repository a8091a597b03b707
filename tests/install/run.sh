#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs a build, moves the installed tree elsewhere, and builds and runs the project in this folder
# against it: by find_package and by pkg-config.
#
#   run.sh BUILD_DIRECTORY CONFIGURATION
set -euo pipefail
build=$1
config=$2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --config "$config" --prefix "$work/first" >"$work/install.log"
mv "$work/first" "$work/prefix"
prefix=$work/prefix

# Nothing in it may point to where it was built.
source_folder=$(cd "$here/../.." && pwd)
if grep -rIlF -e "$source_folder" -e "$build" -e "$work/first" "$prefix"; then
  echo "run.sh: the files above name the source or build folder" >&2
  exit 1
fi

# The installed library stands without the headers it was built with.
cmake -S "$here" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_DISABLE_FIND_PACKAGE_nlohmann_json=ON -DCMAKE_DISABLE_FIND_PACKAGE_fmt=ON \
  -DCMAKE_DISABLE_FIND_PACKAGE_Eigen3=ON
cmake --build "$work/build"
"$work/build/consumer"
if [[ -x $prefix/bin/stretto ]]; then
  "$prefix/bin/stretto" run -n 2 -- "$work/build/consumer"
fi

# A version that is not there must not be found.
if sed 's/Stretto 0\.1/Stretto 99/' "$here/CMakeLists.txt" >"$work/CMakeLists.txt" &&
  cp "$here/main.cpp" "$work" &&
  cmake -S "$work" -B "$work/wrong" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" >"$work/wrong.log" 2>&1; then
  echo "run.sh: find_package(Stretto 99) found this version" >&2
  exit 1
fi

if ! command -v pkg-config >/dev/null; then
  echo "find_package works; pkg-config is not installed, so stretto.pc was not tried"
  exit 77
fi
pc=$(find "$prefix" -name stretto.pc)
read -r -a flags <<<"$(PKG_CONFIG_PATH=$(dirname "$pc") pkg-config --static --cflags --libs stretto)"
"${CXX:-c++}" "$here/main.cpp" -o "$work/by_pkg_config" "${flags[@]}"
"$work/by_pkg_config"
