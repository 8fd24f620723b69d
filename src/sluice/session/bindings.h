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

/// Returns the shape of a stream's array. Its axes are the entries of a run, the replicas, and the
/// axes of an entry. The axis of the entries or of the replicas is omitted if there is only one.
Shape entries_shape(const Shape& entry, int64_t entries, int64_t replicas = 1);

/// An output stream and the array that a run writes; see entries_shape().
struct StreamOutput {
  D2hStream stream = {};
  ArrayView array = {};
};

/// Results of a run, by output stream.
class HostTensors {
 public:
  /// Returns the array of a stream. Error{kUsage} for a stream that the run did not write.
  const HostTensor& operator[](const D2hStream& stream) const;
  size_t size() const { return arrays_.size(); }
  /// Pairs of a stream and its array, in the order of the program's streams.
  auto begin() const { return arrays_.begin(); }
  auto end() const { return arrays_.end(); }

 private:
  friend class Session;
  std::vector<std::pair<D2hStream, HostTensor>> arrays_;
};

class Session;

/// A program bound to checked arrays; Session::bind makes it.
class Binding {
 public:
  Binding();
  Binding(Binding&&) noexcept;
  Binding& operator=(Binding&&) noexcept;
  ~Binding();

 private:
  friend class AsyncRun;
  friend class Session;
  const Session* session_ = nullptr;
  const exe::Program* program_ = nullptr;
  std::unique_ptr<runtime::HostStreams> streams_;
};

/// Binds those streams of a program that do not belong to a feed to arrays. `ir` is the id of the
/// Ir that the streams must belong to. Error{kUsage}, which names streams that are missing, unknown
/// or given twice, or an array of another shape or dtype.
std::unique_ptr<runtime::HostStreams> bind_streams(const exe::Executable& executable,
                                                   const exe::Program& program, uint64_t ir,
                                                   const std::vector<StreamInput>& inputs,
                                                   const std::vector<StreamOutput>& outputs);

}  // namespace sluice
