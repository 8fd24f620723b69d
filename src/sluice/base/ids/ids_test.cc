#include "sluice/base/ids/ids.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <unordered_set>

#include "sluice/base/ids/ids_format.h"

namespace sluice {
namespace {

using RowId = Id<struct RowTag>;
using ColumnId = Id<struct ColumnTag>;

template <typename Table, typename Index>
concept IndexedBy = requires(Table& table, Index index) {
  table[index];
};
template <typename A, typename B>
concept ComparedWith = requires(A a, B b) {
  a == b;
};
template <typename A, typename B>
concept OrderedWith = requires(A a, B b) {
  a < b;
};

using Rows = Ids<RowId, std::string>;
static_assert(IndexedBy<Rows, RowId>);
static_assert(IndexedBy<const Rows, RowId>);
static_assert(!IndexedBy<Rows, ColumnId>);
static_assert(!IndexedBy<Rows, int>);
static_assert(!IndexedBy<Rows, size_t>);
static_assert(!IndexedBy<Rows, Id<struct RowTag, int64_t>>);

static_assert(ComparedWith<RowId, RowId> && OrderedWith<RowId, RowId>);
static_assert(!ComparedWith<RowId, ColumnId> && !OrderedWith<RowId, ColumnId>);

static_assert(!std::is_convertible_v<int, RowId>);
static_assert(!std::is_convertible_v<RowId, ColumnId>);
static_assert(!std::is_constructible_v<RowId, ColumnId>);
static_assert(!std::is_constructible_v<bool, RowId>);
static_assert(std::is_convertible_v<RowId, int64_t>);

static_assert(sizeof(RowId) == sizeof(int32_t));
static_assert(std::is_trivially_copyable_v<RowId>);

TEST(Ids, AreInvalidUnlessGivenANumber) {
  EXPECT_FALSE(RowId().valid());
  EXPECT_EQ(RowId(), RowId(-1));
  EXPECT_TRUE(RowId(0).valid());
  EXPECT_EQ(RowId(3).value(), 3);
  EXPECT_LT(RowId(2), RowId(3));
  EXPECT_EQ(RowId(2) + int64_t{3}, 5);
  EXPECT_TRUE(RowId(-1) < 0 && RowId(1) != 0);
}

TEST(Ids, IndexAndGrowTheirTable) {
  Rows rows{"a", "b"};
  EXPECT_EQ(rows.push_back("c"), RowId(2));
  EXPECT_EQ(rows.end_id(), RowId(3));
  rows[RowId(1)] += "!";
  EXPECT_EQ(rows.items(), (std::vector<std::string>{"a", "b!", "c"}));
  EXPECT_EQ(rows.id_of(rows.back()), RowId(2));
  EXPECT_TRUE(rows.contains(RowId(2)));
  EXPECT_FALSE(rows.contains(RowId(3)));
  EXPECT_FALSE(rows.contains(RowId()));
}

TEST(Ids, AreTraversedInOrder) {
  const Ids<RowId, bool> rows(3, true);
  const std::vector<RowId> ids(rows.ids().begin(), rows.ids().end());
  EXPECT_EQ(ids, (std::vector<RowId>{RowId(0), RowId(1), RowId(2)}));
  for (const RowId row : IdRange(RowId(2), RowId(1))) FAIL() << row;
  EXPECT_TRUE((Ids<RowId, bool>().ids().begin() == Ids<RowId, bool>().ids().end()));
}

TEST(Ids, AreHashedAndFormattedAsNumbers) {
  EXPECT_EQ((std::unordered_set<RowId>{RowId(5), RowId(5)}).size(), 1u);
  EXPECT_EQ(fmt::format("{}|{}", RowId(7), RowId()), "7|-1");
}

TEST(At, ReadsAndWritesASignedPosition) {
  std::vector<int64_t> dims{2, 3};
  at(dims, int32_t{1}) = 4;
  EXPECT_EQ(at(dims, int64_t{1}), 4);
  enum class Axis : uint8_t { kRow, kColumn };
  EXPECT_EQ(at(dims, Axis::kColumn), 4);
}

}  // namespace
}  // namespace sluice
