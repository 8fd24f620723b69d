# Functions for all folders: sluice_layer() adds a library of src/sluice, sluice_test() a test
# program.

# Flags of every target. Contraction is off: only explicit calls make a fused multiply-add.
add_library(sluice_flags INTERFACE)
target_compile_options(sluice_flags INTERFACE -Wall -Wextra -Wpedantic
                       -Wno-missing-field-initializers -ffp-contract=off
                       $<$<CONFIG:Release>:-O2>)
if(SLUICE_SANITIZE)
  target_compile_options(sluice_flags INTERFACE -fsanitize=${SLUICE_SANITIZE}
                         -fno-sanitize-recover=all -fno-omit-frame-pointer -O1)
  target_link_options(sluice_flags INTERFACE -fsanitize=${SLUICE_SANITIZE})
endif()
set(SLUICE_LAYERS "" CACHE INTERNAL "")

# sluice_layer(NAME SOURCES a.cc b.cc [TESTS a_test.cc] [DEPENDS base ir] [LIBRARIES fmt::fmt]
#              [TEST_LIBRARIES …])
# adds the library sluice_NAME, and the test program NAME_test of the tests beside the code.
function(sluice_layer name)
  cmake_parse_arguments(ARG "" "" "SOURCES;TESTS;DEPENDS;LIBRARIES;TEST_LIBRARIES" ${ARGN})
  set(library sluice_${name})
  add_library(${library} STATIC ${ARG_SOURCES})
  add_library(Sluice::${name} ALIAS ${library})
  target_include_directories(${library} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
                             $<INSTALL_INTERFACE:include>)
  target_compile_features(${library} PUBLIC cxx_std_20)
  target_link_libraries(${library} PRIVATE $<BUILD_INTERFACE:sluice_flags>)
  foreach(dependency ${ARG_DEPENDS})
    target_link_libraries(${library} PUBLIC sluice_${dependency})
  endforeach()
  target_link_libraries(${library} PUBLIC ${ARG_LIBRARIES})
  set(SLUICE_LAYERS ${SLUICE_LAYERS} ${library} CACHE INTERNAL "")
  if(SLUICE_BUILD_TESTS AND ARG_TESTS)
    sluice_test(${name}_test LABEL ${name} SOURCES ${ARG_TESTS}
                LIBRARIES ${library} ${ARG_TEST_LIBRARIES})
  endif()
endfunction()

# sluice_test(NAME LABEL label SOURCES … LIBRARIES …)
# adds a GoogleTest program, which CTest runs as one test.
function(sluice_test name)
  cmake_parse_arguments(ARG "" "LABEL" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE sluice_flags ${ARG_LIBRARIES} GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT 600)
endfunction()
