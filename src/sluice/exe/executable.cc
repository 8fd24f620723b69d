#include "sluice/exe/executable.h"

#include <algorithm>
#include <numeric>

#include "sluice/base/error.h"

namespace sluice::exe {

StepBody::StepBody() = default;
StepBody::StepBody(const StepBody& other) = default;
StepBody::StepBody(StepBody&& other) noexcept = default;
StepBody& StepBody::operator=(const StepBody& other) = default;
StepBody& StepBody::operator=(StepBody&& other) noexcept = default;
StepBody::~StepBody() = default;
bool operator==(const StepBody& a, const StepBody& b) {
  return static_cast<const StepBody::variant&>(a) == static_cast<const StepBody::variant&>(b);
}

const Provenance& Origins::at(int32_t row) const {
  static const Provenance none;
  return row < 0 ? none : rows[static_cast<size_t>(row)];
}

int32_t Origins::of_value(ValueId value) const {
  const auto v = static_cast<size_t>(value);
  return value >= 0 && v < values.size() ? values[v] : -1;
}

ValueId Origins::in_buffer(int32_t function, int32_t buffer) const {
  const auto f = static_cast<size_t>(function), b = static_cast<size_t>(buffer);
  return f < buffers.size() && b < buffers[f].size() ? buffers[f][b] : kNoValue;
}

Origins::Variable Origins::of_variable(int32_t variable) const {
  const auto v = static_cast<size_t>(variable);
  return v < variables.size() ? variables[v] : Variable();
}

const Program& Executable::program(const std::string& name) const {
  std::string known;
  for (const Program& p : programs) {
    if (p.name == name) return p;
    known += (known.empty() ? "" : ", ") + p.name;
  }
  fail(ErrorKind::kUsage, "no program '{}'; there are: {}", name, known.empty() ? "none" : known);
}

int64_t checksums_of_entry(const RemoteBufferPlan& buffer) {
  return (buffer.spec.bytes() + kChecksumPiece - 1) / kChecksumPiece;
}

StagingPlan StagingPlan::of_transfers(int64_t bytes) {
  return {std::min((bytes + kWord - 1) / kWord * kWord, kMaxSlot)};
}

bool reads_on_host(const Step& step) {
  const auto* issue = std::get_if<Issue>(&step.body);
  const auto* loop = std::get_if<Loop>(&step.body);
  return std::holds_alternative<Branch>(step.body) || (issue != nullptr && issue->entry_from) ||
         (loop != nullptr && loop->condition >= 0);
}

bool has_exits(const Executable& executable) {
  return std::any_of(executable.functions.begin(), executable.functions.end(), [](const auto& f) {
    return std::any_of(f.steps.begin(), f.steps.end(), [](const Step& step) {
      const auto* loop = std::get_if<Loop>(&step.body);
      return loop != nullptr && loop->condition >= 0;
    });
  });
}

std::vector<int32_t> feeds_of_streams(const Executable& executable) {
  std::vector<int32_t> feeds(executable.streams.size(), -1);
  for (size_t f = 0; f < executable.feeds.size(); ++f) {
    for (const FeedRing& ring : executable.feeds[f].rings)
      feeds[static_cast<size_t>(ring.stream)] = static_cast<int32_t>(f);
  }
  return feeds;
}

SlotMemory slot_memory(const Executable& executable, int32_t from, int32_t to) {
  const Device& sender = executable.devices[static_cast<size_t>(from)];
  const Device& receiver = executable.devices[static_cast<size_t>(to)];
  if (sender.queued && receiver.queued && sender.kind == receiver.kind)
    return {Space::kDevice, from};
  return {sender.queued || receiver.queued ? Space::kPinned : Space::kDevice, to};
}

int32_t workers_of_replica(int32_t threads, int32_t replicas) {
  return threads / std::gcd(threads, replicas);
}

int64_t planned_bytes(const Executable& executable, int32_t device, Space space) {
  int64_t total = 0;
  for (const Arena& a : executable.arenas) {
    if (a.device == device && a.space == space) total += a.bytes;
  }
  return total;
}

}  // namespace sluice::exe
