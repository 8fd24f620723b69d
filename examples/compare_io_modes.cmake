# Trains lesson 10 for some calls in each io mode, on the digits in FOLDER. All print the same.
foreach(mode compute io io_overlapped)
  execute_process(COMMAND ${PROGRAM} "${FOLDER}" --io-mode ${mode} --calls 60
                  OUTPUT_VARIABLE output RESULT_VARIABLE result)
  if(NOT result EQUAL 0 OR NOT output MATCHES "bits of the last loss: [0-9a-fx.p+-]+")
    message(FATAL_ERROR "${PROGRAM} --io-mode ${mode} failed (${result}): ${output}")
  endif()
  if(DEFINED expected AND NOT output STREQUAL expected)
    message(FATAL_ERROR "io mode ${mode} prints ${output}instead of ${expected}")
  endif()
  set(expected "${output}")
endforeach()
