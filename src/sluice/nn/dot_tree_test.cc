#include "sluice/nn/dot_tree.h"

#include <gtest/gtest.h>

#include "sluice/ir/ir.h"
#include "sluice/nn/named_tensors.h"
#include "sluice/nn/test_util.h"

namespace sluice::nn {
namespace {

using Tree = DotTree<std::string>;
using Dict = std::vector<std::pair<std::string, std::string>>;
using Keys = std::vector<std::string>;

Tree sample() {
  return Tree::from_dict(
      {{"fc1.weight", "w1"}, {"fc1.bias", "b1"}, {"fc2.weight", "w2"}, {"x", "x"}});
}

TEST(DotTree, DotsNest) {
  const Tree tree = sample();
  EXPECT_EQ(tree.keys(), (Keys{"fc1", "fc2", "x"}));
  EXPECT_EQ(tree.keys_flat(), (Keys{"fc1.weight", "fc1.bias", "fc2.weight", "x"}));
  EXPECT_EQ(tree.values_flat(), (Keys{"w1", "b1", "w2", "x"}));
  EXPECT_EQ(tree.size(), 3u);
  EXPECT_EQ(tree.size_flat(), 4u);
  EXPECT_EQ(tree["fc1.bias"], "b1");
  EXPECT_EQ(tree.tree("fc1").to_dict(), (Dict{{"weight", "w1"}, {"bias", "b1"}}));
  EXPECT_TRUE(tree.contains("fc1"));
  EXPECT_TRUE(tree.contains("fc1.bias"));
  EXPECT_FALSE(tree.contains("fc1.x"));
  EXPECT_FALSE(tree.contains("x.y"));
  EXPECT_FALSE(tree.contains("x."));
  EXPECT_TRUE(tree.has_leaf("x"));
  EXPECT_FALSE(tree.has_leaf("fc1"));
}

TEST(DotTree, ReferencesStayValidWhileTheTreeGrows) {
  Tree tree = sample();
  const std::string& leaf = tree["fc1.bias"];
  const Tree& node = tree.tree("fc1");
  for (int i = 0; i < 100; ++i) tree.insert(fmt::format("more{}", i), std::string("more"));
  tree.merge("fc1.more", "more");
  tree.pop("fc1.weight");
  EXPECT_EQ(&tree["fc1.bias"], &leaf);
  EXPECT_EQ(&tree.tree("fc1"), &node);
  EXPECT_EQ(leaf, "b1");
}

TEST(DotTree, InsertRefusesWhatExists) {
  Tree tree;
  tree.insert("a.b", std::string("1"));
  // The first part of a dotted key must be new, even if only a sibling exists.
  EXPECT_NE(usage_error([&] { tree.insert("a.c", std::string("2")); }).find("'a' exists"),
            std::string::npos);
  EXPECT_NE(usage_error([&] { tree.insert("a", std::string("2")); }).find("'a' exists"),
            std::string::npos);
  tree.insert("a.c", std::string("2"), Overwrite::kYes);
  EXPECT_EQ(tree.to_dict(), (Dict{{"a.b", "1"}, {"a.c", "2"}}));
  tree.insert("a.b", std::string("3"), Overwrite::kYes);
  EXPECT_EQ(tree["a.b"], "3");
  // A leaf at a prefix of the key is replaced only with overwrite.
  EXPECT_NE(usage_error([&] { tree.merge("a.b.d", "4"); }).find("is a leaf"), std::string::npos);
  tree.insert("a.b.d", std::string("4"), Overwrite::kYes);
  EXPECT_EQ(tree.to_dict(), (Dict{{"a.b.d", "4"}, {"a.c", "2"}}));
}

TEST(DotTree, ARefusedInsertLeavesNoTrace) {
  Tree tree;
  usage_error([&] { tree.insert("new.path.not valid", std::string("1")); });
  usage_error([&] { tree.insert("new..x", std::string("1")); });
  usage_error([&] { tree.insert("new.", std::string("1")); });
  EXPECT_TRUE(tree.empty());
}

TEST(DotTree, KeysAreIdentifiersOrNumbers) {
  Tree tree;
  for (const char* bad : {"", "a-b", "1a", " a", "a b", "-1", "a.1b"}) {
    usage_error([&] { tree.insert(bad, std::string("1")); });
  }
  for (const char* good : {"a", "_", "A1", "0", "12", "map", "b.0.c"})
    tree.insert(good, std::string("1"));
  EXPECT_EQ(tree.size(), 7u);
}

TEST(DotTree, NumericKeysCountFromTheEnd) {
  Tree tree;
  usage_error([&] { tree.insert(-1, std::string("x")); });
  tree.insert(0, std::string("zero"));
  tree.insert(2, std::string("two"));
  tree.insert("name", std::string("n"));
  EXPECT_EQ(tree[2], "two");
  EXPECT_EQ(tree["2"], "two");
  EXPECT_EQ(tree[-1], "two");
  EXPECT_EQ(tree[-3], "zero");
  usage_error([&] { tree[-2]; });
  usage_error([&] { tree[-4]; });
}

TEST(DotTree, MissingKeysNameTheKeysThereAre) {
  const Tree tree = sample();
  EXPECT_EQ(usage_error([&] { tree["fc1.wieght"]; }),
            "tree: there is no key 'fc1.wieght'; keys are fc1.weight, fc1.bias, fc2.weight, x");
  EXPECT_EQ(usage_error([&] { tree["fc1"]; }),
            "tree: 'fc1' is a node with keys weight, bias, not a leaf");
  EXPECT_EQ(usage_error([&] { tree.tree("x"); }), "tree: 'x' is a leaf, not a node");
}

TEST(DotTree, UpdateInsertsTopKeysOrNothing) {
  Tree tree = Tree::from_dict({{"a.b", "1"}});
  const Tree clash = Tree::from_dict({{"c", "2"}, {"a.d", "3"}});
  usage_error([&] { tree.update(clash); });
  EXPECT_EQ(tree.to_dict(), (Dict{{"a.b", "1"}}));
  tree.update(Tree::from_dict({{"c", "2"}}));
  EXPECT_EQ(tree.to_dict(), (Dict{{"a.b", "1"}, {"c", "2"}}));
  tree.update(clash, Overwrite::kYes);
  EXPECT_EQ(tree.to_dict(), (Dict{{"a.d", "3"}, {"c", "2"}}));
}

TEST(DotTree, PopFilterClearCopy) {
  Tree tree = sample();
  Tree copy = tree;
  EXPECT_EQ(tree.pop("fc1.weight"), "w1");
  EXPECT_EQ(tree.pop_tree("fc2").to_dict(), (Dict{{"weight", "w2"}}));
  EXPECT_EQ(tree.keys_flat(), (Keys{"fc1.bias", "x"}));
  usage_error([&] { tree.pop("fc2"); });
  EXPECT_EQ(copy.size_flat(), 4u) << "copies are independent";

  EXPECT_EQ(copy.filter_keys({"x", "fc1.bias"}).to_dict(), (Dict{{"x", "x"}, {"fc1.bias", "b1"}}));
  usage_error([&] { copy.filter_keys({"x", "x"}); });
  usage_error([&] { copy.filter_keys({"y"}); });

  copy.clear();
  EXPECT_EQ(copy.size_flat(), 0u);
  EXPECT_EQ(copy.keys(), (Keys{"fc1", "fc2"})) << "nodes stay";
}

TEST(DotTree, UnpackSortsPackInverts) {
  const Tree tree = sample();
  const auto [keys, leaves] = tree.unpack();
  EXPECT_EQ(keys, (Keys{"fc1.bias", "fc1.weight", "fc2.weight", "x"}));
  EXPECT_EQ(leaves, (Keys{"b1", "w1", "w2", "x"}));
  EXPECT_EQ(Tree::pack(keys, leaves).unpack(), tree.unpack());
  usage_error([&] { Tree::pack({"a"}, {}); });
  usage_error([&] { Tree::from_dict({{"a", "1"}, {"a", "2"}}); });
  usage_error([&] { Tree::from_dict({{"a", "1"}, {"a.b", "2"}}); });
}

TEST(DotTree, MapAndMapping) {
  const Tree tree = sample();
  const DotTree<size_t> sizes = map(tree, [](const std::string& s) { return s.size(); });
  EXPECT_EQ(to_string(sizes), "{'fc1.weight': 2, 'fc1.bias': 2, 'fc2.weight': 2, 'x': 1}");
  const auto pairs =
      tree.to_mapping(DotTree<size_t>::from_dict({{"x", 7}, {"fc1", 1}, {"fc2.weight", 9}}));
  ASSERT_EQ(pairs.size(), 2u);
  EXPECT_EQ(pairs[0], (std::pair<std::string, size_t>{"w2", 9}));
  EXPECT_EQ(pairs[1], (std::pair<std::string, size_t>{"x", 7}));
  EXPECT_EQ(to_string(DotTree<int>()), "{}");
}

TEST(NamedTensors, SortsByTensorNameAndRemaps) {
  Ir ir;
  Graph& main = ir.main_graph();
  const Tensor a = main.variable(TensorSpec{{2}, f32, {}}, Initializer::constant(0), "a");
  const Tensor b = main.variable(TensorSpec{{3}, f32, {}}, Initializer::constant(0), "b");
  NamedTensors named = NamedTensors::from_dict({{"y.first", b}, {"z", a}});
  EXPECT_EQ(named.tensors(), (Tensors{a, b}));
  EXPECT_EQ(named.unpack().second, (Tensors{b, a})) << "by key";
  EXPECT_EQ(
      to_string(named),
      "{'y.first': Tensor[b popxl.dtypes.float32 (3,)], 'z': Tensor[a popxl.dtypes.float32 (2,)]}");
  EXPECT_EQ(
      table(named),
      "y.first  Tensor[b popxl.dtypes.float32 (3,)]\nz        Tensor[a popxl.dtypes.float32 (2,)]");
  EXPECT_EQ(named.remap({{a, b}, {b, a}}).to_dict(),
            NamedTensors::from_dict({{"y.first", a}, {"z", b}}).to_dict());
  usage_error([&] { named.remap({{a, b}}); });
}

}  // namespace
}  // namespace sluice::nn
