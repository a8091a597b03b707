# SPDX-License-Identifier: Apache-2.0
# cmake -DOUTPUT=viewer_page.cpp -DSOURCE=viewer -DBINARY=build/dev/viewer -DESBUILD=esbuild -DWASM=stretto.wasm -P BuildViewer.cmake
# Builds the page of viewer/ as BINARY/page.html, and writes it as C++ (see stretto/report/html_parts.hpp). With ESBUILD
# empty the page is empty, and `stretto report` says so. With WASM empty the page has no What-if and no Learn.
#
# One HTML file that needs nothing beside it: script and style stand in it, and its policy names them by their hashes, so
# that a browser runs nothing else and opens no connection. 'wasm-unsafe-eval' lets that script, and no other, start the
# WebAssembly that stands in the file too. The same sources give the same bytes.

# piped(VARIABLE COMMAND...): what a pipe of commands prints.
function(piped variable)
  execute_process(${ARGN} OUTPUT_VARIABLE output ERROR_VARIABLE errors RESULTS_VARIABLE results)
  if(NOT results MATCHES "^0(;0)*$")
    message(FATAL_ERROR "the viewer does not build: '${ARGN}' ended with ${results}\n${errors}")
  elseif(errors)
    message(WARNING "${errors}")
  endif()
  set(${variable} "${output}" PARENT_SCOPE)
endfunction()

# As a Content-Security-Policy names a script or style.
function(hash_source variable text)
  string(SHA256 hash "${text}")
  string(TOUPPER ${hash} hash)
  piped(base64 COMMAND ${CMAKE_COMMAND} -E echo_append ${hash} COMMAND basenc --base16 --decode COMMAND base64 --wrap=0)
  set(${variable} "'sha256-${base64}'" PARENT_SCOPE)
endfunction()

set(page "")
if(ESBUILD)
  file(MAKE_DIRECTORY ${BINARY})
  piped(ignored COMMAND ${ESBUILD} ${SOURCE}/src/main.ts --bundle --minify --format=esm --target=es2022 --charset=utf8
        --legal-comments=none --log-level=warning --outfile=${BINARY}/page.js)
  file(READ ${BINARY}/page.js script)
  file(READ ${BINARY}/page.css style)
  string(STRIP "${script}" script)
  string(STRIP "${style}" style)
  # A script ends at the first `</script`, wherever it stands, and after `<!--` it may not end where it should. esbuild
  # writes the former as `<\/script` in a string; what it leaves is for the author to write differently.
  string(TOLOWER "${script}" lower)
  if(lower MATCHES "</script|<!--")
    message(FATAL_ERROR "the viewer does not build: its script has ${CMAKE_MATCH_0}, which HTML reads as its own. Write it "
                        "in viewer/src as two strings that are joined where the script runs")
  endif()
  string(TOLOWER "${style}" lower)
  if(lower MATCHES "</style")
    message(FATAL_ERROR "the viewer does not build: its style has </style, which ends it in HTML. Take it out of viewer/src")
  endif()
  set(wasm "")
  set(notices "")
  if(WASM)
    # Packed without name and time.
    piped(wasm COMMAND gzip --best --no-name --stdout ${WASM} COMMAND base64 --wrap=0)
    # Of what is compiled into it.
    file(READ ${SOURCE}/../THIRD_PARTY_NOTICES notices)
    string(REPLACE "<" "‹" notices "${notices}")
  endif()
  hash_source(script_hash "${script}")
  hash_source(style_hash "${style}")
  string(CONCAT policy "default-src 'none'; script-src ${script_hash} 'wasm-unsafe-eval'; style-src ${style_hash}; "
                "img-src data: blob:; base-uri 'none'; form-action 'none'")
  file(READ ${SOURCE}/index.html page)
  # The script last, so that nothing in it is taken for a mark.
  foreach(part policy style notices wasm script)
    string(TOUPPER "@@${part}@@" mark)
    string(REPLACE ${mark} "${${part}}" page "${page}")
  endforeach()
  file(WRITE ${BINARY}/page.html "${page}")
  file(READ ${BINARY}/page.html page HEX)
endif()
set(array "0x00,")
if(NOT page STREQUAL "")
  string(REGEX REPLACE "(..)" "0x\\1," array "${page}")
  string(REGEX REPLACE "(................................................................................)" "\\1\n"
                       array "${array}")
endif()
string(LENGTH "${page}" digits)
math(EXPR size "${digits} / 2")
file(
  WRITE ${OUTPUT}
  "// Generated from viewer/.
#include <string_view>

#include \"stretto/report/html_parts.hpp\"

namespace stretto::detail {
namespace {
constexpr unsigned char kPage[] = {
${array}};
}  // namespace

std::string_view viewer_page() noexcept {
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): bytes as chars
  return {reinterpret_cast<const char*>(kPage), ${size}};
}

}  // namespace stretto::detail
")
