# Requires the variables BUILD (a finished build), CONFIG, GENERATOR, CXX, LAUNCHER, LINK_FLAGS,
# CONSUMER and SCRATCH.
function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE result
                  OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "${command}\nended with ${result}:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${SCRATCH})
run(${CMAKE_COMMAND} --install ${BUILD} --config ${CONFIG} --prefix ${SCRATCH}/prefix)

# Headers of tests must not be installed.
file(GLOB_RECURSE test_headers ${SCRATCH}/prefix/include/*test*.h)
if(test_headers)
  message(FATAL_ERROR "headers of tests are installed: ${test_headers}")
endif()

run(${CMAKE_COMMAND} -S ${CONSUMER} -B ${SCRATCH}/build -G ${GENERATOR} -DCMAKE_BUILD_TYPE=${CONFIG}
    -DCMAKE_PREFIX_PATH=${SCRATCH}/prefix -DCMAKE_CXX_COMPILER=${CXX}
    -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}
    -DCMAKE_EXE_LINKER_FLAGS=${LINK_FLAGS})
# The package found must be the one just installed.
file(STRINGS ${SCRATCH}/build/CMakeCache.txt found REGEX "^Sluice_DIR:")
string(FIND "${found}" "=${SCRATCH}/prefix/" at)
if(at EQUAL -1)
  message(FATAL_ERROR "another package was found: ${found}")
endif()
run(${CMAKE_COMMAND} --build ${SCRATCH}/build)

run(${SCRATCH}/build/consumer)
if(NOT output MATCHES "device 0 \\(cpu\\): [0-9,]+ bytes of a budget of 1,048,576" OR
   NOT output MATCHES "logits: \\(8, 10\\) float32\ndevices: 2\n")
  message(FATAL_ERROR "the consumer printed:\n${output}")
endif()

execute_process(COMMAND ${SCRATCH}/prefix/bin/sluice --version
                RESULT_VARIABLE result OUTPUT_VARIABLE output)
if(NOT result EQUAL 0 OR NOT output MATCHES "^sluice [0-9]+\\.")
  message(FATAL_ERROR "the installed tool printed: ${output}")
endif()
