# Part of `cmake --install`: makes links of the installed pages lead to what is installed. A link to a header leads to the
# installed header, and one to a file that is not installed (perf/results, src) becomes plain text.
#   source_folder, doc_folder, include_folder: set by StraitInstall.cmake; the latter two relative to the prefix, or absolute

string(ASCII 1 mark)  # for "](" while links are listed: CMake's lists do not split at brackets that have no partner

function(installed_path result folder)
  cmake_path(ABSOLUTE_PATH folder BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}")
  set(${result} "$ENV{DESTDIR}${folder}" PARENT_SCOPE)
endfunction()

# What is to stand for `link`, "<mark>(path#anchor)", on a page of this folder of the sources: in `result` the text, with
# `link` itself if it is good.
function(link_for result link page_folder)
  set(${result} "${link}" PARENT_SCOPE)
  string(REGEX REPLACE "^.\\(([^)#]*).*$" "\\1" path "${link}")
  if(path STREQUAL "" OR path MATCHES "://" OR EXISTS "${docs}/${page_folder}/${path}")
    return()
  endif()
  cmake_path(ABSOLUTE_PATH path BASE_DIRECTORY "${source_folder}/${page_folder}" NORMALIZE OUTPUT_VARIABLE source)
  if(NOT EXISTS "${source}")  # no link, but code with brackets
    return()
  endif()
  file(RELATIVE_PATH inside "${source_folder}/include" "${source}")
  if(inside MATCHES "^[.][.]/" OR NOT EXISTS "${includes}/${inside}")
    set(${result} "" PARENT_SCOPE)
    return()
  endif()
  file(RELATIVE_PATH installed "${docs}/${page_folder}" "${includes}/${inside}")
  string(REPLACE "(${path}" "(${installed}" good "${link}")
  set(${result} "${good}" PARENT_SCOPE)
endfunction()

function(mend_links page)
  cmake_path(GET page PARENT_PATH page_folder)
  file(READ "${docs}/${page}" before)
  string(REPLACE "](" "${mark}(" text "${before}")
  string(REGEX MATCHALL "${mark}\\([^() \t\n]+\\)" links "${text}")
  list(REMOVE_DUPLICATES links)
  foreach(link IN LISTS links)
    link_for(good "${link}" "${page_folder}")
    if(NOT good STREQUAL "")
      string(REPLACE "${link}" "${good}" text "${text}")
    else()
      string(REGEX REPLACE "([.+*?^$()|])" "\\\\\\1" pattern "${link}")
      string(REGEX REPLACE "\\[([^][]*)${pattern}" "\\1" text "${text}")
    endif()
  endforeach()
  string(REPLACE "${mark}(" "](" text "${text}")
  if(NOT text STREQUAL before)
    file(WRITE "${docs}/${page}" "${text}")
  endif()
endfunction()

installed_path(docs "${doc_folder}")
installed_path(includes "${include_folder}")
file(GLOB pages RELATIVE "${docs}" "${docs}/*.md" "${docs}/docs/*.md")
foreach(page IN LISTS pages)
  mend_links("${page}")
endforeach()
