# SPDX-License-Identifier: Apache-2.0
# What a user's find_package(Stretto) or pkg-config finds. nlohmann-json, fmt and Eigen are compiled into
# the library and need not be there.
include(CMakePackageConfigHelpers)

set(STRETTO_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/Stretto)

install(TARGETS stretto EXPORT StrettoTargets FILE_SET HEADERS)
# For programs on LibTorch; not among the headers that are checked, for it needs torch's.
install(FILES ${PROJECT_SOURCE_DIR}/stretto/torch.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/stretto)
install(EXPORT StrettoTargets NAMESPACE Stretto:: DESTINATION ${STRETTO_CMAKE_DIR})
configure_package_config_file(
  ${CMAKE_CURRENT_LIST_DIR}/StrettoConfig.cmake.in ${PROJECT_BINARY_DIR}/StrettoConfig.cmake
  INSTALL_DESTINATION ${STRETTO_CMAKE_DIR})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/StrettoConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/StrettoConfig.cmake
              ${PROJECT_BINARY_DIR}/StrettoConfigVersion.cmake DESTINATION ${STRETTO_CMAKE_DIR})

# The prefix is where stretto.pc lies, so that the installed tree can be moved.
file(RELATIVE_PATH STRETTO_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" STRETTO_PC_PREFIX "${STRETTO_PC_PREFIX}")
configure_file(${CMAKE_CURRENT_LIST_DIR}/stretto.pc.in ${PROJECT_BINARY_DIR}/stretto.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/stretto.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/THIRD_PARTY_NOTICES
        DESTINATION ${CMAKE_INSTALL_DOCDIR})
if(TARGET stretto_cli)
  install(TARGETS stretto_cli)
endif()
