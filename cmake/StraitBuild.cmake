# How every target of the project is built: language level, warnings, sanitizers, output folders, CUDA or not.
include(GNUInstallDirs)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
file(RELATIVE_PATH bin_to_lib /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
set(CMAKE_INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()

find_program(CCACHE ccache)
if(CCACHE)
  # Presets and clones share objects: neither the paths of sources nor the folder of a build is part of what is compiled.
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${launcher})
endif()

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)

add_library(strait_flags INTERFACE)
target_include_directories(strait_flags INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
# Numerics are specified bit by bit: no contraction into fused multiply-add, no fast-math.
target_compile_options(strait_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wno-missing-field-initializers -Wpedantic -Wshadow -Wnon-virtual-dtor -ffp-contract=off>)
# At -O3 g++ 12 and 13 see dangers in their own std::string, std::vector and std::optional that are not there (GCC bugs
# 105651 and 80635, for example). The presets that run the tests keep these warnings, at -O2.
target_compile_options(strait_flags INTERFACE
  $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<CONFIG:Release>>:-Wno-array-bounds -Wno-maybe-uninitialized
                                                              -Wno-restrict -Wno-stringop-overflow>)
if(STRAIT_SANITIZE)
  target_compile_options(strait_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${STRAIT_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all>)
  # Clang alone looks at types of functions, which differ where a library's are found by name, and at offsets to NULL: places
  # in a buffer that a call leaves out are computed like others, though nobody goes there. With the latter goes its look
  # at pointers that wrap around.
  target_compile_options(strait_flags INTERFACE
    $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-fno-sanitize=function,pointer-overflow>)
  target_link_options(strait_flags INTERFACE -fsanitize=${STRAIT_SANITIZE})
endif()

set(STRAIT_HAS_CUDA OFF)
if(STRAIT_CUDA)
  find_program(STRAIT_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)
  if(STRAIT_NVCC AND NOT DEFINED CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_COMPILER ${STRAIT_NVCC})
  endif()
  if(STRAIT_CUDA STREQUAL "AUTO")
    include(CheckLanguage)
    check_language(CUDA)
    set(STRAIT_HAS_CUDA ${CMAKE_CUDA_COMPILER})
  elseif(CMAKE_CUDA_COMPILER)
    set(STRAIT_HAS_CUDA ON)
  else()
    message(FATAL_ERROR "STRAIT_CUDA=ON, but there is no nvcc in PATH, CUDA_HOME or /usr/local/cuda. Install the CUDA "
                        "toolkit (12.4 or later), name it with -DCMAKE_CUDA_COMPILER=, or use -DSTRAIT_CUDA=OFF")
  endif()
endif()
if(STRAIT_HAS_CUDA)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80 90)
    set(serves_all ${STRAIT_FOR_ALL_GPUS})
  endif()
  enable_language(CUDA)
  # Code of 8.0 runs on 8.6 and 8.9, but from 9.0 on each generation needs its own: else the driver compiles it while the
  # library is loaded, for seconds.
  if(serves_all AND CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.8)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100 120-real)
  endif()
  # After the language: CMake 3.25 tests a compiler before it has learnt which standards it knows.
  if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc 12 and later has C++20
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  find_package(CUDAToolkit 12.4 REQUIRED)
  # A tenth of the size; every driver that runs CUDA 13's runtime reads it, those of 12 may not.
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
    target_compile_options(strait_flags INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:--compress-mode=size>)
  endif()
  target_compile_options(strait_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CUDA>:--fmad=false -Xcompiler=-Wall,-Wextra,-Wshadow,-ffp-contract=off>)
endif()

# Under a sanitizer the sources of a target are compiled together, which takes a third of the time. Elsewhere each is
# compiled alone, and so includes what it uses.
function(strait_compile_together target)
  if(STRAIT_SANITIZE)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  endif()
endfunction()

# strait_module(<name> [APART] SOURCES ... [DEPENDS ...]): the static library strait_<name> of one folder. APART: its sources
# are never compiled together; some have names of their own in common, or another target replaces one.
function(strait_module name)
  cmake_parse_arguments(ARG "APART" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(strait_${name} STATIC ${ARG_SOURCES})
  if(NOT ARG_APART)
    strait_compile_together(strait_${name})
  endif()
  target_link_libraries(strait_${name} PUBLIC strait_flags ${ARG_DEPENDS})
endfunction()

# strait_test(<name> [APART] SOURCES ... [DEPENDS ...] [LABELS ...] [PROCESSORS n] [TIMEOUT seconds]): a GoogleTest program,
# one CTest entry, that includes what is in tests/ by its path there. The target tests_<label> builds all of a label.
function(strait_test name)
  cmake_parse_arguments(ARG "APART" "PROCESSORS;TIMEOUT" "SOURCES;DEPENDS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  if(NOT ARG_APART)
    strait_compile_together(${name})
  endif()
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE strait_flags ${ARG_DEPENDS} GTest::gtest_main GTest::gmock Threads::Threads)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT 300)
  foreach(label ${ARG_LABELS})
    if(NOT TARGET tests_${label})
      add_custom_target(tests_${label})
    endif()
    add_dependencies(tests_${label} ${name})
  endforeach()
  if(ARG_TIMEOUT)
    set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT})
  endif()
  if(ARG_PROCESSORS)
    set_tests_properties(${name} PROPERTIES PROCESSORS ${ARG_PROCESSORS})
  endif()
endfunction()
