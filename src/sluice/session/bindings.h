#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sluice/base/host_tensor.h"
#include "sluice/ir/stream.h"

namespace sluice {

namespace exe {
struct Executable;
struct Program;
}  // namespace exe
namespace runtime {
class HostStreams;
}

/// Shape of a stream's array: an axis of the entries of a run if there are several, an axis of the replicas if there are
/// several, then the axes of an entry.
Shape entries_shape(const Shape& entry, int64_t entries, int64_t replicas = 1);

/// An input stream and the entries that a run reads, in an array of entries_shape().
struct StreamInput {
  H2dStream stream;
  ConstArrayView array;
};
/// An output stream and the array that a run writes.
struct StreamOutput {
  D2hStream stream;
  ArrayView array;
};

/// Results of a run by stream.
class HostTensors {
 public:
  /// Error{kUsage} for a stream that the run did not write.
  const HostTensor& operator[](const D2hStream& stream) const;
  size_t size() const { return arrays_.size(); }

 private:
  friend class Session;
  std::vector<std::pair<D2hStream, HostTensor>> arrays_;
};

class Session;

/// Arrays that a program is bound to, checked once.
class Binding {
 public:
  Binding();
  Binding(Binding&&) noexcept;
  Binding& operator=(Binding&&) noexcept;
  ~Binding();

 private:
  friend class Session;
  const Session* session_ = nullptr;
  const exe::Program* program_ = nullptr;
  std::unique_ptr<runtime::HostStreams> streams_;
};

/// The streams of a program, bound to arrays. `ir` is the id of the Ir that the streams must belong to. Error{kUsage} naming
/// streams that are missing, unknown or given twice, or an array whose shape or dtype differs.
std::unique_ptr<runtime::HostStreams> bind_streams(const exe::Executable& executable,
                                                   const exe::Program& program, uint64_t ir,
                                                   const std::vector<StreamInput>& inputs,
                                                   const std::vector<StreamOutput>& outputs);

}  // namespace sluice
