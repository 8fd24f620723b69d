# Checks the symbols of objects that are compiled for one instruction set. The name of each weak
# function must contain that instruction set or its vector type. Otherwise the linker might keep the
# AVX-512 copy for all callers. The objects must not define code that runs at program start.
# Variables: NM, OBJECTS, ISA (number of sluice::cpu::Isa).
set(vector_1 "simd::[FIM]8")
set(vector_2 "simd::[FIM]16")
set(bad "")
foreach(object IN LISTS OBJECTS)
  execute_process(COMMAND ${NM} --demangle --defined-only ${object} OUTPUT_VARIABLE text
                  COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE ";" "," text "${text}")
  string(REPLACE "[" "(" text "${text}")
  string(REPLACE "]" ")" text "${text}")
  string(REPLACE "\n" ";" lines "${text}")
  foreach(line IN LISTS lines)
    if(line MATCHES "_GLOBAL__sub_I")
      string(APPEND bad "  ${line}\n")
    elseif(line MATCHES " W " AND NOT ISA EQUAL 0
           AND NOT line MATCHES "\\(sluice::cpu::Isa\\)${ISA}"
           AND NOT line MATCHES "${vector_${ISA}}")
      string(APPEND bad "  ${line}\n")
    endif()
  endforeach()
endforeach()
if(bad)
  message(FATAL_ERROR "symbols without their instruction set, or code that runs at start:\n${bad}")
endif()
