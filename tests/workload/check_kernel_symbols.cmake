# SPDX-License-Identifier: Apache-2.0
# Every symbol that the object of a higher processor level defines must be its own: see
# stretto/workload/dense_kernels.ipp. Called with -DNM=... -DOBJECTS=a;b;c -DLEVEL=x86_64_v3.
set(found FALSE)
foreach(object IN LISTS OBJECTS)
  if(NOT object MATCHES "dense_kernels_${LEVEL}\\.cpp")
    continue()
  endif()
  set(found TRUE)
  execute_process(COMMAND ${NM} --defined-only --extern-only ${object} OUTPUT_VARIABLE symbols
                  COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE "\n" ";" symbols "${symbols}")
  foreach(symbol IN LISTS symbols)
    # DW.ref.__gxx_personality_v0 is data, and the same in every object.
    if(symbol AND NOT symbol MATCHES "${LEVEL}|DW\\.ref\\.|asan|tsan|ubsan")
      message(SEND_ERROR "shared symbol in ${object}: ${symbol}")
    endif()
  endforeach()
endforeach()
if(NOT found)
  message(FATAL_ERROR "no object of dense_kernels_${LEVEL}.cpp among ${OBJECTS}")
endif()
