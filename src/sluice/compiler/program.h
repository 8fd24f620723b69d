#pragma once
#include <deque>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>

#include "sluice/compiler/body.h"
#include "sluice/compiler/compile.h"
#include "sluice/compiler/lower/storage.h"

/// The whole program during compilation, and data that the passes share.
namespace sluice::compiler {

/// A variable of the program. It has the same index in Program::variables and
/// Executable::variables.
struct Variable {
  std::shared_ptr<VariableInfo> info;
  TensorSpec spec;
  std::string name;
  int32_t device = 0;  ///< The device that holds it.
  Layout layout;
};

/// Index into Program::constants. A constant has one exe::ConstantId for each device that reads it.
using ConstantIndex = Id<struct ConstantIndexTag>;

struct Constant {
  std::string name;
  std::shared_ptr<const HostTensor> data;
};

/// One entry graph. It has one body before the pass "project", and one for each participating
/// device after it.
struct EntryBodies {
  std::string name;
  std::vector<BodyId> bodies;
};

/// A queue of messages from one device to another.
struct ProgramChannel {
  int32_t from = 0;
  int32_t to = 0;
  int64_t capacity = 0;    ///< Largest number of unreceived messages in the program's order.
  int64_t slot_bytes = 0;  ///< Bytes of the largest message, rounded up to 64.
};

/// Kernels and storage of a body, written by the passes of `lower/`.
struct LoweredBody {
  Ids<NodeId, KernelChoice> choices;
  Storage storage;
  exe::FunctionId function;
};

struct Program {
  explicit Program(const Ir& the_ir) : ir(the_ir) {}

  const Ir& ir;
  Ids<exe::GroupId, ReplicaGrouping> groups;  ///< Groupings of the replicas that collectives use.
  Ids<exe::VariableId, Variable> variables;
  Ids<ConstantIndex, Constant> constants;
  std::deque<Body> bodies;  ///< May contain unused bodies, which no entry reaches.
  std::vector<EntryBodies> entries;
  Ids<exe::ChannelId, ProgramChannel> channels;
  /// Slots of the ring of each stream of a feed, by stream.
  std::map<int32_t, int64_t> feed_slots;
  std::map<BodyId, LoweredBody> lowered;
  exe::Executable executable;
  FusionReport fusions;
  std::unordered_map<const VariableInfo*, int32_t> variable_index;
  std::unordered_map<const HostTensor*, ConstantIndex> constant_index;

  const Body& body(BodyId id) const { return at(bodies, id.value()); }
  Body& body(BodyId id) { return at(bodies, id.value()); }
  BodyId add(Body body);
  /// Returns the index of a variable or constant, which is added on first use.
  exe::VariableId variable(const TensorInfo& info);
  ConstantIndex constant(const TensorInfo& info);
};

/// The options and the targets of a compilation.
struct Context {
  const CompileOptions& options;
  /// The target of a device. Error{kUsage} if the device does not exist.
  const Target& target(int32_t device) const;
  const Target& target(const Body& body) const { return target(body.device); }
};

/// The bodies that the entries reach, each after its callees. Entries and calls are visited in
/// their order.
std::vector<BodyId> callees_first(const Program& program);
/// The bodies that the entries reach, each before its callees.
std::vector<BodyId> callers_first(const Program& program);
/// Makes callers of equal bodies call one of them. Returns the number of bodies that are not used
/// any more.
int64_t merge_equal_bodies(Program& program);

/// Runs `pass(body)`, which returns a number of changes, on each body that the entries reach.
/// Returns the sum of these numbers.
template <typename PassType>
int64_t for_each_body(Program& program, PassType&& pass) {
  int64_t changes = 0;
  for (const BodyId id : callers_first(program)) changes += pass(program.body(id));
  return changes;
}

/// A caller's request for a version of its callee, specialised for `key`.
template <typename Key>
struct Request {
  BodyId* callee;  ///< Field of the calling node.
  Key key;
};

/// Specialises bodies for their callers. Visits the bodies that the entries reach, callers first.
/// `visit(id, key)` changes body `id` for a key that its callers request (Key{} for an entry). It
/// returns the requests of the body's own calls. A body that is requested with several keys is
/// copied before any of them changes it.
template <typename Key, typename Visit>
void specialise(Program& program, Visit&& visit) {
  std::map<BodyId, std::vector<Request<Key>>> requests;
  const auto handle = [&](BodyId id, const Key& key) {
    for (Request<Key>& r : visit(id, key)) {
      const BodyId callee = *r.callee;
      requests[callee].push_back(std::move(r));
    }
  };
  for (const BodyId id : callers_first(program)) {
    const auto asked = requests.find(id);
    if (asked == requests.end()) {
      handle(id, Key{});
      continue;
    }
    std::vector<std::pair<Key, BodyId>> copies;
    for (const Request<Key>& r : asked->second) {
      auto known = copies.begin();
      while (known != copies.end() && !(known->first == r.key)) ++known;
      if (known == copies.end()) {
        copies.emplace_back(r.key, copies.empty() ? id : program.add(program.body(id)));
        known = copies.end() - 1;
      }
      *r.callee = known->second;
    }
    for (const auto& [key, copy] : copies) handle(copy, key);
  }
}

}  // namespace sluice::compiler
