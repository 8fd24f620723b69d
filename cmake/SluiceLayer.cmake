# Functions for all folders: sluice_layer() adds a library of src/sluice, sluice_test() a test
# program.

# Flags of every target. Contraction is off: only explicit calls make a fused multiply-add. The
# property SLUICE_OPTIMIZE is -O1 for targets whose code runs no steps and compiles no graphs, and
# -Og for tests. A function of a template that several targets use has the flags of one of them. The
# property SLUICE_PLAIN keeps a target free of sanitizers.
add_library(sluice_flags INTERFACE)
set(optimize $<TARGET_PROPERTY:SLUICE_OPTIMIZE>)
target_compile_options(sluice_flags INTERFACE -Wall -Wextra -Wpedantic
  -Wno-missing-field-initializers -ffp-contract=off
  $<$<CONFIG:Release>:$<IF:$<BOOL:${optimize}>,${optimize},-O2>>)
if(SLUICE_SANITIZE)
  # Lines of functions (-g1) are all that a report shows.
  set(sanitize -fsanitize=${SLUICE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -O1
      -g1)
  target_compile_options(sluice_flags INTERFACE
    "$<$<NOT:$<BOOL:$<TARGET_PROPERTY:SLUICE_PLAIN>>>:${sanitize}>")
  target_link_options(sluice_flags INTERFACE -fsanitize=${SLUICE_SANITIZE})
endif()
set(SLUICE_LAYERS "" CACHE INTERNAL "")

# sluice_layer(NAME [COLD] SOURCES a.cc b.cc [TESTS a_test.cc] [DEPENDS base ir]
#              [LIBRARIES fmt::fmt] [TEST_LIBRARIES …] [TEST_SHARDS n])
# adds the library sluice_NAME, and the test program NAME_test of the tests in its folder.
function(sluice_layer name)
  cmake_parse_arguments(ARG "COLD" "TEST_SHARDS" "SOURCES;TESTS;DEPENDS;LIBRARIES;TEST_LIBRARIES"
                        ${ARGN})
  set(library sluice_${name})
  add_library(${library} STATIC ${ARG_SOURCES})
  add_library(Sluice::${name} ALIAS ${library})
  target_include_directories(${library} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
                             $<INSTALL_INTERFACE:include>)
  target_compile_features(${library} PUBLIC cxx_std_20)
  target_link_libraries(${library} PRIVATE $<BUILD_INTERFACE:sluice_flags>)
  if(ARG_COLD)
    set_target_properties(${library} PROPERTIES SLUICE_OPTIMIZE -O1)
  endif()
  if(SLUICE_SANITIZE_LAYERS AND NOT name IN_LIST SLUICE_SANITIZE_LAYERS)
    set_target_properties(${library} PROPERTIES SLUICE_PLAIN ON)
  endif()
  foreach(dependency ${ARG_DEPENDS})
    target_link_libraries(${library} PUBLIC sluice_${dependency})
  endforeach()
  target_link_libraries(${library} PUBLIC ${ARG_LIBRARIES})
  sluice_unity(${library})
  set(SLUICE_LAYERS ${SLUICE_LAYERS} ${library} CACHE INTERNAL "")
  if(SLUICE_BUILD_TESTS AND ARG_TESTS)
    sluice_test(${name}_test LABEL ${name} SHARDS ${ARG_TEST_SHARDS} SOURCES ${ARG_TESTS}
                LIBRARIES ${library} ${ARG_TEST_LIBRARIES})
  endif()
endfunction()

# sluice_use_headers(NAME [VAR=VALUE] [SCRIPT]) lets a test program read a precompiled header.
# ccache stores such compilations only with the flag and the sloppiness that are set here. VAR is
# set for ccache, and SCRIPT starts it.
function(sluice_use_headers name)
  target_compile_options(${name} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
  if(CMAKE_CXX_COMPILER_LAUNCHER MATCHES "ccache$")
    set(launcher env CCACHE_SLOPPINESS=pch_defines,time_macros ${ARGN}
      ${CMAKE_CXX_COMPILER_LAUNCHER})
    set_target_properties(${name} PROPERTIES CXX_COMPILER_LAUNCHER "${launcher}")
  endif()
endfunction()

# With SLUICE_UNITY, sluice_unity(TARGET [TEST]) compiles the target's sources in units of several
# sources, which reads each header once a unit. So two sources of a target must not use one name in
# their anonymous namespaces. A missing #include shows only without SLUICE_UNITY.
function(sluice_unity target)
  if(SLUICE_UNITY STREQUAL "TESTS" AND NOT ARGV1 STREQUAL "TEST")
    return()
  endif()
  if(SLUICE_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
  endif()
endfunction()

# sluice_test_headers(NAME) precompiles tests/support/NAME.h once for all test programs.
function(sluice_test_headers name)
  set(source ${PROJECT_BINARY_DIR}/${name}.cc)
  file(CONFIGURE OUTPUT ${source} CONTENT "")
  add_library(${name} OBJECT ${source})
  target_link_libraries(${name} PRIVATE sluice_flags fmt::fmt Threads::Threads GTest::gtest)
  target_include_directories(${name} PRIVATE
    ${PROJECT_SOURCE_DIR}/src ${PROJECT_BINARY_DIR}/include)
  target_precompile_headers(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/support/${name}.h)
  # A precompiled header can be read only with the flags that made it: the flags of a program.
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF SLUICE_OPTIMIZE -Og)
  target_compile_options(${name} PRIVATE -fPIE)
  # GCC knows a header again by its size and content. After a change of comments alone, ccache would
  # return the precompiled header of the old content, and the header would be read twice.
  sluice_use_headers(${name} CCACHE_COMMENTS=1 ${PROJECT_SOURCE_DIR}/cmake/precompile.sh)
endfunction()

# Without SLUICE_PCH, each source of the tests must include all that it uses.
if(SLUICE_BUILD_TESTS AND SLUICE_PCH)
  sluice_test_headers(layer_test_headers)
  sluice_test_headers(program_test_headers)
endif()

# sluice_test(NAME LABEL label [SHARDS n] SOURCES … LIBRARIES …) adds a GoogleTest program, which
# CTest runs as one test, or as n tests NAME_1, NAME_2, … that share its cases.
function(sluice_test name)
  cmake_parse_arguments(ARG "" "LABEL;SHARDS" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE sluice_flags ${ARG_LIBRARIES} GTest::gtest_main)
  sluice_test_program(${name} ${ARG_LIBRARIES})
  if(NOT ARG_SHARDS)
    add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT 600)
    return()
  endif()
  foreach(number RANGE 1 ${ARG_SHARDS})
    math(EXPR index "${number} - 1")
    add_test(NAME ${name}_${number} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(${name}_${number} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT 600
      ENVIRONMENT "GTEST_TOTAL_SHARDS=${ARG_SHARDS};GTEST_SHARD_INDEX=${index}")
  endforeach()
endfunction()

# sluice_test_cases(NAME SOURCES … LIBRARIES …) compiles tests once for several programs, which have
# NAME among their LIBRARIES.
function(sluice_test_cases name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBRARIES" ${ARGN})
  add_library(${name} OBJECT ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE sluice_flags ${ARG_LIBRARIES} GTest::gtest)
  # The flags of a program, which a precompiled header requires.
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${name} PRIVATE -fPIE)
  sluice_test_program(${name} ${ARG_LIBRARIES})
endfunction()

# sluice_test_program(NAME LIBRARY…) gives a program the flags and the precompiled header of a test.
# The flags optimise little: a test spends its time in the library.
function(sluice_test_program name)
  set_target_properties(${name} PROPERTIES SLUICE_OPTIMIZE -Og)
  sluice_unity(${name} TEST)
  if(NOT SLUICE_PCH)
    return()
  endif()
  set(headers layer_test_headers)
  foreach(library sluice sluice_tool sluice_random_graph sluice_train)
    if(library IN_LIST ARGN)
      set(headers program_test_headers)
    endif()
  endforeach()
  target_precompile_headers(${name} REUSE_FROM ${headers})
  sluice_use_headers(${name})
endfunction()
