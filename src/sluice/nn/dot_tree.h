#pragma once
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "sluice/base/error.h"

namespace sluice::nn {

/// Whether `insert` and `update` may replace existing leaves and nodes.
enum class Overwrite { kNo, kYes };

namespace internal {

/// Requires `key` to be an identifier or a decimal number of at most 18 digits; Error{kUsage}
/// otherwise.
void check_key(std::string_view key);
/// Returns `index` as a key. Error{kUsage} if it is negative.
std::string index_key(int64_t index);
/// Splits "a.b.c" into "a" and "b.c", and "a" into "a" and "".
std::pair<std::string_view, std::string_view> split_key(std::string_view key);
/// Returns "a, b, c", or "none" for an empty list.
std::string join_keys(const std::vector<std::string>& keys);
/// Returns the text of a Python dict of leaf texts: "{'weight': …, 'bias': …}".
std::string dict_text(const std::vector<std::pair<std::string, std::string>>& leaves);

}  // namespace internal

/// An ordered tree of leaves with dotted keys: "fc1.weight" is leaf `weight` of node `fc1`. The
/// parts of a key are identifiers or decimal numbers. Copies of a tree are independent. `Self` is
/// the class of the tree and of its inner nodes.
template <typename L, typename Self>
class BasicDotTree {
 public:
  using Leaf = L;

  BasicDotTree() = default;
  BasicDotTree(BasicDotTree&&) noexcept = default;
  BasicDotTree& operator=(BasicDotTree&&) noexcept = default;
  BasicDotTree(const BasicDotTree& other) {
    for (const Node& e : other.nodes_) nodes_.push_back(e.copy());
  }
  BasicDotTree& operator=(const BasicDotTree& other) {
    if (this != &other) *this = BasicDotTree(other);
    return *this;
  }

  /// Adds a leaf or a subtree at a dotted key; creates missing inner nodes. Without overwrite, the
  /// first part of `key` must be new. With overwrite, an existing leaf or subtree at `key` is
  /// replaced. A leaf at a prefix of `key` becomes a node. Error{kUsage} if `key` is invalid or
  /// exists; the tree is then unchanged.
  void insert(std::string_view key, L leaf, Overwrite overwrite = Overwrite::kNo) {
    insert_node(key, Node{{}, std::move(leaf), nullptr}, overwrite);
  }
  void insert(std::string_view key, Self subtree, Overwrite overwrite = Overwrite::kNo) {
    insert_node(key, Node{{}, {}, std::make_unique<Self>(std::move(subtree))}, overwrite);
  }
  void insert(int64_t index, L leaf, Overwrite overwrite = Overwrite::kNo) {
    insert(internal::index_key(index), std::move(leaf), overwrite);
  }
  void insert(int64_t index, Self subtree, Overwrite overwrite = Overwrite::kNo) {
    insert(internal::index_key(index), std::move(subtree), overwrite);
  }
  /// Adds a leaf at a dotted key, also into existing nodes. Error{kUsage} if `key` exists or a
  /// prefix of it is a leaf.
  void merge(std::string_view key, L leaf) {
    place(key, Node{{}, std::move(leaf), nullptr}, Overwrite::kNo);
  }
  /// Returns the inner node at `key`; creates it if it is missing. Error{kUsage} if `key` is a
  /// leaf.
  Self& node(std::string_view key) {
    if (const Node* found = find(key)) {
      require(found->subtree != nullptr, "tree: '{}' is a leaf, not a node", key);
      return *found->subtree;
    }
    return *place(key, Node{{}, {}, std::make_unique<Self>()}, Overwrite::kNo).subtree;
  }
  /// Inserts copies of the leaves and nodes of `other`. With overwrite, they replace leaves and
  /// nodes with the same top-level key. Otherwise such a key is Error{kUsage} and nothing is
  /// inserted.
  void update(const Self& other, Overwrite overwrite = Overwrite::kNo) {
    for (const Node& e : other.nodes_) {
      require(overwrite == Overwrite::kYes || local(e.key) == nullptr,
              "tree: key '{}' exists already", e.key);
    }
    for (const Node& e : other.nodes_) {
      if (Node* old = local(e.key)) {
        *old = e.copy();
      } else {
        nodes_.push_back(e.copy());
      }
    }
  }

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
  const Self& tree(std::string_view key) const {
    const Node& e = get(key);
    require(e.subtree != nullptr, "tree: '{}' is a leaf, not a node", key);
    return *e.subtree;
  }
  const Self& tree(int64_t index) const { return tree(numeric_key(index)); }

