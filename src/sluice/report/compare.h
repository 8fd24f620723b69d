#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::report {

/// Numbers of a report under one title, such as the bytes of a memory by kind.
struct FactGroup {
  std::string title;
  std::vector<std::pair<std::string, int64_t>> rows;  ///< Names are unique.
};

/// The numbers of a report.json that `sluice inspect` shows.
struct ReportFacts {
  std::string path;
  std::string model;
  std::vector<FactGroup> groups;
};

/// Reads the facts of a report.json: bytes of each memory by category, each object, and bytes and
/// operations of each program by op. Error{kBadFile} for other text, for another version, and for
/// functions that call themselves.
ReportFacts read_facts(std::string_view json, const std::string& path);

/// Formats each group with its largest numbers.
std::string describe(const ReportFacts& facts);

/// Formats the numbers that differ between two reports. Each group begins with its largest
/// difference. Error{kUsage} for reports of two models.
std::string compare(const ReportFacts& a, const ReportFacts& b);

}  // namespace sluice::report
