# SPDX-License-Identifier: Apache-2.0
# cmake -DOUTPUT=examples_data.cpp -DFILES=a.json.gz;b.json.gz -P EmbedFiles.cmake
# Writes files, whatever is in them, as C++ (see cli/examples.hpp), in the order given.
set(arrays "")
set(entries "")
set(number 0)
foreach(path IN LISTS FILES)
  get_filename_component(name ${path} NAME)
  file(READ ${path} bytes HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  string(REGEX REPLACE "(................................................................................)" "\\1\n"
                       bytes "${bytes}")
  string(APPEND arrays "constexpr unsigned char kFile${number}[] = {\n${bytes}};\n")
  string(APPEND entries "    {\"${name}\", kFile${number}},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(
  WRITE ${OUTPUT}
  "// Generated from examples/traces.
#include \"examples.hpp\"

namespace stretto::cli {
namespace {
${arrays}
constexpr ExampleFile kFiles[] = {
${entries}};
}  // namespace

std::span<const ExampleFile> example_trace() noexcept { return kFiles; }

}  // namespace stretto::cli
")