  /// Remove a leaf (pop) or a subtree (pop_tree) and return it. Error{kUsage} if the key is missing
  /// or of the other kind.
  L pop(std::string_view key) {
    L leaf = (*this)[key];
    erase(key);
    return leaf;
  }
  Self pop_tree(std::string_view key) {
    Self subtree = tree(key);
    erase(key);
    return subtree;
  }
  /// Removes all leaves; inner nodes remain.
  void clear() {
    std::erase_if(nodes_, [](const Node& e) { return e.leaf.has_value(); });
    for (Node& e : nodes_) e.subtree->clear();
  }
  /// Returns a tree with the leaves and subtrees at these dotted keys. Error{kUsage} if a key is
  /// missing or repeated.
  Self filter_keys(const std::vector<std::string>& keys) const {
    Self result;
    for (const std::string& key : keys) {
      require(result.find(key) == nullptr, "tree: key '{}' is given twice", key);
      result.place(key, get(key).copy(), Overwrite::kNo);
    }
    return result;
  }

  bool contains(std::string_view key) const { return find(key) != nullptr; }
  /// Number of top-level keys, and number of all leaves.
  size_t size() const { return nodes_.size(); }
  size_t size_flat() const { return to_dict().size(); }
  bool empty() const { return nodes_.empty(); }
  /// Top-level keys; dotted keys of all leaves; all leaves. All are in insertion order.
  std::vector<std::string> keys() const {
    std::vector<std::string> result;
    for (const Node& e : nodes_) result.push_back(e.key);
    return result;
  }
  std::vector<std::string> keys_flat() const {
    std::vector<std::string> result;
    for_each([&](const std::string& key, const L&) { result.push_back(key); });
    return result;
  }
  std::vector<L> values_flat() const {
    std::vector<L> result;
    for_each([&](const std::string&, const L& leaf) { result.push_back(leaf); });
    return result;
  }
  /// Calls f(dotted key, leaf) for every leaf, in insertion order.
  template <typename F>
  void for_each(F&& f) const {
    visit("", f);
  }

