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
  return row < 0 ? none : sluice::at(rows, row);
}

int32_t Origins::of_value(ValueId value) const {
  return values.contains(value) ? values[value] : -1;
}

ValueId Origins::in_buffer(FunctionId function, size_t buffer) const {
  const bool known = buffers.contains(function) && buffer < buffers[function].size();
  return known ? buffers[function][buffer] : kNoValue;
}

Origins::Variable Origins::of_variable(VariableId variable) const {
  return variables.contains(variable) ? variables[variable] : Variable();
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

Ids<StreamId, FeedId> feeds_of_streams(const Executable& executable) {
  Ids<StreamId, FeedId> feeds(executable.streams.size());
  for (const FeedId f : executable.feeds.ids()) {
    for (const FeedRing& ring : executable.feeds[f].rings) feeds[ring.stream] = f;
  }
  return feeds;
}

SlotMemory slot_memory(const Executable& executable, DeviceId from, DeviceId to) {
  const Device& sender = executable.devices[from];
  const Device& receiver = executable.devices[to];
  if (sender.queued && receiver.queued && sender.kind == receiver.kind)
    return {Space::kDevice, from};
  return {sender.queued || receiver.queued ? Space::kPinned : Space::kDevice, to};
}

int32_t workers_of_replica(int32_t threads, int32_t replicas) {
  return threads / std::gcd(threads, replicas);
}

int64_t planned_bytes(const Executable& executable, DeviceId device, Space space) {
  int64_t total = 0;
  for (const Arena& a : executable.arenas) {
    if (a.device == device && a.space == space) total += a.bytes;
  }
  return total;
}

}  // namespace sluice::exe
