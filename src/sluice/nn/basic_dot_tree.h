#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace sluice::nn {

/// Whether `insert` and `update` may replace existing leaves and nodes.
enum class Overwrite { kNo, kYes };

namespace internal {

/// Returns "a, b, c", or "none" for an empty list.
std::string join_keys(const std::vector<std::string>& keys);
/// Returns the text of a Python dict of leaf texts: "{'weight': …, 'bias': …}".
std::string dict_text(const std::vector<std::pair<std::string, std::string>>& leaves);
/// Returns "dict_keys(['fc1.weight', 'fc1.bias'])".
std::string keys_text(const std::vector<std::string>& keys);

}  // namespace internal

/// An ordered tree of leaves with dotted keys: "fc1.weight" is leaf `weight` of node `fc1`. The
/// parts of a key are identifiers or decimal numbers. Copies of a tree are independent. Leaves and
/// nodes never move: references to them are valid until they are removed. `Self` is
/// the class of the tree and of its inner nodes. dot_tree.h defines the functions; trees that the
/// library uses are instantiated once.
template <typename L, typename Self>
class BasicDotTree {
 public:
  using Leaf = L;

  BasicDotTree();
  ~BasicDotTree();
  BasicDotTree(BasicDotTree&&) noexcept;
  BasicDotTree& operator=(BasicDotTree&&) noexcept;
  BasicDotTree(const BasicDotTree& other);
  BasicDotTree& operator=(const BasicDotTree& other);

  /// Adds a leaf or a subtree at a dotted key; creates missing inner nodes. Without overwrite, the
  /// first part of `key` must be new. With overwrite, an existing leaf or subtree at `key` is
  /// replaced. A leaf at a prefix of `key` becomes a node. Error{kUsage} if `key` is invalid or
  /// exists; the tree is then unchanged.
  void insert(std::string_view key, L leaf, Overwrite overwrite = Overwrite::kNo);
  void insert(std::string_view key, Self subtree, Overwrite overwrite = Overwrite::kNo);
  void insert(int64_t index, L leaf, Overwrite overwrite = Overwrite::kNo);
  void insert(int64_t index, Self subtree, Overwrite overwrite = Overwrite::kNo);
  /// Adds a leaf at a dotted key, also into existing nodes. Error{kUsage} if `key` exists or a
  /// prefix of it is a leaf.
  void merge(std::string_view key, L leaf);
  /// Returns the inner node at `key`; creates it if it is missing. Error{kUsage} if `key` is a
  /// leaf.
  Self& node(std::string_view key);
  /// Inserts copies of the leaves and nodes of `other`. With overwrite, they replace leaves and
  /// nodes with the same top-level key. Otherwise such a key is Error{kUsage} and nothing is
  /// inserted.
  void update(const Self& other, Overwrite overwrite = Overwrite::kNo);

  /// Returns the leaf at a dotted key. A key may be a number: -1 is the largest number, -2 is one
  /// less. Error{kUsage}, which lists the existing keys, if the key is missing or a node.
  template <typename Key>
  const L& operator[](const Key& key) const {
    if constexpr (std::is_integral_v<Key>) {
      return leaf(numeric_key(key));
    } else {
      return leaf(key);
    }
  }
  /// Returns the subtree at a dotted key. Error{kUsage} if it is missing or a leaf.
  const Self& tree(std::string_view key) const;
  const Self& tree(int64_t index) const;

  /// Remove a leaf (pop) or a subtree (pop_tree) and return it. Error{kUsage} if the key is missing
  /// or of the other kind.
  L pop(std::string_view key);
  Self pop_tree(std::string_view key);
  /// Removes all leaves; inner nodes remain.
  void clear();
  /// Returns a tree with the leaves and subtrees at these dotted keys. Error{kUsage} if a key is
  /// missing or repeated.
  Self filter_keys(const std::vector<std::string>& keys) const;

