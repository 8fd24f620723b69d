#include "sluice/session/bindings.h"

#include <algorithm>
#include <map>

#include "sluice/base/error.h"
#include "sluice/exe/executable.h"
#include "sluice/runtime/streams/host_streams.h"

namespace sluice {
namespace {

template <typename Streams>
std::string names(const Streams& streams) {
  std::string text;
  for (const auto& [id, name] : streams) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

// Whether an array has the elements of an input's array: the axes of the entries and the replicas
// and the first axis of an entry are equal. The other axes of an entry may be divided otherwise.
bool holds_input(const Shape& given, const Shape& want, int64_t entry_rank) {
  const int64_t kept = want.rank() - std::max<int64_t>(entry_rank - 1, 0);
  return given.rank() >= kept && given.elements() == want.elements() &&
         std::equal(want.begin(), want.begin() + kept, given.begin());
}

void check_array(const exe::StreamPort& port, int64_t entries, int64_t replicas,
                 const TensorSpec& spec, const std::byte* data) {
  const Shape want = entries_shape(port.spec.shape, entries, replicas);
  bool fits = spec.shape == want;
  if (port.input && !fits) {
    const int64_t rank = port.spec.shape.rank();
    std::vector<int64_t> dims = want.dims();
    dims.insert(dims.begin(), 1);  // The axis of a single entry.
    fits = holds_input(spec.shape, want, rank) ||
           (entries == 1 && holds_input(spec.shape, Shape(dims), rank));
  }
  require(spec.dtype == port.spec.dtype,
          "stream '{}': the array must be {}, got {}; cast it with HostTensor::cast", port.name,
          name_of(port.spec.dtype), name_of(spec.dtype));
  require(fits,
          "stream '{}': Shape mismatch: the program uses {} entries of {}{}, so the array must be "
          "{}, got {}",
          port.name, entries, to_string(port.spec.shape),
          replicas == 1 ? "" : fmt::format(" in each of {} replicas", replicas), to_string(want),
          to_string(spec.shape));
  require(data != nullptr || spec.elements() == 0,
          "stream '{}': the array must have memory, got a null pointer", port.name);
}

using StreamNames = std::map<int32_t, std::string>;  // Names of streams by id.

template <typename Stream>
void add_once(StreamNames& given, const Stream& stream, uint64_t ir, const exe::Executable& e,
              const Ids<exe::StreamId, exe::FeedId>& feeds) {
  require(stream.ir == ir, "stream '{}' belongs to another Ir", stream.name);
  const exe::FeedId feed = feeds[exe::StreamId(stream.id)];
  require(feed < 0,
          "stream '{}': must belong to no feed, got feed '{}'; bind it with Session::bind_feed",
          stream.name, feed.valid() ? e.feeds[feed].name : "");
  require(given.emplace(stream.id, stream.name).second, "stream '{}' is given twice", stream.name);
}

// Returns the streams of `a` that `b` lacks.
StreamNames without(const StreamNames& a, const StreamNames& b) {
  StreamNames rest;
  for (const auto& s : a) {
    if (!b.contains(s.first)) rest.insert(s);
  }
  return rest;
}

void check_streams(const exe::Program& program, const char* word, const StreamNames& expected,
                   const StreamNames& given) {
  const StreamNames missing = without(expected, given);
  const StreamNames unexpected = without(given, expected);
  require(missing.empty(), "Missing {}: {}; program '{}' expects: {}; given: {}", word,
          names(missing), program.name, names(expected), names(given));
  require(unexpected.empty(), "Unexpected {}: {}; program '{}' expects: {}; given: {}", word,
          names(unexpected), program.name, names(expected), names(given));
}

}  // namespace

Shape entries_shape(const Shape& entry, int64_t entries, int64_t replicas) {
  std::vector<int64_t> dims;
  if (entries != 1) dims.push_back(entries);
  if (replicas != 1) dims.push_back(replicas);
  dims.insert(dims.end(), entry.begin(), entry.end());
  return Shape(std::move(dims));
}

const HostTensor& HostTensors::operator[](const D2hStream& stream) const {
  for (const auto& [s, array] : arrays_) {
    if (s == stream) return array;
  }
  fail(ErrorKind::kUsage, "results: the run wrote nothing to stream '{}'", stream.name);
}

Binding::Binding() = default;
Binding::Binding(Binding&&) noexcept = default;
Binding& Binding::operator=(Binding&&) noexcept = default;
Binding::~Binding() = default;

std::unique_ptr<runtime::HostStreams> bind_streams(const exe::Executable& executable,
                                                   const exe::Program& program, uint64_t ir,
                                                   const std::vector<StreamInput>& inputs,
                                                   const std::vector<StreamOutput>& outputs) {
  StreamNames expected_inputs, expected_outputs, given_inputs, given_outputs;
  std::map<int32_t, int64_t> entries;
  const Ids<exe::StreamId, exe::FeedId> feeds = exe::feeds_of_streams(executable);
  for (const exe::StreamCount& s : program.streams) {
    if (feeds[s.stream] >= 0) continue;
    const exe::StreamPort& port = executable.streams[s.stream];
    (port.input ? expected_inputs : expected_outputs).emplace(s.stream, port.name);
    entries[s.stream] = s.entries;
  }
  for (const StreamInput& i : inputs) add_once(given_inputs, i.stream, ir, executable, feeds);
  for (const StreamOutput& o : outputs) add_once(given_outputs, o.stream, ir, executable, feeds);
  check_streams(program, "input", expected_inputs, given_inputs);
  check_streams(program, "output", expected_outputs, given_outputs);

  auto streams = std::make_unique<runtime::HostStreams>(executable);
  const auto bind = [&](int32_t id, const TensorSpec& spec, const std::byte* data) {
    const exe::StreamId stream(id);
    check_array(executable.streams[stream], entries[stream], executable.replicas, spec, data);
    streams->bind(stream, const_cast<std::byte*>(data));
  };
  for (const StreamInput& i : inputs) bind(i.stream.id, i.array.spec, i.array.data);
  for (const StreamOutput& o : outputs) bind(o.stream.id, o.array.spec, o.array.data);
  return streams;
}

}  // namespace sluice
