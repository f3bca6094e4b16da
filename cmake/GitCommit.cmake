# Writes a header with the git commit of the sources, "-dirty" behind it where files differ from it, and "" where the
# sources are no clone. Run at every build; the header is replaced only when that changes.
#   cmake -D source_folder=<sources> -D header=<file> -P GitCommit.cmake
set(commit "")
if(EXISTS "${source_folder}/.git")  # else git would find the repository of a folder around it
  execute_process(COMMAND git -C "${source_folder}" describe --always --dirty --abbrev=12 --exclude=*
                  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
set(text "#pragma once\n\n#define STRAIT_GIT_COMMIT \"${commit}\"\n")
set(before "")
if(EXISTS "${header}")
  file(READ "${header}" before)
endif()
if(NOT text STREQUAL before)
  file(WRITE "${header}" "${text}")
endif()
