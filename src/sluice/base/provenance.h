#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "sluice/base/ids/ids.h"
#include "sluice/base/instance.h"

namespace sluice {

/// Purpose of an op in a program.
enum class OpRole : uint8_t {
  kForward,         ///< Also the role of ops without another one.
  kGradient,        ///< Computes gradients.
  kRecomputation,   ///< Computes activations again.
  kAccumulation,    ///< Adds gradients of micro-batches.
  kReduction,       ///< Adds or divides accumulated gradients: uses of a weight, replicas.
  kCollective,      ///< Exchanges other values between replicas.
  kNorm,            ///< Computes a norm of gradients, or its factor.
  kUpdate,          ///< Updates variables; also the role of optimizer state.
  kRunningAverage,  ///< Updates running variables; also their role.
  kSeed,            ///< Loads or derives seeds.
  kResult,          ///< Stores losses and predictions, or adds them up.
  kEvaluation,      ///< Runs the model without training it.
  kCopy             ///< Changes a layout or copies, and is not part of the model.
};
inline constexpr std::array<std::string_view, 13> kOpRoleWords{
    "forward", "gradient", "recomputation", "accumulation", "reduction",  "collective", "norm",
    "update",  "running",  "seed",          "result",       "evaluation", "copy"};
inline std::string_view word(OpRole role) { return at(kOpRoleWords, role); }

/// The origin of an op in the model and its purpose in the program. It changes neither results nor
/// plans: keys, fingerprints and canonical texts ignore it.
struct Provenance {
  OpRole role = OpRole::kForward;
  std::string block = {};  ///< Block of the model (nn/block.h); equal blocks that share graphs have
                           ///< the name of the first one. Empty: none.
  std::string module_path = {};  ///< Scopes in which the op was made: "fc1/attention".
  std::string line = {};         ///< Source line of the call that made the op: "file.cc:42".
  std::string op = {};           ///< Name of the operator; of a gradient, that of its forward op.
  std::string variable = {};     ///< Variable that the op loads, accumulates, reduces or updates.
  Instance at = {};
  Instance per_iteration = {};  ///< Loops: difference between consecutive iterations.
  bool operator==(const Provenance&) const = default;

  /// Returns the module path and the source line: "fc1/attention file.cc:42".
  std::string where() const;
  /// Returns the provenance of this op in the graph of a call of its own graph. An op without a
  /// role, a block, a module path or a variable has those of the call.
  Provenance inside(const Provenance& call) const;
};

/// A pointer to a provenance that does not change, so that copies of a node share it. Initially
/// that of an op without one. Compares the fields.
class SharedProvenance {
 public:
  SharedProvenance() = default;
  SharedProvenance(std::shared_ptr<const Provenance> shared)  // NOLINT: implicit
      : shared_(std::move(shared)) {}
  SharedProvenance(Provenance own)  // NOLINT: implicit
      : shared_(std::make_shared<const Provenance>(std::move(own))) {}

  const Provenance& operator*() const { return shared_ != nullptr ? *shared_ : none(); }
  const Provenance* operator->() const { return &**this; }
  friend bool operator==(const SharedProvenance& a, const SharedProvenance& b) {
    return a.shared_ == b.shared_ || *a == *b;
  }

 private:
  static const Provenance& none();

  std::shared_ptr<const Provenance> shared_;  ///< Null: none().
};

}  // namespace sluice
