#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "sluice/exe/executable.h"

namespace sluice::report {

/// Returns a + b for non-negative numbers, or INT64_MAX if the sum is larger.
inline int64_t bounded_sum(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

/// Returns a · b for non-negative numbers, or INT64_MAX if the product is larger.
inline int64_t bounded_product(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

/// Returns the bytes of operands. An operand that is updated counts once. At most INT64_MAX.
int64_t operand_bytes(const std::vector<exe::Operand>& operands);

/// Transfers of one replica in one run of a program. They move between device memory and one stream
/// or remote buffer, in one direction, on one queue.
struct Traffic {
  exe::TransferKind kind = exe::TransferKind::kStreamIn;
  int32_t object = 0;  ///< Index into streams or remote buffers.
  exe::DeviceId device{0};
  int32_t queue = 0;
  int64_t transfers = 0;
  int64_t bytes = 0;  ///< Bytes of the tensors, without padding of entries.
};

/// Messages of one replica from a device to another one in one run of a program.
struct Messages {
  exe::DeviceId from{0};
  exe::DeviceId to{0};
  int64_t messages = 0;
  int64_t bytes = 0;
};

/// Returns the bytes that the members of a group send to each other in a collective, if each member
/// is a process of its own. With R members and an operand of n bytes, an all-reduce sends
/// 2 (R - 1) n: all inputs of a member's chunk to that member, then its sum to all. A
/// reduce-scatter sends (R - 1) n, and an all-gather of R operands of n bytes R (R - 1) n. Slices
/// and local scatters send nothing. A member sends 1 / R of these bytes in the mean. At most
/// INT64_MAX.
int64_t exchanged_bytes(const exe::Collective& collective, int64_t members);

/// Whether each member of a collective receives the reduction of whole operands.
bool is_all_reduce(const exe::Collective& collective);

/// Collectives of one replica on a device in one run of a program, of one op and replica group.
struct CollectiveBytes {
  std::string op;
  exe::GroupId group{0};
  exe::DeviceId device{0};
  int64_t collectives = 0;
  int64_t bytes = 0;        ///< Bytes of their operands; an operand that is updated counts once.
  int64_t group_bytes = 0;  ///< exchanged_bytes() of all of them.
  int64_t members = 1;      ///< Replicas of a group.

  /// Returns the bytes that a replica sends in the mean, rounded up.
  int64_t sent_bytes() const { return group_bytes / members + (group_bytes % members > 0); }
};

/// Kernels of one replica in one run of a program.
struct Work {
  int64_t tasks = 0;
  int64_t flops = 0;
  int64_t bytes = 0;  ///< Bytes of their operands; an operand that is updated counts once.
};

/// Counts the kernels, transfers, messages and collectives of an executable's programs. A loop
/// counts by its trip count; a branch counts the arm that moves more bytes. Sums saturate at
/// INT64_MAX, because a plan may be read from an untrusted file.
class TrafficCounter {
 public:
  /// The executable must outlive the counter.
  explicit TrafficCounter(const exe::Executable& executable);

  std::vector<Traffic> of(const exe::Program& program) const;
  /// Sorted by pair of devices, ascending.
  std::vector<Messages> messages_of(const exe::Program& program) const;
  /// Indexed by op, group and device.
  std::vector<CollectiveBytes> collectives_of(const exe::Program& program) const;
  Work work_of(const exe::Program& program) const { return count(program).work; }

 private:
  struct Counts {
    using Where = std::tuple<exe::TransferKind, int32_t, exe::DeviceId, int32_t>;
    std::map<Where, Traffic> transfers;
    std::map<std::pair<exe::DeviceId, exe::DeviceId>, Messages> messages;
    std::map<std::tuple<std::string, exe::GroupId, exe::DeviceId>, CollectiveBytes> collectives;
    Work work;

    void add(const Traffic& t, int64_t iterations);
    void add(const Messages& m, int64_t iterations);
    void add(const CollectiveBytes& c, int64_t iterations);
    void add(const Work& w, int64_t iterations);
    void add(const Counts& other, int64_t iterations);
    int64_t bytes() const;
  };

  Counts count(const exe::Executable& executable, const exe::Function& f) const;
  Counts count(const exe::Program& program) const;

  /// Counts of one activation of each function and its callees.
  Ids<exe::FunctionId, Counts> functions_;
};

}  // namespace sluice::report
