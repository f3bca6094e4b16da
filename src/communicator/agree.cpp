#include "communicator/agree.hpp"

#include <cstddef>
#include <span>

namespace strait {

Status agree(Channel& channel, const Status& own, const std::string& what, const Deadline& deadline) {
  const std::string text = own ? "" : own.error().message;
  auto all = channel.all_gather(std::as_bytes(std::span(text)), {deadline, nullptr});
  if (!own) return own;
  if (!all) return tl::unexpected(all.error());
  for (std::size_t i = 0; i < all->size(); ++i)
    if (const auto& message = (*all)[i]; !message.empty())
      return fail(Code::remote_error, channel.peers()[i].describe() + " cannot " + what + ": " +
                                          std::string(reinterpret_cast<const char*>(message.data()), message.size()));
  return {};
}

}  // namespace strait