  bool contains(std::string_view key) const;
  /// Number of top-level keys, and number of all leaves.
  size_t size() const;
  size_t size_flat() const;
  bool empty() const;
  /// Top-level keys; dotted keys of all leaves; all leaves. All are in insertion order.
  std::vector<std::string> keys() const;
  std::vector<std::string> keys_flat() const;
  std::vector<L> values_flat() const;
  /// Calls f(dotted key, leaf) for every leaf, in insertion order.
  template <typename F>
  void for_each(F&& f) const {
    using Object = std::remove_reference_t<F>;
    const Visitor call = [](void* object, const std::string& key, const L& leaf) {
      (*static_cast<Object*>(object))(key, leaf);
    };
    visit("", call, const_cast<std::remove_const_t<Object>*>(&f));
  }

  /// Returns the dotted keys and leaves in insertion order.
  std::vector<std::pair<std::string, L>> to_dict() const;
  /// Returns a tree of these leaves. Error{kUsage} if a key is repeated or is both leaf and node.
  static Self from_dict(const std::vector<std::pair<std::string, L>>& leaves);
  /// Returns the dotted keys and the leaves, sorted by key.
  std::pair<std::vector<std::string>, std::vector<L>> unpack() const;
  /// Returns the tree with leaf i at key i; the inverse of unpack(). Error{kUsage} if the numbers
  /// of keys and leaves differ.
  static Self pack(const std::vector<std::string>& keys, const std::vector<L>& leaves);
  /// Returns the pairs {this[k], other[k]} for the dotted keys k of both trees, in this tree's
  /// order.
  template <typename OtherTree>
  std::vector<std::pair<L, typename OtherTree::Leaf>> to_mapping(const OtherTree& other) const {
    std::vector<std::pair<L, typename OtherTree::Leaf>> result;
    for_each([&](const std::string& key, const L& leaf) {
      if (const auto* partner = other.find_leaf(key)) result.emplace_back(leaf, *partner);
    });
    return result;
  }
  bool has_leaf(std::string_view key) const;
  /// Returns the leaf at a dotted key, or null if the key is missing or a node.
  const L* find_leaf(std::string_view key) const;

 private:
  template <typename, typename>
  friend class BasicDotTree;

  struct Node;
  /// Calls a function object of any type.
  using Visitor = void (*)(void* object, const std::string& key, const L& leaf);

  const Node* local(std::string_view key) const;
  Node* local(std::string_view key);
  const Node* find(std::string_view key) const;
  const L& leaf(std::string_view key) const;
  const Node& get(std::string_view key) const;
  std::string numeric_key(int64_t index) const;
  void insert_node(std::string_view key, Node node, Overwrite overwrite);

  // Checks the whole path before the first change, so that a failed insert changes nothing.
  Node& put_node(std::string_view key, Node node, Overwrite overwrite);
  void check_place(std::string_view key, std::string_view full, Overwrite overwrite) const;
  Node& place_checked(std::string_view key, Node node);
  void erase(std::string_view key);
  void visit(const std::string& prefix, Visitor call, void* object) const;

  /// Adds a node without checks.
  Node& append(std::unique_ptr<Node> node);

  std::vector<std::unique_ptr<Node>> nodes_;
  std::map<std::string, Node*, std::less<>> index_;  ///< Nodes by key, in trees of many nodes.
};

/// Returns the tree as the reference documents print it: "{'layer1.bias': <leaf>, …}". Leaves are
/// in insertion order; to_string() formats each leaf.
template <typename L, typename Self>
std::string to_string(const BasicDotTree<L, Self>& tree) {
  std::vector<std::pair<std::string, std::string>> leaves;
  tree.for_each([&](const std::string& key, const L& leaf) {
    using std::to_string;
    leaves.emplace_back(key, to_string(leaf));
  });
  return internal::dict_text(leaves);
}

/// Returns the dotted keys as the reference documents print them: "dict_keys(['fc1.weight',
/// 'fc1.bias'])".
template <typename L, typename Self>
std::string keys_text(const BasicDotTree<L, Self>& tree) {
  return internal::keys_text(tree.keys_flat());
}

}  // namespace sluice::nn