  /// Returns the dotted keys and leaves in insertion order.
  std::vector<std::pair<std::string, L>> to_dict() const {
    std::vector<std::pair<std::string, L>> result;
    for_each([&](const std::string& key, const L& leaf) { result.emplace_back(key, leaf); });
    return result;
  }
  /// Returns a tree of these leaves. Error{kUsage} if a key is repeated or is both leaf and node.
  static Self from_dict(const std::vector<std::pair<std::string, L>>& leaves) {
    Self result;
    for (const auto& [key, leaf] : leaves) result.merge(key, leaf);
    return result;
  }
  /// Returns the dotted keys and the leaves, sorted by key.
  std::pair<std::vector<std::string>, std::vector<L>> unpack() const {
    auto leaves = to_dict();
    std::sort(leaves.begin(), leaves.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    std::pair<std::vector<std::string>, std::vector<L>> result;
    for (auto& [key, leaf] : leaves) {
      result.first.push_back(std::move(key));
      result.second.push_back(std::move(leaf));
    }
    return result;
  }
  /// Returns the tree with leaf i at key i; the inverse of unpack(). Error{kUsage} if the numbers
  /// of keys and leaves differ.
  static Self pack(const std::vector<std::string>& keys, const std::vector<L>& leaves) {
    require(keys.size() == leaves.size(),
            "tree: pack requires one key for each leaf, got {} keys and {} leaves", keys.size(),
            leaves.size());
    Self result;
    for (size_t i = 0; i < keys.size(); ++i) result.merge(keys[i], leaves[i]);
    return result;
  }
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
  bool has_leaf(std::string_view key) const { return find_leaf(key) != nullptr; }
  /// Returns the leaf at a dotted key, or null if the key is missing or a node.
  const L* find_leaf(std::string_view key) const {
    const Node* e = find(key);
    return e != nullptr && e->leaf ? &*e->leaf : nullptr;
  }

 private:
  template <typename, typename>
  friend class BasicDotTree;

  struct Node {
    std::string key;
    std::optional<L> leaf;
    std::unique_ptr<Self> subtree;
    Node copy() const { return {key, leaf, subtree ? std::make_unique<Self>(*subtree) : nullptr}; }
  };

  const Node* local(std::string_view key) const {
    const auto found =
        std::find_if(nodes_.begin(), nodes_.end(), [&](const Node& e) { return e.key == key; });
    return found == nodes_.end() ? nullptr : &*found;
  }
  Node* local(std::string_view key) { return const_cast<Node*>(std::as_const(*this).local(key)); }

  const Node* find(std::string_view key) const {
    const auto [head, rest] = internal::split_key(key);
    const Node* e = local(head);
    if (e == nullptr || head.size() == key.size()) return e;
    return e->subtree ? e->subtree->find(rest) : nullptr;
  }

  const L& leaf(std::string_view key) const {
    const Node& e = get(key);
    if (!e.leaf) {
      fail(ErrorKind::kUsage, "tree: '{}' is a node with keys {}, not a leaf", key,
           internal::join_keys(e.subtree->keys()));
    }
    return *e.leaf;
  }

  const Node& get(std::string_view key) const {
    const Node* e = find(key);
    if (e == nullptr) {
      fail(ErrorKind::kUsage, "tree: there is no key '{}'; keys are {}", key,
           internal::join_keys(keys_flat()));
    }
    return *e;
  }

  std::string numeric_key(int64_t index) const {
    if (index >= 0) return internal::index_key(index);
    int64_t largest = -1;
    for (const Node& e : nodes_) {
      if (e.key[0] >= '0' && e.key[0] <= '9')
        largest = std::max<int64_t>(largest, std::stoll(e.key));
    }
    if (largest + 1 + index < 0) {
      fail(ErrorKind::kUsage, "tree: there is no key '{}'; keys are {}", index,
           internal::join_keys(keys()));
    }
    return internal::index_key(largest + 1 + index);
  }

  void insert_node(std::string_view key, Node node, Overwrite overwrite) {
    const auto head = internal::split_key(key).first;
    require(overwrite == Overwrite::kYes || local(head) == nullptr, "tree: key '{}' exists already",
            head);
    place(key, std::move(node), overwrite);
  }

  // Checks the whole path before the first change, so that a failed insert changes nothing.
  Node& place(std::string_view key, Node node, Overwrite overwrite) {
    check_place(key, key, overwrite);
    return place_checked(key, std::move(node));
  }

  void check_place(std::string_view key, std::string_view full, Overwrite overwrite) const {
    const auto [head, rest] = internal::split_key(key);
    internal::check_key(head);
    const bool ends = head.size() == key.size();
    if (!ends) internal::check_key(internal::split_key(rest).first);
    const Node* e = local(head);
    require(e == nullptr || overwrite == Overwrite::kYes || (!ends && e->subtree),
            "tree: key '{}' exists already{}", full,
            ends ? "" : fmt::format(" ('{}' is a leaf)", head));
    if (ends) return;
    if (e != nullptr && e->subtree) {
      e->subtree->check_place(rest, full, overwrite);
    } else {
      Self().check_place(rest, full, overwrite);
    }
  }

  Node& place_checked(std::string_view key, Node node) {
    const auto [head, rest] = internal::split_key(key);
    Node* e = local(head);
    if (e == nullptr) {
      nodes_.push_back({std::string(head), {}, nullptr});
      e = &nodes_.back();
    }
    if (rest.empty()) {
      e->leaf = std::move(node.leaf);
      e->subtree = std::move(node.subtree);
      return *e;
    }
    e->leaf.reset();
    if (!e->subtree) e->subtree = std::make_unique<Self>();
    return e->subtree->place_checked(rest, std::move(node));
  }

  void erase(std::string_view key) {
    const auto [head, rest] = internal::split_key(key);
    if (!rest.empty()) return local(head)->subtree->erase(rest);
    std::erase_if(nodes_, [head = head](const Node& e) { return e.key == head; });
  }

  template <typename F>
  void visit(const std::string& prefix, F& f) const {
    for (const Node& e : nodes_) {
      const std::string key = prefix.empty() ? e.key : prefix + "." + e.key;
      if (e.leaf) {
        f(key, *e.leaf);
      } else {
        e.subtree->visit(key, f);
      }
    }
  }

  std::vector<Node> nodes_;
};

/// A tree with leaves of any type.
template <typename L>
class DotTree : public BasicDotTree<L, DotTree<L>> {};

/// Returns a tree with f(leaf) under the key of each leaf.
template <typename L, typename Self, typename F>
auto map(const BasicDotTree<L, Self>& tree, F&& f) {
  DotTree<std::decay_t<decltype(f(std::declval<const L&>()))>> result;
  tree.for_each([&](const std::string& key, const L& leaf) { result.merge(key, f(leaf)); });
  return result;
}

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
  std::string text;
  for (const std::string& key : tree.keys_flat()) {
    text += fmt::format("{}'{}'", text.empty() ? "" : ", ", key);
  }
  return "dict_keys([" + text + "])";
}

}  // namespace sluice::nn
