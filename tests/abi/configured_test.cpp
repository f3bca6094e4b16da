// Which fields of a program's configuration reach the communicators that are made with it; with host ranks.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <functional>
#include <string>

#include "abi/abi_ranks.hpp"

namespace strait::testing {
namespace {

constexpr int ranks = 3;
using Comms = std::array<ncclComm_t, ranks>;

/// Values for a rank's maxCTAs. none: no configuration at all; undefined: a configuration without maxCTAs.
constexpr int none = -1, undefined = NCCL_CONFIG_UNDEF_INT;
/// Values that set CTAPolicy instead of a bound. Of the policies only ZERO has a meaning for Strait.
constexpr int zero = -2, efficiency = -3;
using Bounds = std::array<int, ranks>;

using Make = std::function<ncclResult_t(std::size_t rank, ncclComm_t* made, ncclConfig_t* config)>;

/// Makes communicators of several ranks. Returns whether that succeeds; it fails if the ranks' settings differ.
bool make_all(Comms& comms, const Bounds& bounds, std::size_t first, const Make& make) {
  NCCL_EXPECT_OK(ncclGroupStart());
  for (std::size_t rank = first; rank < ranks; ++rank) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    if (bounds[rank] == zero)
      config.CTAPolicy = NCCL_CTA_POLICY_ZERO | (rank == 0 ? NCCL_CTA_POLICY_EFFICIENCY : 0);
    else if (bounds[rank] == efficiency)
      config.CTAPolicy = NCCL_CTA_POLICY_EFFICIENCY;
    else
      config.maxCTAs = bounds[rank];
    NCCL_EXPECT_OK(make(rank, &comms[rank], bounds[rank] == none ? nullptr : &config));
  }
  const ncclResult_t result = ncclGroupEnd();
  const std::string text = ncclGetLastError(nullptr);
  if (result == ncclSuccess) return true;
  EXPECT_NE(text.find("max_sms is"), std::string::npos) << text;
  return false;
}

bool init(Comms& comms, const Bounds& bounds) {
  ncclUniqueId id;
  NCCL_EXPECT_OK(ncclGetUniqueId(&id));
  return make_all(comms, bounds, 0, [&](std::size_t rank, ncclComm_t* made, ncclConfig_t* config) {
    return ncclCommInitRankConfig(made, ranks, id, static_cast<int>(rank), config);
  });
}

void destroy(const Comms& comms) {
  for (ncclComm_t comm : comms) NCCL_EXPECT_OK(ncclCommDestroy(comm));
}

bool can_init(const Bounds& bounds) {
  Comms comms{};
  const bool made = init(comms, bounds);
  destroy(comms);
  return made;
}

bool can_split(const Comms& parents, const Bounds& bounds) {
  Comms parts{};
  const bool made = make_all(parts, bounds, 0, [&](std::size_t rank, ncclComm_t* part, ncclConfig_t* config) {
    return ncclCommSplit(parents[rank], 0, static_cast<int>(rank), part, config);
  });
  destroy(parts);
  return made;
}

/// Shrinks the communicators by rank 0.
bool can_shrink(const Comms& parents, const Bounds& bounds) {
  Comms fewer{};
  const bool made = make_all(fewer, bounds, 1, [&](std::size_t rank, ncclComm_t* less, ncclConfig_t* config) {
    int excluded[] = {0};
    return ncclCommShrink(parents[rank], excluded, 1, less, config, NCCL_SHRINK_DEFAULT);
  });
  destroy(fewer);
  return made;
}

/// Init succeeds only if all ranks have the same bound.
TEST(MaxCTAs, BoundAllRanks) {
  EXPECT_TRUE(can_init({4, 4, 4}));
  EXPECT_TRUE(can_init({none, undefined, none}));
  EXPECT_FALSE(can_init({4, 8, 4}));
  EXPECT_FALSE(can_init({4, 4, none}));
  EXPECT_FALSE(can_init({4, 4, undefined}));
}

/// Without a configuration of its own, a part has that of the old communicator.
TEST(MaxCTAs, OfPartsAreThoseOfTheOldCommunicatorOrTheirOwn) {
  Comms comms{};
  ASSERT_TRUE(init(comms, {4, 4, 4}));
  for (const auto& can_make : {can_split, can_shrink}) {
    EXPECT_TRUE(can_make(comms, {none, none, none}));
    EXPECT_TRUE(can_make(comms, {4, none, 4}));
    EXPECT_TRUE(can_make(comms, {16, 16, 16}));
    EXPECT_TRUE(can_make(comms, {undefined, undefined, undefined}));
    EXPECT_FALSE(can_make(comms, {16, 16, none}));
    EXPECT_FALSE(can_make(comms, {undefined, undefined, none}));
  }
  destroy(comms);
}

/// Without a configuration of its own, a part has the old communicator's mode; with one that leaves the mode undefined,
/// it is blocking. A shrink needs another rank to leave out.
TEST(Blocking, OfPartsIsThatOfTheOldCommunicatorOrTheirOwn) {
  ncclUniqueId id;
  NCCL_EXPECT_OK(ncclGetUniqueId(&id));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER, in_the_background = NCCL_CONFIG_INITIALIZER;
  in_the_background.blocking = 0;
  std::array<ncclComm_t, 2> comms{};
  for (std::size_t rank = 0; rank < comms.size(); ++rank)
    EXPECT_EQ(ncclCommInitRankConfig(&comms[rank], 2, id, static_cast<int>(rank), &in_the_background), ncclInProgress);
  for (ncclComm_t comm : comms) EXPECT_EQ(await_ready(comm), ncclSuccess);
  for (ncclConfig_t* given : {static_cast<ncclConfig_t*>(nullptr), &config, &in_the_background}) {
    std::array<ncclComm_t, 3> parts{};
    int excluded[] = {1};
    EXPECT_EQ(ncclCommShrink(comms[0], excluded, 1, &parts[2], given, NCCL_SHRINK_DEFAULT), ncclInProgress);
    EXPECT_EQ(await_ready(comms[0]), ncclSuccess);
    for (std::size_t rank = 0; rank < comms.size(); ++rank)
      EXPECT_EQ(ncclCommSplit(comms[rank], static_cast<int>(rank), 0, &parts[rank], given), ncclInProgress);
    for (ncclComm_t part : parts) {
      EXPECT_EQ(await_ready(part), ncclSuccess);
      EXPECT_EQ(ncclCommFinalize(part), given == &config ? ncclSuccess : ncclInProgress);
      EXPECT_EQ(await_ready(part), ncclSuccess);
      NCCL_EXPECT_OK(ncclCommDestroy(part));
    }
    for (ncclComm_t comm : comms) EXPECT_EQ(await_ready(comm), ncclSuccess);
  }
  for (ncclComm_t comm : comms) NCCL_EXPECT_OK(ncclCommDestroy(comm));
}

TEST(CTAPolicy, ZeroAsksForNoSMs) {
  EXPECT_TRUE(can_init({zero, zero, zero}));
  EXPECT_FALSE(can_init({zero, zero, none}));
  EXPECT_FALSE(can_init({zero, 4, 4}));
  EXPECT_TRUE(can_init({efficiency, none, undefined}));
  Comms comms{};
  ASSERT_TRUE(init(comms, {zero, zero, zero}));
  EXPECT_TRUE(can_split(comms, {none, zero, zero}));
  EXPECT_FALSE(can_shrink(comms, {none, zero, efficiency}));
  destroy(comms);
}

TEST(MaxCTAs, AreOverriddenByTheEnvironment) {
  setenv("STRAIT_MAX_SMS", "16", 1);
  EXPECT_TRUE(can_init({4, 8, none}));
  Comms comms{};
  EXPECT_TRUE(init(comms, {4, 8, none}));
  EXPECT_TRUE(can_split(comms, {none, 4, undefined}));
  EXPECT_TRUE(can_shrink(comms, {none, 4, none}));
  destroy(comms);
  setenv("STRAIT_MAX_SMS", "0", 1);  // no bound
  EXPECT_FALSE(can_init({4, 8, none}));
  setenv("STRAIT_MAX_SMS", "none", 1);  // copy engines
  EXPECT_TRUE(can_init({4, 8, none}));
  unsetenv("STRAIT_MAX_SMS");
}

}  // namespace
}  // namespace strait::testing
