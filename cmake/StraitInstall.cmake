# What `cmake --install` installs beside the libraries (strait_library) and the programs: headers, the CMake package,
# strait.pc and the documents. And the packages that `cpack` makes of all of it: .deb and .tar.gz (scripts/package.sh).
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
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples TYPE DOC
        PATTERN CMakeLists.txt EXCLUDE PATTERN __pycache__ EXCLUDE)  # its targets are those of this build
foreach(page LICENSE README.md CHANGELOG.md CONTRIBUTING.md)
  install(FILES ${PROJECT_SOURCE_DIR}/${page} TYPE DOC)
endforeach()
# After the pages and the headers are in place.
install(CODE "set(source_folder \"${PROJECT_SOURCE_DIR}\")
  set(doc_folder \"${CMAKE_INSTALL_DOCDIR}\")
  set(include_folder \"${CMAKE_INSTALL_INCLUDEDIR}\")")
install(SCRIPT ${PROJECT_SOURCE_DIR}/cmake/InstalledLinks.cmake)

set(CPACK_GENERATOR DEB TGZ)
set(CPACK_PACKAGE_NAME strait)
set(CPACK_PACKAGE_VENDOR "The Strait developers")
set(CPACK_PACKAGE_CONTACT "The Strait developers <noreply@strait.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Collective communication for narrow links: library, drop-in libnccl.so.2, tools")
set(CPACK_STRIP_FILES ON)
set(CPACK_SOURCE_GENERATOR "")
# The loader, pkg-config and CMake look there by themselves; the drop-in is in a folder that nobody searches.
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
include(CPack)
