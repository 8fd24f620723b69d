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
#include "sluice/nn/basic_dot_tree.h"

namespace sluice::nn {

namespace internal {

/// Requires `key` to be an identifier or a decimal number of at most 18 digits; Error{kUsage}
/// otherwise.
void check_key(std::string_view key);
/// Returns `index` as a key. Error{kUsage} if it is negative.
std::string index_key(int64_t index);
/// Splits "a.b.c" into "a" and "b.c", and "a" into "a" and "".
std::pair<std::string_view, std::string_view> split_key(std::string_view key);
}  // namespace internal

template <typename L, typename Self>
struct BasicDotTree<L, Self>::Node {
  std::string key;
  std::optional<L> leaf;
  std::unique_ptr<Self> subtree;
  Node copy() const { return {key, leaf, subtree ? std::make_unique<Self>(*subtree) : nullptr}; }
};

template <typename L, typename Self>
BasicDotTree<L, Self>::BasicDotTree() = default;

template <typename L, typename Self>
BasicDotTree<L, Self>::~BasicDotTree() = default;

template <typename L, typename Self>
BasicDotTree<L, Self>::BasicDotTree(BasicDotTree&&) noexcept = default;

template <typename L, typename Self>
BasicDotTree<L, Self>& BasicDotTree<L, Self>::operator=(BasicDotTree&&) noexcept = default;

template <typename L, typename Self>
BasicDotTree<L, Self>::BasicDotTree(const BasicDotTree& other) {
  nodes_.reserve(other.nodes_.size());
  for (const auto& e : other.nodes_) append(std::make_unique<Node>(e->copy()));
}

template <typename L, typename Self>
BasicDotTree<L, Self>& BasicDotTree<L, Self>::operator=(const BasicDotTree& other) {
  if (this != &other) *this = BasicDotTree(other);
  return *this;
}

template <typename L, typename Self>
void BasicDotTree<L, Self>::insert(std::string_view key, L leaf, Overwrite overwrite) {
  insert_node(key, Node{{}, std::move(leaf), nullptr}, overwrite);
}

template <typename L, typename Self>
void BasicDotTree<L, Self>::insert(std::string_view key, Self subtree, Overwrite overwrite) {
  insert_node(key, Node{{}, {}, std::make_unique<Self>(std::move(subtree))}, overwrite);
}

template <typename L, typename Self>
void BasicDotTree<L, Self>::insert(int64_t index, L leaf, Overwrite overwrite) {
  insert(internal::index_key(index), std::move(leaf), overwrite);
}

template <typename L, typename Self>
void BasicDotTree<L, Self>::insert(int64_t index, Self subtree, Overwrite overwrite) {
  insert(internal::index_key(index), std::move(subtree), overwrite);
}

template <typename L, typename Self>
void BasicDotTree<L, Self>::merge(std::string_view key, L leaf) {
  put_node(key, Node{{}, std::move(leaf), nullptr}, Overwrite::kNo);
}

template <typename L, typename Self>
Self& BasicDotTree<L, Self>::node(std::string_view key) {
  if (const Node* found = find(key)) {
    require(found->subtree != nullptr, "tree: '{}' is a leaf, not a node", key);
    return *found->subtree;
  }
  return *put_node(key, Node{{}, {}, std::make_unique<Self>()}, Overwrite::kNo).subtree;
}

template <typename L, typename Self>
void BasicDotTree<L, Self>::update(const Self& other, Overwrite overwrite) {
  for (const auto& e : other.nodes_) {
    require(overwrite == Overwrite::kYes || local(e->key) == nullptr,
            "tree: key '{}' exists already", e->key);
  }
  for (size_t i = 0, count = other.nodes_.size(); i < count; ++i) {
    const Node& e = *other.nodes_[i];
    if (Node* old = local(e.key)) {
      *old = e.copy();
    } else {
      append(std::make_unique<Node>(e.copy()));
    }
  }
}

template <typename L, typename Self>
const Self& BasicDotTree<L, Self>::tree(std::string_view key) const {
  const Node& e = get(key);
  require(e.subtree != nullptr, "tree: '{}' is a leaf, not a node", key);
  return *e.subtree;
}

template <typename L, typename Self>
const Self& BasicDotTree<L, Self>::tree(int64_t index) const {
  return tree(numeric_key(index));
}

template <typename L, typename Self>
L BasicDotTree<L, Self>::pop(std::string_view key) {
  L leaf = (*this)[key];
  erase(key);
  return leaf;
}

template <typename L, typename Self>
Self BasicDotTree<L, Self>::pop_tree(std::string_view key) {
  Self subtree = tree(key);
  erase(key);
  return subtree;
}

template <typename L, typename Self>
void BasicDotTree<L, Self>::clear() {
  std::erase_if(index_, [](const auto& e) { return e.second->leaf.has_value(); });
  std::erase_if(nodes_, [](const auto& e) { return e->leaf.has_value(); });
  for (const auto& e : nodes_) e->subtree->clear();
}

template <typename L, typename Self>
Self BasicDotTree<L, Self>::filter_keys(const std::vector<std::string>& keys) const {
  Self result;
  for (const std::string& key : keys) {
    require(result.find(key) == nullptr, "tree: key '{}' is given twice", key);
    result.put_node(key, get(key).copy(), Overwrite::kNo);
  }
  return result;
}

template <typename L, typename Self>
bool BasicDotTree<L, Self>::contains(std::string_view key) const {
  return find(key) != nullptr;
}

template <typename L, typename Self>
size_t BasicDotTree<L, Self>::size() const {
  return nodes_.size();
}

template <typename L, typename Self>
size_t BasicDotTree<L, Self>::size_flat() const {
  return to_dict().size();
}

template <typename L, typename Self>
bool BasicDotTree<L, Self>::empty() const {
  return nodes_.empty();
}

template <typename L, typename Self>
std::vector<std::string> BasicDotTree<L, Self>::keys() const {
  std::vector<std::string> result;
  for (const auto& e : nodes_) result.push_back(e->key);
  return result;
}

template <typename L, typename Self>
std::vector<std::string> BasicDotTree<L, Self>::keys_flat() const {
  std::vector<std::string> result;
  for_each([&](const std::string& key, const L&) { result.push_back(key); });
  return result;
}

template <typename L, typename Self>
std::vector<L> BasicDotTree<L, Self>::values_flat() const {
  std::vector<L> result;
  for_each([&](const std::string&, const L& leaf) { result.push_back(leaf); });
  return result;
}

template <typename L, typename Self>
std::vector<std::pair<std::string, L>> BasicDotTree<L, Self>::to_dict() const {
  std::vector<std::pair<std::string, L>> result;
  for_each([&](const std::string& key, const L& leaf) { result.emplace_back(key, leaf); });
  return result;
}

template <typename L, typename Self>
Self BasicDotTree<L, Self>::from_dict(const std::vector<std::pair<std::string, L>>& leaves) {
  Self result;
  for (const auto& [key, leaf] : leaves) result.merge(key, leaf);
  return result;
}

template <typename L, typename Self>
std::pair<std::vector<std::string>, std::vector<L>> BasicDotTree<L, Self>::unpack() const {
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

template <typename L, typename Self>
Self BasicDotTree<L, Self>::pack(const std::vector<std::string>& keys,
                                 const std::vector<L>& leaves) {
  require(keys.size() == leaves.size(),
          "tree: pack requires one key for each leaf, got {} keys and {} leaves", keys.size(),
          leaves.size());
  Self result;
  for (size_t i = 0; i < keys.size(); ++i) result.merge(keys[i], leaves[i]);
  return result;
}

template <typename L, typename Self>
bool BasicDotTree<L, Self>::has_leaf(std::string_view key) const {
  return find_leaf(key) != nullptr;
}

template <typename L, typename Self>
const L* BasicDotTree<L, Self>::find_leaf(std::string_view key) const {
  const Node* e = find(key);
  return e != nullptr && e->leaf ? &*e->leaf : nullptr;
}

template <typename L, typename Self>
const typename BasicDotTree<L, Self>::Node* BasicDotTree<L, Self>::local(
    std::string_view key) const {
  if (!index_.empty()) {
    const auto known = index_.find(key);
    return known == index_.end() ? nullptr : known->second;
  }
  const auto found =
      std::find_if(nodes_.begin(), nodes_.end(), [&](const auto& e) { return e->key == key; });
  return found == nodes_.end() ? nullptr : found->get();
}

template <typename L, typename Self>
typename BasicDotTree<L, Self>::Node* BasicDotTree<L, Self>::local(std::string_view key) {
  return const_cast<Node*>(std::as_const(*this).local(key));
}

template <typename L, typename Self>
const typename BasicDotTree<L, Self>::Node* BasicDotTree<L, Self>::find(
    std::string_view key) const {
  const auto [head, rest] = internal::split_key(key);
  const Node* e = local(head);
  if (e == nullptr || head.size() == key.size()) return e;
  return e->subtree ? e->subtree->find(rest) : nullptr;
}

template <typename L, typename Self>
const L& BasicDotTree<L, Self>::leaf(std::string_view key) const {
  const Node& e = get(key);
  if (!e.leaf) {
    fail(ErrorKind::kUsage, "tree: '{}' is a node with keys {}, not a leaf", key,
         internal::join_keys(e.subtree->keys()));
  }
  return *e.leaf;
}

template <typename L, typename Self>
const typename BasicDotTree<L, Self>::Node& BasicDotTree<L, Self>::get(std::string_view key) const {
  const Node* e = find(key);
  if (e == nullptr) {
    fail(ErrorKind::kUsage, "tree: there is no key '{}'; keys are {}", key,
         internal::join_keys(keys_flat()));
  }
  return *e;
}

template <typename L, typename Self>
std::string BasicDotTree<L, Self>::numeric_key(int64_t index) const {
  if (index >= 0) return internal::index_key(index);
  int64_t largest = -1;
  for (const auto& e : nodes_) {
    if (e->key[0] >= '0' && e->key[0] <= '9')
      largest = std::max<int64_t>(largest, std::stoll(e->key));
  }
  if (largest + 1 + index < 0) {
    fail(ErrorKind::kUsage, "tree: there is no key '{}'; keys are {}", index,
         internal::join_keys(keys()));
  }
  return internal::index_key(largest + 1 + index);
}

template <typename L, typename Self>
void BasicDotTree<L, Self>::insert_node(std::string_view key, Node node, Overwrite overwrite) {
  const auto head = internal::split_key(key).first;
  require(overwrite == Overwrite::kYes || local(head) == nullptr, "tree: key '{}' exists already",
          head);
  put_node(key, std::move(node), overwrite);
}

template <typename L, typename Self>
typename BasicDotTree<L, Self>::Node& BasicDotTree<L, Self>::put_node(std::string_view key,
                                                                      Node node,
                                                                      Overwrite overwrite) {
  check_place(key, key, overwrite);
  return place_checked(key, std::move(node));
}

template <typename L, typename Self>
void BasicDotTree<L, Self>::check_place(std::string_view key, std::string_view full,
                                        Overwrite overwrite) const {
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

template <typename L, typename Self>
typename BasicDotTree<L, Self>::Node& BasicDotTree<L, Self>::place_checked(std::string_view key,
                                                                           Node node) {
  const auto [head, rest] = internal::split_key(key);
  Node* e = local(head);
  if (e == nullptr) {
    e = &append(std::make_unique<Node>(Node{std::string(head), {}, nullptr}));
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

template <typename L, typename Self>
void BasicDotTree<L, Self>::erase(std::string_view key) {
  const auto [head, rest] = internal::split_key(key);
  if (!rest.empty()) return local(head)->subtree->erase(rest);
  if (const auto known = index_.find(head); known != index_.end()) index_.erase(known);
  std::erase_if(nodes_, [head = head](const auto& e) { return e->key == head; });
}

template <typename L, typename Self>
typename BasicDotTree<L, Self>::Node& BasicDotTree<L, Self>::append(std::unique_ptr<Node> node) {
  constexpr size_t kFew = 16;  // A scan of fewer nodes is faster than a map.
  nodes_.push_back(std::move(node));
  Node& added = *nodes_.back();
  if (!index_.empty()) {
    index_.emplace(added.key, &added);
  } else if (nodes_.size() > kFew) {
    for (const auto& e : nodes_) index_.emplace(e->key, e.get());
  }
  return added;
}

template <typename L, typename Self>
void BasicDotTree<L, Self>::visit(const std::string& prefix, Visitor call, void* object) const {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& e = *nodes_[i];
    const std::string key = prefix.empty() ? e.key : prefix + "." + e.key;
    if (e.leaf) {
      call(object, key, *e.leaf);
    } else {
      e.subtree->visit(key, call, object);
    }
  }
}

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

}  // namespace sluice::nn
