# Runs PROGRAM and compares its output with the file EXPECTED. Object addresses are ignored.
execute_process(COMMAND ${PROGRAM} COMMAND sed -E "s/0x[0-9a-f]+/0x/g" COMMAND diff ${EXPECTED} -
                RESULTS_VARIABLE results)
list(GET results 0 result)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${PROGRAM} failed (${result})")
endif()
if(NOT results STREQUAL "0;0;0")
  message(FATAL_ERROR "${PROGRAM} does not print what ${EXPECTED} says")
endif()
