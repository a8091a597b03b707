# SPDX-License-Identifier: Apache-2.0
# cmake -DOUTPUT=models_data.cpp -DMODELS=a.json;b.json -P EmbedModels.cmake
# Writes the table of models as C++, each file as a raw string literal.
set(entries "")
foreach(path IN LISTS MODELS)
  get_filename_component(name ${path} NAME_WE)
  file(READ ${path} text)
  string(APPEND entries "    {\"${name}\", R\"json(${text})json\"},\n")
endforeach()
file(
  WRITE ${OUTPUT}
  "// Generated from models/*.json.
#include \"stretto/data/models_table.hpp\"

namespace stretto::detail {
namespace {
constexpr EmbeddedModel kModels[] = {
${entries}};
}  // namespace

std::span<const EmbeddedModel> embedded_models() noexcept { return kModels; }

}  // namespace stretto::detail
")
