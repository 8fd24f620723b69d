#pragma once
#include <cstdio>
#include <string>

namespace sluice::test {

/// What a script of this folder prints now; empty where no python3 has PyTorch.
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
