#pragma once

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <vector>

namespace strait::trace {

/// Takes apart what earlier runs have left in the folder, the oldest first. A file that was written before a writer of
/// another one began to exist is of an earlier run than that one, unless both are of one communicator: clocks of
/// several hosts differ. `item.unix_us`: when it was written; `item.communicator`: its number, "" if there is none;
/// `item.*began`: when its writer began, 0 if that is not known.
template <class Item>
std::vector<std::vector<Item>> by_age(std::vector<Item> items, double Item::*began) {
  std::vector<std::vector<Item>> runs;
  while (!items.empty()) {
    const double newest = (*std::ranges::max_element(items, {}, began)).*began;
    const auto is_older = [&](const Item& item) { return item.unix_us < newest && item.*began < newest; };
    std::set<std::string> communicators;
    for (const Item& item : items)
      if (!item.communicator.empty() && !is_older(item)) communicators.insert(item.communicator);
    const auto current = std::stable_partition(items.begin(), items.end(), [&](const Item& item) {
      return is_older(item) && !communicators.contains(item.communicator);
    });
    runs.emplace_back(std::make_move_iterator(current), std::make_move_iterator(items.end()));
    items.erase(current, items.end());
  }
  std::ranges::reverse(runs);
  return runs;
}

}  // namespace strait::trace
