# strait_shared_library(<name> MAP <file> MODULES <module>...)
# A shared library of every object of the modules; of their exported names only those that the map lists.
# What the library itself links is nobody else's business; with STRAIT_STATIC_RUNTIME it is linked in.
function(strait_shared_library name)
  cmake_parse_arguments(ARG "" "MAP" "MODULES" ${ARGN})
  get_filename_component(map ${ARG_MAP} ABSOLUTE)
  list(TRANSFORM ARG_MODULES PREPEND strait_ OUTPUT_VARIABLE modules)
  list(TRANSFORM modules REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>" OUTPUT_VARIABLE objects)

  add_library(${name} SHARED ${objects})
  # The archives add no object to those above; they bring along what their modules link.
  target_link_libraries(${name} PRIVATE ${modules} Threads::Threads)
  target_link_options(${name} PRIVATE LINKER:--version-script=${map} LINKER:-z,relro,-z,now,-z,nodelete)
  if(STRAIT_SANITIZE)  # the sanitizer's runtime belongs to the program
    target_link_options(${name} INTERFACE $<BUILD_INTERFACE:-fsanitize=${STRAIT_SANITIZE}>)
  else()
    target_link_options(${name} PRIVATE LINKER:--no-undefined)
    if(STRAIT_STATIC_RUNTIME)
      target_link_options(${name} PRIVATE -static-libstdc++ -static-libgcc)
    endif()
  endif()
  set_target_properties(${name} PROPERTIES
    LINKER_LANGUAGE CXX LINK_DEPENDS ${map} INSTALL_RPATH "" STRAIT_MODULES "${ARG_MODULES}")
endfunction()

# strait_library(<name> MAP <file> MODULES <module>...): lib<name>.so.0, installed, for programs to link.
function(strait_library name)
  strait_shared_library(${name} ${ARGN})
  add_library(Strait::${name} ALIAS ${name})
  target_include_directories(${name} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                               $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  set_target_properties(${name} PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
  install(TARGETS ${name} EXPORT Strait)
endfunction()
