#pragma once
#include <cstdio>
#include <string>

namespace sluice::test {

/// Runs a script of this folder and returns its output. Returns an empty string if PyTorch is not
/// installed.
inline std::string run_pytorch(const std::string& script) {
  for (const char* python : {"python3", "/usr/bin/python3"}) {
    const std::string command = std::string(python) + " tests/models/" + script + " 2>/dev/null";
    FILE* pipe = popen(command.c_str(), "r");
    if (pipe == nullptr) continue;
    std::string text;
    char buffer[4096];
    for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
    if (pclose(pipe) == 0) return text;
  }
  return "";
}

}  // namespace sluice::test
