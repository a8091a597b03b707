# SPDX-License-Identifier: Apache-2.0
# cmake -DOUTPUT=viewer_page.cpp -DSOURCE=viewer -DBINARY=build/dev/viewer -DNPM=npm -DWASM=stretto.wasm -DREQUIRED=OFF -P BuildViewer.cmake
# Builds the page of viewer/ with npm and writes it as C++ (see stretto/report/html_parts.hpp). With NPM empty, or
# if npm cannot get what it needs and REQUIRED is off, the page is empty, and `stretto report` says so. With WASM empty
# the page has no What-if and no Learn.
set(page "")
if(NPM)
  # Built beside the other outputs: several builds of one source tree may run at once.
  file(MAKE_DIRECTORY ${BINARY})
  foreach(name index.html package.json package-lock.json tsconfig.json vite.config.js src)
    file(REMOVE_RECURSE ${BINARY}/${name})
    file(COPY ${SOURCE}/${name} DESTINATION ${BINARY})
  endforeach()
  file(COPY ${SOURCE}/../THIRD_PARTY_NOTICES DESTINATION ${BINARY})
  # Packages anew only when their list is another one. Their scripts are not run.
  file(SHA256 ${SOURCE}/package-lock.json lock)
  set(installed "")
  if(EXISTS ${BINARY}/installed)
    file(READ ${BINARY}/installed installed)
  endif()
  set(failed 0)
  if(NOT installed STREQUAL lock)
    execute_process(
      COMMAND ${NPM} ci --ignore-scripts --no-audit --no-fund --loglevel=error
      WORKING_DIRECTORY ${BINARY}
      RESULT_VARIABLE failed
      OUTPUT_VARIABLE output
      ERROR_VARIABLE output)
    if(failed EQUAL 0)
      file(WRITE ${BINARY}/installed ${lock})
    endif()
  endif()
  if(NOT failed EQUAL 0)
    set(what "npm could not install what viewer/package-lock.json lists")
    if(REQUIRED)
      message(FATAL_ERROR "${what}: ${output}")
    endif()
    message(WARNING "${what}, so this build has no viewer. Remove ${OUTPUT} to try again. npm said: ${output}")
  else()
    # A page that does not compile is an error, whether it is required or not.
    execute_process(
      COMMAND ${CMAKE_COMMAND} -E env STRETTO_WASM=${WASM} ${NPM} run --silent build
      WORKING_DIRECTORY ${BINARY}
      RESULT_VARIABLE failed
      OUTPUT_VARIABLE output
      ERROR_VARIABLE output)
    if(NOT failed EQUAL 0)
      message(FATAL_ERROR "the viewer does not build:\n${output}")
    endif()
    file(READ ${BINARY}/dist/index.html page HEX)
  endif()
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
