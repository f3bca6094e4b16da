# What `cmake --install` installs beside the libraries (strait_library) and the programs: headers, the CMake package,
# strait.pc and the documents.
include(CMakePackageConfigHelpers)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/Strait)
install(EXPORT Strait NAMESPACE Strait:: FILE StraitConfig.cmake DESTINATION ${package_folder})
# Before 1.0 a minor version may break what an earlier one promised.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/StraitConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/StraitConfigVersion.cmake DESTINATION ${package_folder})

# Relative to the file itself, so that an installed tree can be moved.
file(RELATIVE_PATH STRAIT_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${PROJECT_SOURCE_DIR}/cmake/strait.pc.in ${PROJECT_BINARY_DIR}/strait.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/strait.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/strait TYPE INCLUDE)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs TYPE DOC)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md TYPE DOC)
